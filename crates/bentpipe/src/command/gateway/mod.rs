//! Runs one of the two gateways of a link, and makes their keys.

mod daemon;
mod file;
mod keys;
mod log;
mod metrics;
mod notify;

use crate::cli::GatewayAction;
use bentpipe_gateway::satellite::Side;
use std::process::ExitCode;

/// Which of the pair a file must be for; the terminal's file names the hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The well-connected side.
    Hub,
    /// The remote side.
    Terminal,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Hub => "hub",
            Role::Terminal => "terminal",
        }
    }

    fn of(side: &Side) -> Role {
        match side {
            Side::Hub => Role::Hub,
            Side::Terminal(_) => Role::Terminal,
        }
    }
}

/// Does what was asked.
pub fn run(action: GatewayAction) -> anyhow::Result<ExitCode> {
    match action {
        GatewayAction::Hub(arguments) => daemon::run(Role::Hub, &arguments),
        GatewayAction::Terminal(arguments) => daemon::run(Role::Terminal, &arguments),
        GatewayAction::Keys(arguments) => keys::run(&arguments),
    }
}
