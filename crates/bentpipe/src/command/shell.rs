//! A shell, or one command, behind a link.

use super::{BadInput, links, prompt};
use crate::cli::ShellArguments;
use crate::stop::{self, EndFlags};
use crate::terminal::print_line;
use anyhow::Context;
use bentpipe_host::emulation::{Emulation, EmulationOutcome, Setup};
use bentpipe_host::internet::{self, InternetError, InternetOptions};
use bentpipe_host::namespace::acquire_privilege;
use bentpipe_host::program::Program;
use bentpipe_host::spawn::{CommandSpec, Foreground, Output};
use bentpipe_host::tcp_stack;
use bentpipe_link::config::LinkConfig;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::topology::LinkSpec;
use bentpipe_net::units::DataSize;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toml::{Table, Value};

const HUB: usize = 0;
const TERMINAL: usize = 1;
/// Longest time for a command to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Longest wait for the hub's command to listen on a port.
const HUB_LIMIT: Duration = Duration::from_secs(3);
/// Interval of looking at the hub's ports meanwhile.
const HUB_TICK: Duration = Duration::from_millis(20);
/// Interval of polling for signals while the command runs.
const TICK: Duration = Duration::from_millis(5);

/// Runs the command at the terminal side and passes its exit status through.
pub fn run(arguments: ShellArguments) -> anyhow::Result<ExitCode> {
    let (file, config) = links::load(&arguments.link, &arguments.set)?;
    let tcp = tcp_config(arguments.tcp.as_deref())?;
    if arguments.command.is_empty() && Foreground::is_taken() {
        let link = &arguments.link;
        let what = format!(
            "a shell in the background has no terminal; run it in the foreground, or give it a command: \
             bentpipe shell {link} -- COMMAND"
        );
        return Err(BadInput(what).into());
    }
    let privilege = acquire_privilege().map_err(|error| BadInput(error.to_string()))?;
    let signals = stop::flag_on_end()?;
    let sites = ["hub", "terminal"].map(str::to_owned);
    let spec = LinkSpec {
        name: "sat".to_owned(),
        sites: sites.to_vec(),
        carries_ethernet: config.carries_ethernet,
        mtu: config.mtu,
    };
    let setup = Setup {
        links: vec![(spec, config.clone())],
        tcp: sites.into_iter().map(|site| (site, tcp.clone())).collect(),
        seed: arguments.seed,
        capture: arguments.pcap.clone(),
        resolver: if arguments.internet { internet::resolver_text() } else { None },
        ..Setup::default()
    };
    let emulation = Emulation::start(&setup, privilege)?;
    let internet = if arguments.internet {
        let options = InternetOptions { reach_machine_loopback: arguments.host_loopback };
        let internet = internet::start(&emulation, HUB, &[TERMINAL], options).map_err(|error| match error {
            InternetError::Absent { .. } | InternetError::Tun(_) => anyhow::Error::new(BadInput(error.to_string())),
            other => anyhow::Error::new(other),
        })?;
        if !arguments.quiet {
            print_line(format_args!("bentpipe: {}", internet.description()));
        }
        Some(internet)
    } else {
        None
    };
    let mut environment = vec![("BENTPIPE_LINK".to_owned(), file.name.clone())];
    let hub = match &arguments.hub {
        None => None,
        Some(line) => Some(start_hub(&emulation, line, &environment, &signals, arguments.quiet)?),
    };
    if arguments.command.is_empty() && !arguments.quiet {
        print_line(format_args!(
            "behind {} ({}): this is the terminal side, `hub` is {}. Leave with exit or Ctrl-D.",
            file.name,
            describe(&config),
            emulation.plan.address(HUB).map_or_else(String::new, |a| a.to_string()),
        ));
    }
    // Until here Ctrl-C was for us; from here on it is the command's business.
    if signals.any() {
        return Ok(ExitCode::from(stop::EXIT_INTERRUPTED));
    }
    let argv = if arguments.command.is_empty() {
        let prompting = prompt::prompting_shell(login_shell(), &file.name);
        environment.extend(prompting.environment);
        prompting.argv
    } else {
        arguments.command.clone()
    };
    let shown = argv[0].to_string_lossy().into_owned();
    // Ctrl-C during one command is also for us; a shell decides itself whom it is for.
    let foreground = if arguments.command.is_empty() { Foreground::of_stdin() } else { None };
    let output = if foreground.is_some() { Output::Foreground } else { Output::Inherit };
    let spec = CommandSpec { argv, environment, output, own_group: false };
    let child =
        emulation.spawn(TERMINAL, spec).map_err(|error| BadInput(format!("cannot start {shown:?}: {error}")))?;
    let status = wait(child, &signals.end)?;
    drop(foreground);
    if let Some(mut hub) = hub {
        if let Ok(Some(early)) = hub.try_wait() {
            print_line(format_args!(
                "bentpipe: the hub's command had ended before the shell did, with status {}",
                exit_code(early)
            ));
        }
        end(hub);
    }
    if let Some(internet) = internet {
        internet.stop();
    }
    let outcome = emulation.finish();
    report(&outcome, arguments.quiet);
    Ok(ExitCode::from(exit_code(status)))
}

