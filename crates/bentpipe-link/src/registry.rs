//! Kinds of queue disciplines and impairments: the name in a link file, and what reads the rest of its table.
//!
//! ```toml
//! [forward]
//! queue = { kind = "fifo", bytes = "64 KB" }
//!
//! [[forward.impairments]]
//! kind = "jitter"
//! most = "5 ms"
//! ```

use crate::config::impairments as built_in;
use crate::impairment::ImpairmentSpec;
use crate::queue::{QueueConfig, QueueLimit, cake, codel, drr, fq_codel, pie, priority, red, reserved, scfq, wfq};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::units::{BitRate, DataSize};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use toml::{Table, Value};

/// Reads the table of a queue, but for its `kind`. Unknown keys are refused: [`bentpipe_net::problem::read`] does that for a
/// struct with `deny_unknown_fields`.
pub type ReadQueue = fn(Table, &QueueContext) -> Result<QueueConfig, KeyProblem>;
/// Reads the table of an impairment likewise.
pub type ReadImpairment = fn(Table) -> Result<ImpairmentSpec, KeyProblem>;

/// The direction that a queue is for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueContext {
    /// The longest packet in bytes, Ethernet header and check included on a link that carries Ethernet.
    pub packet_bytes_max: u64,
    /// The highest rate, all channels together.
    pub rate: BitRate,
    /// A FIFO's limit if the file does not say: the rate times the round trip, ten packets at least.
    pub bytes_default: u64,
    /// The workloads that classes of packets may name.
    pub workloads: Workloads,
}

/// The workloads that classes of packets may name.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Workloads {
    /// None: the link is not part of a scenario.
    #[default]
    None,
    /// Any; it is not known yet where they listen, and no packet belongs to them.
    Any,
    /// These, by their names, with the addresses and ports on which their parties listen. A port alone does not identify a
    /// workload: each site gives its ports out for itself.
    Known(Arc<BTreeMap<String, Vec<SocketAddr>>>),
}

impl QueueContext {
    pub(crate) fn new(packet_bytes_max: u64, rate: BitRate, bytes_default: u64) -> Self {
        QueueContext { packet_bytes_max, rate, bytes_default, workloads: Workloads::None }
    }
}

/// The kinds that link files may name.
#[derive(Clone, Debug)]
pub struct Registry {
    queues: BTreeMap<&'static str, ReadQueue>,
    impairments: BTreeMap<&'static str, ReadImpairment>,
    workloads: Workloads,
}

impl Default for Registry {
    fn default() -> Self {
        Registry::standard()
    }
}

impl Registry {
    /// The built-in kinds.
    #[must_use]
    pub fn standard() -> Registry {
        Registry { queues: BTreeMap::new(), impairments: BTreeMap::new(), workloads: Workloads::None }
            .with_queue("cake", cake::read)
            .with_queue("codel", codel::read)
            .with_queue("drr", drr::read)
            .with_queue("fifo", read_fifo)
            .with_queue("fq-codel", fq_codel::read)
            .with_queue("pie", pie::read)
            .with_queue("priority", priority::read)
            .with_queue("red", red::read)
            .with_queue("reservations", reserved::read)
            .with_queue("scfq", scfq::read)
            .with_queue("wfq", wfq::read)
            .with_impairment("jitter", built_in::read_jitter)
            .with_impairment("loss", built_in::read_loss)
            .with_impairment("noise", built_in::read_noise)
            .with_impairment("outage", built_in::read_outage)
    }

    /// The same with one more queue discipline, or another one of that name.
    #[must_use]
    pub fn with_queue(mut self, kind: &'static str, read: ReadQueue) -> Registry {
        self.queues.insert(kind, read);
        self
    }

    /// The same with one more impairment, or another one of that name.
    #[must_use]
    pub fn with_impairment(mut self, kind: &'static str, read: ReadImpairment) -> Registry {
        self.impairments.insert(kind, read);
        self
    }

    /// The same with the workloads of a scenario, which classes of packets may name.
    #[must_use]
    pub fn with_workloads(mut self, workloads: Workloads) -> Registry {
        self.workloads = workloads;
        self
    }

    /// Reads `queue = { kind = …, … }`; without a kind, it is a FIFO.
    pub fn queue(&self, mut table: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
        let kind = table.remove("kind").unwrap_or_else(|| Value::String("fifo".to_owned()));
        let context = QueueContext { workloads: self.workloads.clone(), ..context.clone() };
        find(&self.queues, &kind)?(table, &context)
    }

    /// Reads one of `[[impairments]]`.
    pub fn impairment(&self, mut table: Table) -> Result<ImpairmentSpec, KeyProblem> {
        let kind = table.remove("kind");
        let kind =
            kind.ok_or_else(|| KeyProblem::new("kind", format!("is missing; allowed: {}", names(&self.impairments))))?;
        find(&self.impairments, &kind)?(table)
    }
}

fn names<T>(kinds: &BTreeMap<&'static str, T>) -> String {
    kinds.keys().copied().collect::<Vec<_>>().join(", ")
}

fn find<'a, T>(kinds: &'a BTreeMap<&'static str, T>, kind: &Value) -> Result<&'a T, KeyProblem> {
    let found = kind.as_str().and_then(|name| kinds.get(name));
    found.ok_or_else(|| KeyProblem::new("kind", format!("there is no kind {kind}; allowed: {}", names(kinds))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FifoText {
    bytes: Option<DataSize>,
    packets: Option<u64>,
}

fn read_fifo(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let FifoText { bytes, packets } = bentpipe_net::problem::read(keys)?;
    QueueLimit::read(bytes, packets, context).map(QueueConfig::Fifo)
}
