//! Captures in pcapng (IETF draft-ietf-opsawg-pcapng): one interface a port, nanosecond stamps, direction flags. Opens
//! in Wireshark and tshark.
//!
//! The pump only copies into a buffer made beforehand; a thread writes it to the file. What does not fit is counted.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Bytes that may wait for the writer.
const BUFFER_BYTES: usize = 32 << 20;
/// How often the writer looks.
const WRITE_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// Whether a packet leaves a host or reaches it (the two low bits of `epb_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// Reaches the host.
    Inbound = 1,
    /// Leaves the host.
    Outbound = 2,
}

/// The pump's side of a capture.
#[derive(Clone)]
pub struct PcapSink {
    shared: Arc<Shared>,
}

struct Shared {
    buffer: Mutex<Vec<u8>>,
    lost: AtomicU64,
    done: AtomicBool,
}

/// A capture being written.
pub struct Capture {
    sink: PcapSink,
    writer: Option<JoinHandle<io::Result<()>>>,
    path: PathBuf,
}

impl Capture {
    /// Starts to write `path`, with one interface for each name.
    pub fn create(path: &Path, interfaces: &[String]) -> io::Result<Capture> {
        let mut file = File::create(path)?;
        let mut head = Vec::new();
        section_header(&mut head);
        interfaces.iter().for_each(|name| interface_description(&mut head, name));
        file.write_all(&head)?;
        let shared = Arc::new(Shared {
            buffer: Mutex::new(Vec::with_capacity(BUFFER_BYTES)),
            lost: AtomicU64::new(0),
            done: AtomicBool::new(false),
        });
        let sink = PcapSink { shared: Arc::clone(&shared) };
        let writer = std::thread::Builder::new().name("pcap".into()).spawn(move || write_out(&shared, file))?;
        Ok(Capture { sink, writer: Some(writer), path: path.to_owned() })
    }

    /// The side to hand packets to.
    #[must_use]
    pub fn sink(&self) -> PcapSink {
        self.sink.clone()
    }

    /// Writes what waits and closes the file. Returns the packets that were left out because the disk was too slow.
    pub fn finish(mut self) -> io::Result<u64> {
        self.sink.shared.done.store(true, Ordering::Release);
        let written = self.writer.take().map(JoinHandle::join);
        match written {
            Some(Ok(Err(error))) => Err(io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))),
            _ => Ok(self.sink.shared.lost.load(Ordering::Relaxed)),
        }
    }
}

impl PcapSink {
    /// Notes one frame. Never waits: what does not fit the buffer is counted as lost.
    pub fn packet(&self, interface: u32, real_ns: u64, passing: Passing, frame: &[u8]) {
        let mut buffer = self.shared.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() + frame.len() + 64 > BUFFER_BYTES {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        enhanced_packet(&mut buffer, interface, real_ns, passing, frame);
    }
}

fn write_out(shared: &Shared, mut file: File) -> io::Result<()> {
    let mut taken = Vec::with_capacity(BUFFER_BYTES);
    loop {
        let done = shared.done.load(Ordering::Acquire);
        {
            let mut buffer = shared.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *buffer, &mut taken);
        }
        // After an error nobody empties the buffer any more: it fills, and the rest is counted as lost.
        file.write_all(&taken)?;
        taken.clear();
        if done {
            return file.flush();
        }
        std::thread::sleep(WRITE_EVERY);
    }
}

fn section_header(out: &mut Vec<u8>) {
    block(out, 0x0a0d_0d0a, |body| {
        body.extend(0x1a2b_3c4du32.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        option(body, 4, concat!("bentpipe ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(body, 0, b"");
    });
}

fn interface_description(out: &mut Vec<u8>, name: &str) {
    block(out, 1, |body| {
        body.extend(1u16.to_le_bytes()); // LINKTYPE_ETHERNET
        body.extend(0u16.to_le_bytes());
        body.extend(0u32.to_le_bytes()); // no limit on length
        option(body, 2, name.as_bytes());
        option(body, 9, &[9]); // stamps in nanoseconds
        option(body, 0, b"");
    });
}

fn enhanced_packet(out: &mut Vec<u8>, interface: u32, real_ns: u64, passing: Passing, frame: &[u8]) {
    block(out, 6, |body| {
        body.extend(interface.to_le_bytes());
        body.extend(((real_ns >> 32) as u32).to_le_bytes());
        body.extend((real_ns as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend_from_slice(frame);
        pad(body);
        option(body, 2, &(passing as u32).to_le_bytes());
        option(body, 0, b"");
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = (out.len() - start + 4) as u32;
    out.extend(length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out);
}

/// Blocks are made of 32-bit words and start aligned.
fn pad(out: &mut Vec<u8>) {
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
}
