//! Somebody who types into a remote session, as with telnet (RFC 854) or a remote shell.
//!
//! In character mode each key leaves by itself and the server echoes it; in line mode (RFC 1184) the user's own program echoes, and
//! a line leaves as a whole with Enter. Keys are typed at the script's times whether or not echoes come; after Enter the user
//! waits for the line's echo and output, thinks, and goes on.
//!
//! - Echo time: from the typing of a key until all of its echo was there. In line mode: until the user's own program showed it.
//! - Line time: from Enter until the line's echo and output were there.
//! - Both ends know the script: wrong characters are those that either end received and that were not typed or written; lost
//!   ones were typed and neither echoed (character mode) nor received (line mode).
//! - Packets a line: segments that the client's connection sent and received, from its opening to the last answer.

mod client;
mod script;
mod server;

use crate::kind::{Keys, Kind, PartyProgram, PartyReport, PortNeed, Setting, Shown, Workload, join};
use crate::progress::{check_port, check_timeout};
use crate::quantity::{self, Quantity};
use crate::report::{Report, Status};
use crate::{Direction, SpecError};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;
use client::Typist;
use script::Script;
use serde::Deserialize;
use server::Shell;
use std::net::SocketAddr;
use std::sync::Arc;

/// The kind of workload `type`.
#[derive(Debug)]
pub struct Type;

/// Who echoes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The server, key by key.
    Character,
    /// The user's own program; the line leaves with Enter.
    Line,
}

/// What is typed, and how.
#[derive(Clone, Debug)]
pub struct TypeSpec {
    /// Who echoes.
    pub mode: Mode,
    /// Nagle's algorithm, at both ends (RFC 896).
    pub nagle: bool,
    /// The text; `None`: letters that follow from the seed.
    pub text: Option<String>,
    /// Keys to type where there is no text, the Enters included.
    pub characters: u64,
    /// Characters of a line where there is no text.
    pub line: u64,
    /// Mean time from one key to the next.
    pub interval: Duration,
    /// Mean time before a line.
    pub think: Duration,
    /// Bytes that a line makes the server write.
    pub output: u64,
    /// The server's port.
    pub port: u16,
    /// The client gives up after this long without progress.
    pub timeout: Duration,
}

impl Default for TypeSpec {
    fn default() -> Self {
        TypeSpec {
            mode: Mode::Character,
            nagle: true,
            text: None,
            characters: 1000,
            line: 40,
            interval: Duration::from_millis(200),
            think: Duration::from_secs(2),
            output: 0,
            port: 23,
            timeout: Duration::from_secs(600),
        }
    }
}

