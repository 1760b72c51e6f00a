//! Sending files: FTP `STOR`, several files at once and each resumed; HTTP `PUT`.
//!
//! FTP servers take one file over one connection (`REST` before `STOR` in parallel damages files on most), so connections
//! are spent on files. Under its name a file appears only when it is whole: it is stored as `.NAME.ID.bentpipe-part`,
//! where ID stands for the local file's size and time of change, and renamed. A partial file with this name was
//! therefore made from this version of the file, and `SIZE` says how much of it is there. The session of a run that was
//! killed may still be writing what the network holds, and `APPE` would then put our bytes after those: so we wait
//! until the size rests, compare the last bytes with ours before going on, and the size at the end. HTTP offers no
//! agreed way to learn how much of a PUT arrived (RFC 9110 §14.5 leaves partial PUT to private agreement): it is sent
//! whole, over one connection.

use crate::error::{Failure, Kind};
use crate::ftp::{FtpServer, Session, of_reply};
use crate::http::{Agents, of_status, of_ureq};
use crate::remote::Wire;
use crate::{Options, file_name};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use url::Url;

/// All files of a `put` as they stand.
#[derive(Clone, Debug, Default)]
pub struct PutProgress {
    /// Bytes of all files.
    pub size: u64,
    /// Of these, at the server, as far as the network has taken them.
    pub done: u64,
    /// Connections that send.
    pub connections: usize,
    /// Events since the last report, for people.
    pub notes: Vec<String>,
}

/// The outcome of one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PutOutcome {
    /// The local file.
    pub file: PathBuf,
    /// Where it went, without credentials.
    pub url: Url,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes that were there from an earlier run.
    pub resumed_from: u64,
    /// From the start of its own transfer.
    pub elapsed: Duration,
    /// The cause.
    pub result: Result<(), Failure>,
}

