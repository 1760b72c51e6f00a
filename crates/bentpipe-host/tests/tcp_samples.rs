//! The sampler against the kernel: real connections on the loopback device of a namespace of their own.

use bentpipe_host::clock::Clock;
use bentpipe_host::namespace::{Namespace, acquire_privilege, read_sysctl};
use bentpipe_host::netlink::Netlink;
use bentpipe_host::tcp_samples::TcpSampler;
use bentpipe_net::time::Duration;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

const SENT: usize = 3 << 20;

/// Moves [`SENT`] bytes within the namespace and waits until they are acknowledged. Both ends stay open.
fn transfer(address: &str) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(address)?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut received = vec![0; SENT];
            // The answer brings the acknowledgement of everything.
            server.read_exact(&mut received).and_then(|()| server.write_all(b"!")).unwrap();
        });
        client.write_all(&vec![7; SENT])?;
        client.read_exact(&mut [0])
    })?;
    Ok((client, server))
}

#[test]
fn the_kernel_tells_of_a_transfer() {
    const NAME: &str = "the_kernel_tells_of_a_transfer";
    if acquire_privilege().is_err() {
        // A test's process has several threads and cannot enter a user namespace: a child that begins in one can.
        let inside = |command: &[&str]| {
            let status = Command::new("unshare").args(["--user", "--map-root-user"]).args(command).status();
            status.is_ok_and(|status| status.success())
        };
        if !inside(&["true"]) {
            eprintln!("skipped: neither root nor user namespaces here");
            return;
        }
        let program = std::env::current_exe().unwrap();
        assert!(inside(&[program.to_str().unwrap(), "--exact", NAME]));
        return;
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let congestion_control = namespace
        .run(|| {
            Netlink::open()?.set_up("lo")?;
            read_sysctl("net.ipv4.tcp_congestion_control")
        })
        .unwrap();

    let clock = Clock::start();
    let sampler = match TcpSampler::start(&namespace, clock, Duration::from_secs(3_600)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return eprintln!("skipped: this kernel has no CONFIG_INET_TCP_DIAG");
        }
        sampler => sampler.unwrap(),
    };
    let open = namespace.run(|| transfer("127.0.0.1:0")).unwrap();
    let open6 = namespace.run(|| Ok(transfer("[::1]:0").ok())).unwrap();
    // An IPv4 connection of an IPv6 socket.
    let mapped = namespace.run(|| Ok(transfer("[::ffff:127.0.0.1]:0").ok())).unwrap();
    assert_eq!((sampler.not_followed(), sampler.incomplete_rounds()), (0, 0));
    let before = clock.now();
    let connections = sampler.finish();
    let end = clock.now();
    assert!(end.since(before) < Duration::from_secs(60), "finish waited for the next round");

    let ends = [Some(&open), open6.as_ref(), mapped.as_ref()];
    for (client, server) in ends.into_iter().flatten() {
        for (socket, sent, received) in [(client, SENT as u64, 1), (server, 1, SENT as u64)] {
            let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            let local = canonical(socket.local_addr().unwrap());
            let remote = canonical(socket.peer_addr().unwrap());
            let mut found = connections.iter().filter(|c| (c.local, c.remote) == (local, remote));
            let connection = found.next().expect("every open socket is seen");
            assert!(found.next().is_none());
            assert_eq!(connection.congestion_control, congestion_control);
            let [sample] = connection.samples[..] else { panic!("{:?}", connection.samples) };
            assert_eq!(sample.state, 1);
            assert!(sample.at >= before && sample.at <= end);
            assert!((1..100_000).contains(&sample.cwnd_segments), "{sample:?}");
            assert!((500..=65_536).contains(&sample.mss), "{sample:?}");
            assert!(sample.srtt_s > 0.0 && sample.rto_s > sample.srtt_s, "{sample:?}");
            assert!(sample.bytes_received == received, "{sample:?}");
            // The client's SYN counts; the server's single byte may not be acknowledged yet.
            let acked_least = if sent == 1 { 0 } else { sent };
            assert!((acked_least..=sent + 1).contains(&sample.bytes_acked), "{sample:?}");
            assert!(sample.snd_wnd.is_none_or(|bytes| bytes > 0) && sample.rcv_space > 0, "{sample:?}");
            if sent > 1 {
                assert!(sample.delivery_rate_bps > 0 && sample.unacked_segments == 0, "{sample:?}");
            }
        }
    }
    assert_eq!(connections.len(), 2 * ends.into_iter().flatten().count(), "{connections:?}");

    // Rounds come by themselves, however busy the machine is.
    let again = (0..200).any(|_| {
        let sampler = TcpSampler::start(&namespace, clock, Duration::ZERO).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let connections = sampler.finish();
        assert!(connections.iter().all(|c| c.samples.is_sorted_by(|a, b| a.at < b.at)));
        connections[0].samples.len() > 3
    });
    assert!(again);
}
