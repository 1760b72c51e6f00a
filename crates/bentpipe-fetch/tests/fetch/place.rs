//! Folders, contents and tiny servers.

use bentpipe_fetch::{Connections, Failure, Options, Outcome, parse_url};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A folder that goes with its value.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bentpipe-fetch-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Fetches to `file`.
    pub fn get(&self, url: &str, options: &Options) -> Result<Outcome, Failure> {
        bentpipe_fetch::get(&parse_url(url).unwrap(), &self.0.join("file"), options, &mut |_| {})
    }

    #[track_caller]
    pub fn expect(&self, url: &str, options: &Options, content: &[u8]) -> Outcome {
        let outcome = self.get(url, options).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(std::fs::read(self.0.join("file")).unwrap() == content, "the content differs");
        assert_eq!(self.names(), ["file"], "nothing else is left");
        outcome
    }

    /// The fetch fails, and nothing has the final name.
    #[track_caller]
    pub fn fails(&self, url: &str, options: &Options) -> Failure {
        let failure = self.get(url, options).expect_err("it should fail");
        assert!(!self.0.join("file").exists());
        failure
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn options(connections: usize) -> Options {
    Options {
        connections: Connections::Fixed(connections),
        timeout: Duration::from_secs(2),
        retries: 3,
        ..Options::default()
    }
}

/// Bytes that differ at every place.
pub fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A request's path and headers; names in lower case.
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    /// First and last byte asked for.
    pub fn range(&self) -> Option<(usize, Option<usize>)> {
        let (first, last) = self.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse().ok()))
    }
}

/// Serves on a port of its own until the process ends; `answer` gets the number of the request, and says with `true` that
/// the connection stays open.
pub fn http(answer: impl Fn(u32, &Request, &mut TcpStream) -> bool + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/file", listener.local_addr().unwrap());
    let (answer, number) = (Arc::new(answer), Arc::new(AtomicU32::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, number, mut stream) = (Arc::clone(&answer), Arc::clone(&number), stream.unwrap());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(request) = read_request(&mut reader) {
                    let mut rest = request.headers.get("content-length").map_or(0, |l| l.parse::<u64>().unwrap());
                    if request.method != "PUT" {
                        while rest > 0 {
                            rest -= std::io::copy(&mut (&mut reader).take(rest), &mut std::io::sink()).unwrap();
                        }
                    }
                    if !answer(number.fetch_add(1, Ordering::Relaxed), &request, &mut stream) {
                        return;
                    }
                }
            });
        }
    });
    url
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    Some(Request { method, path, headers })
}

/// A proper answer to a request for a range, or for all; more headers as given, each with its line end.
pub fn serve(request: &Request, stream: &mut TcpStream, content: &[u8], more: &str) -> bool {
    let total = content.len();
    let head = match request.range() {
        Some((first, _)) if first >= total => {
            format!("HTTP/1.1 416 No\r\nContent-Length: 0\r\nContent-Range: bytes */{total}\r\n{more}\r\n")
        }
        Some((first, last)) => {
            let last = last.unwrap_or(total - 1).min(total - 1);
            let length = last + 1 - first;
            let head = format!(
                "HTTP/1.1 206 Partial\r\nContent-Length: {length}\r\nContent-Range: bytes {first}-{last}/{total}\r\n{more}\r\n"
            );
            return stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content[first..=last])).is_ok();
        }
        None => format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n{more}\r\n"),
    };
    let body = if head.starts_with("HTTP/1.1 200") { content } else { &[] };
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_ok()
}
