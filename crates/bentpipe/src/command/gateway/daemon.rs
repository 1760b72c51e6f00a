//! A gateway as a service: from its file to its end.

use super::super::BadInput;
use super::hub_name::{self, HubLookup};
use super::log::Log;
use super::{keys, metrics, notify};
use crate::cli::GatewayArguments;
use crate::terminal;
use anyhow::Context;
use bentpipe_gateway::dial::LineNotice;
use bentpipe_gateway::dial::ledger::Ending;
use bentpipe_gateway::file::Role;
use bentpipe_gateway::satellite::keys::PairKeys;
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{Loss, Side};
use bentpipe_gateway::{Fail, Gateway, GatewayFile, LogEvent, Metrics};
use bentpipe_host::clock::Clock;
use bentpipe_host::gateway::rights::{self, Rights};
use bentpipe_host::gateway::{GatewayDriver, SiteOptions, findings};
use bentpipe_host::line::LineDevice;
use bentpipe_host::line::hook::HookLine;
use bentpipe_host::line::ledger::{LedgerFile, LedgerFileError};
use bentpipe_host::line::modem::ModemLine;
use bentpipe_host::namespace::raise_descriptor_limit;
use bentpipe_lab::files::{TEXT_BYTES_MAX, read_text};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::Level;

/// Interval between polls of signals, log events and metrics.
const TICK: Duration = Duration::from_millis(200);
/// A hook has so long to end the line when the gateway stops.
const LINE_DOWN: Duration = Duration::from_secs(10);
/// Exit status when a second signal ends the daemon at once.
const EXIT_AT_ONCE: i32 = 1;

