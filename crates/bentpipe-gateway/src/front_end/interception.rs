//! Connections that the site intercepts (RFC 3135 §2.1.1: transparent to both ends).

use super::{Admission, FrontEnd, FrontEndSettings, Kind};
use bentpipe_net::time::Instant;
use std::sync::Arc;

/// Always there; which connections are intercepted is the site's setting.
pub(super) const KIND: Kind = Kind {
    key: None,
    read: |_| {
        Ok(FrontEndSettings::new(
            "intercept",
            "interception",
            toml::Value::Boolean(true),
            None,
            Arc::new(|| Box::new(Intercepted)),
        ))
    },
};

struct Intercepted;

impl FrontEnd for Intercepted {
    fn poll(&mut self, _now: Instant, gateway: &mut dyn Admission) {
        while let Some(request) = gateway.sockets().next_request() {
            gateway.intercept(request);
        }
    }
}
