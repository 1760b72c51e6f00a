//! Services of this machine's loopback, reached from a terminal through an emulated link.

use bentpipe_host::emulation::{Emulation, Setup};
use bentpipe_host::internet::{self, GATEWAY, Internet, InternetError, InternetOptions};
use bentpipe_host::namespace::Privilege;
use bentpipe_link::catalogue;
use bentpipe_net::topology::LinkSpec;
use parking_lot::{Mutex, MutexGuard};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// One way over the link below.
const ONE_WAY: Duration = Duration::from_millis(240);
const BODY_BYTES: usize = 200_000;
/// More than the first window of the hub, less than the server's kernel sends at once.
const RESET_BODY_BYTES: usize = 50_000;
const HUB: usize = 0;
const TERMINALS: [usize; 2] = [1, 2];

#[test]
fn a_terminal_reaches_the_machine_through_the_link() {
    let _alone = alone();
    let Some((emulation, internet)) = ready(InternetOptions { reach_machine_loopback: true }) else { return };
    println!("{}", internet.description());
    let (tcp, udp) = (http_server(), udp_echo());
    for terminal in TERMINALS {
        inside(&emulation, terminal, || {
            let start = Instant::now();
            let mut stream = connect(tcp)?;
            assert!(start.elapsed() >= 2 * ONE_WAY, "opened before the link could: {:?}", start.elapsed());
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            // The other direction stays open.
            stream.shutdown(Shutdown::Write)?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n"));
            assert_eq!(answer.iter().filter(|byte| **byte == b'x').count(), BODY_BYTES);
            Ok(())
        });
        inside(&emulation, terminal, || {
            let start = Instant::now();
            assert_eq!(ask(udp, b"hello", Duration::from_secs(5))?, b"hello");
            assert!(start.elapsed() >= 2 * ONE_WAY, "answered before the link could: {:?}", start.elapsed());
            Ok(())
        });
        // Fragments do not get through, and never as a part for the whole.
        inside(&emulation, terminal, || {
            let error = ask(udp, &[1; 4000], Duration::from_millis(1500)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            Ok(())
        });
    }
    inside(&emulation, HUB, || {
        assert_eq!(ask(udp, b"from the hub", Duration::from_secs(5))?, b"from the hub");
        Ok(())
    });
    internet.stop();
}

#[test]
fn a_refusal_and_a_reset_arrive() {
    let _alone = alone();
    let Some((emulation, _internet)) = ready(InternetOptions { reach_machine_loopback: true }) else { return };
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    inside(&emulation, 1, || {
        let error = connect(closed)?.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        Ok(())
    });
    let resetting = resetting_server();
    inside(&emulation, 1, || {
        let mut stream = connect(resetting)?;
        // Unread when the server closes, hence the reset.
        stream.write_all(b"what the server does not read")?;
        let mut got = 0;
        let mut buffer = [0; 65536];
        let error = loop {
            match stream.read(&mut buffer) {
                Ok(0) => panic!("end of file instead of a reset after {got} bytes"),
                Ok(bytes) => got += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!((got, error.kind()), (RESET_BODY_BYTES, ErrorKind::ConnectionReset));
        Ok(())
    });
}

#[test]
fn the_machines_loopback_is_closed_by_default() {
    let _alone = alone();
    let Some((emulation, _internet)) = ready(InternetOptions::default()) else { return };
    let (tcp, udp) = (http_server(), udp_echo());
    inside(&emulation, 1, || {
        assert_eq!(connect(tcp)?.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(ask(udp, b"hello", Duration::from_millis(1500)).is_err());
        Ok(())
    });
}

/// A process has one emulation at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
}

/// A hub with two terminals, each on a link of its own; `None`, with a reason, where this cannot be tried.
fn ready(options: InternetOptions) -> Option<(Emulation, Internet)> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root (bentpipe itself does not: it enters a user namespace before it has threads)");
        return None;
    }
    let link = |name: &str, terminal: &str| {
        let over = catalogue::parse_override("one_way_delay=240 ms").unwrap();
        let config = catalogue::named("geo-two-way").unwrap().unwrap().with(over).unwrap();
        let sites = vec!["hub".to_owned(), terminal.to_owned()];
        (LinkSpec { name: name.to_owned(), sites, carries_ethernet: config.carries_ethernet, mtu: config.mtu }, config)
    };
    let links = vec![link("east", "ship"), link("west", "clinic")];
    let setup = Setup { links, seed: 1, resolver: internet::resolver_text(), ..Setup::default() };
    let emulation = Emulation::start(&setup, Privilege::Root).unwrap();
    match internet::start(&emulation, HUB, &TERMINALS, options) {
        Ok(internet) => Some((emulation, internet)),
        Err(error @ InternetError::Absent { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn inside(emulation: &Emulation, site: usize, work: impl FnOnce() -> io::Result<()> + Send) {
    emulation.namespace(site).run(work).unwrap();
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((GATEWAY, port)), Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

fn ask(port: u16, question: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(patience))?;
    socket.send_to(question, (GATEWAY, port))?;
    let mut answer = vec![0; 65536];
    let (bytes, _) = socket.recv_from(&mut answer)?;
    answer.truncate(bytes);
    Ok(answer)
}

fn http_server() -> u16 {
    serve(|mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request)?;
        assert!(request.starts_with(b"GET / HTTP/1.0\r\n"));
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
        stream.write_all(&[b'x'; BODY_BYTES])
    })
}

fn resetting_server() -> u16 {
    serve(|mut stream| {
        stream.peek(&mut [0])?;
        stream.write_all(&[b'x'; RESET_BODY_BYTES])?;
        // Let it leave: a reset takes along what the server's own kernel still holds.
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    })
}

fn serve(answer: fn(TcpStream) -> io::Result<()>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = answer(stream.unwrap());
        }
    });
    port
}

fn udp_echo() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..bytes], from);
        }
    });
    port
}
