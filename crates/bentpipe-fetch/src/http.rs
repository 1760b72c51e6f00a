//! Files over HTTP and HTTPS, by range requests (RFC 9110 §14).

use crate::Options;
use crate::digest;
use crate::error::Failure;
use crate::remote::{Connection, Identity, Opened, Remote, Server, Wire};
use base64::Engine;
use parking_lot::{Mutex, MutexGuard};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Request, Response, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport,
};
use ureq::{Agent, Body, BodyReader};
use url::Url;

/// A file at an HTTP server.
pub(crate) struct HttpServer {
    agents: Arc<Agents>,
}

/// Makes agents; state that all connections share.
pub(crate) struct Agents {
    url: Url,
    authorization: Option<String>,
    timeout: Duration,
    roots: Option<RootCerts>,
    /// Where redirects led to.
    led_to: Mutex<Option<Url>>,
}

struct HttpConnection {
    agents: Arc<Agents>,
    agent: Option<(Agent, Arc<Mutex<Option<Duration>>>)>,
    body: Option<BodyReader<'static>>,
    /// Of the answer; `None` when it did not say.
    left: Option<u64>,
    /// Who answered last, for messages.
    place: String,
}

impl Agents {
    pub fn new(url: &Url, options: &Options) -> Result<Agents, Failure> {
        let mut bare = url.clone();
        let authorization = (!url.username().is_empty()).then(|| {
            let decode = |text: &str| percent_decode(text);
            let mut pair = decode(url.username());
            pair.push(b':');
            pair.extend(decode(url.password().unwrap_or("")));
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        });
        // An http or https URL always has a host, so these cannot fail.
        let _ = bare.set_username("");
        let _ = bare.set_password(None);
        bare.set_fragment(None);
        let roots = match &options.ca {
            None => None,
            Some(path) => Some(read_roots(path)?),
        };
        Ok(Agents { url: bare, authorization, timeout: options.timeout, roots, led_to: Mutex::new(None) })
    }

    /// An agent of its own for one connection, and where it writes down the time of its TCP handshake.
    pub fn agent(&self) -> (Agent, Arc<Mutex<Option<Duration>>>) {
        let tls = TlsConfig::builder().root_certs(self.roots.clone().unwrap_or(RootCerts::WebPki)).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // They are followed here, where it is known whom credentials are for; a PUT's would end as a GET.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(HEADER_BYTES_MAX)
            .input_buffer_size(BUFFER_BYTES)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .timeout_resolve(Some(self.timeout))
            .timeout_connect(Some(self.timeout))
            // A header that comes byte by byte ends, too.
            .timeout_recv_response(Some(self.timeout))
            .timeout_per_read(Some(self.timeout))
            .timeout_per_write(Some(self.timeout))
            .user_agent(concat!("bentpipe/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build();
        let handshake = Arc::new(Mutex::new(None));
        let timed = Timed { tcp: TcpConnector::default(), handshake: Arc::clone(&handshake) };
        let tls = RustlsConnector::default();
        let connector = ConnectProxyConnector::default().chain(timed).chain(tls).chain(Strict);
        (Agent::with_parts(config, connector, DefaultResolver::default()), handshake)
    }

    /// A request for the URL with what every request carries.
    pub fn request(&self, method: &str) -> ureq::http::request::Builder {
        self.request_to(method, &self.url)
    }

    fn request_to(&self, method: &str, target: &Url) -> ureq::http::request::Builder {
        let request = Request::builder().method(method).uri(target.as_str());
        match &self.authorization {
            Some(authorization) if may_know(&self.url, target) => request.header("authorization", authorization),
            _ => request,
        }
    }

    pub fn place(&self) -> String {
        place(&self.url)
    }

    fn led_to(&self) -> MutexGuard<'_, Option<Url>> {
        self.led_to.lock()
    }

    /// The redirect's target may have been for once.
    fn forget(&self) -> bool {
        self.led_to().take().is_some()
    }
}

impl HttpServer {
    pub fn new(url: &Url, options: &Options) -> Result<HttpServer, Failure> {
        Ok(HttpServer { agents: Arc::new(Agents::new(url, options)?) })
    }
}

impl Server for HttpServer {
    fn connection(&self) -> Box<dyn Connection> {
        let (agents, place) = (Arc::clone(&self.agents), self.agents.place());
        Box::new(HttpConnection { agents, agent: None, body: None, left: None, place })
    }

