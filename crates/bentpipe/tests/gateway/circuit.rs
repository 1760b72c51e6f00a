//! A link that must be dialled: an idle pair leaves it down, and its connections open.

use super::peers::{ConnectionPair, WAIT, socket_address};
use super::row::{Row, SERVER, until_within};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const HANG_UP: Duration = Duration::from_secs(12);
/// How long it stays quiet, which an idle pair on another link does not: a hub's keep-alive comes after two minutes, a
/// terminal's after one.
const QUIET: Duration = Duration::from_secs(130);
const METRICS: &str = "metrics = \"127.0.0.1:9464\"\n";

pub fn run(full: bool) {
    if !full {
        println!("left out: dialled links take minutes (--full)");
        return;
    }
    // The slowest published set-up: INMARSAT Mini-M with its modems (links/inmarsat-mini-m.toml).
    let set_up = Duration::from_secs(50);
    let link = format!(
        "mtu = \"1500 B\"\nframing = \"none\"\nqueue = {{ bytes = \"20 kB\" }}\nrate = \"64 kbit/s\"\n\
         one_way_delay = \"250 ms\"\ncircuit = {{ stages = [{{ name = \"set-up\", time = \"{} s\" }}], idle_hang_up = \
         \"{} s\" }}\n",
        set_up.as_secs(),
        HANG_UP.as_secs()
    );
    let row = Row::over(&link);
    row.make_pair_on("", 4433, &link, [METRICS, METRICS], "");
    let mut hub = row.daemon(2, "hub");
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for_within("connected to the other gateway", set_up + WAIT);
    let mut idle = open(&row, 150, Duration::ZERO, WAIT);
    let emulated = row.link.as_ref().unwrap();
    let goes_down = || until_within(&row, "the circuit hangs up", HANG_UP + WAIT, |_| !emulated.is_up());
    goes_down();
    let before = emulated.packets();
    std::thread::sleep(QUIET);
    assert_eq!((emulated.packets(), emulated.is_up()), (before, false), "an idle pair has sent something");
    for by_client in [true, false] {
        let took = says(&mut idle, by_client, set_up + WAIT);
        println!("a word of the {}'s took {took:.1?}", if by_client { "client" } else { "server" });
        assert!(took > set_up && took < set_up + WAIT, "{took:?}");
        goes_down();
    }
    // A request waits for the circuit as a connection does.
    open(&row, 151, set_up, set_up + WAIT);
    says(&mut idle, true, WAIT);
    for site in [1, 2] {
        assert_eq!(row.metric_at(site, "connections_lost_total"), Some(0.0));
        assert_eq!(row.metric_at(site, "requests_bypassed_total"), Some(0.0));
    }
    assert_eq!(hub.count_lines("silent") + terminal.count_lines("silent"), 0);
}

/// A connection that is answered after at least and at most so long.
fn open(row: &Row, port: u16, least: Duration, most: Duration) -> ConnectionPair {
    let listener = row.listen(SERVER[0], port);
    let begun = Instant::now();
    let near: io::Result<TcpStream> =
        row.sites[0].run(|| Ok(TcpStream::connect_timeout(&socket_address(SERVER[0], port), most))).unwrap();
    let mut ends = (near.unwrap(), listener.accept().unwrap().0);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    says(&mut ends, true, WAIT);
    ends
}

/// A word one way: how long it took.
fn says((near, far): &mut ConnectionPair, by_client: bool, most: Duration) -> Duration {
    let (from, to) = if by_client { (near, far) } else { (far, near) };
    let begun = Instant::now();
    let mut seen = [0; 5];
    to.set_read_timeout(Some(most)).unwrap();
    from.write_all(b"hello").unwrap();
    to.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"hello");
    begun.elapsed()
}
