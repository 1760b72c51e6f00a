//! The two hosts of a transfer, and single settings of them.

use bentpipe_apps::Direction;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::units::DataSize;
use serde::Serialize;
use toml::{Table, Value};

/// A side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The well-connected one, which serves.
    Hub,
    /// The remote one, which connects.
    Terminal,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Hub, Side::Terminal];

    /// Its site's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Hub => "hub",
            Side::Terminal => "terminal",
        }
    }

    /// Where the data of a transfer comes from.
    #[must_use]
    pub fn sender(direction: Direction) -> Side {
        match direction {
            Direction::Download => Side::Hub,
            Direction::Upload => Side::Terminal,
        }
    }

    /// Where it goes.
    #[must_use]
    pub fn receiver(direction: Direction) -> Side {
        match direction {
            Direction::Download => Side::Terminal,
            Direction::Upload => Side::Hub,
        }
    }
}

/// TCP of both hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Hosts {
    /// At the hub.
    pub hub: TcpConfig,
    /// At the terminal.
    pub terminal: TcpConfig,
}

/// The value of a window that is left to Linux.
const OPEN: &str = "as Linux tunes it";

/// One setting of one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Atom {
    /// The host.
    pub host: Side,
    /// The key under `[hosts.X.tcp]`.
    pub key: &'static str,
    /// Its value, as in a scenario file.
    pub value: Value,
}

impl Atom {
    /// A setting.
    pub fn new(host: Side, key: &'static str, value: impl Into<Value>) -> Atom {
        Atom { host, key, value: value.into() }
    }

    /// A setting whose value is a quantity.
    pub fn size(host: Side, key: &'static str, bytes: u64) -> Atom {
        Atom::new(host, key, DataSize::from_bytes(bytes).to_string())
    }

    /// A window without a limit of its own: as large as Linux tunes it within its default limits.
    pub fn open(host: Side, key: &'static str) -> Atom {
        Atom::new(host, key, OPEN)
    }

    /// True if it is such a window.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.value.as_str() == Some(OPEN)
    }

    /// `initial_window = 30`.
    #[must_use]
    pub fn text(&self) -> String {
        let value = match &self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{} = {value}", self.key)
    }
}

impl Hosts {
    /// Both alike.
    #[must_use]
    pub fn alike(tcp: &TcpConfig) -> Hosts {
        Hosts { hub: tcp.clone(), terminal: tcp.clone() }
    }

    /// One of them.
    #[must_use]
    pub fn of(&self, side: Side) -> &TcpConfig {
        match side {
            Side::Hub => &self.hub,
            Side::Terminal => &self.terminal,
        }
    }

    /// The same with these settings on top; none when a host cannot have them together.
    #[must_use]
    pub fn with(&self, atoms: &[Atom]) -> Option<Hosts> {
        let mut hosts = self.clone();
        for side in Side::BOTH {
            let own: Vec<&Atom> = atoms.iter().filter(|atom| atom.host == side).collect();
            if own.is_empty() {
                continue;
            }
            let mut table = Table::try_from(hosts.of(side)).ok()?;
            for atom in own {
                if atom.is_open() {
                    // Its preset would bring the limit back; all that it says is spelt out here.
                    table.insert("preset".to_owned(), "linux".into());
                    table.remove(atom.key);
                } else {
                    table.insert(atom.key.to_owned(), atom.value.clone());
                }
            }
            let config = TcpConfig::from_table(table).ok()?;
            match side {
                Side::Hub => hosts.hub = config,
                Side::Terminal => hosts.terminal = config,
            }
        }
        Some(hosts)
    }

    /// This host as `other` has it, the other one as it is here.
    #[must_use]
    pub fn with_side_of(&self, side: Side, other: &Hosts) -> Hosts {
        match side {
            Side::Hub => Hosts { hub: other.hub.clone(), terminal: self.terminal.clone() },
            Side::Terminal => Hosts { hub: self.hub.clone(), terminal: other.terminal.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_belong_to_one_host() {
        let windows = TcpConfig::from_table(toml::from_str("preset = 'windows-95'").unwrap()).unwrap();
        let hosts = Hosts::alike(&windows);
        let atoms = [Atom::new(Side::Hub, "initial_window", 10), Atom::size(Side::Terminal, "receive_window", 65_535)];
        let tuned = hosts.with(&atoms).unwrap();
        assert_eq!((tuned.hub.initial_window, tuned.terminal.initial_window), (Some(10), Some(1)));
        assert_eq!(tuned.terminal.receive_window.map(|w| w.bytes), Some(65_535));
        assert_eq!(tuned.hub.receive_window, windows.receive_window);
        assert_eq!(hosts.with_side_of(Side::Hub, &tuned).terminal, windows);
        let open = hosts.with(&[Atom::open(Side::Terminal, "receive_window")]).unwrap();
        assert_eq!((open.terminal.receive_window, open.terminal.sack), (None, Some(false)));
        // A window that needs scaling is no setting of a host without it.
        assert!(hosts.with(&[Atom::size(Side::Terminal, "receive_window", 65_536)]).is_none());
    }
}