    /// A new TCP connection, and the request: whoever gives up a piece closes its connection.
    fn round_trips_to_start(&self) -> u32 {
        2
    }
}

impl HttpConnection {
    fn agent(&mut self) -> (Agent, Arc<Mutex<Option<Duration>>>) {
        self.agent.get_or_insert_with(|| self.agents.agent()).clone()
    }

    /// The answer of the server that redirects lead to.
    fn send(&mut self, wire: &Wire, range: Option<&str>, known: Option<&Remote>) -> Result<Response<Body>, Failure> {
        let mut target = self.agents.led_to().clone().unwrap_or_else(|| self.agents.url.clone());
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send_to(&target, wire, range, known)?;
            let Some(next) = redirect(&target, &response)? else {
                if response.status().as_u16() < 400 {
                    let is_elsewhere = target != self.agents.url;
                    *self.agents.led_to() = is_elsewhere.then_some(target);
                }
                return Ok(response);
            };
            // Read to its end, if that is near, the connection serves the next request, too.
            let _ = response.into_body().into_reader().take(REDIRECT_BYTES_MAX).read_to_end(&mut Vec::new());
            target = next;
        }
        Err(Failure::Redirects(format!("{}: more than {REDIRECTS_MAX}", self.agents.place())))
    }

    fn send_to(
        &mut self,
        target: &Url,
        wire: &Wire,
        range: Option<&str>,
        known: Option<&Remote>,
    ) -> Result<Response<Body>, Failure> {
        self.place = place(target);
        let (agent, handshake) = self.agent();
        let to_end = agent.clone();
        wire.on_hang_up(Box::new(move || to_end.shutdown()));
        let mut request = self.agents.request_to("GET", target).header("accept-encoding", "identity");
        request = request.header("want-repr-digest", "sha-256=10, sha-512=5");
        if let Some(range) = range {
            request = request.header("range", range);
            // Only a strong validator may stand here (RFC 9110 §13.1.5).
            if let Some(etag) = known.and_then(|known| known.identity.strong_etag()) {
                request = request.header("if-range", etag);
            }
        }
        let request = request.body(()).map_err(|error| Failure::Protocol(error.to_string()))?;
        let result = agent.run(request);
        if let Some(time) = handshake.lock().take() {
            wire.set_round_trip(time);
        }
        result.map_err(|error| {
            // What its connection is worth is not known.
            self.agent = None;
            of_ureq(error, &self.place)
        })
    }
}

impl Connection for HttpConnection {
    fn prepare(&mut self, _: &Wire) {}

