//! Metrics of a line that the gateway dials.

use bentpipe_gateway::dial::{LineMetrics, Raise};
use bentpipe_net::line::Unwanted;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Writes them. Money is in units of the tariff's currency, rounded; `bentpipe gateway cost` is exact.
pub fn encode(line: &LineMetrics, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let counters = [
        ("line_calls", "Calls dialled", None, line.dialled as f64),
        ("line_calls_failed", "Calls that did not come up", None, line.failed as f64),
        ("line_airtime", "Time on air", Some(Unit::Seconds), line.airtime.as_secs_f64()),
        ("line_cost", "Cost of all calls, in units of the currency", None, line.cost.as_f64()),
        ("line_refused_calls", "Demands refused: calls of an hour or a day used up", None, line.refused_calls as f64),
        ("line_refused_cap", "Demands refused: a cap on money is reached", None, line.refused_cap as f64),
        ("line_refused_ledger", "Demands refused: the ledger cannot be written", None, line.refused_ledger as f64),
    ];
    for (name, help, unit, value) in counters {
        let metric = ConstCounter::new(value);
        metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
    }
    let refused = Raise::ALL.into_iter().zip(line.not_listed).map(|(by, count)| (format!("line_refused_{by}"), count));
    let dropped = Unwanted::ALL.into_iter().zip(line.unwanted).map(|(what, n)| (format!("line_dropped_{what}"), n));
    for (name, count) in refused.chain(dropped) {
        let metric = ConstCounter::new(count);
        let help = "What may not set the line up, or found it down";
        metric.encode(encoder.encode_descriptor(&name, help, None, metric.metric_type())?)?;
    }
    let gauges = [
        ("line_up", "1 while the line is up", if line.up { 1.0 } else { 0.0 }),
        ("line_cost_today", "Cost of the calls of this day (UTC) that are over", line.cost_today.as_f64()),
        ("line_cost_this_month", "Cost of the calls of this month (UTC) that are over", line.cost_this_month.as_f64()),
    ];
    for (name, help, value) in gauges {
        let metric = ConstGauge::new(value);
        metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
    }
    Ok(())
}
