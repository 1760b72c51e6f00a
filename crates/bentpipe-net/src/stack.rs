//! Settings of a host's TCP: the keys of `[hosts.X.tcp]`, and presets named after the papers' stacks. The emulator and
//! the simulator read the same keys; each refuses by name what it cannot do.

use crate::problem::{KeyProblem, did_you_mean, read};
use crate::time::Duration;
use crate::units::DataSize;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Settings of one host's TCP; `None`: what the kernel (or the simulator's "linux") does by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// The preset these settings started from.
    pub preset: Option<String>,
    /// Most that the host advertises, in bytes (the receiver's side).
    pub receive_window: Option<DataSize>,
    /// Most that the host has in flight, in bytes (the sender's side).
    pub send_buffer: Option<DataSize>,
    /// Both of these count in whole segments, ⌊W ÷ MSS⌋ · MSS (true, the default), or to the byte, as RFC 9293 §3.8.6 has them.
    pub whole_segments: Option<bool>,
    /// Segments sent before the first acknowledgement (RFC 6928: 10; RFC 2581: 2; before: 1).
    pub initial_window: Option<u32>,
    /// Window scaling (RFC 7323).
    pub window_scaling: Option<bool>,
    /// Selective acknowledgements (RFC 2018).
    pub sack: Option<bool>,
    /// Timestamps (RFC 7323).
    pub timestamps: Option<bool>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Option<bool>,
    /// `reno`, `cubic`, `bbr`, …
    pub congestion_control: Option<String>,
    /// Largest IP packet the host sends or accepts, if lower than the link's.
    pub mtu: Option<DataSize>,
    /// An acknowledgement for every segment (1), every second one (2; RFC 1122 §4.2.3.2), or every so many; more than 2, which
    /// no Linux does, also leaves out Linux's quick acknowledgements.
    pub ack_every: Option<u32>,
    /// Slow start again after an idle time (RFC 5681 §4.1).
    pub slow_start_after_idle: Option<bool>,
    /// SYNs sent again before giving up.
    pub syn_retries: Option<u32>,
    /// Lower bound of the retransmission time-out (RFC 6298: 1 s).
    pub rto_min: Option<Duration>,
    /// Upper bound of the retransmission time-out (RFC 6298: at least 60 s).
    pub rto_max: Option<Duration>,
    /// Retransmission time-out before the first measurement (RFC 6298: 1 s; RFC 1122: 3 s).
    pub rto_initial: Option<Duration>,
    /// Longest delay of an acknowledgement (RFC 1122: 0.5 s).
    pub delayed_ack: Option<Duration>,
    /// Segments acknowledged at once at the start of a connection and after a pause (Linux: 16), and each segment
    /// while the window grows; 0: none of these, the default where `ack_every` is more than 2.
    pub quick_acks: Option<u32>,
    /// Loss recovery when SACK is off: `tahoe`, `reno` (RFC 2581) or `newreno` (RFC 6582).
    pub recovery: Option<Recovery>,
    /// Retransmit at the third duplicate acknowledgement (RFC 5681 §3.2).
    pub fast_retransmit: Option<bool>,
    /// New segments at the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: Option<bool>,
    /// Detect losses by time as well (RACK, RFC 8985); needs SACK.
    pub rack: Option<bool>,
    /// Probe for losses at the tail (TLP, RFC 8985 §7); needs SACK.
    pub tail_loss_probe: Option<bool>,
    /// Detect time-outs that were too early (F-RTO, RFC 5682).
    pub frto: Option<bool>,
    /// Reduce the congestion window evenly during recovery (PRR, RFC 6937) instead of at once.
    pub proportional_rate_reduction: Option<bool>,
    /// Most segments that the window grows by for one acknowledgement in slow start (the L of RFC 3465, which advises
    /// 2); 0: one for each acknowledgement, whatever it acknowledges (RFC 5681).
    pub byte_counting: Option<u32>,
    /// CUBIC leaves slow start when the round-trip time rises (HyStart).
    pub hystart: Option<bool>,
    /// Hold a small segment back while another one is unacknowledged (RFC 896; RFC 9293 §3.7.4).
    pub nagle: Option<bool>,
    /// Discard segments with old timestamps (RFC 7323 §5).
    pub paws: Option<bool>,
    /// The estimator of the retransmission time-out.
    pub rto_estimator: Option<RtoEstimator>,
    /// Tick of the clock that measures round trips and runs the timers (RFC 6298 G; 4.4BSD: 500 ms). Not given: exact, and
    /// with `rto_estimator = "linux"` timers that fire as late as Linux's timer wheel has them.
    pub rto_granularity: Option<Duration>,
    /// SYNs sent again at even intervals before the interval doubles (Linux since 6.5: 4).
    pub syn_linear_timeouts: Option<u32>,
    /// Times that data is sent again before the connection is given up (RFC 1122 R2; Linux: 15).
    pub retries: Option<u32>,
    /// Give up data that stays unacknowledged this long (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// Probe a silent connection after this long (RFC 1122 §4.2.3.6: two hours or more).
    pub keep_alive: Option<Duration>,
    /// Time between two such probes.
    pub keep_alive_interval: Option<Duration>,
    /// Unanswered probes before the connection is given up.
    pub keep_alive_probes: Option<u32>,
}