fn tcp_config(preset: Option<&str>) -> Result<TcpConfig, BadInput> {
    let mut table = Table::new();
    if let Some(preset) = preset {
        table.insert("preset".to_owned(), Value::String(preset.to_owned()));
    }
    let config = TcpConfig::from_table(table).map_err(|p| BadInput(format!("--tcp: {}", p.message)))?;
    tcp_stack::check(&config).map_err(|p| BadInput(format!("--tcp: {}: {}", p.key, p.message)))?;
    Ok(config)
}

fn login_shell() -> OsString {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}

fn describe(config: &LinkConfig) -> String {
    let rate = |direction: &bentpipe_link::config::DirectionConfig| {
        bentpipe_net::units::BitRate::from_bps(direction.rate.highest().bps * direction.channels as u64)
    };
    format!("{} forward, {} return, {} round trip", rate(&config.forward), rate(&config.back), config.round_trip())
}

/// Starts a command line at the hub, and waits until it listens on a port: at most [`HUB_LIMIT`], for it may never do so.
fn start_hub(
    emulation: &Emulation,
    line: &str,
    environment: &[(String, String)],
    signals: &EndFlags,
    quiet: bool,
) -> anyhow::Result<Program> {
    let before = emulation.listeners(HUB)?;
    let argv = vec!["/bin/sh".into(), "-c".into(), line.into()];
    let spec = CommandSpec { argv, environment: environment.to_vec(), output: Output::Errors, own_group: true };
    let mut hub = emulation.spawn(HUB, spec).with_context(|| format!("cannot start {line:?} at the hub"))?;
    let give_up = Instant::now() + HUB_LIMIT;
    while emulation.listeners(HUB)?.is_subset(&before) && !signals.any() {
        if hub.try_wait().context("cannot wait for the hub's command")?.is_some() {
            break;
        }
        if Instant::now() > give_up {
            if !quiet {
                print_line(format_args!(
                    "bentpipe: the hub's command listens on no port after {} s",
                    HUB_LIMIT.as_secs()
                ));
            }
            break;
        }
        std::thread::sleep(HUB_TICK);
    }
    Ok(hub)
}

/// Waits for the command; a signal to us is passed on to it.
fn wait(mut child: Program, stop: &AtomicBool) -> anyhow::Result<ExitStatus> {
    let mut reported: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        match reported {
            None if stop.load(Ordering::Relaxed) => {
                reported = Some(Instant::now());
                signal(&child, rustix::process::Signal::HUP);
                signal(&child, rustix::process::Signal::TERM);
            }
            Some(since) if since.elapsed() > GRACE => signal(&child, rustix::process::Signal::KILL),
            _ => {}
        }
        std::thread::sleep(TICK);
    }
}

fn signal(child: &Program, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn end(mut child: Program) {
    signal(&child, rustix::process::Signal::TERM);
    let give_up = Instant::now() + GRACE;
    while Instant::now() < give_up {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(TICK);
    }
    // The end of its process namespace ends it for certain.
    let _ = child.kill();
    let _ = child.wait();
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// Prints the link's traffic in a few lines on standard error.
fn report(outcome: &EmulationOutcome, quiet: bool) {
    let pump = &outcome.pump;
    let missed: u64 = pump.links.iter().map(|link| link.missed_frames).sum::<u64>() + pump.send_failures;
    if missed > 0 {
        print_line(format_args!("bentpipe: INVALID: {missed} packets were lost between the programs and the link"));
    }
    match &outcome.capture {
        Some(Ok(lost)) if *lost > 0 => {
            print_line(format_args!("bentpipe: the capture lacks {lost} packets: the disk was too slow"))
        }
        Some(Err(error)) => print_line(format_args!("bentpipe: the capture is broken: {error}")),
        _ => {}
    }
    if quiet {
        return;
    }
    for link in &pump.links {
        for (direction, name) in link.link.directions().iter().zip(["forward", "return "]) {
            let sender = direction.sender_counters();
            let (mut delivered, mut damaged, mut lost) = (0, 0, sender.abandoned_packets);
            for receiver in direction.receiver_counters() {
                delivered += receiver.delivered_packets;
                damaged += receiver.damaged_packets + receiver.delivered_damaged_packets;
                lost += receiver.lost_packets;
            }
            print_line(format_args!(
                "bentpipe: {name}: {delivered} packets delivered, {} dropped by the queue, {damaged} damaged, {lost} lost; \
                 {} on the link",
                sender.dropped_packets,
                DataSize::from_bytes(sender.link_bits.div_ceil(8)),
            ));
        }
        if let Some(circuit) = link.link.circuit() {
            let totals = circuit.counters(pump.end);
            let bill = link.link.bill(pump.end);
            let cost = bill.map_or_else(String::new, |bill| format!(", {} {}", bill.total, bill.currency));
            print_line(format_args!(
                "bentpipe: circuit: {} call(s), {:.1} s setting up, {:.1} s on air{cost}",
                totals.calls,
                totals.setting_up.as_secs_f64(),
                totals.on_air.as_secs_f64()
            ));
        }
    }
    let worst = pump.lateness.worst().first().map(|(late, _)| late.as_millis_f64()).unwrap_or_default();
    print_line(format_args!(
        "bentpipe: packets left at most {worst:.3} ms late (median {:.3} ms)",
        pump.lateness.quantile(0.5).as_millis_f64()
    ));
}
