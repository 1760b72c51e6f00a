//! A gateway's view of a simulated site: requests that are held, answered and refused, connections in others' names, and
//! what passes. The gateway here is the simplest there is: it connects at once and copies bytes.

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::ping::PingSpec;
use bentpipe_apps::quantity;
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_link::config::LinkConfig;
use bentpipe_net::datagram::Body;
use bentpipe_net::interception::{Bypassed, GatewayProgram, GatewaySockets, Named, Refusal, RequestId};
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::socket::{Connection, Received, SocketError, SocketId};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, NotAtLink, Observer, Setup, Stop};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// What the gateway does with requests.
#[derive(Clone, Copy)]
enum Policy {
    Relay {
        keep: bool,
    },
    ByName,
    Refuse(Refusal),
    /// The first is ignored, later ones are relayed.
    IgnoreOnce,
}

#[derive(Default)]
struct Log {
    requests: Vec<(SocketAddr, SocketAddr, u8)>,
    ends: Vec<(SocketAddr, SocketAddr)>,
    changed: usize,
    polls: usize,
    unacknowledged_max: u64,
    bypassed: Bypassed,
}

/// Splits connections at its site.
struct Splitter {
    policy: Policy,
    waiting: BTreeMap<SocketId, RequestId>,
    /// Each socket's other one, and what waits for it.
    pairs: BTreeMap<SocketId, (SocketId, VecDeque<u8>, bool)>,
    log: Arc<Mutex<Log>>,
    at_end: bool,
}

impl GatewayProgram for Splitter {
    fn poll(&mut self, now: Instant, sockets: &mut dyn GatewaySockets) {
        let log = Arc::clone(&self.log);
        let mut log = log.lock().unwrap();
        log.polls += 1;
        self.at_end = self.next_wake().is_none_or(|at| at <= now);
        let mut changed = Vec::new();
        sockets.take_changed(&mut changed);
        assert!((1..changed.len()).all(|i| !changed[..i].contains(&changed[i])), "each once");
        log.changed += changed.len();
        while let Some(request) = sockets.next_request() {
            log.requests.push((request.client, request.server, request.traffic_class));
            let connected = match self.policy {
                Policy::Refuse(how) => {
                    sockets.refuse(request.id, how);
                    continue;
                }
                Policy::IgnoreOnce if log.requests.len() == 1 => {
                    sockets.refuse(request.id, Refusal::Ignored);
                    continue;
                }
                Policy::Relay { keep } => {
                    assert!(sockets.keeps_addresses());
                    sockets.connect_as(keep.then_some(request.client), request.server, 0xb8 | 1)
                }
                Policy::IgnoreOnce => sockets.connect_as(None, request.server, 0),
                Policy::ByName => {
                    let named = |name| Named {
                        name,
                        port: request.server.port(),
                        traffic_class: 0,
                        client: None,
                        may_connect: |_| true,
                    };
                    assert_eq!(sockets.connect_to_name(named("nobody")), Err(SocketError::Unreachable));
                    let judged = Named { may_connect: |_| false, ..named("server") };
                    assert_eq!(sockets.connect_to_name(judged), Err(SocketError::Denied));
                    sockets.connect_to_name(named("server"))
                }
            };
            self.waiting.insert(connected.expect("a way there"), request.id);
        }
        for socket in changed {
            if let Some(request) = self.waiting.get(&socket).copied() {
                match sockets.connection(socket) {
                    Ok(Connection::Opening) => continue,
                    Ok(Connection::Open) => {
                        self.waiting.remove(&socket);
                        let client = sockets.answer(request).expect("held");
                        assert_eq!(sockets.connection(client), Ok(Connection::Opening));
                        log.ends.push((sockets.local_address(client).unwrap(), sockets.peer_address(client).unwrap()));
                        self.pairs.insert(client, (socket, VecDeque::new(), false));
                        self.pairs.insert(socket, (client, VecDeque::new(), false));
                    }
                    Err(_) => {
                        self.waiting.remove(&socket);
                        sockets.refuse(request, Refusal::Refused);
                        sockets.close(socket);
                        continue;
                    }
                }
            }
            if let Some((other, ..)) = self.pairs.get(&socket) {
                for (from, to) in [(*other, socket), (socket, *other)] {
                    self.copy(from, sockets);
                    let unacknowledged = sockets.unacknowledged(to);
                    log.unacknowledged_max = log.unacknowledged_max.max(unacknowledged);
                }
            }
        }
        log.bypassed = sockets.bypassed(None);
    }

