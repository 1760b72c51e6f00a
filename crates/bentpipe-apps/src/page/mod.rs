//! A page and its objects over HTTP/1.0 or 1.1 (RFC 9110, RFC 9112).
//!
//! The client gets the page, then its objects over parallel connections, without pipelining: with HTTP/1.0 one
//! connection an object, with 1.1 persistent ones, the page's own among them. It speaks to any server; the server
//! answers any client:
//! - `/` and `/index.html`: a small page that shows its objects as `<img src="/bytes/N?i">`, padded to its size.
//! - `/bytes/N`: N bytes of the seed's pattern, with single ranges. The query is ignored; it tells objects apart.
//!
//! A single download is a page without objects: `path` = `/bytes/524288`. What comes from `/bytes/N` is verified.
//!
//! Measured at the client, from its first call to connect; bytes are those of decoded bodies:
//! - `completion_time` (last byte of the last object), `goodput`, `first_byte` (of a body), `bytes`, `wrong_bytes`.
//! - `html_time`: until the page itself was complete.
//! - `object_time_mean`, `object_time_max`: from when a connection was chosen or begun for an object until it was
//!   complete, over the objects done; the page itself is none of them.
//! - `objects_done`, `objects_failed`, `connections_opened`; series `received` and `goodput`.

mod client;
mod mix;
mod request;
mod response;
mod server;

pub(crate) use server::HttpServer;

use crate::client_server::{self, ClientServer, ClientServerWorkload, Varied};
use crate::kind::{Keys, Kind, Party, Shown, Workload};
use crate::progress::{check_port, check_sample_every, check_timeout};
use crate::quantity::{self, Quantity};
use crate::report::{self, App, Receiver, Report};
use crate::{Direction, ServerLife, SpecError};
use bentpipe_net::content::Content;
use bentpipe_net::distribution::Drawn;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;
use mix::{Mix, PageChoice};
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;

/// The kind of workload `page`.
#[derive(Debug)]
pub struct Page;

/// Which HTTP the client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum HttpVersion {
    /// HTTP/1.0: a connection for each object.
    #[serde(rename = "1.0")]
    Http10,
    /// HTTP/1.1: persistent connections.
    #[serde(rename = "1.1")]
    Http11,
}

/// The page to fetch.
#[derive(Clone, Debug)]
pub struct PageSpec {
    /// Size of the page at `/` when our server serves it.
    pub html_bytes: u64,
    /// Sizes of its objects.
    pub objects: Vec<u64>,
    /// Connections at once; browsers used 4 with HTTP/1.0 and use 6 with 1.1.
    pub connections: u32,
    /// Which HTTP.
    pub version: HttpVersion,
    /// The server's port.
    pub port: u16,
    /// The page.
    pub path: String,
    /// The `Host` header.
    pub host: String,
    /// An object fails when nothing moves on its connection for this long.
    pub timeout: Duration,
    /// The interval of the series.
    pub sample_every: Duration,
}

impl Default for PageSpec {
    fn default() -> Self {
        PageSpec {
            html_bytes: 10_000,
            objects: Vec::new(),
            connections: 6,
            version: HttpVersion::Http11,
            port: 80,
            path: "/".to_owned(),
            host: "bentpipe".to_owned(),
            timeout: Duration::from_secs(60),
            sample_every: Duration::from_millis(500),
        }
    }
}

impl PageSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        if is_html(&self.path) {
            let least = html(0, &self.objects).len() as u64;
            SpecError::unless(
                (least..=HTML_BYTES_MAX).contains(&self.html_bytes),
                "html_bytes",
                format!(
                    "is {}; allowed for {} objects: {least} to {HTML_BYTES_MAX}",
                    self.html_bytes,
                    self.objects.len()
                ),
            )?;
        }
        SpecError::unless(
            self.objects.len() <= OBJECTS_MAX && self.objects.iter().all(|bytes| *bytes <= OBJECT_BYTES_MAX),
            "objects",
            format!("has too many or too large ones; allowed: up to {OBJECTS_MAX} of up to {OBJECT_BYTES_MAX} bytes"),
        )?;
        SpecError::unless(
            (1..=CONNECTIONS_MAX).contains(&self.connections),
            "connections",
            format!("is {}; allowed: 1 to {CONNECTIONS_MAX}", self.connections),
        )?;
        let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic()) && text.len() <= TEXT_BYTES_MAX;
        SpecError::unless(
            self.path.starts_with('/') && is_plain(&self.path),
            "path",
            format!("is {:?}; allowed: / and printable ASCII without spaces, up to {TEXT_BYTES_MAX}", self.path),
        )?;
        SpecError::unless(
            !self.host.is_empty() && is_plain(&self.host),
            "host",
            format!("is {:?}; allowed: printable ASCII without spaces, up to {TEXT_BYTES_MAX}", self.host),
        )?;
        check_port(self.port)?;
        check_timeout(self.timeout)?;
        check_sample_every(self.sample_every)
    }
}

impl ClientServer for PageSpec {
    fn port(&self) -> u16 {
        self.port
    }

    fn served_by(&self, server: &Party) -> PageSpec {
        PageSpec { port: server.ports[0], host: server.site.clone(), ..self.clone() }
    }

    fn client(&self, server: IpAddr, seed: u64) -> Box<dyn App> {
        Box::new(client::PageClient::new(self.clone(), server, seed))
    }

    fn server(&self, seed: u64) -> Box<dyn App> {
        let html = html(self.html_bytes.min(HTML_BYTES_MAX), &self.objects);
        Box::new(HttpServer::new(self.port, seed, ServerLife::Workload, html))
    }

