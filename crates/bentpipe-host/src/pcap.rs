//! Captures in [`pcapng`](bentpipe_net::pcapng): one interface a port.
//!
//! The pump only copies into a buffer made beforehand; a thread writes it to the file. What does not fit is counted.

use bentpipe_net::pcapng::{LinkType, Passing, enhanced_packet, interface_description, section_header};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes that may wait for the writer.
const BUFFER_BYTES: usize = 32 << 20;
/// Interval of the writer's polling.
const WRITE_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

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
        interfaces.iter().for_each(|name| interface_description(&mut head, name, LinkType::Ethernet));
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
        let mut buffer = self.shared.buffer.lock();
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
            let mut buffer = shared.buffer.lock();
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