    /// Once at the end, to see what has passed.
    fn next_wake(&self) -> Option<Instant> {
        (!self.at_end).then_some(Instant::ZERO + Duration::from_secs(59))
    }

    fn is_done(&self) -> bool {
        false
    }
}

impl Splitter {
    fn new(policy: Policy, log: &Arc<Mutex<Log>>) -> Splitter {
        Splitter { policy, waiting: BTreeMap::new(), pairs: BTreeMap::new(), log: Arc::clone(log), at_end: false }
    }

    fn copy(&mut self, from: SocketId, sockets: &mut dyn GatewaySockets) {
        let Some((to, buffer, ended)) = self.pairs.get_mut(&from) else { return };
        let mut piece = [0; 4096];
        while !*ended && buffer.len() < 65_536 {
            match sockets.receive(from, &mut piece) {
                Ok(Received::Bytes(count)) => buffer.extend(&piece[..count]),
                Ok(Received::Nothing) => break,
                Ok(Received::End) | Err(_) => *ended = true,
            }
            let taken = sockets.send(*to, buffer.make_contiguous()).unwrap_or(0);
            buffer.drain(..taken);
        }
        let taken = sockets.send(*to, buffer.make_contiguous()).unwrap_or(0);
        buffer.drain(..taken);
        if *ended && buffer.is_empty() {
            sockets.finish(*to);
        }
    }
}

/// Traffic classes of TCP packets that reach a site.
struct Classes(Arc<Mutex<Vec<u8>>>, usize);

impl Observer for Classes {
    fn packet(&mut self, _now: Instant, site: usize, _interface: usize, outbound: bool, packet: &DatagramPacket) {
        let (datagram, _) = packet.datagram();
        if let Body::Tcp(_) = datagram.body
            && site == self.1
            && !outbound
        {
            self.0.lock().unwrap().push(datagram.traffic_class);
        }
    }
}

/// client – LAN – gateway – link – server.
fn network() -> Network<Box<dyn App>, Splitter> {
    let config = |text: &str| LinkConfig::from_table(toml::from_str(text).unwrap()).unwrap();
    let link = |name: &str, sites: [&str; 2], text: &str| {
        let sites = sites.map(str::to_owned).to_vec();
        let spec = LinkSpec { name: name.to_owned(), sites, carries_ethernet: false, mtu: 1500 };
        (spec, config(text))
    };
    let links = vec![
        link("sat", ["server", "gateway"], "rate = '2 Mbit/s'\none_way_delay = '250 ms'"),
        link("lan", ["gateway", "client"], "rate = '100 Mbit/s'\none_way_delay = '1 ms'\nqueue = { bytes = '1 MB' }"),
    ];
    Network::new(&Setup { links, seed: 7, ..Setup::default() }).unwrap()
}

struct Ran {
    client: Report,
    log: Arc<Mutex<Log>>,
    classes: Vec<u8>,
    addresses: [SocketAddr; 3],
}

/// A transfer of 100 kB from server to client.
fn run(policy: Policy, served: bool) -> Ran {
    let mut network = network();
    let site = |name: &str, network: &Network<Box<dyn App>, Splitter>| network.plan().site(name).unwrap();
    let [server, gateway, client] = ["server", "gateway", "client"].map(|name| site(name, &network));
    let log = Arc::new(Mutex::new(Log::default()));
    let classes = Arc::new(Mutex::new(Vec::new()));
    network.observe(Box::new(Classes(Arc::clone(&classes), server)));
    let splitter = network.start_gateway(gateway, 0, Splitter::new(policy, &log), false).unwrap();
    let address = |number: usize| network.plan().address(number).unwrap().into();
    let addresses = [server, gateway, client].map(|number| SocketAddr::new(address(number), 5001));
    let spec = BulkSpec { amount: Amount::Bytes(100_000), port: 5001, ..BulkSpec::default() };
    if served {
        network.start(server, spec.server(1));
    }
    let ping = PingSpec { count: 3, ..PingSpec::default() };
    network.start(client, ping.client(addresses[0].ip(), 1));
    let transfer = network.start(client, spec.client(addresses[0].ip(), 1));
    let end = Instant::ZERO + Duration::from_secs(60);
    while network.run_until(end) == Stop::ProgramDone {}
    let client = network.program(transfer).unwrap().report(end);
    network.stop(splitter);
    let classes = classes.lock().unwrap().clone();
    Ran { client, log, classes, addresses }
}

