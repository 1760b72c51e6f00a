//! The one command `bentpipe`: wiring only.

mod cli;
mod command;
mod files;
mod results;
mod stop;
mod terminal;

use clap::Parser;
use std::process::ExitCode;

/// The user asked for something impossible, in a file or on the command line.
const EXIT_BAD_INPUT: u8 = 2;
/// Something went wrong that the user did not ask for.
const EXIT_FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match cli.command {
        cli::Command::Links { action } => command::links::run(action),
        cli::Command::Presets => command::links::presets(),
        cli::Command::Predict(arguments) => command::predict::run(&arguments),
        cli::Command::Tune(arguments) => command::tune::run(&arguments),
        cli::Command::Shell(arguments) => command::shell::run(arguments),
        cli::Command::Run(arguments) => command::run::run(arguments),
        cli::Command::Sweep(arguments) => command::sweep::run(arguments),
        cli::Command::Experiments(arguments) => command::experiments::run(&arguments),
        cli::Command::Get(arguments) => command::get::run(&arguments),
        cli::Command::Put(arguments) => command::put::run(&arguments),
        cli::Command::Report(arguments) => command::report::run(&arguments),
        cli::Command::Parity(arguments) => command::parity::run(&arguments),
        cli::Command::Gateway { action } => command::gateway::run(action),
        cli::Command::Completions { shell } => command::generate::completions(shell),
        cli::Command::Man { out } => command::generate::man(&out),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // A closed pipe (`bentpipe links | head`) is no failure worth a word.
            if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
                return ExitCode::SUCCESS;
            }
            terminal::print_line(format_args!("bentpipe: {error:#}"));
            let bad_input = error.downcast_ref::<command::BadInput>().is_some();
            ExitCode::from(if bad_input { EXIT_BAD_INPUT } else { EXIT_FAILED })
        }
    }
}
