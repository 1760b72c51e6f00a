//! Links: counters and series of each direction, and circuits.

use crate::record::{CircuitChange, CircuitRecord, CircuitState, Counters, DirectionRecord, LinkRecord, Series, Unit};
use crate::scenario::LinkUse;
use bentpipe_link::circuit::CircuitChange as Change;
use bentpipe_link::direction::{Direction, Sample};
use bentpipe_link::link::Link;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::Instant;

/// The record of a link at the end of its case, without its bill ([`super::bills`]); `samples` of each direction, in the
/// link's order.
pub fn link_record<P: Packet>(used: &LinkUse, link: &Link<P>, samples: &[Vec<Sample>], end: Instant) -> LinkRecord {
    let directions = link
        .directions()
        .iter()
        .zip(samples)
        .enumerate()
        .map(|(n, (direction, samples))| {
            let (hub, terminals) = (&used.sites[..1], &used.sites[1..]);
            let to = if n == 0 { terminals } else { hub };
            DirectionRecord {
                from: used.sites[n].clone(),
                to: to.to_vec(),
                counters: counters(direction),
                series: direction_series(samples),
            }
        })
        .collect();
    let bill = link.bill(end);
    let circuit = link.circuit().map(|circuit| {
        let totals = circuit.counters(end);
        CircuitRecord {
            calls: totals.calls,
            calls_lost: totals.calls_lost,
            setting_up: totals.setting_up.as_secs_f64(),
            on_air: totals.on_air.as_secs_f64(),
            cost: bill.as_ref().map(|bill| bill.total.as_f64()),
            channels_most: circuit.config().on_demand.map(|_| totals.calls_most),
            currency: bill.as_ref().map(|bill| bill.currency.to_string()),
            changes: circuit.changes().iter().map(circuit_change).collect(),
        }
    });
    LinkRecord {
        name: used.name.clone(),
        kind: used.kind.clone().unwrap_or_default(),
        summary: used.config.title.clone(),
        directions,
        circuit,
        bill: None,
    }
}

fn circuit_change((at, change): &(Instant, Change)) -> CircuitChange {
    let state = match change {
        Change::SettingUp { stage, channel } => {
            CircuitState::SettingUp { stage: stage.clone(), channel: channel.map(|channel| channel as u64) }
        }
        Change::Refused => CircuitState::Refused,
        Change::Up => CircuitState::Up,
        Change::ChannelsUp(channels) => CircuitState::ChannelsUp { channels: *channels as u64 },
        Change::Down => CircuitState::Down,
        Change::Lost => CircuitState::Lost,
    };
    CircuitChange { at: at.as_secs_f64(), state }
}

fn counters<P: Packet>(direction: &Direction<P>) -> Counters {
    let sender = direction.sender_counters();
    let mut counters = Counters {
        offered_packets: sender.offered_packets,
        offered_bytes: sender.offered_bytes,
        dropped_packets: sender.dropped_packets,
        sent_packets: sender.sent_packets,
        link_bytes: sender.link_bits.div_ceil(8),
        lost_packets: sender.abandoned_packets,
        queue_bytes_max: sender.queue_bytes_max,
        ..Counters::default()
    };
    for receiver in direction.receiver_counters() {
        counters.damaged_packets += receiver.damaged_packets;
        counters.delivered_damaged_packets += receiver.delivered_damaged_packets;
        counters.bit_errors += receiver.bit_errors;
        counters.lost_packets += receiver.lost_packets;
        counters.delivered_packets += receiver.delivered_packets;
        counters.delivered_bytes += receiver.delivered_bytes;
    }
    counters
}

fn direction_series(samples: &[Sample]) -> Vec<Series> {
    let series = |quantity: &str, unit: Unit, value: fn(&Sample) -> u64| {
        let points = samples.iter().map(|s| (s.at.as_secs_f64(), value(s) as f64));
        Series::new(quantity, unit, points.collect())
    };
    vec![
        series("queue", Unit::Bytes, |s| s.queue_bytes),
        series("dropped_packets", Unit::Number, |s| s.dropped_packets),
        series("damaged_packets", Unit::Number, |s| s.damaged_packets),
        series("bit_errors", Unit::Number, |s| s.bit_errors),
        series("link_bytes", Unit::Bytes, |s| s.link_bits.div_ceil(8)),
        series("delivered_bytes", Unit::Bytes, |s| s.delivered_bytes),
    ]
}
