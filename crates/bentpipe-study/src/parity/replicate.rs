//! Several copies of a network side by side, so that one live run gives several independent samples.

use bentpipe_lab::scenario::Scenario;
use bentpipe_net::problem::Problem;
use toml::{Table, Value};

/// Why a scenario cannot be laid side by side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicateError {
    /// The scenario itself is wrong.
    #[error(transparent)]
    Scenario(#[from] Problem),
    /// It is more than one link and its programs.
    #[error("{file}: {what}; a parity scenario has one link, no cases and no commands")]
    Shape {
        /// The scenario's file.
        file: String,
        /// The obstacle.
        what: &'static str,
    },
}

/// `copies` of the scenario's network in one case: link `sat` becomes `sat-1`, `sat-2`…, site `hub` `hub-1`…, workload
/// `image` `image 1`…. Random streams are keyed by these names, so the copies are independent. `seed` replaces the
/// file's.
pub fn replicate(file: &str, text: &str, copies: usize, seed: u64) -> Result<Scenario, ReplicateError> {
    let original = Scenario::parse(file, text, &[])?;
    let shape = |what| Err(ReplicateError::Shape { file: file.to_owned(), what });
    let [case] = original.cases.as_slice() else { return shape("it has several cases") };
    if case.links.len() != 1 {
        return shape("it has several links");
    }
    if case.commands().next().is_some() {
        return shape("it runs a command");
    }
    // The text was read once already.
    let Ok(table) = text.parse::<Table>() else { return shape("it is not TOML") };
    let mut laid = Table::new();
    for (key, value) in &table {
        match (key.as_str(), value) {
            ("links" | "hosts" | "gateways", Value::Table(items)) => {
                let copied = (1..=copies).flat_map(|copy| {
                    items.iter().map(move |(name, item)| (format!("{name}-{copy}"), renamed(item, copy, ["between"])))
                });
                laid.insert(key.clone(), Value::Table(copied.collect()));
            }
            ("workloads" | "services", Value::Array(items)) => {
                let named = key == "workloads";
                let mut copied = Vec::new();
                for copy in 1..=copies {
                    for (i, item) in items.iter().enumerate() {
                        let workload = case.workloads.iter().find(|workload| named && workload.entry == i);
                        let placement = workload.map_or_else(|| &case.services[i].placement, |w| &w.placement);
                        let mut item = renamed(item, copy, placement.kind.roles().iter().map(|role| role.key));
                        if let (Some(workload), Value::Table(item)) = (workload, &mut item) {
                            let name = format!("{} {copy}", workload.id.name);
                            item.insert("name".to_owned(), Value::String(name));
                        }
                        copied.push(item);
                    }
                }
                laid.insert(key.clone(), Value::Array(copied));
            }
            ("cases", _) => return shape("it has cases"),
            _ => {
                laid.insert(key.clone(), value.clone());
            }
        }
    }
    laid.insert("seed".to_owned(), Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX)));
    Ok(Scenario::parse(file, &laid.to_string(), &[])?)
}

/// An item with the copy's number behind the names of sites, which stand at `keys`.
fn renamed<'a>(item: &Value, copy: usize, keys: impl IntoIterator<Item = &'a str>) -> Value {
    let mut item = item.clone();
    for key in keys {
        let sites = match item.get_mut(key) {
            Some(Value::Array(sites)) => &mut sites[..],
            Some(site) => std::slice::from_mut(site),
            None => &mut [],
        };
        for site in sites {
            if let Value::String(site) = site {
                site.push_str(&format!("-{copy}"));
            }
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = 'x'\nseed = 3\n[links.sat]\nkind = 'acts-t1'\nbetween = ['hub', 'pc']\n\
                        [hosts.hub.tcp]\nsack = false\n[gateways.sat]\n\
                        [[workloads]]\nname = 'image'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '1 kB'\n\
                        [[workloads]]\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\n";

    #[test]
    fn copies_have_their_own_names() {
        let scenario = replicate("x.toml", TEXT, 2, 9).unwrap();
        assert_eq!(scenario.seed, 9);
        let case = &scenario.cases[0];
        let links: Vec<_> = case.links.iter().map(|link| (link.name.as_str(), link.sites.join(" "))).collect();
        assert_eq!(links, [("sat-1", "hub-1 pc-1".to_owned()), ("sat-2", "hub-2 pc-2".to_owned())]);
        let gateways: Vec<_> = case.pairs.iter().flat_map(|pair| &pair.sites).cloned().collect();
        assert_eq!(gateways, ["hub-1-gateway", "pc-1-gateway", "hub-2-gateway", "pc-2-gateway"]);
        let workloads: Vec<_> =
            case.workloads.iter().map(|w| format!("{}: {}", w.id, w.placement.parties[0].site)).collect();
        assert_eq!(workloads.len(), 4);
        assert_eq!(workloads[0], "image 1: pc-1");
        assert_eq!(workloads[2], "image 2: pc-2");
        assert_eq!(case.tcp["hub-2"].sack, Some(false));
        assert_eq!(case.tcp["pc-2"].sack, Some(true));
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let second = format!("{TEXT}[links.lan]\nkind = 'lan'\nbetween = ['pc', 'x']\n");
        let cases = format!("{TEXT}[[cases]]\nname = 'a'\n");
        let command = format!("{TEXT}[[workloads]]\nname = 'c'\napp = 'command'\nclient = 'pc'\ncommand = 'true'\n");
        for (text, part) in [(second, "several links"), (cases, "has cases"), (command, "a command")] {
            let error = replicate("x.toml", &text, 2, 1).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = replicate("x.toml", "title = 1", 2, 1).unwrap_err().to_string();
        assert!(error.contains("x.toml"), "{error}");
    }
}
