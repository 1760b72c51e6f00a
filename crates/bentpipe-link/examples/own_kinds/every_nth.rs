//! An impairment of one's own: every so many packets one is lost, and all others take longer.
//!
//! `[[impairments]]`, `kind = "every-nth"`, `packets = 3`, `delay = "50 ms"`

use bentpipe_link::impairment::{Fate, Impairment, ImpairmentSpec, Transmission};
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::time::Duration;

#[derive(serde::Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct Keys {
    packets: u64,
    delay: Duration,
}

/// Reads the table of a link file; the registry's line names this.
pub fn read(keys: toml::Table) -> Result<ImpairmentSpec, KeyProblem> {
    let keys: Keys = read_keys(keys)?;
    if keys.packets == 0 {
        return Err(KeyProblem::new("packets", "0 is no count; allowed: 1 or more"));
    }
    Ok(ImpairmentSpec::new("every-nth", move |_random| Box::new(EveryNth { keys, count: 0 })))
}

struct EveryNth {
    keys: Keys,
    count: u64,
}

impl std::fmt::Debug for EveryNth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EveryNth({})", self.count)
    }
}

impl Impairment for EveryNth {
    fn apply(&mut self, _: &Transmission, fate: &mut Fate<'_>) {
        self.count += 1;
        if self.count.is_multiple_of(self.keys.packets) {
            fate.lose();
        }
        fate.delay(self.keys.delay);
    }
}