    fn open(&mut self, wire: &Wire, from: u64, to: Option<u64>, known: Option<&Remote>) -> Result<Opened, Failure> {
        self.body = None;
        let range = match to {
            Some(to) => format!("bytes={from}-{}", to - 1),
            None => format!("bytes={from}-"),
        };
        let mut response = self.send(wire, Some(&range), known)?;
        if response.status().as_u16() >= 400 && response.status() != 416 && self.agents.forget() {
            response = self.send(wire, Some(&range), known)?;
        }
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            let total = header(&response, "content-range").and_then(|text| unsatisfied_total(&text));
            match total {
                Some(0) if from == 0 => {
                    let mut remote = of_headers(response.headers(), Some(0));
                    remote.digests.clear();
                    (self.body, self.left) = (None, Some(0));
                    return Ok(Opened { remote, from: 0, until: None });
                }
                Some(total) if total <= from => {
                    return Err(Failure::Changed(format!("it has only {total} bytes")));
                }
                // A server that cannot do with this range may do without any.
                _ => response = self.send(wire, None, known)?,
            }
        }
        let is_endless = response.status() == StatusCode::PARTIAL_CONTENT
            && header(&response, "content-range")
                .and_then(|text| content_range(&text))
                .is_some_and(|(.., all)| all.is_none());
        if is_endless {
            // Of how many bytes it does not say, nor whether these are all: only an answer with the whole file has an end.
            response = self.send(wire, None, known)?;
            if response.status() == StatusCode::PARTIAL_CONTENT {
                return Err(Failure::Protocol("it answers with a range, unasked".to_owned()));
            }
        }
        let length = header(&response, "content-length").and_then(|text| text.trim().parse().ok());
        let (remote, at, until) = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let text = header(&response, "content-range")
                    .ok_or_else(|| Failure::Protocol("an answer 206 without Content-Range".to_owned()))?;
                let wrong = |what: &str| Failure::Protocol(format!("{what} Content-Range {:?}", shortened(&text)));
                let (first, last, total) = content_range(&text).ok_or_else(|| wrong("malformed"))?;
                if first != from || to.is_some_and(|to| last >= to) {
                    return Err(wrong(&format!("asked for bytes from {from}, answered")));
                }
                if length.is_some_and(|length: u64| length != last + 1 - first) {
                    return Err(wrong("Content-Length contradicts"));
                }
                self.left = Some(last + 1 - first);
                // Of a part of the file, not of the file: Content-Digest (RFC 9530 §2).
                (of_headers(response.headers(), total), from, Some(last + 1))
            }
            StatusCode::OK => {
                self.left = length;
                let mut remote = of_headers(response.headers(), length);
                remote.digests.extend(headers(response.headers(), "content-digest"));
                (remote, 0, None)
            }
            status => return Err(of_status(status, &response)),
        };
        let coding = header(&response, "content-encoding").filter(|coding| !is_of_the_name(coding, &self.agents.url));
        if let Some(coding) = coding {
            return Err(Failure::Protocol(format!("it sends the file coded as {:?} unasked", shortened(&coding))));
        }
        self.body = Some(response.into_body().into_reader());
        Ok(Opened { remote, from: at, until })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let Some(body) = &mut self.body else { return Ok(0) };
        match body.read(buffer) {
            Ok(0) => {
                self.body = None;
                match self.left.take() {
                    Some(left) if left > 0 => {
                        self.agent = None;
                        Err(Failure::ClosedEarly(format!("{}: {left} bytes before the end", self.place)))
                    }
                    _ => Ok(0),
                }
            }
            Ok(length) => {
                if let Some(left) = &mut self.left {
                    *left = left
                        .checked_sub(length as u64)
                        .ok_or_else(|| Failure::Protocol("it sent more than it announced".to_owned()))?;
                }
                Ok(length)
            }
            Err(error) => {
                (self.body, self.agent) = (None, None);
                Err(of_io(error, &self.place))
            }
        }
    }

    fn abandon(&mut self) {
        // Dropped before its end, a body closes its connection.
        self.body = None;
    }

    fn recheck(&mut self, _: &Wire) -> Result<Option<Identity>, Failure> {
        Ok(None)
    }
}

/// Wraps ureq's TCP connector to time the handshake.
#[derive(Debug)]
struct Timed {
    tcp: TcpConnector,
    handshake: Arc<Mutex<Option<Duration>>>,
}

impl<In: Transport> Connector<In> for Timed {
    type Out = <TcpConnector as Connector<In>>::Out;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let begun = Instant::now();
        let is_new = chained.is_none();
        let out = self.tcp.connect(details, chained)?;
        if is_new {
            *self.handshake.lock() = Some(begun.elapsed());
        }
        Ok(out)
    }
}

/// Tells ends of connections that nobody announced from those that were: ureq takes a reset, and TLS that ends without saying so
/// (RFC 8446 §6.1), for the end of a body whose length is not known.
#[derive(Debug)]
struct Strict;

#[derive(Debug)]
struct StrictTransport<T>(T);

impl<In: Transport> Connector<In> for Strict {
    type Out = StrictTransport<In>;

    fn connect(&self, _: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        Ok(chained.map(StrictTransport))
    }
}

impl<T: Transport> Transport for StrictTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
        self.0.await_input(timeout).map_err(|error| match error {
            ureq::Error::Io(error) if matches!(error.kind(), ConnectionAborted | ConnectionReset | UnexpectedEof) => {
                ureq::Error::Io(io::Error::other(error.to_string()))
            }
            other => other,
        })
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}