/// Sends `files` to `url`: a folder if it ends in a slash, else the name of the only file. The outcomes are in the
/// files' order.
pub fn put(
    files: &[PathBuf],
    url: &Url,
    options: &Options,
    connections: usize,
    report: &mut dyn FnMut(&PutProgress),
) -> Vec<PutOutcome> {
    let mut size = 0;
    let mut waiting = VecDeque::new();
    let mut outcomes: Vec<PutOutcome> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let target = target_of(file, url);
        let target_url = target.clone().unwrap_or_else(|_| url.clone());
        let mut outcome = PutOutcome {
            file: file.clone(),
            url: target_url,
            bytes: 0,
            resumed_from: 0,
            elapsed: Duration::ZERO,
            result: Ok(()),
        };
        let checked = target.and_then(|_| {
            let metadata = std::fs::metadata(file).map_err(|error| Failure::of_file(&error, file, 0))?;
            match metadata.is_file() {
                true => Ok(metadata.len()),
                false => Err(Failure::Local { path: file.clone(), reason: "is no ordinary file".to_owned() }),
            }
        });
        match checked {
            Ok(bytes) => {
                size += bytes;
                outcome.bytes = bytes;
                waiting.push_back(number);
            }
            Err(failure) => outcome.result = Err(failure),
        }
        outcomes.push(outcome);
    }
    let crew = Arc::new(Crew {
        waiting: Mutex::new(waiting),
        sent: AtomicU64::new(0),
        sending: AtomicUsize::new(0),
        wires: Mutex::new(Vec::new()),
        options: options.clone(),
    });
    let (sender, receiver) = mpsc::channel();
    let mut running = 0;
    for _ in 0..connections.clamp(1, files.len().max(1)) {
        let (crew, sender, jobs) = (Arc::clone(&crew), sender.clone(), outcomes.clone());
        // Not joined: a connect cannot be interrupted.
        let thread = std::thread::Builder::new().name("put".to_owned()).spawn(move || crew.work(jobs, &sender));
        running += usize::from(thread.is_ok());
    }
    drop(sender);
    let mut notes = Vec::new();
    if running == 0 {
        notes.push("no thread can be started".to_owned());
    }
    let mut left: usize = crew.waiting.lock().len().max(outcomes.iter().filter(|o| o.result.is_ok()).count());
    while left > 0 && running > 0 {
        if options.stop.load(Ordering::Relaxed) {
            for wire in crew.wires.lock().iter() {
                wire.hang_up();
            }
            break;
        }
        match receiver.recv_timeout(REPORT_EVERY) {
            Ok(Update::Note(text)) => notes.push(text),
            Ok(Update::Done(number, outcome)) => {
                outcomes[number] = *outcome;
                left -= 1;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        let (done, connections) = (crew.sent.load(Ordering::Relaxed), crew.sending.load(Ordering::Relaxed));
        report(&PutProgress { size, done, connections, notes: std::mem::take(&mut notes) });
    }
    if left > 0 {
        // Files that no worker has reported were stopped.
        for outcome in outcomes.iter_mut().filter(|o| o.result.is_ok() && o.elapsed.is_zero()) {
            outcome.result = Err(Failure::Stopped);
        }
    }
    outcomes
}

/// Where a file goes.
fn target_of(file: &Path, url: &Url) -> Result<Url, Failure> {
    let mut target = url.clone();
    if url.path().ends_with('/') {
        let name = file.file_name().and_then(|name| name.to_str());
        let name =
            name.ok_or_else(|| Failure::Local { path: file.to_owned(), reason: "has no name in UTF-8".to_owned() })?;
        if let Ok(mut segments) = target.path_segments_mut() {
            segments.pop_if_empty().push(name);
        }
    }
    Ok(target)
}

enum Update {
    Note(String),
    Done(usize, Box<PutOutcome>),
}

struct Crew {
    waiting: Mutex<VecDeque<usize>>,
    sent: AtomicU64,
    sending: AtomicUsize,
    wires: Mutex<Vec<Arc<Wire>>>,
    options: Options,
}

impl Crew {
    fn work(&self, jobs: Vec<PutOutcome>, updates: &mpsc::Sender<Update>) {
        let wire = Arc::new(Wire::default());
        self.wires.lock().push(Arc::clone(&wire));
        // One login for all files of a connection.
        let mut session = None;
        loop {
            let Some(number) = self.waiting.lock().pop_front() else { return };
            let mut outcome = jobs[number].clone();
            let begun = Instant::now();
            self.sending.fetch_add(1, Ordering::Relaxed);
            outcome.result = self.send_with_retries(&mut outcome, &mut session, &wire, updates);
            self.sending.fetch_sub(1, Ordering::Relaxed);
            outcome.elapsed = begun.elapsed().max(Duration::from_nanos(1));
            // Whoever listened may have stopped.
            if updates.send(Update::Done(number, Box::new(outcome))).is_err() {
                return;
            }
        }
    }

    fn send_with_retries(
        &self,
        outcome: &mut PutOutcome,
        session: &mut Option<Session>,
        wire: &Wire,
        updates: &mpsc::Sender<Update>,
    ) -> Result<(), Failure> {
        let (mut attempt, mut most) = (0, 0);
        loop {
            let sent = AtomicU64::new(0);
            let result = match outcome.url.scheme() {
                "ftp" => self.ftp(outcome, session, wire, &sent, attempt == 0, updates),
                _ => self.http(outcome, wire, &sent),
            };
            let Err(failure) = result else { return Ok(()) };
            *session = None;
            self.sent.fetch_sub(sent.load(Ordering::Relaxed), Ordering::Relaxed);
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(Failure::Stopped);
            }
            if sent.load(Ordering::Relaxed) > most {
                (attempt, most) = (0, sent.load(Ordering::Relaxed));
            }
            let is_first_absence = attempt == 0 && most == 0 && failure.is_absence();
            if failure.kind() != Kind::Transient || is_first_absence || attempt >= self.options.retries {
                return Err(failure);
            }
            attempt += 1;
            let _ = updates.send(Update::Note(format!("{}: {failure}; trying again", outcome.file.display())));
            let until = Instant::now() + BACK_OFF_FIRST.saturating_mul(1 << attempt.min(10)).min(BACK_OFF_MOST);
            while Instant::now() < until {
                if self.options.stop.load(Ordering::Relaxed) {
                    return Err(Failure::Stopped);
                }
                std::thread::sleep(STOP_POLL);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a file's whole way")]
    fn ftp(
        &self,
        outcome: &mut PutOutcome,
        session: &mut Option<Session>,
        wire: &Wire,
        sent: &AtomicU64,
        is_first: bool,
        updates: &mpsc::Sender<Update>,
    ) -> Result<(), Failure> {
        let server = FtpServer::new(&outcome.url, &self.options).map_err(Failure::Answer)?;
        let failed = |error: io::Error| Failure::of_file(&error, &outcome.file, 0);
        let mut file = File::open(&outcome.file).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let size = metadata.len();
        let stamp = format!("{size}.{}.{}", metadata.mtime(), metadata.mtime_nsec());
        let id = ring::digest::digest(&ring::digest::SHA256, stamp.as_bytes());
        let id: String = id.as_ref()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let (folder, name) = server.path.rsplit_once('/').map_or(("", server.path.as_str()), |(f, n)| (f, n));
        let slash = if server.path.contains('/') { "/" } else { "" };
        let part = format!("{folder}{slash}.{name}.{id}.bentpipe-part");
        if session.is_none() {
            *session = Some(Session::open(&server, wire)?);
        }
        let Some(session) = session else { return Err(Failure::Stopped) };
        let mut there = self.resting_size(session, &part, wire)?;
        if there > 0 && !(there <= size && self.is_beginning(session, &part, &mut file, outcome, there)?) {
            // A session that still writes to it keeps the old file; ours will be another.
            let _ = session.ask("DELE", &part)?;
            let what = "what the server has is not the beginning of this file, or cannot be read to check it";
            let _ = updates.send(Update::Note(format!("{}: {what}: starting again", outcome.file.display())));
            there = 0;
        }
        if is_first {
            outcome.resumed_from = there;
        }
        file.seek(SeekFrom::Start(there)).map_err(failed)?;
        self.advance(sent, there);
        if there < size || size == 0 {
            let (mut data, _) = session.transfer(if there > 0 { "APPE" } else { "STOR" }, &part, 0)?;
            // What the kernel holds back beyond this is neither sent nor lost when we are killed, and a thin link may take
            // minutes over it while the server's last reply is awaited.
            let lowered = socket2::SockRef::from(&data).set_tcp_notsent_lowat(NOT_SENT_BYTES);
            lowered.map_err(|error| Failure::of_socket(&error, &server_place(&outcome.url)))?;
            let result = self.copy(&mut file, &mut data, &outcome.file, &server_place(&outcome.url), sent);
            // Half a close: the reply is still to come.
            let ended = data.shutdown(Shutdown::Write);
            drop(data);
            if let Err(failure) = result {
                // A server that refuses in the middle says why: disk full, quota (RFC 959: 452, 552).
                return Err(match session.confirm() {
                    _ if !failure.is_of_network() => failure,
                    Err(said) if said.is_said() => said,
                    _ => failure,
                });
            }
            ended.map_err(|error| Failure::of_socket(&error, &server_place(&outcome.url)))?;
            session.confirm()?;
        }
        let (now, mut reply) = session.size_and_rename_from(&part)?;
        if now.is_some_and(|now| now != size) {
            // It must not be taken for a good beginning.
            let _ = session.ask("DELE", &part);
            return Err(Failure::ClosedEarly(format!("the server has {} bytes of {size}", now.unwrap_or(0))));
        }
        if has_changed(&outcome.file, &metadata)? {
            let _ = session.ask("DELE", &part);
            let (path, reason) = (outcome.file.clone(), "it was changed while it was sent".to_owned());
            return Err(Failure::Local { path, reason });
        }
        if reply.code == 350 {
            reply = session.ask("RNTO", &server.path)?;
        }
        match (reply.code, of_reply(&reply)) {
            (250, _) => Ok(()),
            (_, busy @ Failure::Busy(_)) => Err(busy),
            (_, failure) => Err(Failure::NotRenamed { part, reason: failure.to_string() }),
        }
    }

    /// The size of a partial file, once nobody writes to it any more.
    fn resting_size(&self, session: &mut Session, part: &str, wire: &Wire) -> Result<u64, Failure> {
        let pause = (wire.round_trip().unwrap_or_default() * REST_ROUND_TRIPS).max(REST_MIN);
        let begun = Instant::now();
        let mut size = session.identity_and_port(part)?.size.unwrap_or(0);
        while size > 0 && begun.elapsed() < self.options.timeout {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if self.options.stop.load(Ordering::Relaxed) {
                    return Err(Failure::Stopped);
                }
                std::thread::sleep(STOP_POLL);
            }
            let now = session.identity(part)?.size.unwrap_or(0);
            if now == size {
                break;
            }
            size = now;
        }
        Ok(size)
    }

    /// Whether the server's file of `there` bytes ends as the same number of ours do. False where it may not be read.
    fn is_beginning(
        &self,
        session: &mut Session,
        part: &str,
        file: &mut File,
        outcome: &PutOutcome,
        there: u64,
    ) -> Result<bool, Failure> {
        let failed = |error: io::Error| Failure::of_file(&error, &outcome.file, 0);
        let from = there.saturating_sub(TAIL_BYTES);
        let data = match session.transfer("RETR", part, from) {
            Ok((data, begun)) if begun == from => data,
            Ok(_) => {
                session.gave_up();
                return Ok(false);
            }
            Err(failure) if failure.kind() == Kind::Refused => return Ok(false),
            Err(failure) => return Err(failure),
        };
        let mut theirs = Vec::new();
        // One byte more than there should be tells of a file that grows.
        let read = data.take(there - from + 1).read_to_end(&mut theirs);
        read.map_err(|error| Failure::of_socket(&error, &server_place(&outcome.url)))?;
        if theirs.len() as u64 <= there - from {
            session.confirm()?;
        } else {
            session.gave_up();
        }
        let mut ours = vec![0; (there - from) as usize];
        file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(&mut ours)).map_err(failed)?;
        Ok(theirs == ours)
    }

    fn http(&self, outcome: &PutOutcome, wire: &Wire, sent: &AtomicU64) -> Result<(), Failure> {
        let agents = Agents::new(&outcome.url, &self.options)?;
        let place = agents.place();
        let (agent, _) = agents.agent();
        let to_end = agent.clone();
        wire.on_hang_up(Box::new(move || to_end.shutdown()));
        let failed = |error: io::Error| Failure::of_file(&error, &outcome.file, 0);
        let file = File::open(&outcome.file).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let size = metadata.len();
        let mut body = Counted { file: file.take(size), crew: self, sent };
        let request = agents.request("PUT").header("content-length", size).header("expect", "100-continue");
        let request = request.header("content-type", "application/octet-stream");
        let request = request
            .body(ureq::SendBody::from_reader(&mut body))
            .map_err(|error| Failure::Protocol(error.to_string()))?;
        let response = agent.run(request).map_err(|error| of_ureq(error, &place))?;
        match response.status().as_u16() {
            200 | 201 | 204 => {
                let is_changed = has_changed(&outcome.file, &metadata)?;
                let reason = "it was changed while it was sent, and the server may have some of both".to_owned();
                let path = outcome.file.clone();
                if is_changed { Err(Failure::Local { path, reason }) } else { Ok(()) }
            }
            _ => Err(of_status(response.status(), &response)),
        }
    }

    fn advance(&self, sent: &AtomicU64, bytes: u64) {
        sent.fetch_add(bytes, Ordering::Relaxed);
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    fn copy(
        &self,
        file: &mut File,
        to: &mut impl Write,
        path: &Path,
        place: &str,
        sent: &AtomicU64,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; WRITE_BYTES];
        loop {
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(Failure::Stopped);
            }
            let length = file.read(&mut buffer).map_err(|error| Failure::of_file(&error, path, 0))?;
            if length == 0 {
                return Ok(());
            }
            to.write_all(&buffer[..length]).map_err(|error| Failure::of_socket(&error, place))?;
            self.advance(sent, length as u64);
        }
    }
}

