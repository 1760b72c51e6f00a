//! FTP servers of all kinds.

use crate::place::{Place, content, options};
use bentpipe_fetch::{Failure, Options};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What a server does otherwise than RFC 959 and RFC 3659 say.
#[derive(Clone, Default)]
struct Habits {
    no_epsv: bool,
    /// Of what arrives at once, only the first line is read.
    one_command_a_packet: bool,
    no_rest: bool,
    /// REST is agreed to and forgotten.
    rest_ignored: bool,
    no_passive: bool,
    no_size: bool,
    /// Sessions at once.
    sessions_most: Option<usize>,
    /// SIZE says so much more than there is.
    size_lie: usize,
    /// Data connections end after so many bytes.
    cut: Option<usize>,
    greeting: Option<&'static str>,
    login: Option<&'static str>,
}

fn serve(bytes: &[u8], habits: Habits) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://someone:secret@{}/folder/file", listener.local_addr().unwrap());
    let (bytes, habits, sessions) = (Arc::new(bytes.to_vec()), Arc::new(habits), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (bytes, habits, sessions) = (Arc::clone(&bytes), Arc::clone(&habits), Arc::clone(&sessions));
            std::thread::spawn(move || {
                let number = sessions.fetch_add(1, Ordering::SeqCst);
                // A client that goes away is none of the server's business.
                let _ = session(stream.unwrap(), &bytes, &habits, number);
                sessions.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    url
}

fn session(mut control: TcpStream, bytes: &[u8], habits: &Habits, number: usize) -> std::io::Result<()> {
    if habits.sessions_most.is_some_and(|most| number >= most) {
        return control.write_all(b"421 Too many\r\n");
    }
    control.write_all(habits.greeting.unwrap_or("220-Hello\r\n 220 not yet\r\n220 Hello\r\n").as_bytes())?;
    let (mut rest, mut passive) = (0, None);
    let mut reader = BufReader::new(control.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if habits.one_command_a_packet {
            let waiting = reader.buffer().len();
            reader.consume(waiting);
        }
        let line = line.trim_end().to_owned();
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match command {
            "USER" => "331 Password\r\n".to_owned(),
            "PASS" => {
                assert_eq!(argument, "secret");
                habits.login.unwrap_or("230 In\r\n").to_owned()
            }
            "TYPE" => "200 Ok\r\n".to_owned(),
            "SIZE" if habits.no_size => "502 What?\r\n".to_owned(),
            "SIZE" if argument != "folder/file" => "550 No such file\r\n".to_owned(),
            "SIZE" => format!("213 {}\r\n", bytes.len() + habits.size_lie),
            "MDTM" => "213 20260101000000.123\r\n".to_owned(),
            "EPSV" | "PASV" if habits.no_passive => "502 Active only\r\n".to_owned(),
            "EPSV" if habits.no_epsv => "500 What?\r\n".to_owned(),
            "EPSV" | "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                passive = Some(listener);
                match command {
                    "EPSV" => format!("229 Passive (|||{port}|)\r\n"),
                    // A private address, as behind a translator that does not know FTP.
                    _ => format!("227 Passive (10,255,255,1,{},{}).\r\n", port >> 8, port & 255),
                }
            }
            "REST" if habits.no_rest => "502 What?\r\n".to_owned(),
            "REST" => {
                rest = if habits.rest_ignored { 0 } else { argument.parse().unwrap() };
                "350 Go on\r\n".to_owned()
            }
            "RETR" if argument != "folder/file" => "550 No such file\r\n".to_owned(),
            "RETR" => {
                let (mut data, _) = passive.take().unwrap().accept()?;
                control.write_all(b"150 Here it comes\r\n")?;
                let all = &bytes[std::mem::take(&mut rest).min(bytes.len())..];
                let part = &all[..habits.cut.unwrap_or(all.len()).min(all.len())];
                match data.write_all(part) {
                    Ok(()) if part.len() == all.len() => "226 Done\r\n".to_owned(),
                    _ => "426 Broken\r\n".to_owned(),
                }
            }
            _ => "502 What?\r\n".to_owned(),
        };
        control.write_all(reply.as_bytes())?;
    }
}

#[test]
fn several_connections_fetch_one_file() {
    let bytes = content(3_000_001);
    let url = serve(&bytes, Habits::default());
    for connections in [1, 4] {
        Place::new().expect(&url, &options(connections), &bytes);
    }
}

/// More than the kernel's buffers hold: a server that is still sending when its piece is given up must learn of it.
#[test]
fn a_piece_that_is_given_up_ends_its_transfer() {
    let bytes = content(40_000_000);
    let outcome = Place::new().expect(&serve(&bytes, Habits::default()), &options(2), &bytes);
    assert_eq!(outcome.failed_attempts, 0, "{:?}", outcome.notes);
}

#[test]
fn old_and_odd_servers() {
    let bytes = content(700_000);
    for habits in [
        Habits { no_epsv: true, ..Habits::default() },
        Habits { one_command_a_packet: true, ..Habits::default() },
        Habits { cut: Some(100_000), ..Habits::default() },
        Habits { sessions_most: Some(1), ..Habits::default() },
    ] {
        Place::new().expect(&serve(&bytes, habits), &options(3), &bytes);
    }
    let outcome =
        Place::new().expect(&serve(&bytes, Habits { no_rest: true, ..Habits::default() }), &options(3), &bytes);
    assert!(outcome.notes.iter().any(|note| note.contains("whole files only")), "{:?}", outcome.notes);
    assert_eq!(outcome.connections, 1);
    let outcome =
        Place::new().expect(&serve(&bytes, Habits { no_size: true, ..Habits::default() }), &options(3), &bytes);
    assert!(!outcome.size_checked);
}

/// The last piece gives it away: more comes than there should be.
#[test]
fn a_server_that_forgets_where_to_begin_damages_nothing() {
    let bytes = content(700_000);
    let url = serve(&bytes, Habits { rest_ignored: true, ..Habits::default() });
    let outcome = Place::new().expect(&url, &options(3), &bytes);
    assert!(outcome.notes.iter().any(|note| note.contains("over one connection")), "{:?}", outcome.notes);
}

#[test]
fn a_server_without_passive_mode_is_quoted() {
    let url = serve(b"text", Habits { no_passive: true, ..Habits::default() });
    let failure = Place::new().fails(&url, &options(1));
    assert!(failure.to_string().contains("502 Active only"), "{failure}");
}

/// Neither memory nor time without end.
#[test]
fn greetings_end() {
    let place = |bytes: &'static [u8], pause: u64| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ftp://{}/file", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                while stream.write_all(bytes).is_ok() {
                    std::thread::sleep(Duration::from_millis(pause));
                }
            }
        });
        let options = Options { timeout: Duration::from_millis(500), retries: 0, ..options(1) };
        Place::new().fails(&url, &options)
    };
    assert!(matches!(place(b"220-And then there was\r\n", 0), Failure::Protocol(_)));
    assert!(matches!(place(&[b'2'; 10_000], 0), Failure::Protocol(_)));
    assert!(matches!(place(b"120 soon\r\n", 0), Failure::Answer(_)));
    assert!(matches!(place(b"2", 20), Failure::TimedOut(_) | Failure::Protocol(_)));
}

#[test]
fn refusals_say_why_and_hide_the_password() {
    let bytes = content(1000);
    let login = Habits { login: Some("530 Not with that secre\r\n"), ..Habits::default() };
    let failure = Place::new().fails(&serve(&bytes, login), &options(1));
    assert!(matches!(&failure, Failure::Unauthorised(text) if text.contains("530")), "{failure}");
    let url = serve(&bytes, Habits::default());
    let failure = Place::new().fails(&url.replace("folder/file", "other"), &options(2));
    assert!(matches!(failure, Failure::NotFound(_)), "{failure}");
    let endless = Habits { greeting: Some("HTTP/1.1 400 Bad Request\r\n"), ..Habits::default() };
    let failure = Place::new().fails(&serve(&bytes, endless), &options(1));
    assert!(matches!(failure, Failure::Protocol(_)) && !failure.to_string().contains("secret"), "{failure}");
}

#[test]
fn a_size_that_is_a_lie_gives_no_file() {
    let habits = Habits { size_lie: 5, ..Habits::default() };
    let failure = Place::new().fails(&serve(&content(1000), habits), &options(1));
    assert!(matches!(failure, Failure::ClosedEarly(_)), "{failure}");
}
