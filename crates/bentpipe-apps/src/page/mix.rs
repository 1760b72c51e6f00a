//! The pages that a workload fetches: one, or several of which each run draws one; with sizes that are drawn or fixed.

use super::{HTML_BYTES_MAX, OBJECT_BYTES_MAX, PageSpec, html, is_html};
use bentpipe_net::distribution::{Amount as _, Drawn};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::{Seed, unit};
use bentpipe_net::units::DataSize;
use serde::Deserialize;

/// One of several pages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageChoice {
    /// Its share of the runs, compared with the others'; default 1.
    pub weight: Option<f64>,
    pub bytes: Option<Drawn<DataSize>>,
    pub objects: Option<Vec<Drawn<DataSize>>>,
}

/// Pages of a workload, and how often each is fetched.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pages: Vec<PageChoice>,
    /// The path was chosen: sizes do not name it.
    has_path: bool,
}

/// Pages of a mix.
const PAGES_MAX: usize = 1000;

impl Mix {
    /// `pages`, or else `one`; each is checked with its largest sizes in `spec`.
    pub fn read(
        pages: Option<Vec<PageChoice>>,
        one: PageChoice,
        has_path: bool,
        spec: &PageSpec,
    ) -> Result<Mix, KeyProblem> {
        let Some(pages) = pages else {
            let mix = Mix { pages: vec![one], has_path };
            mix.check(0, spec)?;
            return Ok(mix);
        };
        if one.bytes.is_some() || one.objects.is_some() || has_path {
            return Err(KeyProblem::new("pages", "allowed: either pages, or bytes, objects and path of one page"));
        }
        if !(1..=PAGES_MAX).contains(&pages.len()) {
            return Err(KeyProblem::new("pages", format!("has {} pages; allowed: 1 to {PAGES_MAX}", pages.len())));
        }
        let mix = Mix { pages, has_path };
        for (number, page) in mix.pages.iter().enumerate() {
            let under = |problem: KeyProblem| problem.under(&format!("pages.{number}"));
            if page.weight.is_some_and(|weight| !(weight.is_finite() && weight > 0.0)) {
                return Err(under(KeyProblem::new("weight", "is no share; allowed: a number above 0")));
            }
            mix.check(number, spec).map_err(under)?;
        }
        Ok(mix)
    }

