//! A scripted program: a real client's bytes, or a server that misbehaves.

use bentpipe_apps::{App, Report, Status};
use bentpipe_net::socket::{Connection, Program, Received, SocketId, Sockets};
use bentpipe_net::time::Instant;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// One step of a script. A channel is a connection, numbered in the order of opening.
pub enum Act {
    /// Connects to this port; the next channel.
    Open(u16),
    /// Listens on this port and waits for a connection; the next channel.
    Accept(u16),
    /// Sends on a channel.
    Say(usize, Vec<u8>),
    /// Waits until what came on a channel since the last `Hear` contains this.
    Hear(usize, &'static str),
    /// Waits for the end of a channel.
    HearEnd(usize),
    /// Ends our direction.
    Finish(usize),
    /// Closes a channel.
    Close(usize),
    /// Resets a channel.
    Abort(usize),
}

/// What came on each channel.
pub type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

pub struct Script {
    peer: IpAddr,
    acts: Vec<Act>,
    at: usize,
    sent: usize,
    opening: Option<SocketId>,
    listeners: Vec<(u16, SocketId)>,
    channels: Vec<Channel>,
    heard: Heard,
}

struct Channel {
    socket: SocketId,
    listened: usize,
    ended: bool,
}

pub fn say(channel: usize, text: &str) -> Act {
    Act::Say(channel, text.as_bytes().to_vec())
}

impl Script {
    pub fn program(peer: IpAddr, acts: Vec<Act>) -> (Box<dyn App>, Heard) {
        let heard = Heard::default();
        let script = Script {
            peer,
            acts,
            at: 0,
            sent: 0,
            opening: None,
            listeners: Vec::new(),
            channels: Vec::new(),
            heard: heard.clone(),
        };
        (Box::new(script), heard)
    }

    fn listen(&mut self, sockets: &mut dyn Sockets) {
        for act in &self.acts {
            if let Act::Accept(port) = act
                && !self.listeners.iter().any(|(known, _)| known == port)
            {
                self.listeners.push((*port, sockets.listen(*port).expect("a script's port is free")));
            }
        }
    }

    fn open(&mut self, socket: SocketId) {
        self.channels.push(Channel { socket, listened: 0, ended: false });
        self.heard.lock().unwrap().push(Vec::new());
    }

    /// Performs the current act; whether it is over.
    fn act(&mut self, sockets: &mut dyn Sockets) -> bool {
        match &self.acts[self.at] {
            Act::Open(port) => {
                let to = SocketAddr::new(self.peer, *port);
                let socket = *self.opening.get_or_insert_with(|| sockets.connect(to).expect("scripts connect"));
                // A channel that failed to open has ended.
                let open = sockets.connection(socket) != Ok(Connection::Opening);
                if open {
                    self.opening = None;
                    self.open(socket);
                }
                open
            }
            Act::Accept(port) => {
                let (_, listener) = *self.listeners.iter().find(|(known, _)| known == port).unwrap();
                let accepted = sockets.accept(listener).unwrap();
                accepted.into_iter().for_each(|socket| self.open(socket));
                accepted.is_some()
            }
            Act::Say(channel, bytes) => {
                // A peer that no longer listens is what some scripts are about.
                self.sent += sockets.send(self.channels[*channel].socket, &bytes[self.sent..]).unwrap_or(bytes.len());
                let over = self.sent >= bytes.len();
                if over {
                    self.sent = 0;
                }
                over
            }
            Act::Hear(channel, text) => {
                let channel_heard = &self.heard.lock().unwrap()[*channel];
                let channel = &mut self.channels[*channel];
                let fresh = &channel_heard[channel.listened..];
                let found = fresh.windows(text.len()).position(|window| window == text.as_bytes());
                channel.listened += found.map_or(0, |start| start + text.len());
                found.is_some()
            }
            Act::HearEnd(channel) => self.channels[*channel].ended,
            Act::Finish(channel) => {
                sockets.finish(self.channels[*channel].socket);
                true
            }
            Act::Close(channel) => {
                sockets.close(self.channels[*channel].socket);
                true
            }
            Act::Abort(channel) => {
                sockets.abort(self.channels[*channel].socket);
                true
            }
        }
    }
}

impl Program for Script {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn Sockets) {
        self.listen(sockets);
        loop {
            for (channel, heard) in self.channels.iter_mut().zip(self.heard.lock().unwrap().iter_mut()) {
                let mut buffer = [0; 4096];
                loop {
                    match sockets.receive(channel.socket, &mut buffer) {
                        Ok(Received::Bytes(n)) => heard.extend_from_slice(&buffer[..n]),
                        Ok(Received::Nothing) => break,
                        Ok(Received::End) | Err(_) => {
                            channel.ended = true;
                            break;
                        }
                    }
                }
            }
            if self.is_done() || !self.act(sockets) {
                return;
            }
            self.at += 1;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        self.at >= self.acts.len()
    }
}

impl App for Script {
    fn report(&self, _now: Instant) -> Report {
        let status = if self.is_done() { Status::Done } else { Status::Running };
        Report::new(status, None)
    }
}

/// What came on a channel, as text.
pub fn text(heard: &Heard, channel: usize) -> String {
    heard.lock().unwrap().get(channel).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}
