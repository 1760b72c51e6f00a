//! Settings of a gateway's site.

use bentpipe_gateway::file::InterceptRules;
use std::net::SocketAddr;

/// Settings of a gateway's site in the kernel.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Which connections are intercepted; `None`: none, the gateway is an explicit proxy only.
    pub rules: Option<InterceptRules>,
    /// When the gateway is gone without having been stopped, what it would intercept is refused instead of forwarded.
    pub closed: bool,
    /// Connections are made in their clients' names.
    pub keep_addresses: bool,
    /// Where the program's UDP socket is bound; `None`: to all addresses.
    pub pair: Option<SocketAddr>,
    /// Requests that may be held at once; further ones are lost, and their clients ask again.
    pub held_max: usize,
    /// Requests a second that are looked at; the rest are lost.
    pub rate_max: u32,
}

impl Default for SiteOptions {
    fn default() -> Self {
        SiteOptions { rules: None, closed: false, keep_addresses: true, pair: None, held_max: 4096, rate_max: 2000 }
    }
}