/// Loss recovery of a sender without SACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// Slow start from the loss (4.3BSD-Tahoe).
    Tahoe,
    /// One retransmission, over with the first new acknowledgement (4.3BSD-Reno; RFC 2581).
    Reno,
    /// A retransmission for each partial acknowledgement (RFC 6582).
    NewReno,
}

/// The estimator that makes the retransmission time-out from the measured round-trip time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RtoEstimator {
    /// SRTT + max(G, 4·RTTVAR), at least `rto_min` (RFC 6298 §2).
    Rfc6298,
    /// SRTT + max(`rto_min`, the largest deviation of the last round trips): Linux, whose `rto_min` is 200 ms.
    Linux,
}

/// A preset: its name, what it stands for and where that is from, and its settings as TOML.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name for `preset = "…"`.
    pub name: &'static str,
    /// The stack that it stands for, with the source.
    pub about: &'static str,
    settings: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "linux",
        about: "A current Linux host: CUBIC (RFC 9438), initial window 10 (RFC 6928), SACK, timestamps, window scaling, \
                buffers tuned by the kernel.",
        settings: "congestion_control = 'cubic'\ninitial_window = 10\nsack = true\ntimestamps = true\n\
                   window_scaling = true\nslow_start_after_idle = true",
    },
    Preset {
        name: "windows-95",
        about: "Windows 95 as HERMES found it: a window of 8 KB, no large windows, no SACK (\"Speed limits…\"; results \
                HB-4). Initial window 1 and Reno are what stacks of the time did (RFC 2001): an assumption.",
        settings: "congestion_control = 'reno'\ninitial_window = 1\nsack = false\ntimestamps = false\n\
                   window_scaling = false\nreceive_window = '8 KiB'\nsend_buffer = '8 KiB'\nack_every = 2",
    },
    Preset {
        name: "windows-98-tuned",
        about: "Windows 95 or 98 with DefaultRcvWindow set to 65535 as HERMES did (results HB-5); Windows 98 has SACK. \
                The paper's transfers did not use large windows: the server, NT 4, had none.",
        settings: "congestion_control = 'reno'\ninitial_window = 1\nsack = true\ntimestamps = false\n\
                   window_scaling = false\nreceive_window = '65535 B'\nsend_buffer = '65535 B'\nack_every = 2",
    },
    Preset {
        name: "solaris-2",
        about: "Solaris 2.x as NTIA 98-354 §5 used it by default: a window of 8 kB and at most 32 kB in flight \
                (results NTIA-5.F3). Initial window 1 (RFC 2001): an assumption.",
        settings: "congestion_control = 'reno'\ninitial_window = 1\nsack = false\ntimestamps = false\n\
                   window_scaling = false\nreceive_window = '8 KiB'\nsend_buffer = '32 KiB'\nack_every = 2",
    },
    Preset {
        name: "bsd-1995",
        about: "A workstation of the mid-1990s in every respect: slow start from one segment, one more for each \
                acknowledgement (RFC 2001), an acknowledgement for every second segment or after 200 ms, timers of \
                500 ms ticks, one fast retransmission at a time (4.3BSD-Reno: Stevens, TCP/IP Illustrated, volume 2), \
                3 s before the first measurement (RFC 1122). Buffers are left to the file. For virtual runs.",
        settings: "congestion_control = 'reno'\ninitial_window = 1\nsack = false\ntimestamps = false\n\
                   window_scaling = false\nack_every = 2\ndelayed_ack = '200 ms'\nquick_acks = 0\nbyte_counting = 0\n\
                   recovery = 'reno'\nlimited_transmit = false\nfrto = false\nproportional_rate_reduction = false\n\
                   rack = false\ntail_loss_probe = false\nrto_estimator = 'rfc6298'\nrto_granularity = '500 ms'\n\
                   rto_min = '1 s'\nrto_initial = '3 s'\nsyn_linear_timeouts = 0",
    },
    Preset {
        name: "tcp-lfn",
        about: "TCP with large windows for long fat networks, as NTIA 98-354 §5 set it for a T1 at 0.8 s: 154,000 B \
                (results NTIA-5.6), timestamps and window scaling (RFC 1323), no SACK.",
        settings: "congestion_control = 'reno'\ninitial_window = 1\nsack = false\ntimestamps = true\n\
                   window_scaling = true\nreceive_window = '154000 B'\nsend_buffer = '154000 B'\nack_every = 2",
    },
    Preset {
        name: "linux-large-buffers",
        about: "A current Linux host set up for long fat links: as \"linux\", with a window and a send buffer of 64 MiB \
                (more than one bandwidth-delay product of 500 Mbit/s at 600 ms) and no slow start after idle.",
        settings: "congestion_control = 'cubic'\ninitial_window = 10\nsack = true\ntimestamps = true\n\
                   window_scaling = true\nslow_start_after_idle = false\nreceive_window = '64 MiB'\n\
                   send_buffer = '64 MiB'",
    },
];

