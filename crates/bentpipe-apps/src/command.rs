//! Any program of the machine, run at a site: only live runs have it.
//!
//! Measured: `completion_time`, from the program's start to its end. It has failed when its exit status is not 0.

use crate::kind::{CLIENT, Keys, Kind, PartyProgram, Role, SERVER, Setting, Shown, Sites, Workload};
use crate::quantity::{COMPLETION_TIME, Quantity};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use serde::Deserialize;
use std::sync::Arc;

/// A command as a workload or as a service.
#[derive(Debug)]
pub struct CommandKind {
    roles: &'static [Role],
}

/// The workload.
pub(crate) const COMMAND: CommandKind = CommandKind { roles: &[CLIENT, Role { sites: Sites::Optional, ..SERVER }] };
/// The service: it runs until the case is over.
pub(crate) const SERVICE: CommandKind = CommandKind { roles: &[crate::service::SITE] };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandKeys {
    command: Option<CommandText>,
    /// Accepted for the sake of files that have it; a command ends when it ends.
    #[serde(rename = "timeout")]
    _timeout: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceKeys {
    command: Option<CommandText>,
}

/// A shell line, or a program and its arguments.
#[derive(Deserialize)]
#[serde(untagged)]
enum CommandText {
    Line(String),
    Words(Vec<String>),
}

/// A program and its arguments.
#[derive(Debug)]
struct Command(Vec<String>);

impl Kind for CommandKind {
    fn name(&self) -> &'static str {
        "command"
    }

    fn roles(&self) -> &'static [Role] {
        self.roles
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[COMPLETION_TIME]
    }

    fn shown(&self) -> Shown {
        Shown::new(&[COMPLETION_TIME], &[])
    }

    /// A shell line becomes `/bin/sh -c LINE`.
    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let allowed = "allowed: a shell line or [\"program\", …]";
        let command = match self.roles {
            [crate::service::SITE] => keys.read::<ServiceKeys>()?.command,
            _ => keys.read::<CommandKeys>()?.command,
        };
        let argv = match command {
            Some(CommandText::Line(line)) if !line.trim().is_empty() => {
                vec!["/bin/sh".to_owned(), "-c".to_owned(), line]
            }
            Some(CommandText::Words(words)) if words.first().is_some_and(|word| !word.is_empty()) => words,
            Some(_) => return Err(KeyProblem::new("command", format!("is empty; {allowed}"))),
            None => return Err(KeyProblem::new("command", format!("is missing; {allowed}"))),
        };
        Ok(Arc::new(Command(argv)))
    }
}

impl Workload for Command {
    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        match setting.parties[number].role {
            0 => PartyProgram::Command(self.0.clone()),
            _ => PartyProgram::Stack,
        }
    }

    fn command(&self) -> Option<&[String]> {
        Some(&self.0)
    }
}