impl TypeSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        let within = |field, value: u64, most: u64| {
            SpecError::unless((1..=most).contains(&value), field, format!("is {value}; allowed: 1 to {most}"))
        };
        match &self.text {
            Some(text) => {
                let what = "is empty; allowed: at least one character";
                SpecError::unless(!text.is_empty(), "text", what)?;
                within("text", text.len() as u64, CHARACTERS_MAX)?;
            }
            None => {
                within("characters", self.characters, CHARACTERS_MAX)?;
                within("line", self.line, LINE_MAX)?;
            }
        }
        SpecError::unless(self.interval > Duration::ZERO, "interval", "is zero; allowed: longer than zero")?;
        let what = format!("is {} B; allowed: 0 B to {OUTPUT_MAX} B", self.output);
        SpecError::unless(self.output <= OUTPUT_MAX, "output", what)?;
        check_port(self.port)?;
        check_timeout(self.timeout)
    }

    fn script(&self, seed: u64) -> Script {
        match &self.text {
            Some(text) => Script::text(text, seed),
            None => Script::lines(self.characters, self.line, seed),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeKeys {
    mode: Option<Mode>,
    nagle: Option<bool>,
    text: Option<String>,
    characters: Option<u64>,
    line: Option<u64>,
    interval: Option<Duration>,
    think: Option<Duration>,
    output: Option<DataSize>,
    port: Option<u16>,
    timeout: Option<Duration>,
}

/// Typing in a scenario.
#[derive(Clone, Debug)]
pub struct TypeWorkload {
    /// What is typed.
    pub spec: TypeSpec,
    /// The port that the scenario chose.
    pub port: Option<u16>,
}

impl Kind for Type {
    fn name(&self) -> &'static str {
        "type"
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[
            quantity::ECHO_MEDIAN,
            quantity::ECHO_P95,
            quantity::ECHO_P99,
            quantity::ECHO_MAX,
            quantity::LINE_MEDIAN,
            quantity::LINE_P95,
            quantity::KEYS,
            quantity::ECHOED,
            quantity::WRONG_CHARACTERS,
            quantity::LOST_CHARACTERS,
            quantity::LINES,
            quantity::PACKETS_PER_LINE,
        ]
    }

    fn shown(&self) -> Shown {
        Shown::new(&[quantity::ECHO_MEDIAN], &[quantity::ECHO])
            .with_compared(&[quantity::ECHO_MEDIAN, quantity::ECHO_P99, quantity::LINE_MEDIAN])
            .with_progress(quantity::KEYS, "keys")
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let keys: TypeKeys = keys.read()?;
        if keys.text.is_some() {
            for (key, given) in [("characters", keys.characters.is_some()), ("line", keys.line.is_some())] {
                if given {
                    return Err(KeyProblem::new(
                        key,
                        "is given besides text, which has its own; allowed: one of the two",
                    ));
                }
            }
        }
        let default = TypeSpec::default();
        let spec = TypeSpec {
            mode: keys.mode.unwrap_or(default.mode),
            nagle: keys.nagle.unwrap_or(default.nagle),
            text: keys.text,
            characters: keys.characters.unwrap_or(default.characters),
            line: keys.line.unwrap_or(default.line),
            interval: keys.interval.unwrap_or(default.interval),
            think: keys.think.unwrap_or(default.think),
            output: keys.output.map_or(default.output, |size| size.bytes),
            port: keys.port.unwrap_or(default.port),
            timeout: keys.timeout.unwrap_or(default.timeout),
        };
        spec.check()?;
        Ok(Arc::new(TypeWorkload { spec, port: keys.port }))
    }
}

impl Workload for TypeWorkload {
    fn ports(&self) -> Vec<PortNeed> {
        vec![PortNeed { role: 1, key: "port", chosen: self.port, default: self.spec.port }]
    }

    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let server = setting.first(1);
        let spec = TypeSpec { port: server.ports[0], ..self.spec.clone() };
        PartyProgram::App(if number == 0 {
            let to = SocketAddr::new(server.address, spec.port);
            Box::new(Typist::new(spec, to, setting.seed))
        } else {
            Box::new(Shell::new(spec, setting.seed))
        })
    }

    fn combine(&self, parties: Vec<PartyReport>) -> Report {
        let of = |party: usize, quantity| parties.get(party).and_then(|party| party.report.as_ref())?.value(quantity);
        let sum = |quantity| of(0, quantity).unwrap_or(0.0) + of(1, quantity).unwrap_or(0.0);
        let wrong = sum(quantity::WRONG_CHARACTERS);
        let received = of(1, quantity::KEYS);
        let mut joined = join(parties);
        joined.put(quantity::WRONG_CHARACTERS, wrong);
        // In line mode nothing is echoed: at the end the server has what was typed, or it is lost.
        if let (Mode::Line, Some(received), Some(typed)) = (self.spec.mode, received, joined.value(quantity::KEYS))
            && joined.status != Status::Running
        {
            joined.put(quantity::LOST_CHARACTERS, typed - received);
        }
        joined
    }

    fn direction(&self) -> Option<Direction> {
        None
    }

    fn is_random(&self) -> bool {
        true
    }
}

const CHARACTERS_MAX: u64 = 1_000_000;
const LINE_MAX: u64 = 10_000;
const OUTPUT_MAX: u64 = 1 << 20;