/// Runs a gateway until a signal ends it.
pub fn run(role: Role, arguments: &GatewayArguments) -> anyhow::Result<ExitCode> {
    let path = &arguments.file;
    let file = read(path, role)?;
    let own = keys::read(&file.key)?;
    let peer = file.peer_key.parse().map_err(|error| BadInput(format!("{}: peer_key: {error}", path.display())))?;
    if own.public() == peer {
        return Err(BadInput(format!(
            "{}: peer_key: this is the public key of this gateway itself ({}); allowed: the other gateway's, as `bentpipe \
             gateway keys --show` shows it there",
            path.display(),
            file.key.display()
        ))
        .into());
    }
    if arguments.check {
        let name = path.display();
        let findings = findings(&file, true).into_iter().map(|finding| format!("{name}: warning: {finding}\n"));
        terminal::print(&format!("{}{name}: fine; {}\n", findings.collect::<String>(), summary(&file)))?;
        return Ok(ExitCode::SUCCESS);
    }
    raise_descriptor_limit();
    // Still with one thread.
    if let Some(user) = &file.user
        && rustix::process::geteuid().is_root()
    {
        rights::become_user(user).with_context(|| format!("cannot become the user '{user}'"))?;
    }
    rights::give_up_the_rest().context("cannot give up rights")?;
    if file.intercept.is_some() && !Rights::now().network {
        anyhow::bail!(BadInput(format!(
            "{}: [intercept] needs root, or the capabilities CAP_NET_ADMIN and CAP_NET_RAW; without them a gateway can only \
             be asked (socks, connect)",
            path.display()
        )));
    }
    let mut log = Log::start(arguments.log);
    let stop = Arc::new(AtomicBool::new(false));
    let reload = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_AT_ONCE, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
    let clock = Clock::start();
    let crypto = Crypto::Tls(PairKeys { own: own.clone(), peer });
    // The seed is for virtual runs: TLS draws the system's random numbers.
    let satellite = QuicSatellite::with_incoming(clock.now(), file.gateway.satellite.clone(), file.incoming, crypto, 0)
        .with_context(|| format!("{}: the satellite side", path.display()))?;
    let mut gateway = Gateway::new(file.gateway.clone(), Box::new(satellite));
    let line = line(&file, &mut gateway, clock.now())?;
    let driver = GatewayDriver::start_with_line(None, clock, gateway, site_options(&file), line)
        .with_context(|| format!("{}: the gateway cannot start", path.display()))?;
    let metrics = metrics::Shared::default();
    if let Some(address) = file.metrics {
        metrics::serve(address, Arc::clone(&metrics))
            .map_err(|error| BadInput(format!("cannot serve metrics at {address}: {error}")))?;
    }
    log.line(Level::INFO, &format!("{} gateway, key {}: {}", name(role), own.public(), summary(&file)));
    // The site reports missing interfaces itself.
    for finding in findings(&file, false) {
        log.remark(&finding);
    }
    let mut hub = file.hub.clone().map(|name| HubLookup::new(name, file.listen.is_ipv4(), Instant::now()));
    let mut ready = false;
    let mut watchdog = notify::Watchdog::from_environment();
    let mut draining: Option<Instant> = None;
    let takes_clients = file.intercept.is_some() || listening(&file).next().is_some();
    let mut file = file;
    loop {
        let is_done = driver.wait_until_done(TICK);
        // Not before the other gateway's packets come in: the port may be taken.
        if !ready && driver.has_port() {
            ready = true;
            notify::tell(&[NotifyState::Ready]);
        }
        match hub.as_mut().and_then(|hub| hub.poll(Instant::now())) {
            Some(Ok(address)) => {
                log.line(Level::INFO, &format!("the hub is at {address}"));
                driver.set_hub(address);
            }
            Some(Err(why)) => log.remark(&why),
            None => {}
        }
        for log_event in driver.take_log() {
            if let (Some(hub), LogEvent::Unanswered { .. }) = (&mut hub, &log_event) {
                hub.doubt(Instant::now());
            }
            // Of no concern where nobody asks, as at most hubs, or where no request is taken any more.
            if matches!(log_event, LogEvent::Failing { .. } | LogEvent::Relaying)
                && (!takes_clients || draining.is_some())
            {
                continue;
            }
            log.log_event(level(&log_event), &log_event);
        }
        for remark in driver.take_remarks() {
            log.remark(&remark);
        }
        log.sum_up();
        let Some(now) = driver.metrics() else {
            anyhow::bail!("the gateway's thread has ended");
        };
        *metrics.lock() = now;
        // The gateway's thread gave these metrics between two turns of its work, and whoever does not obey signals does not
        // get here: a sign of life that either of the two loops can fail to give.
        watchdog.ping(Instant::now(), || status(&now, draining.is_some()));
        if is_done || draining.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        if stop.load(Ordering::Relaxed) && draining.is_none() {
            notify::tell(&[NotifyState::Stopping]);
            let limit = file.drain.to_std();
            let open = now.connections_open;
            log.line(Level::INFO, &format!("stopping: {open} connections may end within {limit:?}"));
            driver.drain();
            draining = Some(Instant::now() + limit);
        }
        if reload.swap(false, Ordering::Relaxed) {
            // Since systemd 253 a service of the type `notify-reload` says when it began, too.
            let began = NotifyState::monotonic_usec_now().ok();
            notify::tell(&[NotifyState::Reloading].into_iter().chain(began).collect::<Vec<_>>());
            match read(path, role) {
                Ok(new) => {
                    let rest = file.reload(&new);
                    let rate = file.gateway.satellite.rate;
                    driver.set_rate(rate);
                    driver.set_incoming(file.incoming);
                    driver.declare_rates();
                    let said = rate.map_or("measured".to_owned(), |rate| rate.to_string());
                    let incoming = file.incoming.map_or("a guess".to_owned(), |rate| rate.to_string());
                    let name = path.display();
                    log.line(Level::INFO, &format!("read {name} again: link rate {said}, incoming {incoming}"));
                    if !rest.is_empty() {
                        let what = format!("changed too, which takes effect with the next start: {}", rest.join(", "));
                        log.line(Level::WARN, &what);
                    }
                }
                Err(error) => log.line(Level::ERROR, &format!("keeping what was read before: {error}")),
            }
            if ready {
                notify::tell(&[NotifyState::Ready]);
            }
        }
    }
    if file.gateway.settings.dial.is_some() {
        // The call is ended, and its end in the ledger.
        driver.with(Gateway::end);
        driver.wait_until_done(LINE_DOWN);
    }
    let last = driver.stop();
    let (relayed, taken, given) = (last.relayed, last.bytes_taken, last.bytes_given);
    log.line(Level::INFO, &format!("stopped; {relayed} connections relayed, {taken} B taken, {given} B given"));
    Ok(ExitCode::SUCCESS)
}

/// Properties of this machine that do not fit the file. `check`: all of them, the hub's name too; otherwise what is not reported
/// elsewhere.
fn findings(file: &GatewayFile, check: bool) -> Vec<String> {
    let satellite = &file.gateway.satellite;
    let mut all = Vec::new();
    let mut hub = match satellite.side {
        Side::Terminal(hub) if !hub.ip().is_unspecified() => Some(hub),
        _ => None,
    };
    if check {
        all.extend(findings::interfaces(file.intercept.as_ref()));
        match file.hub.as_ref().map(|name| (name, hub_name::look_up(name))) {
            Some((_, Ok(addresses))) => hub = addresses.first().copied(),
            Some((name, Err(error))) => all.push(format!("the hub's name {name} was not found: {error}")),
            None => {}
        }
    }
    // Without the right to their addresses, nothing of the clients' comes through here.
    let forwards = match satellite.side {
        Side::Hub => Rights::now().network,
        Side::Terminal(_) => file.intercept.is_some(),
    };
    if forwards {
        all.extend(findings::forwarding());
    }
    if satellite.side == Side::Hub || hub.is_some() {
        all.extend(findings::mtu(satellite.mtu, hub));
    }
    all
}

