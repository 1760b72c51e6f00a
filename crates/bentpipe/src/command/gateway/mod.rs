//! Runs one of the two gateways of a link, makes their keys, and says what calls cost.

mod cost;
mod daemon;
mod hub_name;
mod keys;
mod log;
mod metrics;
mod notify;

use crate::cli::GatewayAction;
use bentpipe_gateway::file::Role;
use std::process::ExitCode;

/// Does what was asked.
pub fn run(action: GatewayAction) -> anyhow::Result<ExitCode> {
    match action {
        GatewayAction::Hub(arguments) => daemon::run(Role::Hub, &arguments),
        GatewayAction::Terminal(arguments) => daemon::run(Role::Terminal, &arguments),
        GatewayAction::Keys(arguments) => keys::run(&arguments),
        GatewayAction::Cost(arguments) => cost::run(&arguments),
    }
}
