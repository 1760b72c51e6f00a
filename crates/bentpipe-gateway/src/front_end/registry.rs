//! The front ends that a gateway may have, by their keys in its settings.

use super::explicit::{Explicit, Listener};
use super::{FrontEnd, Negotiation, connect, interception, socks};
use bentpipe_net::problem::KeyProblem;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use toml::{Table, Value};

/// Builds a front end at the start of its gateway.
type Build = Arc<dyn Fn() -> Box<dyn FrontEnd> + Send + Sync>;

/// A kind of front end.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its key in the daemon's file and in a scenario's `[gateways.LINK]`; `None`: always there, without settings.
    pub key: Option<&'static str>,
    /// Reads the key's value.
    pub read: fn(Value) -> Result<FrontEndSettings, KeyProblem>,
}

/// The kinds that are known.
#[derive(Clone, Debug)]
pub struct Registry {
    kinds: Vec<Kind>,
}

/// A front end that is configured.
#[derive(Clone)]
pub struct FrontEndSettings {
    /// Its key among the settings.
    pub key: &'static str,
    /// What it is, for people: `SOCKS5`.
    pub name: &'static str,
    /// Where it listens.
    pub address: Option<SocketAddr>,
    value: Value,
    build: Build,
}

impl Default for Registry {
    fn default() -> Self {
        Registry::standard()
    }
}

impl Registry {
    /// Those that bentpipe has.
    #[must_use]
    pub fn standard() -> Registry {
        Registry { kinds: vec![interception::KIND, socks::KIND, connect::KIND] }
    }

    /// The same and one more.
    #[must_use]
    pub fn with(mut self, kind: Kind) -> Registry {
        self.kinds.push(kind);
        self
    }

    /// The keys, for messages.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.kinds.iter().filter_map(|kind| kind.key)
    }

    /// Those that have no key.
    pub fn without_keys(&self) -> Vec<FrontEndSettings> {
        let without = self.kinds.iter().filter(|kind| kind.key.is_none());
        without.filter_map(|kind| (kind.read)(Value::Boolean(true)).ok()).collect()
    }

    /// Takes the keys of front ends out of a table: those configured there, and those without a key.
    pub fn take(&self, table: &mut Table) -> Result<Vec<FrontEndSettings>, KeyProblem> {
        let mut found = self.without_keys();
        let mut listening: Vec<(&str, u16)> = Vec::new();
        for (kind, key) in self.kinds.iter().filter_map(|kind| Some((kind, kind.key?))) {
            let Some(value) = table.remove(key) else { continue };
            let settings = (kind.read)(value).map_err(|problem| problem.under(key))?;
            if let Some(address) = settings.address {
                if let Some((other, _)) = listening.iter().find(|(_, port)| *port == address.port()) {
                    return Err(KeyProblem::new(key, format!("has the port of {other}; allowed: another one")));
                }
                listening.push((key, address.port()));
            }
            found.push(settings);
        }
        Ok(found)
    }
}

impl FrontEndSettings {
    /// A front end that `build` builds; `value` as it stands in the settings.
    #[must_use]
    pub fn new(
        key: &'static str,
        name: &'static str,
        value: Value,
        address: Option<SocketAddr>,
        build: Build,
    ) -> FrontEndSettings {
        FrontEndSettings { key, name, address, value, build }
    }

    /// An explicit proxy at this address.
    #[must_use]
    pub fn explicit(
        key: &'static str,
        name: &'static str,
        address: SocketAddr,
        negotiation: fn() -> Box<dyn Negotiation>,
    ) -> FrontEndSettings {
        let build =
            move || -> Box<dyn FrontEnd> { Box::new(Explicit { listener: Listener::new(name, address), negotiation }) };
        FrontEndSettings::new(key, name, Value::String(address.to_string()), Some(address), Arc::new(build))
    }

    /// Reads the value of an explicit proxy's key: the address and port where it listens.
    pub fn read_explicit(
        key: &'static str,
        name: &'static str,
        value: &Value,
        negotiation: fn() -> Box<dyn Negotiation>,
    ) -> Result<FrontEndSettings, KeyProblem> {
        let address = value.as_str().and_then(|text| text.parse::<SocketAddr>().ok()).ok_or_else(|| {
            let allowed = "allowed: such as \"127.0.0.1:1080\" or \"[::1]:1080\"";
            KeyProblem::new("", format!("{value} is not an address with a port; {allowed}"))
        })?;
        if address.port() == 0 {
            return Err(KeyProblem::new("", "port 0 is no port to listen on; allowed: 1 to 65535"));
        }
        Ok(FrontEndSettings::explicit(key, name, address, negotiation))
    }

    pub(crate) fn build(&self) -> Box<dyn FrontEnd> {
        (self.build)()
    }
}

impl PartialEq for FrontEndSettings {
    fn eq(&self, other: &FrontEndSettings) -> bool {
        (self.key, &self.value) == (other.key, &other.value)
    }
}

impl fmt::Debug for FrontEndSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}