    fn combine(&self, client: Report, server: Report) -> Report {
        report::combine(client, server, Receiver::Client)
    }

    fn direction(&self) -> Direction {
        Direction::Download
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageKeys {
    direction: Option<Direction>,
    bytes: Option<Drawn<DataSize>>,
    objects: Option<Vec<Drawn<DataSize>>>,
    pages: Option<Vec<PageChoice>>,
    connections: Option<u32>,
    http: Option<HttpVersion>,
    path: Option<String>,
    content: Option<Content>,
    port: Option<u16>,
    timeout: Option<Duration>,
}

impl Kind for Page {
    fn name(&self) -> &'static str {
        "page"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["http"]
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[
            quantity::BYTES,
            quantity::WRONG_BYTES,
            quantity::FIRST_BYTE,
            quantity::COMPLETION_TIME,
            quantity::GOODPUT,
            quantity::OBJECTS_DONE,
            quantity::OBJECTS_FAILED,
            quantity::CONNECTIONS_OPENED,
            quantity::HTML_TIME,
            quantity::OBJECT_TIME_MEAN,
            quantity::OBJECT_TIME_MAX,
        ]
    }

    fn shown(&self) -> Shown {
        client_server::SHOWN.with_compared(&[
            quantity::COMPLETION_TIME,
            quantity::FIRST_BYTE,
            quantity::GOODPUT,
            quantity::OBJECT_TIME_MEAN,
        ])
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let keys: PageKeys = keys.read()?;
        if keys.direction == Some(Direction::Upload) {
            return Err(KeyProblem::new("direction", "a page is downloaded; allowed: \"download\""));
        }
        let default = PageSpec::default();
        let version = keys.http.unwrap_or(default.version);
        let spec = PageSpec {
            connections: keys.connections.unwrap_or(if version == HttpVersion::Http10 { 4 } else { 6 }),
            version,
            port: keys.port.unwrap_or(default.port),
            path: keys.path.clone().unwrap_or(default.path),
            timeout: keys.timeout.unwrap_or(default.timeout),
            ..default
        };
        let (content, port) = (keys.content.unwrap_or_default(), keys.port);
        let has_path = keys.path.is_some();
        let one = PageChoice { weight: None, bytes: keys.bytes, objects: keys.objects };
        let mix = Mix::read(keys.pages, one, has_path, &spec)?;
        if let Some(spec) = mix.only(&spec) {
            return Ok(Arc::new(ClientServerWorkload { spec, content, port }));
        }
        let draw = move |spec: &PageSpec, seed: Seed| mix.draw(spec, seed);
        Ok(Arc::new(ClientServerWorkload { spec: Varied::new(spec, draw), content, port }))
    }
}

/// A page that shows `objects`, padded to `bytes`; longer when they need more.
pub(crate) fn html(bytes: u64, objects: &[u64]) -> Vec<u8> {
    let mut page = String::from("<!doctype html><title>bentpipe</title>\n");
    for (index, size) in objects.iter().enumerate() {
        page.push_str(&format!("<img src=\"{}\">\n", object_path(index, *size)));
    }
    let mut page = page.into_bytes();
    if (page.len() as u64) < bytes {
        page.resize(bytes as usize, b'\n');
    }
    page
}

fn object_path(index: usize, bytes: u64) -> String {
    format!("/bytes/{bytes}?{index}")
}

/// True if our server answers `path` with its page.
fn is_html(path: &str) -> bool {
    matches!(without_query(path), "/" | "/index.html")
}

/// N of `/bytes/N`.
fn bytes_of_path(path: &str) -> Option<u64> {
    let digits = without_query(path).strip_prefix("/bytes/")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|bytes| is_number && *bytes <= OBJECT_BYTES_MAX)
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or(path)
}

/// A request's or response's head, and a chunked body's trailer: 16 KiB.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Header fields in a head.
const HEADERS_MAX: usize = 100;
/// The page is held in memory.
const HTML_BYTES_MAX: u64 = 16 << 20;
const OBJECT_BYTES_MAX: u64 = i64::MAX as u64;
const OBJECTS_MAX: usize = 10_000;
/// Connections that a server serves at once, and a client may ask for.
const CONNECTIONS_MAX: u32 = 256;
const TEXT_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_its_objects_and_has_its_size() {
        let page = html(200, &[7, 8]);
        assert_eq!(page.len(), 200);
        let text = String::from_utf8(page).unwrap();
        assert!(text.contains("<img src=\"/bytes/7?0\">") && text.contains("<img src=\"/bytes/8?1\">"), "{text}");
    }

    #[test]
    fn a_spec_says_what_is_allowed() {
        let spec = |change: &dyn Fn(&mut PageSpec)| {
            let mut spec = PageSpec::default();
            change(&mut spec);
            spec.check().map_err(|error| error.to_string())
        };
        assert_eq!(spec(&|_| {}), Ok(()));
        assert_eq!(
            spec(&|s| (s.html_bytes, s.objects) = (60, vec![1; 2])),
            Err("html_bytes: is 60; allowed for 2 objects: 85 to 16777216".to_owned())
        );
        assert_eq!(spec(&|s| (s.html_bytes, s.path) = (0, "/bytes/9".to_owned())), Ok(()));
        assert!(spec(&|s| s.path = "/a b".to_owned()).is_err());
        assert!(spec(&|s| s.host = "a\r\nX: y".to_owned()).is_err());
        assert!(spec(&|s| s.connections = 0).is_err());
    }
}
