//! Settings of a gateway that the daemon's file and a scenario's `[gateways.LINK]` share: keys, bounds and messages.

use crate::dial::DialSettings;
use crate::front_end::{FrontEndSettings, Registry};
use bentpipe_net::problem::{KeyProblem, did_you_mean, keys_of, read};
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize};
use serde::Deserialize;
use toml::Table;

/// Names of the fields in which two values differ. Every field has to be listed.
macro_rules! differing {
    ($one:expr, $other:expr, $type:ident { $($field:ident),* $(,)? }) => {{
        let $type { $($field),* } = $one;
        let names = [$((*$field != $other.$field, stringify!($field))),*];
        names.into_iter().filter_map(|(differs, name)| differs.then_some(name)).collect::<Vec<&'static str>>()
    }};
}
pub(crate) use differing;

/// What may be set the same in a daemon's file and in a scenario.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Settings {
    /// The rate at which the link carries what this side sends.
    pub rate: Rate,
    /// When requests are answered.
    pub open: Open,
    /// The treatment of requests while the other gateway cannot be reached.
    pub fail: Fail,
    /// Compression of what this side sends.
    pub compression: Compression,
    /// How long connections outlive silence of the link: 1 s to 7 days. Shorter ones would end at a lost packet or two,
    /// longer ones never.
    pub hold: Duration,
    /// How long new requests wait, once the other gateway is found silent, before [`Settings::fail`] applies to them; the
    /// same time is given to the first connection of the pair. On a dial-up link there is no such limit.
    pub grace: Duration,
    /// How long a request may wait for the far side's answer, above zero. Default: what Linux gives a connection attempt,
    /// 127 s (`tcp_syn_retries` = 6), so that a set-up of 50 s is no failure.
    pub answer: Duration,
    /// How long a client of an explicit proxy may take to state its request, above zero.
    pub negotiation: Duration,
    /// Requests that may wait at once, at least 1; further ones are ignored until some are answered, and the clients ask
    /// again.
    pub pending: usize,
    /// Connections that may be relayed at once, at least 1; further ones are ignored.
    pub connections: usize,
    /// True if the other gateway may have this one connect to loopback addresses.
    pub loopback: bool,
    /// Bounds of memory.
    pub memory: Memory,
    /// Which connections go first.
    pub interactive: Interactive,
    /// The gateway dials: when the line is set up and ended. `None`: it does not.
    pub dial: Option<DialSettings>,
}

/// A rate that is declared to a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum Rate {
    /// The link's own, as its file has it.
    #[default]
    OfLink,
    /// Another one.
    Declared(BitRate),
    /// None: it is measured.
    Measured,
}

/// When a client's connection request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Open {
    /// Once the server has answered at the far side: a refusal is seen as a refusal.
    #[default]
    Answered,
    /// At once; data travel with the opening, which saves a round trip. A server that refuses is seen as a reset.
    Early,
}

/// The treatment of new connections while the other gateway cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fail {
    /// They pass the gateway by, unaccelerated; clients of the proxies are connected from this side.
    #[default]
    Open,
    /// They are refused at once; clients of the proxies get the answer that the gateway cannot connect them.
    Closed,
}

/// Whether what is relayed is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Where it makes data shorter.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Limits of the relay's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Bytes of all connections together that wait in the relay, above which no connection is added and those there are
    /// take in less at once. Three quarters of it may be granted to the other gateway as credit; where that is used up, a
    /// connection has 64 kB on its way and no more. A fast link needs room for four round trips' worth: 81 MB at
    /// 250 Mbit/s and 600 ms.
    pub total: DataSize,
    /// For the contexts of compression; a connection that finds no room is not compressed.
    pub compression: DataSize,
}

/// Which connections go before the rest.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Interactive {
    /// A connection that sends more than this within [`Interactive::period`] becomes bulk. `None`: what the link carries in
    /// two seconds, from 2 kB to 32 kB.
    pub bytes: Option<DataSize>,
    /// The allowance renews evenly over this time.
    pub period: Duration,
    /// Silence after which a bulk connection counts as interactive again.
    pub idle: Duration,
    /// Server ports that are always interactive.
    pub ports: Vec<u16>,
    /// Server ports that are always bulk.
    pub bulk_ports: Vec<u16>,
    /// DSCP values that are always interactive.
    pub dscp: Vec<u8>,
    /// DSCP values that are always bulk.
    pub bulk_dscp: Vec<u8>,
}

impl Memory {
    /// Memory that one connection may take in the relay in addition to its credit, both directions together: a frame on
    /// its way out that the link has no room for, a frame that has arrived, what was read with it, what it unpacks to;
    /// and the 64 kB that every connection may have on its way.
    pub const CONNECTION: DataSize = DataSize { bytes: 128 << 10 };
    /// Least total: two connections' worth.
    pub const TOTAL_MIN: DataSize = DataSize { bytes: 2 * Memory::CONNECTION.bytes };
}

