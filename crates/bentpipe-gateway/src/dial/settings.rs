//! Settings of dialling: `[dial]` in a daemon's file and `[gateways.LINK.dial]` in a scenario.

use super::Raise;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use serde::Deserialize;
use std::path::PathBuf;

/// When the line is set up and ended.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DialSettings {
    /// What may set the line up. Nothing but relayed connections ever does: no datagrams, and so no NTP, mDNS, LLMNR, NetBIOS,
    /// DHCP, DNS or ping.
    pub raise: Vec<Raise>,
    /// The call ends when nothing has passed for this long; both gateways need the same value. At least 1 s.
    pub linger: Duration,
    /// A call that is not up after this time has failed.
    pub set_up: Duration,
    /// The first pause after a call that failed; doubled each time, up to [`DialSettings::back_off_most`].
    pub back_off: Duration,
    /// The longest pause.
    pub back_off_most: Duration,
    /// Calls within any hour, those that fail included; at least 1.
    pub calls_per_hour: u32,
    /// Calls within any day, those that fail included; at least 1.
    pub calls_per_day: u32,
    /// A daemon's: the command that sets the line up and ends it, with its arguments; `up` or `down` is added.
    pub hook: Option<Vec<String>>,
    /// A daemon's: a modem that takes AT commands, in place of a hook.
    pub modem: Option<ModemSettings>,
    /// A daemon's: the file of the ledger.
    pub ledger: Option<PathBuf>,
}

/// A modem on a serial line.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModemSettings {
    /// The serial line's device.
    pub device: PathBuf,
    /// The number to dial.
    pub number: String,
    /// Bits per second between the machine and the modem.
    #[serde(default = "default_speed")]
    pub speed: u32,
    /// Sent before each call.
    #[serde(default = "default_init")]
    pub init: String,
}

fn default_speed() -> u32 {
    19_200
}

fn default_init() -> String {
    "ATZ".to_owned()
}

impl Default for DialSettings {
    fn default() -> Self {
        DialSettings {
            raise: vec![Raise::Open, Raise::Data],
            linger: Duration::from_secs(10),
            set_up: Duration::from_secs(120),
            back_off: Duration::from_secs(15),
            back_off_most: Duration::from_secs(600),
            calls_per_hour: 20,
            calls_per_day: 200,
            hook: None,
            modem: None,
            ledger: None,
        }
    }
}

impl DialSettings {
    /// Whether every value is within its bounds.
    pub fn check(&self) -> Result<(), KeyProblem> {
        let second = Duration::from_secs(1);
        for (key, time) in [("linger", self.linger), ("set_up", self.set_up), ("back_off", self.back_off)] {
            if time < second {
                return Err(KeyProblem::new(key, format!("{time} is too short; allowed: 1 s or more")));
            }
        }
        if self.back_off_most < self.back_off {
            let what = format!("{} is shorter than back_off; allowed: {} or more", self.back_off_most, self.back_off);
            return Err(KeyProblem::new("back_off_most", what));
        }
        for (key, calls) in [("calls_per_hour", self.calls_per_hour), ("calls_per_day", self.calls_per_day)] {
            if !(1..=100_000).contains(&calls) {
                return Err(KeyProblem::new(key, format!("{calls} is out of range; allowed: 1 to 100000")));
            }
        }
        if self.hook.as_ref().is_some_and(Vec::is_empty) {
            return Err(KeyProblem::new("hook", "names no command; allowed: such as [\"/usr/local/sbin/line\"]"));
        }
        if self.hook.is_some() && self.modem.is_some() {
            return Err(KeyProblem::new("modem", "allowed: only one of hook and modem"));
        }
        Ok(())
    }

    /// In a scenario the link's circuit is dialled, and nothing else.
    pub fn check_scenario(&self) -> Result<(), KeyProblem> {
        for (key, is_there) in
            [("hook", self.hook.is_some()), ("modem", self.modem.is_some()), ("ledger", self.ledger.is_some())]
        {
            if is_there {
                let what = "only a daemon's file has this key; a scenario's pair dials the link's circuit";
                return Err(KeyProblem::new(key, what));
            }
        }
        Ok(())
    }
}
