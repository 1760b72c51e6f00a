//! Lines of this machine: a hook that writes down what it does, and a modem on a pseudo-terminal.

use super::LineDevice;
use super::hook::HookLine;
use super::ledger::LedgerFile;
use super::modem::ModemLine;
use bentpipe_gateway::dial::ModemSettings;
use bentpipe_net::line::{LineEvent, LineFailure};
use bentpipe_net::time::Instant;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("bentpipe-line-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn hook(&self, script: &str, with: &str) -> HookLine {
        let path = self.0.join("hook");
        let log = self.0.join("log");
        std::fs::write(&path, format!("log={}\necho $1 $2 $BENTPIPE_CALL >> $log\n{script}", log.display())).unwrap();
        let argv = ["sh", path.to_str().unwrap(), with].map(str::to_owned);
        HookLine::new(&argv, self.ledger(), Instant::ZERO).unwrap()
    }

    fn ledger(&self) -> LedgerFile {
        LedgerFile::open(&self.0.join("ledger"), None).unwrap().0
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.0.join("log")).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn next(line: &mut dyn LineDevice) -> LineEvent {
    for _ in 0..1000 {
        if let Some(event) = line.as_line().poll_event() {
            return event;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing happens to the line");
}

#[test]
fn a_hook_sets_the_line_up_and_ends_it() {
    let folder = Folder::new("hook");
    let mut line = folder.hook("", "own");
    for call in 1..=2 {
        line.as_line().dial(call);
        assert_eq!(next(&mut line), LineEvent::Up);
        line.as_line().hang_up();
        assert_eq!(next(&mut line), LineEvent::Down);
    }
    assert_eq!(folder.log(), "own up 1\nown down 1\nown up 2\nown down 2\n");
}

#[test]
fn a_hook_that_fails_is_ended_and_says_why() {
    let folder = Folder::new("fails");
    for (code, why) in [(4, LineFailure::Busy), (5, LineFailure::NoCarrier), (1, LineFailure::Failed)] {
        let mut line = folder.hook(&format!("[ $2 = down ] || exit {code}\n"), "x");
        line.as_line().dial(code);
        assert_eq!(next(&mut line), LineEvent::Failed(why));
        assert!(folder.log().ends_with(&format!("x up {code}\nx down {code}\n")));
    }
    let missing = HookLine::new(&["no-such-command-here".to_owned()], folder.ledger(), Instant::ZERO);
    assert!(missing.err().unwrap().to_string().contains("no-such-command-here"));
}

#[test]
fn a_hook_that_hangs_is_ended_when_the_line_is_given_up() {
    let folder = Folder::new("hangs");
    let mut line = folder.hook("[ $2 = down ] || sleep 1000\n", "x");
    line.as_line().dial(1);
    std::thread::sleep(Duration::from_millis(200));
    line.as_line().hang_up();
    assert_eq!(next(&mut line), LineEvent::Failed(LineFailure::Failed));
    assert_eq!(folder.log(), "x up 1\nx down 1\n");
}

/// The modem's end of a pseudo-terminal, and the name of the other.
fn pseudo_terminal() -> (File, PathBuf) {
    // SAFETY: plain calls; the name is copied out of a buffer of this function.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0);
        let mut name = [0 as libc::c_char; 64];
        assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0);
        let name = std::ffi::CStr::from_ptr(name.as_ptr()).to_str().unwrap().into();
        (File::from(OwnedFd::from_raw_fd(master)), name)
    }
}

/// A modem that answers each command with what `answer` says of it. Ends when the other side closes the port.
fn modem(
    mut port: File,
    answer: impl Fn(&str) -> &'static str + Send + 'static,
) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let (mut heard, mut line, mut byte) = (Vec::new(), String::new(), [0]);
        loop {
            match port.read(&mut byte) {
                Ok(1) if byte[0] == b'\r' => {
                    let command = std::mem::take(&mut line);
                    // With an echo, as modems are set after `ATZ`.
                    let _ = write!(port, "{command}\r\r\n{}\r\n", answer(&command));
                    heard.push(command);
                }
                Ok(1) => line.push(byte[0] as char),
                // Closed by the other side (EIO); before it opens the port for a call, too.
                _ if heard.iter().any(|command| command.starts_with("ATD")) => return heard,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    })
}

fn settings(device: PathBuf) -> ModemSettings {
    let text = format!("device = {device:?}\nnumber = 'T00881600005555'\n");
    toml::from_str(&text).unwrap()
}

#[test]
fn a_modem_dials_and_hangs_up() {
    let folder = Folder::new("modem");
    let (port, device) = pseudo_terminal();
    let modem = modem(port, |command| if command.starts_with("ATD") { "CONNECT 9600" } else { "OK" });
    let mut line = ModemLine::new(settings(device), folder.ledger(), Instant::ZERO).unwrap();
    line.as_line().dial(1);
    assert_eq!(next(&mut line), LineEvent::Up);
    line.as_line().hang_up();
    assert_eq!(next(&mut line), LineEvent::Down);
    assert_eq!(modem.join().unwrap(), ["ATZ", "ATDT00881600005555", "ATH"]);
}

#[test]
fn a_modem_says_why_it_does_not_connect_and_when_the_carrier_is_lost() {
    let folder = Folder::new("failures");
    for (answer, why) in [
        ("BUSY", LineFailure::Busy),
        ("NO CARRIER", LineFailure::NoCarrier),
        ("NO DIALTONE", LineFailure::NoDialTone),
        ("NO ANSWER", LineFailure::NoAnswer),
        ("ERROR", LineFailure::Failed),
    ] {
        let (port, device) = pseudo_terminal();
        let modem = modem(port, move |command| if command.starts_with("ATD") { answer } else { "OK" });
        let mut line = ModemLine::new(settings(device), folder.ledger(), Instant::ZERO).unwrap();
        line.as_line().dial(1);
        assert_eq!(next(&mut line), LineEvent::Failed(why), "{answer}");
        modem.join().unwrap();
    }
    let (port, device) = pseudo_terminal();
    let connect = |command: &str| if command.starts_with("ATD") { "CONNECT\r\n\r\nNO CARRIER" } else { "OK" };
    let modem = modem(port, connect);
    let mut line = ModemLine::new(settings(device), folder.ledger(), Instant::ZERO).unwrap();
    line.as_line().dial(1);
    assert_eq!([next(&mut line), next(&mut line)], [LineEvent::Up, LineEvent::Down]);
    modem.join().unwrap();
}
