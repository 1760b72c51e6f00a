//! A host's TCP settings on this kernel: which it keeps (sysctls of the namespace, route attributes), which the
//! emulator's port holds (windows), and which it cannot be made to keep, and so are refused by name.

use crate::namespace::{read_sysctl, write_sysctl};
use crate::tap::WindowLimits;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::stack::{Recovery, RtoEstimator, TcpConfig};
use netlink_packet_route::route::RouteMetric;
use std::io;
use std::ops::RangeInclusive;

/// Who holds a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// The key under `[hosts.X.tcp]`.
    pub key: &'static str,
    /// As asked.
    pub configured: String,
    /// The value that the kernel reports; `None`: the emulator's port enforces it.
    pub kernel: Option<String>,
}

/// Smallest of what the kernel gives every socket.
const BUFFER_LEAST: u64 = 4096;
/// This kernel's default of a receive buffer before it is tuned.
const RECEIVE_BUFFER_DEFAULT: u64 = 131_072;
const RECEIVE_BUFFER_MAX_DEFAULT: u64 = 6 << 20;
const SEND_BUFFER_DEFAULT: u64 = 16_384;
const SEND_BUFFER_MAX_DEFAULT: u64 = 4 << 20;
/// A kernel that has seen no data yet counts 28 % of a buffer as window (TCP_DEFAULT_SCALING_RATIO, net/tcp.h).
const BUFFER_PER_WINDOW: u64 = 4;
/// Segments that Linux acknowledges at once (TCP_MAX_QUICKACKS, net/tcp.h).
const QUICK_ACKS: u32 = 16;
/// The first kernel whose only loss detection with SACK is RACK.
const KERNEL_ALWAYS_RACK: (u32, u32) = (6, 17);
/// CUBIC's HyStart, for every namespace of the machine.
const HYSTART: &str = "/sys/module/tcp_cubic/parameters/hystart";

/// Refuses, by name, what this kernel has no way to keep.
pub fn check(config: &TcpConfig) -> Result<(), KeyProblem> {
    let refuse = |key: &str, why: &str| Err(KeyProblem::new(key, format!("cannot be set in a live run: {why}")));
    for (key, refused, why) in refusals(config) {
        if refused {
            return refuse(key, why);
        }
    }
    // Linux 6.17 took out the loss detection of RFC 6675: where SACK is on, RACK is; tcp_recovery is then kept, but
    // changes nothing. Without SACK there is no RACK (net/ipv4/tcp_input.c: tcp_identify_packet_loss).
    if config.rack == Some(false) && config.sack != Some(false) && kernel_release() >= KERNEL_ALWAYS_RACK {
        return refuse(
            "rack",
            "with SACK, Linux has no other loss detection since 6.17; allowed: sack = false with it",
        );
    }
    if let Some(configured) = config.hystart {
        match hystart_of_machine() {
            Some(on) if on == configured => {}
            Some(on) => {
                return refuse("hystart", &format!("it is one switch for the whole machine, {HYSTART}; allowed: {on}"));
            }
            None => {
                return refuse("hystart", &format!("it is one switch for the whole machine, and {HYSTART} is missing"));
            }
        }
    }
    for Sysctl { key, name, value, allowed, unit } in sysctls(config) {
        if read_sysctl(name).is_err() {
            return refuse(key, &format!("this kernel has no {name}"));
        }
        if !allowed.contains(&value) {
            let (least, most) = allowed.into_inner();
            return refuse(key, &format!("{name} cannot be {value}; allowed: {least} to {most}{unit}"));
        }
    }
    if let Some(name) = &config.congestion_control {
        let available = read_sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        if !available.split(' ').any(|a| a == name) {
            let what = format!("this kernel has no {name:?}; allowed: {}", available.replace(' ', ", "));
            return Err(KeyProblem::new("congestion_control", what));
        }
    }
    Ok(())
}