/// Host and port, for messages.
pub(crate) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// True if credentials for `url` go to `target` as well: the same server, or its encrypted twin (RFC 9110 §15.4 leaves it to us).
fn may_know(url: &Url, target: &Url) -> bool {
    let is_twin = url.host() == target.host()
        && (url.scheme(), target.scheme()) == ("http", "https")
        && (url.port(), target.port()) == (None, None);
    url.origin() == target.origin() || is_twin
}

/// Where a redirect leads (RFC 9110 §15.4).
fn redirect(from: &Url, response: &Response<Body>) -> Result<Option<Url>, Failure> {
    let location = match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => header(response, "location"),
        _ => None,
    };
    let Some(location) = location else { return Ok(None) };
    let wrong = |why: &str| Failure::Redirects(format!("{}: to {:?}: {why}", place(from), shortened(&location)));
    let mut target = from.join(&location).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(wrong("allowed: http, https"));
    }
    // An http or https URL has a host, so these cannot fail.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    target.set_fragment(None);
    Ok(Some(target))
}

/// True if a content coding is what the file's name says it is: servers send `a.tar.gz` as a tar file coded with gzip, and who asks for
/// it wants the file as it lies there.
fn is_of_the_name(coding: &str, url: &Url) -> bool {
    let ends: &[&str] = match coding.trim().to_ascii_lowercase().as_str() {
        "identity" | "" => return true,
        "gzip" | "x-gzip" => &[".gz", ".tgz", ".svgz"],
        "compress" | "x-compress" => &[".z"],
        "br" => &[".br"],
        "zstd" => &[".zst"],
        "bzip2" | "x-bzip2" => &[".bz2", ".tbz2"],
        "xz" | "x-xz" => &[".xz", ".txz"],
        _ => &[],
    };
    let path = url.path().to_ascii_lowercase();
    ends.iter().any(|end| path.ends_with(end))
}

/// The failure that an HTTP status other than success stands for.
pub(crate) fn of_status(status: StatusCode, response: &Response<Body>) -> Failure {
    let text = status.to_string();
    match status.as_u16() {
        401 | 402 | 403 | 407 => Failure::Unauthorised(text),
        404 | 410 => Failure::NotFound(text),
        // RFC 9110 §15; RFC 6585 §4; RFC 8470 §5.2.
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Failure::Busy(text),
        300..=399 => {
            let to = header(response, "location").unwrap_or_default();
            Failure::Redirects(format!("{text}, to {:?}", shortened(&to)))
        }
        _ => Failure::Answer(text),
    }
}

/// The failure that an error of ureq stands for.
pub(crate) fn of_ureq(error: ureq::Error, place: &str) -> Failure {
    use ureq::Error;
    match error {
        Error::Io(error) => of_io(error, place),
        Error::Timeout(_) => Failure::TimedOut(place.to_owned()),
        Error::HostNotFound => Failure::NameNotFound(place.to_owned()),
        Error::Rustls(error) => Failure::Tls(format!("{place}: {error}")),
        Error::Tls(text) => Failure::Tls(format!("{place}: {text}")),
        Error::LargeResponseHeader(..) => {
            Failure::Protocol(format!("the answer's header has more than {HEADER_BYTES_MAX} bytes"))
        }
        Error::ConnectionFailed => Failure::Unreachable(place.to_owned()),
        Error::ConnectProxyFailed(text) => Failure::Unreachable(format!("the proxy refuses: {}", shortened(&text))),
        other => Failure::Protocol(shortened(&other.to_string()).to_owned()),
    }
}

fn of_io(error: io::Error, place: &str) -> Failure {
    if let Some(inner) = error.get_ref() {
        if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
            return Failure::Tls(format!("{place}: {tls}"));
        }
        if inner.is::<ureq::Error>() {
            return of_ureq(ureq::Error::from(error), place);
        }
    }
    let text = error.to_string();
    // The resolver's errors carry no kind of their own.
    if text.starts_with("failed to lookup address information") {
        return match text.contains("Temporary failure") {
            true => Failure::Unreachable(format!("{place}: the name cannot be looked up now")),
            false => Failure::NameNotFound(place.to_owned()),
        };
    }
    Failure::of_socket(&error, place)
}