/// Reads a gateway's file. The key and the ledger are looked for from its folder.
pub(super) fn read(path: &Path, role: Role) -> Result<GatewayFile, BadInput> {
    let name = path.display().to_string();
    let text = read_text(path, TEXT_BYTES_MAX).map_err(|error| BadInput(format!("cannot read {name}: {error}")))?;
    let mut file = GatewayFile::parse(role, &name, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    file.key = folder.join(&file.key);
    if let Some(ledger) = file.gateway.settings.dial.as_mut().and_then(|dial| dial.ledger.as_mut()) {
        *ledger = folder.join(&ledger);
    }
    Ok(file)
}

/// The line that a terminal dials, and its ledger.
fn line(
    file: &GatewayFile,
    gateway: &mut Gateway,
    now: bentpipe_net::time::Instant,
) -> anyhow::Result<Option<Box<dyn LineDevice>>> {
    let dial = file.gateway.settings.dial.as_ref();
    let Some((dial, path)) = dial.and_then(|dial| Some((dial, dial.ledger.as_ref()?))) else { return Ok(None) };
    let tariff = file.gateway.line.tariff.as_ref();
    let until = Instant::now() + LINE_DOWN;
    let opened = loop {
        match LedgerFile::open(path, tariff) {
            // The hook of a gateway that has died is about to end its call.
            Err(LedgerFileError::InUse(_)) if Instant::now() < until => std::thread::sleep(TICK),
            opened => break opened,
        }
    };
    let (writer, ledger) = opened.map_err(|error| BadInput(format!("dial.ledger: {error}")))?;
    gateway.restore_ledger(&ledger);
    let line: Box<dyn LineDevice> = match (&dial.hook, &dial.modem) {
        (Some(argv), _) => {
            Box::new(HookLine::new(argv, writer, now).map_err(|error| BadInput(format!("dial.hook: {error}")))?)
        }
        (None, Some(modem)) => {
            let line = ModemLine::new(modem.clone(), writer, now);
            Box::new(line.map_err(|error| BadInput(format!("dial.modem: {error}")))?)
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(line))
}

fn site_options(file: &GatewayFile) -> SiteOptions {
    SiteOptions {
        rules: file.intercept.clone(),
        closed: file.gateway.settings.fail == Fail::Closed,
        pair: Some(file.listen),
        held_max: file.gateway.settings.pending.saturating_mul(2),
        ..SiteOptions::default()
    }
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Hub => "hub",
        Role::Terminal => "terminal",
    }
}

fn level(log_event: &LogEvent) -> Level {
    match log_event {
        LogEvent::Connected | LogEvent::Heard | LogEvent::Released | LogEvent::Relaying => Level::INFO,
        LogEvent::Line(
            LineNotice::Dialling { .. }
            | LineNotice::Up { .. }
            | LineNotice::Down { why: Ending::Idle | Ending::Stopped, .. },
        ) => Level::INFO,
        LogEvent::NotOpened { .. } | LogEvent::Lost { why: Loss::Closed, connections: 0 } => Level::INFO,
        LogEvent::NoSocket { .. } => Level::ERROR,
        _ => Level::WARN,
    }
}

/// The current state, for `systemctl status`.
fn status(metrics: &Metrics, draining: bool) -> String {
    let pair = match (metrics.connected, metrics.silent) {
        (true, false) => "connected",
        (true, true) => "connected, but the other gateway is silent",
        (false, _) => "not connected to the other gateway",
    };
    let stopping = if draining { "stopping; " } else { "" };
    format!("{stopping}{pair}; {} connections relayed now", metrics.connections_open)
}

/// A summary of this gateway's file, in a line.
fn summary(file: &GatewayFile) -> String {
    let satellite = &file.gateway.satellite;
    let rate = satellite.rate.map_or("measured".to_owned(), |rate| rate.to_string());
    let mut parts = vec![format!("UDP {}", file.listen)];
    match (&file.hub, satellite.side) {
        (Some(hub), _) => parts.push(format!("hub {hub}")),
        (None, Side::Terminal(hub)) => parts.push(format!("hub {hub}")),
        (None, Side::Hub) => {}
    }
    parts.push(format!("link rate {rate}"));
    match &file.intercept {
        Some(intercept) => parts.push(format!("intercepts on {}", intercept.interfaces.join(", "))),
        None => parts.push("intercepts nothing".into()),
    }
    let metrics = file.metrics.map(|address| ("metrics", address));
    parts.extend(listening(file).chain(metrics).map(|(what, address)| format!("{what} at {address}")));
    parts.join("; ")
}

/// Front ends with a listener, and where it is.
fn listening(file: &GatewayFile) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    file.gateway.front_ends.iter().filter_map(|front_end| Some((front_end.name, front_end.address?)))
}
