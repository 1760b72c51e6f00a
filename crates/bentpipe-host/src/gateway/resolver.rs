//! Names looked up beside the driver's thread: the C library's resolver blocks.

use bentpipe_link::socket::SocketId;
use rustix::event::EventfdFlags;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// A few threads that look names up. They end with this value, once their last look-up has.
pub struct Resolver {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
    wake: Arc<OwnedFd>,
}

struct Question {
    socket: SocketId,
    name: String,
    port: u16,
}

/// What is known of a name.
pub struct Answer {
    /// Who asked.
    pub socket: SocketId,
    /// Its addresses, the preferred first.
    pub addresses: io::Result<Vec<SocketAddr>>,
}

/// Names looked up at once.
const THREADS: usize = 4;
/// Names that may wait.
const WAITING_MAX: usize = 256;
/// Of a name with many addresses.
const ADDRESSES_MAX: usize = 8;

impl Resolver {
    /// Starts the threads, in the calling thread's namespace.
    pub fn start() -> io::Result<Resolver> {
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (questions, asked) = sync_channel::<Question>(WAITING_MAX);
        let asked = Arc::new(Mutex::new(asked));
        let (answered, answers) = channel();
        for _ in 0..THREADS {
            let (asked, answered, wake) = (Arc::clone(&asked), answered.clone(), Arc::clone(&wake));
            std::thread::Builder::new().name("resolver".into()).spawn(move || answer(&asked, &answered, &wake))?;
        }
        Ok(Resolver { questions, answers, wake })
    }

    /// Asks; `false`: too many names wait.
    pub fn ask(&self, socket: SocketId, name: &str, port: u16) -> bool {
        let question = Question { socket, name: name.to_owned(), port };
        !matches!(self.questions.try_send(question), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }

    /// The next answer, if one is there.
    pub fn next_answer(&self) -> Option<Answer> {
        let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        self.answers.try_recv().ok()
    }
}

impl AsFd for Resolver {
    /// Readable when answers wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn answer(asked: &Mutex<Receiver<Question>>, answered: &Sender<Answer>, wake: &OwnedFd) {
    loop {
        let question = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Question { socket, name, port }) = question else { return };
        let addresses = (name.as_str(), port).to_socket_addrs().map(|found| found.take(ADDRESSES_MAX).collect());
        if answered.send(Answer { socket, addresses }).is_err() {
            return;
        }
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}