impl Default for Memory {
    fn default() -> Self {
        Memory { total: DataSize::from_bytes(256 << 20), compression: DataSize::from_bytes(64 << 20) }
    }
}

impl Default for Interactive {
    fn default() -> Self {
        Interactive {
            bytes: None,
            period: Duration::from_secs(10),
            idle: Duration::from_secs(2),
            ports: vec![22, 23, 53],
            bulk_ports: vec![20, 873],
            // EF and CS5 are interactive (RFC 4594 §2.3), CS1 and LE (RFC 8622) bulk.
            dscp: vec![46, 40],
            bulk_dscp: vec![8, 1],
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rate: Rate::default(),
            open: Open::default(),
            fail: Fail::default(),
            compression: Compression::default(),
            hold: Duration::from_secs(300),
            grace: Duration::from_secs(3),
            answer: Duration::from_secs(127),
            negotiation: Duration::from_secs(10),
            pending: 1024,
            connections: 16_384,
            loopback: false,
            memory: Memory::default(),
            interactive: Interactive::default(),
            dial: None,
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Rate, String> {
        match text.parse::<BitRate>() {
            _ if text == "measured" => Ok(Rate::Measured),
            Ok(rate) if rate.bps > 0 => Ok(Rate::Declared(rate)),
            _ => Err(format!("{text:?} is not a rate; allowed: \"measured\", or a rate such as \"9.5 Mbit/s\"")),
        }
    }
}

impl Rate {
    /// The rate to declare on a link of `rate`; `None`: it is measured.
    #[must_use]
    pub fn on(self, rate: Option<BitRate>) -> Option<BitRate> {
        match self {
            Rate::OfLink => rate,
            Rate::Declared(rate) => Some(rate),
            Rate::Measured => None,
        }
    }
}

impl Settings {
    /// Bounds of [`Settings::hold`].
    const HOLD: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(7 * 24 * 3600)];

    /// Reads a table that holds these settings, front ends of `registry`, and the fields of `Own`, which are read apart.
    /// An unknown key is refused with the list of those that are allowed.
    pub fn read_with<Own: serde::de::DeserializeOwned>(
        mut table: Table,
        registry: &Registry,
    ) -> Result<(Settings, Vec<FrontEndSettings>, Own), KeyProblem> {
        let (shared, own) = (keys_of::<Settings>(), keys_of::<Own>());
        let allowed = || own.iter().chain(shared).copied().chain(registry.keys());
        if let Some(key) = table.keys().find(|key| allowed().all(|allowed| allowed != **key)) {
            let allowed: Vec<&str> = allowed().collect();
            let meant = did_you_mean(key, allowed.iter().copied());
            let what = format!("unknown key{meant}; allowed: {}", allowed.join(", "));
            return Err(KeyProblem::new(key.clone(), what));
        }
        let front_ends = registry.take(&mut table)?;
        let (shared, own) = table.into_iter().partition(|(key, _)| shared.contains(&key.as_str()));
        // The fields that are needed come first.
        let own = read::<Own>(own)?;
        let settings = read::<Settings>(shared)?;
        settings.check()?;
        Ok((settings, front_ends, own))
    }

    /// Whether every value is within its bounds.
    pub fn check(&self) -> Result<(), KeyProblem> {
        let [least, most] = Settings::HOLD;
        if !(least..=most).contains(&self.hold) {
            let what = format!("{} is out of range; allowed: {least} to {most}", self.hold);
            return Err(KeyProblem::new("hold", what));
        }
        if let Some(dial) = &self.dial {
            dial.check().map_err(|problem| problem.under("dial"))?;
        }
        for (key, time) in [
            ("answer", self.answer),
            ("negotiation", self.negotiation),
            ("interactive.period", self.interactive.period),
        ] {
            if time == Duration::ZERO {
                return Err(KeyProblem::new(key, "must be longer than \"0 s\""));
            }
        }
        for (key, count) in [("pending", self.pending), ("connections", self.connections)] {
            if count == 0 {
                return Err(KeyProblem::new(key, "must be 1 or more"));
            }
        }
        if self.memory.total < Memory::TOTAL_MIN {
            let what = format!("{} is too little; allowed: {} or more", self.memory.total, Memory::TOTAL_MIN);
            return Err(KeyProblem::new("memory.total", what));
        }
        for (key, values) in
            [("interactive.dscp", &self.interactive.dscp), ("interactive.bulk_dscp", &self.interactive.bulk_dscp)]
        {
            if let Some(value) = values.iter().find(|value| **value > 63) {
                return Err(KeyProblem::new(key, format!("{value} is no DSCP; allowed: 0 to 63 (RFC 2474)")));
            }
        }
        Ok(())
    }

    /// Names of the settings that are different in `other`.
    #[must_use]
    pub fn differing(&self, other: &Settings) -> Vec<&'static str> {
        differing!(
            self,
            other,
            Settings {
                rate,
                open,
                fail,
                compression,
                hold,
                grace,
                answer,
                negotiation,
                pending,
                connections,
                loopback,
                memory,
                interactive,
                dial,
            }
        )
    }
}