impl TcpConfig {
    /// Reads `[hosts.X.tcp]`: the preset it names (or "linux"), with its own keys on top.
    pub fn from_table(table: Table) -> Result<TcpConfig, KeyProblem> {
        let own: TcpConfig = read(table.clone())?;
        let name = own.preset.as_deref().unwrap_or("linux");
        let preset = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            let meant = did_you_mean(name, names.iter().copied());
            KeyProblem::new("preset", format!("there is no preset {name:?}{meant}; allowed: {}", names.join(", ")))
        })?;
        let mut merged: Table = toml::from_str(preset.settings)
            .map_err(|error| KeyProblem::new("preset", format!("{name}: {}", error.message())))?;
        merged.insert("preset".to_owned(), Value::String(name.to_owned()));
        merged.extend(table);
        let config: TcpConfig = read(merged)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), KeyProblem> {
        if let Some(window) = self.receive_window {
            if window.bytes == 0 || window.bytes > 1 << 30 {
                let what = format!("{window} is out of range; allowed: 1 B to 1 GiB (RFC 7323 §2.2)");
                return Err(KeyProblem::new("receive_window", what));
            }
            if window.bytes > 65_535 && self.window_scaling == Some(false) {
                let what = format!("{window} needs window_scaling = true; without it 65535 B is the most (RFC 9293)");
                return Err(KeyProblem::new("receive_window", what));
            }
        }
        if self.send_buffer.is_some_and(|size| size.bytes == 0 || size.bytes > 1 << 30) {
            return Err(KeyProblem::new("send_buffer", "is out of range; allowed: 1 B to 1 GiB"));
        }
        if self.initial_window.is_some_and(|segments| !(1..=1000).contains(&segments)) {
            return Err(KeyProblem::new("initial_window", "is out of range; allowed: 1 to 1000 segments"));
        }
        if self.mtu.is_some_and(|mtu| !(68..=65_535).contains(&mtu.bytes)) {
            return Err(KeyProblem::new("mtu", "is out of range; allowed: 68 B (RFC 791) to 65535 B"));
        }
        if self.user_timeout.is_some_and(|time| time == Duration::ZERO) {
            return Err(KeyProblem::new("user_timeout", "0 would give up at once; allowed: longer than zero"));
        }
        if self.rto_granularity.is_some_and(|tick| tick > Duration::from_secs(1)) {
            return Err(KeyProblem::new("rto_granularity", "is out of range; allowed: up to 1 s"));
        }
        for (key, on) in [("rack", self.rack), ("tail_loss_probe", self.tail_loss_probe)] {
            if on == Some(true) && self.sack == Some(false) {
                return Err(KeyProblem::new(key, "needs sack = true (RFC 8985 §3)"));
            }
        }
        if self.ack_every == Some(0) {
            return Err(KeyProblem::new("ack_every", "0 would never acknowledge; allowed: 1 or more"));
        }
        if let (Some(min), Some(max)) = (self.rto_min, self.rto_max)
            && min > max
        {
            return Err(KeyProblem::new("rto_min", format!("{min} is above rto_max, {max}")));
        }
        Ok(())
    }

    /// Forgets one setting, by its key; whether there was such a one.
    pub fn leave_open(&mut self, key: &str) -> bool {
        let Ok(Value::Table(mut table)) = Value::try_from(&*self) else { return false };
        let known = table.remove(key).is_some();
        match table.try_into() {
            Ok(rest) if known => {
                *self = rest;
                true
            }
            _ => false,
        }
    }

    /// The settings that are set, as (key, value) texts in a fixed order.
    #[must_use]
    pub fn configured(&self) -> Vec<(&'static str, String)> {
        let mut configured = Vec::new();
        let mut add = |key, value: Option<String>| configured.extend(value.map(|value| (key, value)));
        add("preset", self.preset.clone());
        add("receive_window", self.receive_window.map(|v| v.to_string()));
        add("send_buffer", self.send_buffer.map(|v| v.to_string()));
        add("whole_segments", self.whole_segments.map(|v| v.to_string()));
        add("initial_window", self.initial_window.map(|v| v.to_string()));
        add("window_scaling", self.window_scaling.map(|v| v.to_string()));
        add("sack", self.sack.map(|v| v.to_string()));
        add("timestamps", self.timestamps.map(|v| v.to_string()));
        add("ecn", self.ecn.map(|v| v.to_string()));
        add("congestion_control", self.congestion_control.clone());
        add("mtu", self.mtu.map(|v| v.to_string()));
        add("ack_every", self.ack_every.map(|v| v.to_string()));
        add("slow_start_after_idle", self.slow_start_after_idle.map(|v| v.to_string()));
        add("syn_retries", self.syn_retries.map(|v| v.to_string()));
        add("rto_min", self.rto_min.map(|v| v.to_string()));
        add("rto_max", self.rto_max.map(|v| v.to_string()));
        add("rto_initial", self.rto_initial.map(|v| v.to_string()));
        add("delayed_ack", self.delayed_ack.map(|v| v.to_string()));
        add("quick_acks", self.quick_acks.map(|v| v.to_string()));
        add("recovery", self.recovery.map(|v| format!("{v:?}").to_lowercase()));
        add("fast_retransmit", self.fast_retransmit.map(|v| v.to_string()));
        add("limited_transmit", self.limited_transmit.map(|v| v.to_string()));
        add("rack", self.rack.map(|v| v.to_string()));
        add("tail_loss_probe", self.tail_loss_probe.map(|v| v.to_string()));
        add("frto", self.frto.map(|v| v.to_string()));
        add("proportional_rate_reduction", self.proportional_rate_reduction.map(|v| v.to_string()));
        add("byte_counting", self.byte_counting.map(|v| v.to_string()));
        add("hystart", self.hystart.map(|v| v.to_string()));
        add("nagle", self.nagle.map(|v| v.to_string()));
        add("paws", self.paws.map(|v| v.to_string()));
        add("rto_estimator", self.rto_estimator.map(|v| format!("{v:?}").to_lowercase()));
        add("rto_granularity", self.rto_granularity.map(|v| v.to_string()));
        add("syn_linear_timeouts", self.syn_linear_timeouts.map(|v| v.to_string()));
        add("retries", self.retries.map(|v| v.to_string()));
        add("user_timeout", self.user_timeout.map(|v| v.to_string()));
        add("keep_alive", self.keep_alive.map(|v| v.to_string()));
        add("keep_alive_interval", self.keep_alive_interval.map(|v| v.to_string()));
        add("keep_alive_probes", self.keep_alive_probes.map(|v| v.to_string()));
        configured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_reads() {
        for preset in PRESETS {
            let table = Table::from_iter([("preset".to_owned(), Value::String(preset.name.to_owned()))]);
            let config = TcpConfig::from_table(table).unwrap();
            assert!(config.congestion_control.is_some(), "{}: congestion control is always explicit", preset.name);
            assert!(config.initial_window.is_some(), "{}", preset.name);
        }
    }

    #[test]
    fn own_keys_stand_above_the_preset() {
        let config = TcpConfig::from_table(toml::from_str("preset = 'windows-95'\nsack = true").unwrap()).unwrap();
        assert_eq!((config.sack, config.window_scaling), (Some(true), Some(false)));
        assert_eq!(config.receive_window.unwrap().bytes, 8192);
    }

    #[test]
    fn a_setting_can_be_left_open_again() {
        let mut config = TcpConfig::from_table(toml::from_str("preset = 'bsd-1995'\nmtu = '576 B'").unwrap()).unwrap();
        assert!(config.leave_open("rto_granularity") && !config.leave_open("rto_granularity"));
        assert!(!config.leave_open("colour"));
        assert_eq!((config.rto_granularity, config.mtu.unwrap().bytes, config.sack), (None, 576, Some(false)));
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        for (text, key) in [
            ("preset = 'beos'", "preset"),
            ("preset = 'windows-95'\nreceive_window = '64 KiB'", "receive_window"),
            ("receive_window = '2 GiB'", "receive_window"),
            ("initial_window = 0", "initial_window"),
            ("window = '8 KiB'", "window"),
            ("ack_every = 0", "ack_every"),
            ("rto_min = '9 s'\nrto_max = '3 s'", "rto_min"),
            ("mtu = '40 B'", "mtu"),
        ] {
            let problem = TcpConfig::from_table(toml::from_str(text).unwrap()).unwrap_err();
            assert_eq!(problem.key, key, "{text}: {}", problem.message);
        }
    }
}
