//! Man pages and completions, from the one definition in `cli`.

use crate::cli::Cli;
use crate::files::write_whole;
use anyhow::Context;
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "bentpipe", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes bentpipe.1 and a page for each command.
pub fn man(out: &Path) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    write_pages(&Cli::command().disable_help_subcommand(true), "", out)?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: &clap::Command, parent: &str, out: &Path) -> anyhow::Result<()> {
    let name =
        if parent.is_empty() { command.get_name().to_owned() } else { format!("{parent}-{}", command.get_name()) };
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.clone())).render(&mut page)?;
    write_whole(&out.join(format!("{name}.1")), &page)?;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        write_pages(inner, &name, out)?;
    }
    Ok(())
}
