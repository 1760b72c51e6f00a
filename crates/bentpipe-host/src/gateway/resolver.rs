//! Names looked up outside the driver's thread: the C library's resolver blocks.
//!
//! A name whose servers do not answer holds a thread for as long as the C library is patient (10 s and more,
//! resolv.conf(5)). So no client has more than a share of the threads, and clients take turns.

use bentpipe_net::socket::SocketId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::EventfdFlags;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Threads that look names up; made when they are needed. They end with this value, once their last look-up has.
pub struct Resolver {
    shared: Arc<Shared>,
    answers: Receiver<Answer>,
    /// For the next thread.
    answered: Sender<Answer>,
    threads: usize,
}

/// The result of a lookup.
pub struct Answer {
    /// Who asked.
    pub socket: SocketId,
    /// Its addresses, the preferred first.
    pub addresses: io::Result<Vec<SocketAddr>>,
}

/// Looks a name and a port up.
type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

struct Shared {
    look_up: LookUp,
    questions: Mutex<Questions>,
    requested: Condvar,
    wake: OwnedFd,
}

#[derive(Default)]
struct Questions {
    /// Those with questions that wait or are looked up. `None`: clients that nobody knows.
    clients: BTreeMap<Option<IpAddr>, Client>,
    /// Clients with a question that may be looked up now, whose turn comes first first.
    turns: VecDeque<Option<IpAddr>>,
    waiting: usize,
    running: usize,
    ended: bool,
}

#[derive(Default)]
struct Client {
    waiting: VecDeque<Question>,
    running: usize,
}

struct Question {
    socket: SocketId,
    name: String,
    port: u16,
}

/// Names looked up at once.
const THREADS: usize = 32;
/// … for one client.
const THREADS_OF_CLIENT: usize = 8;
/// Names that may wait.
const WAITING_MAX: usize = 1024;
/// … of one client.
const WAITING_OF_CLIENT_MAX: usize = 128;
/// Of a name with many addresses.
const ADDRESSES_MAX: usize = 8;

impl Resolver {
    /// Asks the C library, in the namespace of the thread that asks this.
    pub fn start() -> io::Result<Resolver> {
        Resolver::with(|name, port| Ok((name, port).to_socket_addrs()?.take(ADDRESSES_MAX).collect()))
    }

    fn with(look_up: LookUp) -> io::Result<Resolver> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (answered, answers) = channel();
        let shared = Arc::new(Shared { look_up, questions: Mutex::default(), requested: Condvar::new(), wake });
        Ok(Resolver { shared, answers, answered, threads: 0 })
    }

    /// Asks for a client; `false`: too many names wait.
    pub fn ask(&mut self, client: Option<IpAddr>, socket: SocketId, name: &str, port: u16) -> bool {
        let question = Question { socket, name: name.to_owned(), port };
        let wanted = {
            let mut questions = self.shared.lock();
            if !questions.add(client, question) {
                return false;
            }
            questions.running + questions.turns.len()
        };
        if self.threads < wanted.min(THREADS) {
            let (shared, answered) = (Arc::clone(&self.shared), self.answered.clone());
            let thread = std::thread::Builder::new().name("resolver".into());
            match thread.spawn(move || shared.answer(&answered)) {
                Ok(_) => self.threads += 1,
                // Those that are there will come to it.
                Err(_) if self.threads > 0 => {}
                Err(_) => return false,
            }
        }
        self.shared.requested.notify_one();
        true
    }

    /// The next answer, if one is there.
    pub fn next_answer(&self) -> Option<Answer> {
        let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
        self.answers.try_recv().ok()
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.requested.notify_all();
    }
}

impl AsFd for Resolver {
    /// Readable when answers wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock()
    }

    /// The work of a resolver thread.
    fn answer(&self, answered: &Sender<Answer>) {
        let mut questions = self.lock();
        while !questions.ended {
            let Some((client, Question { socket, name, port })) = questions.take() else {
                self.requested.wait(&mut questions);
                continue;
            };
            drop(questions);
            let addresses = (self.look_up)(&name, port);
            let heard = answered.send(Answer { socket, addresses }).is_ok();
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            questions = self.lock();
            questions.done(client);
            if !heard {
                return;
            }
        }
    }
}

impl Questions {
    fn add(&mut self, client: Option<IpAddr>, question: Question) -> bool {
        let of_client = self.clients.get(&client).map_or(0, |client| client.waiting.len());
        if self.waiting >= WAITING_MAX || of_client >= WAITING_OF_CLIENT_MAX {
            return false;
        }
        self.waiting += 1;
        let entry = self.clients.entry(client).or_default();
        entry.waiting.push_back(question);
        // One turn for each question that has a thread to hope for.
        if entry.running + entry.waiting.len() <= THREADS_OF_CLIENT {
            self.turns.push_back(client);
        }
        true
    }

    fn take(&mut self) -> Option<(Option<IpAddr>, Question)> {
        let client = self.turns.pop_front()?;
        let entry = self.clients.get_mut(&client)?;
        let question = entry.waiting.pop_front()?;
        entry.running += 1;
        self.waiting -= 1;
        self.running += 1;
        Some((client, question))
    }

    fn done(&mut self, client: Option<IpAddr>) {
        self.running -= 1;
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.running -= 1;
        // The question that found all of this client's threads at work.
        if entry.running + entry.waiting.len() >= THREADS_OF_CLIENT && !entry.waiting.is_empty() {
            self.turns.push_back(client);
        } else if entry.running == 0 && entry.waiting.is_empty() {
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    static SERVERS_ARE_DEAD: Mutex<bool> = Mutex::new(true);
    static THEY_LIVE: Condvar = Condvar::new();

    fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut dead = SERVERS_ARE_DEAD.lock();
        while name == "dead" && *dead {
            THEY_LIVE.wait(&mut dead);
        }
        Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
    }

    fn wait_for(resolver: &Resolver, sockets: impl IntoIterator<Item = u32>) {
        let mut left: BTreeSet<SocketId> = sockets.into_iter().map(SocketId).collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !left.is_empty() {
            assert!(Instant::now() < deadline, "never answered: {left:?}");
            match resolver.next_answer() {
                Some(answer) => assert!(left.remove(&answer.socket) && answer.addresses.is_ok()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn dead_names_of_one_client_stop_nobody_else() {
        let [one, other] = [1, 2].map(|host| Some(IpAddr::from([10, 0, 0, host])));
        let mut resolver = Resolver::with(look_up).unwrap();
        for socket in 0..WAITING_OF_CLIENT_MAX as u32 {
            assert!(resolver.ask(one, SocketId(socket), "dead", 80));
        }
        // More than wait already would be held for nothing; some threads may not have begun.
        while resolver.ask(one, SocketId(1000), "dead", 80) {}
        for socket in 2000..2100 {
            assert!(resolver.ask(other, SocketId(socket), "alive", 80));
        }
        wait_for(&resolver, 2000..2100);
        assert!(resolver.threads <= THREADS);
        assert_eq!(resolver.shared.lock().clients[&one].running, THREADS_OF_CLIENT);
        *SERVERS_ARE_DEAD.lock() = false;
        THEY_LIVE.notify_all();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !resolver.shared.lock().clients.is_empty() {
            assert!(Instant::now() < deadline, "questions are left");
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen: BTreeSet<u32> = std::iter::from_fn(|| resolver.next_answer()).map(|answer| answer.socket.0).collect();
        assert!((0..WAITING_OF_CLIENT_MAX as u32).all(|socket| seen.contains(&socket)), "{seen:?}");
    }
}
