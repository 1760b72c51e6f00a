//! A host's TCP settings on this kernel: which it keeps (sysctls of the namespace, route attributes), which the
//! emulator's port holds (windows), and which it cannot be made to keep, and so are refused by name.

use crate::namespace::{read_sysctl, write_sysctl};
use crate::tap::WindowLimits;
use bentpipe_link::problem::KeyProblem;
use bentpipe_link::stack::TcpConfig;
use netlink_packet_route::route::RouteMetric;
use std::io;

/// Who holds a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSetting {
    /// The key under `[hosts.X.tcp]`.
    pub key: &'static str,
    /// As asked.
    pub asked: String,
    /// What the kernel says it set; `None`: the emulator's port holds it.
    pub kernel: Option<String>,
}

/// Smallest of what the kernel gives every socket.
const BUFFER_LEAST: u64 = 4096;
/// This kernel's default of a receive buffer before it is tuned.
const RECEIVE_BUFFER_USUAL: u64 = 131_072;
const RECEIVE_BUFFER_MAX_USUAL: u64 = 6 << 20;
const SEND_BUFFER_USUAL: u64 = 16_384;
const SEND_BUFFER_MAX_USUAL: u64 = 4 << 20;
/// A kernel that has seen no data yet counts 28 % of a buffer as window (TCP_DEFAULT_SCALING_RATIO, net/tcp.h).
const BUFFER_PER_WINDOW: u64 = 4;

/// Refuses, by name, what this kernel has no way to keep.
pub fn check(config: &TcpConfig) -> Result<(), KeyProblem> {
    let refuse = |key: &str, why: &str| Err(KeyProblem::new(key, format!("cannot be set in a live run: {why}")));
    if config.rto_initial.is_some() {
        return refuse("rto_initial", "Linux fixes the first time-out at 1 s (RFC 6298)");
    }
    if config.delayed_ack.is_some() {
        return refuse("delayed_ack", "Linux chooses the delay itself, 40 to 200 ms");
    }
    if config.ack_every.is_some_and(|n| n > 2) {
        return refuse("ack_every", "Linux acknowledges every segment (1) or every second one (2); allowed: 1, 2");
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

/// What the emulator's port holds for this host.
#[must_use]
pub fn window_limits(config: &TcpConfig) -> WindowLimits {
    WindowLimits {
        receive_window: config.receive_window.map(|size| size.bytes),
        send_buffer: config.send_buffer.map(|size| size.bytes),
    }
}

/// Sets the sysctls of the calling thread's namespace and says what the kernel made of them.
pub fn apply_sysctls(config: &TcpConfig) -> io::Result<Vec<HeldSetting>> {
    // One run must not learn from another.
    set("net.ipv4.tcp_no_metrics_save", "1")?;
    let mut held = Vec::new();
    let asked = config.asked();
    let asked_of = |key: &str| asked.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    let switch = |on: bool| if on { "1" } else { "0" }.to_owned();
    let settings: [(&'static str, &str, Option<String>); 8] = [
        ("window_scaling", "net.ipv4.tcp_window_scaling", config.window_scaling.map(switch)),
        ("sack", "net.ipv4.tcp_sack", config.sack.map(switch)),
        ("timestamps", "net.ipv4.tcp_timestamps", config.timestamps.map(switch)),
        ("ecn", "net.ipv4.tcp_ecn", config.ecn.map(switch)),
        ("slow_start_after_idle", "net.ipv4.tcp_slow_start_after_idle", config.slow_start_after_idle.map(switch)),
        ("syn_retries", "net.ipv4.tcp_syn_retries", config.syn_retries.map(|n| n.to_string())),
        ("rto_min", "net.ipv4.tcp_rto_min_us", config.rto_min.map(|d| (d.ns / 1_000).to_string())),
        ("rto_max", "net.ipv4.tcp_rto_max_ms", config.rto_max.map(|d| (d.ns / 1_000_000).to_string())),
    ];
    for (key, name, value) in settings {
        let Some(value) = value else { continue };
        let kernel = Some(format!("{name} = {}", set(name, &value)?));
        held.push(HeldSetting { key, asked: asked_of(key).unwrap_or_default(), kernel });
    }
    if let Some(window) = config.receive_window {
        let usual = RECEIVE_BUFFER_USUAL.max(window.bytes.saturating_mul(BUFFER_PER_WINDOW)).min(i32::MAX as u64);
        let most = RECEIVE_BUFFER_MAX_USUAL.max(usual.saturating_mul(2)).min(i32::MAX as u64);
        // Large enough that the kernel never advertises less; the port lowers it to what was asked.
        set("net.ipv4.tcp_rmem", &format!("{BUFFER_LEAST} {usual} {most}"))?;
        held.push(HeldSetting { key: "receive_window", asked: window.to_string(), kernel: None });
    } else {
        held.push(left_alone("receive_window", "net.ipv4.tcp_rmem")?);
    }
    if let Some(buffer) = config.send_buffer {
        let most = SEND_BUFFER_MAX_USUAL.max(buffer.bytes.saturating_mul(BUFFER_PER_WINDOW)).min(i32::MAX as u64);
        set("net.ipv4.tcp_wmem", &format!("{BUFFER_LEAST} {SEND_BUFFER_USUAL} {most}"))?;
        held.push(HeldSetting { key: "send_buffer", asked: buffer.to_string(), kernel: None });
    } else {
        held.push(left_alone("send_buffer", "net.ipv4.tcp_wmem")?);
    }
    for (key, value, text) in [
        ("initial_window", config.initial_window.map(|n| n.to_string()), "route initcwnd"),
        ("congestion_control", config.congestion_control.clone(), "route congctl"),
    ] {
        let Some(value) = value else { continue };
        held.push(HeldSetting { key, kernel: Some(format!("{text} {value}")), asked: value });
    }
    if let Some(every) = config.ack_every {
        let kernel = if every == 1 { "route quickack 1" } else { "the kernel's own: every second, each at the start" };
        held.push(HeldSetting { key: "ack_every", asked: every.to_string(), kernel: Some(kernel.to_owned()) });
    }
    if let Some(mtu) = config.mtu {
        held.push(HeldSetting {
            key: "mtu",
            asked: mtu.to_string(),
            kernel: Some(format!("device mtu {}", mtu.bytes)),
        });
    }
    Ok(held)
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
fn left_alone(key: &'static str, name: &str) -> io::Result<HeldSetting> {
    let kernel = Some(format!("{name} = {}", read_sysctl(name)?));
    Ok(HeldSetting { key, asked: "(left to the kernel)".to_owned(), kernel })
}

/// Writes a sysctl and returns what the kernel then says.
fn set(name: &str, value: &str) -> io::Result<String> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("cannot set {name} to {value}: {error}"));
    write_sysctl(name, value).map_err(explain)?;
    read_sysctl(name).map_err(explain)
}
