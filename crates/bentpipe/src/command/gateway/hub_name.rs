//! The hub's address where a terminal's file has a name: looked up at the start, and again while the hub does not answer.

use bentpipe_gateway::file::HubName;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Between look-ups: at first, and at most, doubled each time that the name is not found.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// Looks the name up in the background.
pub struct HubLookup {
    name: HubName,
    /// Only addresses of IPv4 can be called.
    v4_only: bool,
    /// The address in use.
    known: Option<SocketAddr>,
    /// When the next look-up begins; `None`: none is needed.
    next: Option<Instant>,
    wait: Duration,
    running: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl HubLookup {
    /// Begins with the first poll.
    pub fn new(name: HubName, v4_only: bool, now: Instant) -> HubLookup {
        HubLookup { name, v4_only, known: None, next: Some(now), wait: AGAIN.0, running: None }
    }

    /// The hub did not answer: its name may stand for another address by now, or for several.
    pub fn doubt(&mut self, now: Instant) {
        if self.running.is_none() {
            self.next.get_or_insert(now + AGAIN.0);
        }
    }

    /// The address to call from now on, or why the name was not found. To be called again and again.
    pub fn poll(&mut self, now: Instant) -> Option<Result<SocketAddr, String>> {
        if let Some(running) = &self.running {
            let found = match running.try_recv() {
                Err(TryRecvError::Empty) => return None,
                Ok(found) => found,
                Err(TryRecvError::Disconnected) => Err(io::Error::other("the look-up's thread ended")),
            };
            self.running = None;
            return self.take(now, found);
        }
        if self.next.is_none_or(|at| at > now) {
            return None;
        }
        self.next = None;
        let (sender, receiver) = channel();
        let name = self.name.clone();
        let look = move || {
            let _ = sender.send(look_up(&name));
        };
        // Without a thread the sender is dropped, which the next poll sees.
        let _ = std::thread::Builder::new().name("hub's name".into()).spawn(look);
        self.running = Some(receiver);
        None
    }

    fn take(&mut self, now: Instant, found: io::Result<Vec<SocketAddr>>) -> Option<Result<SocketAddr, String>> {
        let found = found.map_err(|error| error.to_string()).and_then(|all| choose(&all, self.v4_only, self.known));
        match found {
            Ok(address) => {
                self.wait = AGAIN.0;
                let changed = self.known.replace(address) != Some(address);
                changed.then_some(Ok(address))
            }
            Err(why) => {
                self.next = Some(now + self.wait);
                self.wait = (self.wait * 2).min(AGAIN.1);
                Some(Err(format!("the hub's name {} was not found: {why}", self.name)))
            }
        }
    }
}

/// The name's addresses now.
pub fn look_up(name: &HubName) -> io::Result<Vec<SocketAddr>> {
    Ok((name.name.as_str(), name.port).to_socket_addrs()?.collect())
}

/// The first of the addresses that can be called, or the one after `last`, which did not answer.
fn choose(all: &[SocketAddr], v4_only: bool, last: Option<SocketAddr>) -> Result<SocketAddr, String> {
    let usable: Vec<SocketAddr> = all.iter().copied().filter(|address| address.is_ipv4() || !v4_only).collect();
    let after = last.and_then(|last| usable.iter().position(|address| *address == last)).map_or(0, |at| at + 1);
    let chosen = usable.get(after).or(usable.first()).copied();
    chosen.ok_or_else(|| format!("it has no address{}", if v4_only { " of IPv4, which `listen` asks for" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_do_not_answer_are_tried_in_turn() {
        let all: Vec<SocketAddr> = ["[2001:db8::1]:1", "192.0.2.1:1", "192.0.2.2:1"].map(|a| a.parse().unwrap()).into();
        assert_eq!(choose(&all, false, None), Ok(all[0]));
        assert_eq!(choose(&all, false, Some(all[0])), Ok(all[1]));
        assert_eq!(choose(&all, false, Some(all[2])), Ok(all[0]));
        assert_eq!(choose(&all, true, None), Ok(all[1]));
        assert_eq!(choose(&all, false, Some("192.0.2.9:1".parse().unwrap())), Ok(all[0]), "an old one");
        assert!(choose(&all[..1], true, None).unwrap_err().contains("IPv4"));
    }

    #[test]
    fn a_name_that_is_not_found_is_looked_up_again_ever_later() {
        let start = Instant::now();
        let name = HubName { name: "hub.example".into(), port: 1 };
        let mut lookup = HubLookup::new(name, false, start);
        for wait in [5, 10, 20, 40, 60, 60] {
            let error = lookup.take(start, Err(io::Error::other("no"))).unwrap().unwrap_err();
            assert_eq!(error, "the hub's name hub.example:1 was not found: no");
            assert_eq!(lookup.next, Some(start + Duration::from_secs(wait)));
        }
        let found: SocketAddr = "192.0.2.1:1".parse().unwrap();
        lookup.next = None;
        assert_eq!(lookup.take(start, Ok(vec![found])), Some(Ok(found)));
        assert_eq!(lookup.take(start, Ok(vec![found])), None, "nothing new");
        assert_eq!(lookup.next, None);
        lookup.doubt(start);
        assert_eq!(lookup.next, Some(start + AGAIN.0));
    }
}