/// Settings that no Linux supports: (key, true if configured, reason).
fn refusals(config: &TcpConfig) -> [(&'static str, bool, &'static str); 18] {
    let off = |switch: Option<bool>| switch == Some(false);
    let recovery = config.recovery.is_some_and(|recovery| recovery != Recovery::NewReno);
    let estimator = config.rto_estimator.is_some_and(|estimator| estimator != RtoEstimator::Linux);
    let probes = "Linux probes only where the program asks for it (SO_KEEPALIVE)";
    [
        ("rto_initial", config.rto_initial.is_some(), "Linux fixes the first time-out at 1 s (RFC 6298)"),
        (
            "whole_segments",
            off(config.whole_segments),
            "the emulator's port holds windows in whole segments; allowed: true",
        ),
        ("delayed_ack", config.delayed_ack.is_some(), "Linux chooses the delay itself, 40 to 200 ms"),
        (
            "ack_every",
            config.ack_every.is_some_and(|n| n > 2),
            "Linux acknowledges every segment (1) or every second one (2); allowed: 1, 2",
        ),
        (
            "quick_acks",
            config.quick_acks.is_some_and(|n| n != QUICK_ACKS),
            "Linux acknowledges up to 16 segments at once; allowed: 16",
        ),
        ("recovery", recovery, "Linux repairs losses without SACK as RFC 6582 does; allowed: \"newreno\""),
        ("fast_retransmit", off(config.fast_retransmit), "Linux always retransmits fast; allowed: true"),
        ("limited_transmit", off(config.limited_transmit), "Linux always has it (RFC 3042); allowed: true"),
        (
            "proportional_rate_reduction",
            off(config.proportional_rate_reduction),
            "Linux always reduces its window so (RFC 6937); allowed: true",
        ),
        (
            "byte_counting",
            config.byte_counting.is_some(),
            "in slow start Linux grows the window by all that an acknowledgement covers",
        ),
        (
            "nagle",
            off(config.nagle),
            "it is the program's choice (TCP_NODELAY), and the workloads leave it on; allowed: true",
        ),
        ("paws", off(config.paws), "Linux always discards old timestamps (RFC 7323); allowed: true"),
        ("rto_estimator", estimator, "Linux has its own; allowed: \"linux\""),
        ("rto_granularity", config.rto_granularity.is_some(), "Linux's timers have the tick it was built with"),
        ("user_timeout", config.user_timeout.is_some(), "it is the program's choice (TCP_USER_TIMEOUT)"),
        ("keep_alive", config.keep_alive.is_some(), probes),
        ("keep_alive_interval", config.keep_alive_interval.is_some(), probes),
        ("keep_alive_probes", config.keep_alive_probes.is_some(), probes),
    ]
}

/// A setting that a sysctl of the namespace keeps.
struct Sysctl {
    key: &'static str,
    name: &'static str,
    value: u64,
    /// The values that the kernel accepts.
    allowed: RangeInclusive<u64>,
    unit: &'static str,
}

/// The settings that sysctls keep. What they mean: Documentation/networking/ip-sysctl.rst.
fn sysctls(config: &TcpConfig) -> Vec<Sysctl> {
    let mut all = Vec::new();
    let mut add = |key, name, value: Option<u64>, allowed, unit| {
        all.extend(value.map(|value| Sysctl { key, name, value, allowed, unit }));
    };
    // On and off in the kernel's words.
    let switch = |configured: Option<bool>, on: u64| configured.map(|configured| if configured { on } else { 0 });
    add("window_scaling", "net.ipv4.tcp_window_scaling", switch(config.window_scaling, 1), 0..=1, "");
    add("sack", "net.ipv4.tcp_sack", switch(config.sack, 1), 0..=1, "");
    add("timestamps", "net.ipv4.tcp_timestamps", switch(config.timestamps, 1), 0..=1, "");
    add("ecn", "net.ipv4.tcp_ecn", switch(config.ecn, 1), 0..=1, "");
    let after_idle = switch(config.slow_start_after_idle, 1);
    add("slow_start_after_idle", "net.ipv4.tcp_slow_start_after_idle", after_idle, 0..=1, "");
    add("rack", "net.ipv4.tcp_recovery", switch(config.rack, 1), 0..=1, "");
    add("tail_loss_probe", "net.ipv4.tcp_early_retrans", switch(config.tail_loss_probe, 3), 0..=3, "");
    add("frto", "net.ipv4.tcp_frto", switch(config.frto, 2), 0..=2, "");
    add("syn_retries", "net.ipv4.tcp_syn_retries", config.syn_retries.map(u64::from), 1..=127, "");
    let linear = config.syn_linear_timeouts.map(u64::from);
    add("syn_linear_timeouts", "net.ipv4.tcp_syn_linear_timeouts", linear, 0..=127, "");
    add("retries", "net.ipv4.tcp_retries2", config.retries.map(u64::from), 0..=255, "");
    let i32_max = u64::from(i32::MAX.unsigned_abs());
    add("rto_min", "net.ipv4.tcp_rto_min_us", config.rto_min.map(|d| d.ns / 1_000), 1..=i32_max, " us");
    add("rto_max", "net.ipv4.tcp_rto_max_ms", config.rto_max.map(|d| d.ns / 1_000_000), 1_000..=120_000, " ms");
    all
}