#[test]
fn requests_are_answered_in_the_servers_name_and_the_server_sees_the_client() {
    let Ran { client, log, classes, addresses: [server, _, client_at] } = run(Policy::Relay { keep: true }, true);
    assert_eq!((client.status.clone(), client.value(quantity::BYTES)), (Status::Done, Some(100_000.0)));
    assert_eq!(client.value(quantity::WRONG_BYTES), Some(0.0));
    let log = log.lock().unwrap();
    // The SYN waits for the server: a round trip of the link and one of the LAN, and the data's half of both.
    assert!(client.value(quantity::FIRST_BYTE).unwrap() > 1.0, "{:?}", client.value(quantity::FIRST_BYTE));
    assert_eq!(log.requests.len(), 1);
    let (asking, requested, class) = log.requests[0];
    assert_eq!((asking.ip(), requested, class), (client_at.ip(), server, 0));
    assert_eq!(log.ends, [(server, asking)]);
    assert!(log.changed > 0 && log.unacknowledged_max > 0);
    assert!(!classes.is_empty() && classes.iter().all(|class| class & 0xfc == 0xb8), "{classes:?}");
    // Three pings passed: 20 bytes of IP, 8 of ICMP, 56 of data.
    assert_eq!(log.bypassed, Bypassed { packets: 3, bytes: 3 * 84 });
}

#[test]
fn connections_in_the_sites_own_name_and_by_name() {
    for policy in [Policy::Relay { keep: false }, Policy::ByName] {
        assert_eq!(run(policy, true).client.status, Status::Done);
    }
}

#[test]
fn a_refusal_reaches_the_client_as_what_it_is() {
    let status = |policy, served| match run(policy, served).client.status {
        Status::Failed(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(status(Policy::Refuse(Refusal::Refused), true).contains("refused"));
    assert!(status(Policy::Relay { keep: true }, false).contains("refused"), "the server's own");
    // Linux takes an ICMP error during the handshake for an answer only when nothing else comes.
    let unreachable = status(Policy::Refuse(Refusal::Unreachable), true);
    assert!(unreachable.contains("unreachable") || unreachable.contains("timed out"), "{unreachable}");
}

#[test]
fn an_ignored_request_is_intercepted_again_when_it_is_repeated() {
    let Ran { client, log, .. } = run(Policy::IgnoreOnce, true);
    assert_eq!(client.status, Status::Done);
    assert_eq!(log.lock().unwrap().requests.len(), 2);
    assert!(client.value(quantity::FIRST_BYTE).unwrap() > 2.0, "the client asks again after a second");
}

#[test]
fn a_bypassed_connection_passes_unchanged_and_is_counted() {
    let Ran { client, log, classes, .. } = run(Policy::Refuse(Refusal::Bypassed), true);
    assert_eq!(client.status, Status::Done);
    let log = log.lock().unwrap();
    assert_eq!(log.requests.len(), 1);
    assert_eq!(log.bypassed.packets, 3 + classes.len() as u64);
    assert_eq!(log.changed, 0, "no socket of the gateway's own");
    // The start, the request and the end woke it.
    assert!(log.polls <= 3, "{}", log.polls);
}

#[test]
fn a_gateway_stands_at_its_link() {
    let mut network = network();
    let client = network.plan().site("client").unwrap();
    let splitter = Splitter::new(Policy::IgnoreOnce, &Arc::default());
    assert_eq!(network.start_gateway(client, 0, splitter, false), Err(NotAtLink));
}