fn of_headers(all: &HeaderMap, size: Option<u64>) -> Remote {
    let text = |name: &str| {
        let value = all.get(name)?.to_str().ok()?;
        (value.len() <= VALIDATOR_BYTES_MAX).then(|| value.to_owned())
    };
    let identity = Identity { size, etag: text("etag"), modified: text("last-modified") };
    Remote { identity, digests: [headers(all, "repr-digest"), headers(all, "digest")].concat() }
}

fn headers(all: &HeaderMap, name: &str) -> Vec<digest::Digest> {
    all.get_all(name).iter().filter_map(|value| value.to_str().ok()).flat_map(digest::in_header).collect()
}

fn header(response: &Response<Body>, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}

/// `bytes FIRST-LAST/TOTAL` (RFC 9110 §14.4); the total may be `*`.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = bytes_unit(text)?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let total = match total.trim() {
        "*" => None,
        total => Some(number(total)?),
    };
    // The file's end must be a number, too.
    let ordered = first <= last && last < u64::MAX && total.is_none_or(|total| last < total);
    ordered.then_some((first, last, total))
}

/// The total of `bytes */TOTAL` in an answer 416.
fn unsatisfied_total(text: &str) -> Option<u64> {
    number(bytes_unit(text)?.trim().strip_prefix("*/")?)
}

fn bytes_unit(text: &str) -> Option<&str> {
    let (unit, rest) = text.trim().split_once(' ')?;
    unit.eq_ignore_ascii_case("bytes").then_some(rest)
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

pub(crate) fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let value = pair.filter(|pair| !pair.starts_with('+')).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match (bytes[at], value) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// A server's text, short enough for a message and without control characters.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

fn read_roots(path: &std::path::Path) -> Result<RootCerts, Failure> {
    let wrong = |reason: String| Failure::Local { path: path.to_owned(), reason };
    let failed = |error: io::Error| Failure::of_file(&error, path, 0);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(wrong("is no ordinary file".to_owned()));
    }
    if metadata.len() > ROOTS_BYTES_MAX {
        return Err(wrong(format!("has {} bytes; allowed: {ROOTS_BYTES_MAX} at most", metadata.len())));
    }
    let text = std::fs::read(path).map_err(failed)?;
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| wrong(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(wrong("holds no certificate in PEM".to_owned()));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// As curl's default is higher and browsers' is 20, ten is on the strict side; circles need not be followed longer.
const REDIRECTS_MAX: u32 = 10;
/// Pages that only say where to go are shorter.
const REDIRECT_BYTES_MAX: u64 = 16 * 1024;
const HEADER_BYTES_MAX: usize = 32 * 1024;
/// More than a header may have: ureq takes a full buffer for the end of the connection.
const BUFFER_BYTES: usize = 2 * HEADER_BYTES_MAX;
/// A validator is kept in the state file.
const VALIDATOR_BYTES_MAX: usize = 1024;
/// All public certificates together have 0.2 MB.
const ROOTS_BYTES_MAX: u64 = 16 << 20;
const MESSAGE_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn content_ranges() {
        assert_eq!(content_range("bytes 42-1233/1234"), Some((42, 1233, Some(1234))));
        assert_eq!(content_range("Bytes 0-0/*"), Some((0, 0, None)));
        assert_eq!(unsatisfied_total("bytes */47022"), Some(47022));
        for bad in [
            "",
            "bytes",
            "bytes 1-0/5",
            "bytes 0-5/5",
            "bytes -1-3/9",
            "items 0-1/2",
            "bytes 0-1",
            "bytes +0-1/2",
            "bytes */5",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn percent_decoding() {
        assert_eq!(percent_decode("a%20b%2Fc%zz%4"), b"a b/c%zz%4");
        assert_eq!(percent_decode("%+1é"), "%+1é".as_bytes());
    }

    proptest! {
        #[test]
        fn any_header_is_read(text in "(bytes )?[0-9*/ -]{0,50}", wild: String) {
            for text in [&text, &wild] {
                if let Some((first, last, total)) = content_range(text) {
                    prop_assert!(first <= last && total.is_none_or(|total| last < total));
                }
                let _ = unsatisfied_total(text);
                prop_assert!(percent_decode(text).len() <= text.len());
                prop_assert!(shortened(text).chars().count() <= MESSAGE_CHARS_MAX);
            }
        }
    }
}