/// The settings that were asked for as Linux has them anyway.
fn kernels_own(config: &TcpConfig) -> Vec<&'static str> {
    let all = [
        ("whole_segments", config.whole_segments.is_some()),
        ("quick_acks", config.quick_acks.is_some()),
        ("recovery", config.recovery.is_some()),
        ("fast_retransmit", config.fast_retransmit.is_some()),
        ("limited_transmit", config.limited_transmit.is_some()),
        ("proportional_rate_reduction", config.proportional_rate_reduction.is_some()),
        ("nagle", config.nagle.is_some()),
        ("paws", config.paws.is_some()),
        ("rto_estimator", config.rto_estimator.is_some()),
    ];
    all.into_iter().filter(|(_, configured)| *configured).map(|(key, _)| key).collect()
}

/// The kernel's version, such as (6, 18); the newest there could be, if it does not say.
fn kernel_release() -> (u32, u32) {
    let text = read_sysctl("kernel.osrelease").unwrap_or_default();
    release_of(&text).unwrap_or((u32::MAX, 0))
}

fn release_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether CUBIC leaves slow start early on this machine.
fn hystart_of_machine() -> Option<bool> {
    Some(std::fs::read_to_string(HYSTART).ok()?.trim() != "0")
}

/// The window limits that the emulator's port enforces for this host.
#[must_use]
pub fn window_limits(config: &TcpConfig) -> WindowLimits {
    WindowLimits {
        receive_window: config.receive_window.map(|size| size.bytes),
        send_buffer: config.send_buffer.map(|size| size.bytes),
    }
}

/// Sets the sysctls of the calling thread's namespace and says what the kernel made of them.
pub fn apply_sysctls(config: &TcpConfig) -> io::Result<Vec<EffectiveSetting>> {
    // One run must not learn from another.
    set("net.ipv4.tcp_no_metrics_save", "1")?;
    let mut settings = Vec::new();
    let configured = config.configured();
    let configured_value = |key: &str| configured.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    for Sysctl { key, name, value, .. } in sysctls(config) {
        let kept = set(name, &value.to_string())?;
        if kept != value.to_string() {
            return Err(io::Error::other(format!("the kernel made {kept} of {name} = {value}")));
        }
        let kernel = Some(format!("{name} = {kept}"));
        settings.push(EffectiveSetting { key, configured: configured_value(key).unwrap_or_default(), kernel });
    }
    for key in kernels_own(config) {
        let kernel = Some("the kernel's own".to_owned());
        settings.push(EffectiveSetting { key, configured: configured_value(key).unwrap_or_default(), kernel });
    }
    if let Some(configured) = config.hystart {
        let kernel = hystart_of_machine().map(|on| format!("{HYSTART} = {on}"));
        settings.push(EffectiveSetting { key: "hystart", configured: configured.to_string(), kernel });
    }
    if let Some(window) = config.receive_window {
        let default = RECEIVE_BUFFER_DEFAULT.max(window.bytes.saturating_mul(BUFFER_PER_WINDOW)).min(i32::MAX as u64);
        let most = RECEIVE_BUFFER_MAX_DEFAULT.max(default.saturating_mul(2)).min(i32::MAX as u64);
        // Large enough that the kernel never advertises less; the port lowers it to what was asked.
        set("net.ipv4.tcp_rmem", &format!("{BUFFER_LEAST} {default} {most}"))?;
        settings.push(EffectiveSetting { key: "receive_window", configured: window.to_string(), kernel: None });
    } else {
        settings.push(left_alone("receive_window", "net.ipv4.tcp_rmem")?);
    }
    if let Some(buffer) = config.send_buffer {
        let most = SEND_BUFFER_MAX_DEFAULT.max(buffer.bytes.saturating_mul(BUFFER_PER_WINDOW)).min(i32::MAX as u64);
        set("net.ipv4.tcp_wmem", &format!("{BUFFER_LEAST} {SEND_BUFFER_DEFAULT} {most}"))?;
        settings.push(EffectiveSetting { key: "send_buffer", configured: buffer.to_string(), kernel: None });
    } else {
        settings.push(left_alone("send_buffer", "net.ipv4.tcp_wmem")?);
    }
    for (key, value, text) in [
        ("initial_window", config.initial_window.map(|n| n.to_string()), "route initcwnd"),
        ("congestion_control", config.congestion_control.clone(), "route congctl"),
    ] {
        let Some(value) = value else { continue };
        settings.push(EffectiveSetting { key, kernel: Some(format!("{text} {value}")), configured: value });
    }
    if let Some(every) = config.ack_every {
        let kernel = if every == 1 { "route quickack 1" } else { "the kernel's own: every second, each at the start" };
        settings.push(EffectiveSetting {
            key: "ack_every",
            configured: every.to_string(),
            kernel: Some(kernel.to_owned()),
        });
    }
    if let Some(mtu) = config.mtu {
        settings.push(EffectiveSetting {
            key: "mtu",
            configured: mtu.to_string(),
            kernel: Some(format!("device mtu {}", mtu.bytes)),
        });
    }
    Ok(settings)
}

