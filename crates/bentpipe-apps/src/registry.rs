//! The kinds of workload and of service that scenarios may name.

use crate::kind::Kind;
use crate::{bulk, command, datagrams, ftp, page, ping, service, typing};
use std::sync::Arc;

/// Kinds by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    workloads: Vec<Arc<dyn Kind>>,
    services: Vec<Arc<dyn Kind>>,
}

impl Registry {
    /// Those of this crate.
    #[must_use]
    pub fn standard() -> Registry {
        Registry::default()
            .with(ping::Ping)
            .with(bulk::Bulk)
            .with(ftp::Ftp)
            .with(page::Page)
            .with(datagrams::Datagrams)
            .with(typing::Type)
            .with(command::COMMAND)
            .with_service(service::HTTP)
            .with_service(service::FTP)
            .with_service(service::SINK)
            .with_service(service::SOURCE)
            .with_service(command::SERVICE)
    }

    /// The same and another kind of workload; it replaces one of the same name.
    #[must_use]
    pub fn with(mut self, kind: impl Kind + 'static) -> Registry {
        put(&mut self.workloads, kind);
        self
    }

    /// The same and another kind of service; it replaces one of the same name.
    #[must_use]
    pub fn with_service(mut self, kind: impl Kind + 'static) -> Registry {
        put(&mut self.services, kind);
        self
    }

    /// The kind of workload of this name, or of which it is an alias.
    #[must_use]
    pub fn workload(&self, name: &str) -> Option<&Arc<dyn Kind>> {
        find(&self.workloads, name)
    }

    /// The kind of service of this name, or of which it is an alias.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&Arc<dyn Kind>> {
        find(&self.services, name)
    }

    /// The names of the kinds of workload.
    pub fn workloads(&self) -> impl Iterator<Item = &'static str> {
        self.workloads.iter().map(|kind| kind.name())
    }

    /// The names of the kinds of service.
    pub fn services(&self) -> impl Iterator<Item = &'static str> {
        self.services.iter().map(|kind| kind.name())
    }
}

fn put(kinds: &mut Vec<Arc<dyn Kind>>, kind: impl Kind + 'static) {
    kinds.retain(|other| other.name() != kind.name());
    kinds.push(Arc::new(kind));
}

fn find<'a>(kinds: &'a [Arc<dyn Kind>], name: &str) -> Option<&'a Arc<dyn Kind>> {
    kinds.iter().find(|kind| kind.name() == name || kind.aliases().contains(&name))
}