struct Counted<'a> {
    file: io::Take<File>,
    crew: &'a Crew,
    sent: &'a AtomicU64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.crew.options.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        let most = buffer.len().min(WRITE_BYTES);
        let length = self.file.read(&mut buffer[..most])?;
        self.crew.advance(self.sent, length as u64);
        Ok(length)
    }
}

/// Whether the file is no more what it was when it was opened.
fn has_changed(file: &Path, before: &Metadata) -> Result<bool, Failure> {
    let now = std::fs::metadata(file).map_err(|error| Failure::of_file(&error, file, 0))?;
    let version = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec());
    Ok(version(&now) != version(before))
}

fn server_place(url: &Url) -> String {
    crate::http::place(url)
}

/// True if the URL names a file or a folder.
pub fn names_folder(url: &Url) -> bool {
    file_name(url).is_none()
}

const REPORT_EVERY: Duration = Duration::from_millis(100);
const STOP_POLL: Duration = Duration::from_millis(50);
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MOST: Duration = Duration::from_secs(30);
/// A session that drains what the network holds pauses no longer than a lost packet's retransmission takes.
const REST_ROUND_TRIPS: u32 = 4;
const REST_MIN: Duration = Duration::from_millis(300);
/// Enough to tell one place of a file from another; two packets or three.
const TAIL_BYTES: u64 = 4096;
/// Past what is in flight; two writes.
const NOT_SENT_BYTES: u32 = 32 * 1024;
/// Small, so that progress shows on a thin link.
const WRITE_BYTES: usize = 16 * 1024;