/// The attributes that every route of the host gets.
#[must_use]
pub fn route_metrics(config: &TcpConfig, mtu: u64) -> Vec<RouteMetric> {
    let mut metrics = Vec::new();
    if let Some(segments) = config.initial_window {
        metrics.push(RouteMetric::InitCwnd(segments));
    }
    if let Some(window) = config.receive_window {
        // The first window may be as large as asked (the kernel's own first one is 64 KB at most).
        let segments = window.bytes.div_ceil(mtu.saturating_sub(40).max(1)) + 1;
        metrics.push(RouteMetric::InitRwnd(u32::try_from(segments).unwrap_or(u32::MAX)));
    }
    if config.ack_every == Some(1) {
        metrics.push(RouteMetric::QuickAck(1));
    }
    if let Some(name) = &config.congestion_control {
        metrics.push(RouteMetric::CcAlgo(name.clone()));
    }
    metrics
}

/// A setting that the kernel chooses itself, within what the sysctl says.
fn left_alone(key: &'static str, name: &str) -> io::Result<EffectiveSetting> {
    let kernel = Some(format!("{name} = {}", read_sysctl(name)?));
    Ok(EffectiveSetting { key, configured: "(left to the kernel)".to_owned(), kernel })
}

/// Writes a sysctl and returns what the kernel then says.
fn set(name: &str, value: &str) -> io::Result<String> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("cannot set {name} to {value}: {error}"));
    write_sysctl(name, value).map_err(explain)?;
    read_sysctl(name).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> TcpConfig {
        TcpConfig::from_table(toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn what_linux_cannot_keep_is_refused_by_name() {
        for (text, part) in [
            ("rto_initial = '3 s'", "1 s"),
            ("delayed_ack = '500 ms'", "40 to 200 ms"),
            ("ack_every = 3", "allowed: 1, 2"),
            ("quick_acks = 2", "allowed: 16"),
            ("recovery = 'tahoe'", "newreno"),
            ("recovery = 'reno'", "newreno"),
            ("fast_retransmit = false", "allowed: true"),
            ("limited_transmit = false", "allowed: true"),
            ("proportional_rate_reduction = false", "allowed: true"),
            ("byte_counting = 2", "all that an acknowledgement covers"),
            ("nagle = false", "TCP_NODELAY"),
            ("paws = false", "allowed: true"),
            ("rto_estimator = 'rfc6298'", "allowed: \"linux\""),
            ("rto_granularity = '500 ms'", "tick"),
            ("user_timeout = '1 min'", "TCP_USER_TIMEOUT"),
            ("keep_alive = '1 min'", "SO_KEEPALIVE"),
            ("keep_alive_interval = '1 s'", "SO_KEEPALIVE"),
            ("keep_alive_probes = 3", "SO_KEEPALIVE"),
            ("syn_retries = 0", "allowed: 1 to 127"),
            ("retries = 256", "allowed: 0 to 255"),
            ("rto_max = '200 s'", "1000 to 120000 ms"),
            ("congestion_control = 'vegas-9'", "allowed: "),
        ] {
            let problem = check(&config(text)).unwrap_err();
            assert_eq!(problem.key, text.split(' ').next().unwrap(), "{}", problem.message);
            assert!(problem.message.contains(part), "{text}: {}", problem.message);
        }
    }

    #[test]
    fn what_linux_does_anyway_is_accepted_and_reported() {
        let text = "recovery = 'newreno'\nfast_retransmit = true\nlimited_transmit = true\nquick_acks = 16\n\
                    proportional_rate_reduction = true\nnagle = true\npaws = true\nrto_estimator = 'linux'";
        let config = config(text);
        assert_eq!(check(&config).map_err(|problem| problem.message), Ok(()));
        assert_eq!(kernels_own(&config).len(), text.lines().count());
    }

    #[test]
    fn hystart_is_the_machines() {
        let Some(on) = hystart_of_machine() else { return };
        assert!(check(&config(&format!("hystart = {on}"))).is_ok());
        assert_eq!(check(&config(&format!("hystart = {}", !on))).unwrap_err().key, "hystart");
    }

    #[test]
    fn rack_goes_with_sack_on_new_kernels() {
        assert!(check(&config("rack = false\nsack = false")).is_ok());
        assert!(check(&config("rack = true")).is_ok());
        let with_sack = check(&config("rack = false")).map_err(|problem| problem.key);
        let expected = if kernel_release() >= KERNEL_ALWAYS_RACK { Err("rack".to_owned()) } else { Ok(()) };
        assert_eq!(with_sack, expected);
        assert_eq!(release_of("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(release_of("nothing"), None);
    }
}