    /// Refuses a page that cannot be fetched with some of the sizes that may be drawn.
    fn check(&self, number: usize, spec: &PageSpec) -> Result<(), KeyProblem> {
        let page = &self.pages[number];
        let bounded = |key: &'static str, size: &Drawn<DataSize>, most: u64| match size.most() {
            Some(_) => Ok(()),
            None => {
                let what = format!(
                    "a drawn size needs a bound; allowed: most = \"…\", up to {}",
                    DataSize::from_base(most as f64)
                );
                Err(KeyProblem::new(key, what))
            }
        };
        page.bytes.iter().try_for_each(|size| bounded("bytes", size, HTML_BYTES_MAX))?;
        page.objects.iter().flatten().try_for_each(|size| bounded("objects", size, OBJECT_BYTES_MAX))?;
        for largest in [false, true] {
            let size = |size: &Drawn<DataSize>| if largest { size.most().unwrap_or_default() } else { size.least() };
            self.page(spec, page, &mut |_, drawn| size(drawn)).check()?;
        }
        Ok(())
    }

    /// The page, if every run fetches the same.
    pub fn only(&self, spec: &PageSpec) -> Option<PageSpec> {
        let [page] = &self.pages[..] else { return None };
        let mut sizes = page.bytes.iter().chain(page.objects.iter().flatten());
        sizes.all(|size| size.fixed().is_some()).then(|| self.page(spec, page, &mut |_, size| size.least()))
    }

    /// The page of the run with this seed.
    pub fn draw(&self, spec: &PageSpec, seed: Seed) -> PageSpec {
        let weight = |page: &PageChoice| page.weight.unwrap_or(1.0);
        let mut left = unit(&mut seed.stream("page")) * self.pages.iter().map(weight).sum::<f64>();
        let chosen = self.pages.iter().find(|page| {
            left -= weight(page);
            left < 0.0
        });
        // Rounding may leave a rest.
        let page = chosen.unwrap_or(&self.pages[self.pages.len() - 1]);
        self.page(spec, page, &mut |number, size| size.draw(|| seed.stream(&format!("size/{number}"))))
    }

    /// `spec` with a page's sizes; `size` is asked for each, by its number: 0 for the page, then its objects.
    fn page(
        &self,
        spec: &PageSpec,
        page: &PageChoice,
        size: &mut dyn FnMut(usize, &Drawn<DataSize>) -> DataSize,
    ) -> PageSpec {
        let objects = page.objects.iter().flatten().enumerate();
        let objects: Vec<u64> = objects.map(|(number, drawn)| size(number + 1, drawn).bytes).collect();
        let bytes = page.bytes.as_ref().map(|drawn| size(0, drawn).bytes);
        let path = match bytes {
            // A page without objects is a single file of that size.
            Some(bytes) if objects.is_empty() && !self.has_path => format!("/bytes/{bytes}"),
            _ => spec.path.clone(),
        };
        let mut html_bytes = bytes.unwrap_or(spec.html_bytes);
        if is_html(&path) && page.bytes.as_ref().is_some_and(|drawn| drawn.fixed().is_none()) {
            // A draw may be too small to show all objects.
            html_bytes = html_bytes.max(html(0, &objects).len() as u64);
        }
        PageSpec { html_bytes, objects, path, ..spec.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(text: &str) -> Result<Mix, KeyProblem> {
        #[derive(Deserialize)]
        struct Keys {
            pages: Vec<PageChoice>,
        }
        let keys: Keys = toml::from_str(text).unwrap();
        let one = PageChoice { weight: None, bytes: None, objects: None };
        Mix::read(Some(keys.pages), one, false, &PageSpec::default())
    }

    #[test]
    fn pages_come_by_their_weights_with_sizes_of_their_own() {
        let mix =
            mix("pages = [{ weight = 3, bytes = '20 kB', objects = [{ distribution = 'lognormal', mean = '30 kB', \
             deviation = '40 kB', most = '200 kB' }, '5 kB'] }, { bytes = '1 kB' }]")
            .unwrap();
        let spec = PageSpec::default();
        assert!(mix.only(&spec).is_none());
        let drawn: Vec<PageSpec> = (0..4000).map(|n| mix.draw(&spec, Seed(n))).collect();
        let (with_objects, single): (Vec<_>, Vec<_>) = drawn.iter().partition(|page| !page.objects.is_empty());
        assert!((2900..3100).contains(&with_objects.len()), "{}", with_objects.len());
        assert!(single.iter().all(|page| page.path == "/bytes/1000"));
        assert!(with_objects.iter().all(|page| page.html_bytes == 20_000 && page.objects[1] == 5000));
        let mean = with_objects.iter().map(|page| page.objects[0] as f64).sum::<f64>() / with_objects.len() as f64;
        // A little below the mean of the distribution, whose tail is cut.
        assert!((24_000.0..31_000.0).contains(&mean), "{mean}");
        assert_eq!(mix.draw(&spec, Seed(5)).objects, mix.draw(&spec, Seed(5)).objects);
    }

    #[test]
    fn mistakes_name_the_page() {
        for (text, key, message) in [
            ("pages = []", "pages", "1 to 1000"),
            ("pages = [{}, { weight = 0 }]", "pages.1.weight", "above 0"),
            ("pages = [{ bytes = { distribution = 'exponential', mean = '5 kB' } }]", "pages.0.bytes", "most"),
            ("pages = [{ bytes = '20 MB', objects = ['1 B'] }]", "pages.0.bytes", "allowed"),
        ] {
            let problem = mix(text).unwrap_err();
            assert_eq!(problem.key, key, "{text}");
            assert!(problem.message.contains(message), "{text}: {}", problem.message);
        }
    }
}
