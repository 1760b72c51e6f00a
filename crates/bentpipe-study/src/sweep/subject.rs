//! Subjects of a sweep's figures: workloads, directions of links, hosts.

use bentpipe_lab::record::label;
use serde::{Deserialize, Serialize};

/// The subject of a figure; `N` is what names are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Subject<N> {
    /// A workload, or one of its copies.
    Workload {
        /// Its name.
        workload: N,
        /// Which copy, from 1; `None`: it is the only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<u32>,
    },
    /// A direction of a link.
    Direction {
        /// The link.
        link: N,
        /// The sending site.
        from: N,
    },
    /// A host's TCP connections.
    Host {
        /// The site.
        host: N,
    },
}

impl<N> Subject<N> {
    /// The same subject with other names.
    pub fn map<M>(&self, mut name: impl FnMut(&N) -> M) -> Subject<M> {
        match self {
            Subject::Workload { workload, copy } => Subject::Workload { workload: name(workload), copy: *copy },
            Subject::Direction { link, from } => Subject::Direction { link: name(link), from: name(from) },
            Subject::Host { host } => Subject::Host { host: name(host) },
        }
    }
}

impl<N: Clone> Subject<N> {
    /// A workload with all its copies; other subjects as they are.
    pub fn all_copies(&self) -> Subject<N> {
        match self {
            Subject::Workload { workload, .. } => Subject::Workload { workload: workload.clone(), copy: None },
            other => other.clone(),
        }
    }
}

impl Subject<String> {
    /// For people: `web (2)`, `sat from hub`.
    pub fn label(&self) -> String {
        match self {
            Subject::Workload { workload, copy } => label(workload, *copy),
            Subject::Direction { link, from } => format!("{link} from {from}"),
            Subject::Host { host } => host.clone(),
        }
    }
}
