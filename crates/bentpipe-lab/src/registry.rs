//! The kinds that scenarios may name: workloads, services, queue disciplines, impairments, front ends of gateways.

/// Kinds by name. Whoever adds one puts it into a registry and reads scenarios with
/// [`Scenario::parse_with`](crate::scenario::Scenario::parse_with).
///
/// ```
/// use bentpipe_lab::registry::Registry;
/// assert!(Registry::default().workloads.workload("bulk").is_some());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Registry {
    /// Kinds of workload and of service.
    pub workloads: bentpipe_apps::Registry,
    /// Kinds of queue discipline and of impairment.
    pub links: bentpipe_link::registry::Registry,
    /// Front ends of gateways.
    pub front_ends: bentpipe_gateway::front_end::Registry,
}

impl Default for Registry {
    /// The kinds that bentpipe comes with.
    fn default() -> Registry {
        Registry {
            workloads: bentpipe_apps::Registry::standard(),
            links: bentpipe_link::registry::Registry::standard(),
            front_ends: bentpipe_gateway::front_end::Registry::standard(),
        }
    }
}

impl Registry {
    /// The same with other kinds of workload and of service.
    #[must_use]
    pub fn with_workloads(self, workloads: bentpipe_apps::Registry) -> Registry {
        Registry { workloads, ..self }
    }

    /// The same with other kinds of queue discipline and of impairment.
    #[must_use]
    pub fn with_links(self, links: bentpipe_link::registry::Registry) -> Registry {
        Registry { links, ..self }
    }

    /// The same with other front ends of gateways.
    #[must_use]
    pub fn with_front_ends(self, front_ends: bentpipe_gateway::front_end::Registry) -> Registry {
        Registry { front_ends, ..self }
    }
}
