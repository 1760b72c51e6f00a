//! FTP between our client and our server, and each of them with others.

mod support;

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::Direction::{self, Download, Upload};
use bentpipe_apps::ftp::FtpSpec;
use bentpipe_apps::service::FtpService;
use bentpipe_apps::{Report, Status, quantity};
use bentpipe_net::socket::{count_wrong, fill_pattern};
use bentpipe_net::time::Duration;
use proptest::prelude::*;
use support::script::{Act, Heard, Script, say, text};
use support::{CLIENT, FaultKind, SEED, SERVER, World, address, at_ms};

fn spec(direction: Direction, bytes: u64) -> FtpSpec {
    FtpSpec { direction, bytes, ..FtpSpec::default() }
}

fn run(spec: &FtpSpec, world: World) -> Report {
    run_world(spec, world).0
}

fn run_world(spec: &FtpSpec, mut world: World) -> (Report, World) {
    spec.check().unwrap();
    world.add(SERVER, spec.server(SEED));
    world.add(CLIENT, spec.client(address(SERVER), SEED));
    world.run();
    (spec.combine(world.report(1), world.report(0)), world)
}

/// A real client's words to our service.
fn converse(acts: Vec<Act>, mut world: World) -> (Heard, World) {
    let (client, heard) = Script::program(address(SERVER), acts);
    world.add(SERVER, FtpService { port: 21, seed: SEED }.server());
    world.add(CLIENT, client);
    world.limit = at_ms(100_000);
    world.run();
    (heard, world)
}

/// Our client and a scripted server.
fn against(spec: &FtpSpec, acts: Vec<Act>) -> (Report, Heard) {
    let (server, heard) = Script::program(address(CLIENT), acts);
    let mut world = World::new();
    world.add(SERVER, server);
    world.add(CLIENT, spec.client(address(SERVER), SEED));
    world.run();
    (world.report(1), heard)
}

fn error_of(report: &Report) -> String {
    match &report.status {
        Status::Failed(error) => error.clone(),
        other => panic!("not failed: {other:?}"),
    }
}

fn receiver(direction: Direction) -> usize {
    if direction == Download { CLIENT } else { SERVER }
}

#[test]
fn a_file_both_ways() {
    for direction in [Download, Upload] {
        let (report, world) = run_world(&spec(direction, 278_507), World::new());
        assert_eq!(report.status, Status::Done, "{direction}");
        for (quantity, value) in [
            (quantity::BYTES, 278_507.0),
            (quantity::WRONG_BYTES, 0.0),
            (quantity::FILES_DONE, 1.0),
            (quantity::FILES_FAILED, 0.0),
        ] {
            assert_eq!(report.value(quantity), Some(value), "{direction} {quantity:?}");
        }
        // Connect, 220, USER, PASS, TYPE, EPSV, connect: six round trips; the greeting shares one with the connection.
        let control = report.value(quantity::CONTROL_TIME).unwrap();
        assert!((1.2..1.23).contains(&control), "{direction}: {control}");
        let took = report.value(quantity::COMPLETION_TIME).unwrap();
        let least = control + 278_507.0 * 8.0 / 1e6 + 0.1;
        assert!(took > least && took < least + 0.35, "{direction}: {took}");
        assert!(report.value(quantity::SESSION_TIME_MAX).unwrap() >= took - 1e-9);
        assert!(report.value(quantity::GOODPUT_PER_SESSION).unwrap() > 0.0);
        assert_eq!(report.points(quantity::RECEIVED_BYTES).last().map(|p| p.1), Some(278_507.0));
        assert_eq!(world.connections(), 2);
        assert_eq!(world.sockets_open(CLIENT), 0);
    }
}

#[test]
fn files_and_sessions() {
    for direction in [Download, Upload] {
        let spec = FtpSpec { files: 3, sessions: 4, ..spec(direction, 20_000) };
        let (report, world) = run_world(&spec, World::new());
        assert_eq!(report.status, Status::Done, "{direction}");
        assert_eq!(report.value(quantity::FILES_DONE), Some(12.0));
        assert_eq!(report.value(quantity::BYTES), Some(240_000.0));
        assert_eq!(report.value(quantity::WRONG_BYTES), Some(0.0));
        assert_eq!(world.connections(), 4 + 12);
        let (all, each) =
            (report.value(quantity::GOODPUT).unwrap(), report.value(quantity::GOODPUT_PER_SESSION).unwrap());
        assert!(all > 3.0 * each && all < 4.8 * each, "{all} {each}");
    }
}

/// The first session starts at once, the others within the time that the file gives, each at its own moment of the seed.
#[test]
fn sessions_start_apart() {
    let of = |spread: u64| {
        let spec = FtpSpec { sessions: 4, spread: Duration::from_secs(spread), ..spec(Download, 20_000) };
        let (report, world) = run_world(&spec, World::new());
        assert_eq!((report.status.clone(), report.value(quantity::FILES_DONE)), (Status::Done, Some(4.0)));
        assert_eq!(world.connections(), 8);
        (report.value(quantity::COMPLETION_TIME).unwrap(), report.value(quantity::SESSION_TIME_MAX).unwrap())
    };
    let ((together, together_max), (apart, apart_max)) = (of(0), of(20));
    assert!(apart > together + 3.0 && apart < together + 20.0, "{together} {apart}");
    // Each is timed from its own start: alone on the link it is faster.
    assert!(apart_max < together_max, "{together_max} {apart_max}");
    assert_eq!(of(20), (apart, apart_max), "the same seed, the same moments");
}

#[test]
fn one_byte_at_a_time() {
    for direction in [Download, Upload] {
        let mut world = World::new();
        world.net.send_call_max = 1;
        let report = run(&FtpSpec { files: 2, ..spec(direction, 500) }, world);
        assert_eq!((report.status.clone(), report.value(quantity::WRONG_BYTES)), (Status::Done, Some(0.0)));
    }
}

#[test]
fn an_early_end_of_data_fails_whichever_side_is_fooled() {
    let report = run(&spec(Download, 100_000), World::new().with_fault(1, CLIENT, 30_000, FaultKind::End));
    assert_eq!(error_of(&report), "connection ended after 30000 of 100000 bytes");
    assert_eq!(report.value(quantity::FILES_FAILED), Some(1.0));
    assert_eq!(report.value(quantity::BYTES), Some(30_000.0));
    let report = run(&spec(Upload, 40_000), World::new().with_fault(1, SERVER, 30_000, FaultKind::End));
    assert_eq!(error_of(&report), "server received 30000 of 40000 bytes");
}

#[test]
fn resets_of_data_and_control() {
    for direction in [Download, Upload] {
        let world = World::new().with_fault(1, receiver(direction), 30_000, FaultKind::Reset);
        let error = error_of(&run(&spec(direction, 300_000), world));
        assert!(error.contains("reset by peer"), "{direction}: {error}");
        let report = run(&spec(direction, 100_000), World::new().with_fault(0, CLIENT, 60, FaultKind::Reset));
        assert_eq!(error_of(&report), "control connection: connection reset by peer");
        let report = run(&spec(direction, 100_000), World::new().with_fault(0, CLIENT, 60, FaultKind::End));
        assert_eq!(error_of(&report), "server ended the control connection");
    }
    let report = run(&spec(Download, 9), World::new().with_fault(0, SERVER, 0, FaultKind::Refuse));
    assert_eq!(error_of(&report), "cannot connect to 10.0.0.2:21: connection refused");
    let report = run(&spec(Download, 9), World::new().with_fault(1, SERVER, 0, FaultKind::Refuse));
    assert_eq!(error_of(&report), "cannot open the data connection: connection refused");
}

#[test]
fn silence_lasts_as_long_as_the_application_waits() {
    let spec = FtpSpec { timeout: Duration::from_secs(60), ..spec(Download, 300_000) };
    let report = run(&spec, World::new().with_fault(1, CLIENT, 29_200, FaultKind::Blackhole));
    assert_eq!(error_of(&report), "no progress for 60 s after 29200 of 300000 bytes");
    let ended = report.ended.unwrap().as_secs_f64();
    assert!((60.0..63.0).contains(&ended), "{ended}");
    let report = run(&spec, World::new().with_fault(0, SERVER, 0, FaultKind::Blackhole));
    assert_eq!(error_of(&report), "no progress for 60 s after 0 of 300000 bytes");
}

#[test]
fn one_of_several_sessions_fails_and_the_others_go_on() {
    let spec = FtpSpec { files: 2, sessions: 3, ..spec(Download, 20_000) };
    // Connections 0 to 2 are the control connections; 4 is the second session's first data connection.
    let report = run(&spec, World::new().with_fault(4, CLIENT, 5000, FaultKind::Reset));
    assert_eq!(
        error_of(&report),
        "session 2, file 1: connection ended after 5000 of 20000 bytes: connection reset by peer"
    );
    assert_eq!((report.value(quantity::FILES_DONE), report.value(quantity::FILES_FAILED)), (Some(4.0), Some(2.0)));
    assert_eq!(report.value(quantity::BYTES), Some(85_000.0));
}

#[test]
fn damage_is_counted() {
    for direction in [Download, Upload] {
        let world = World::new().with_fault(1, receiver(direction), 777, FaultKind::Damage);
        let report = run(&spec(direction, 5000), world);
        assert_eq!((report.status.clone(), report.value(quantity::WRONG_BYTES)), (Status::Done, Some(1.0)));
    }
}

#[test]
fn data_ports_that_are_taken_are_passed_over() {
    let mut world = World::new();
    world.net.ports_in_use.extend([61_000, 61_001]);
    assert_eq!(run(&spec(Download, 5000), world).status, Status::Done);
}

#[test]
fn curl_gets_and_resumes_a_file() {
    // The order of curl 8: PWD after the login, the data connection before the transfer.
    let (heard, _) = converse(
        vec![
            Act::Open(21),
            Act::Hear(0, "220 "),
            say(0, "USER anonymous\r\n"),
            Act::Hear(0, "331 "),
            say(0, "PASS ftp@example.com\r\n"),
            Act::Hear(0, "230 "),
            say(0, "PWD\r\n"),
            Act::Hear(0, "257 \"/\""),
            say(0, "EPSV\r\n"),
            Act::Hear(0, "(|||61000|)"),
            Act::Open(61_000),
            say(0, "TYPE I\r\n"),
            Act::Hear(0, "200 "),
            say(0, "SIZE 9000.bin\r\n"),
            Act::Hear(0, "213 9000\r\n"),
            say(0, "REST 4000\r\n"),
            Act::Hear(0, "350 "),
            say(0, "RETR 9000.bin\r\n"),
            Act::Hear(0, "150 "),
            Act::HearEnd(1),
            Act::Close(1),
            Act::Hear(0, "226 "),
            say(0, "QUIT\r\n"),
            Act::Hear(0, "221 "),
            Act::HearEnd(0),
            Act::Close(0),
        ],
        World::new(),
    );
    let data = &heard.lock().unwrap()[1];
    assert_eq!((data.len(), count_wrong(SEED, 4000, data)), (5000, 0));
}

#[test]
fn an_old_client_lists_and_stores_over_pasv() {
    let mut data = vec![0; 3000];
    fill_pattern(SEED, 0, &mut data);
    let (heard, world) = converse(
        vec![
            Act::Open(21),
            say(0, "user joe\r\npass secret\r\nsyst\r\nfeat\r\nPASV\r\n"),
            Act::Hear(0, "211 End\r\n227 Entering Passive Mode (10,0,0,2,238,72)."),
            Act::Open(61_000),
            say(0, "LIST -la\r\n"),
            Act::Hear(0, "150 "),
            Act::HearEnd(1),
            Act::Hear(0, "226 "),
            say(0, "PASV\r\n"),
            Act::Hear(0, "(10,0,0,2,238,73)"),
            say(0, "STOR /3000.bin\r\n"),
            Act::Hear(0, "150 "),
            Act::Open(61_001),
            Act::Say(2, data),
            Act::Close(2),
            Act::Hear(0, "226 "),
        ],
        World::new(),
    );
    assert!(heard.lock().unwrap()[1].is_empty());
    let report = world.report(0);
    assert_eq!((report.value(quantity::BYTES), report.value(quantity::WRONG_BYTES)), (Some(3000.0), Some(0.0)));
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
}

#[test]
fn what_is_wrong_gets_an_answer() {
    let dialogue: &[(&str, &str)] = &[
        ("RETR 5.bin", "530 "),
        ("PASS x", "503 "),
        ("USER x", "331 "),
        ("PASS x", "230 "),
        ("RETR 5.bin", "425 "),
        ("EPSV 9", "522 "),
        ("EPSV ALL", "200 "),
        ("RETR secret.txt", "550 "),
        ("RETR ../etc/passwd", "550 "),
        ("SIZE 99999999999999999999.bin", "550 "),
        ("REST x", "501 "),
        ("REST 18446744073709551615", "501 "),
        ("TYPE E", "504 "),
        ("MODE B", "504 "),
        ("STRU R", "504 "),
        ("CWD /tmp", "550 "),
        ("CWD /", "250 "),
        ("OPTS UTF8 ON", "200 "),
        ("OPTS MAGIC", "501 "),
        ("PORT 10,0,0,1,4,1", "502 "),
        ("EPRT |1|10.0.0.1|1025|", "502 "),
        ("DELE 5.bin", "502 "),
        ("XYZZY", "500 "),
        ("", "500 "),
        ("MDTM 5.bin", "213 "),
        ("HELP", "214 "),
        ("NOOP", "200 "),
        ("ABOR", "226 "),
        ("QUIT", "221 "),
    ];
    let mut acts = vec![Act::Open(21), Act::Hear(0, "220 ")];
    for (line, code) in dialogue {
        acts.push(say(0, &format!("{line}\r\n")));
        acts.push(Act::Hear(0, code));
    }
    acts.push(Act::HearEnd(0));
    let (heard, world) = converse(acts, World::new());
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
}

#[test]
fn a_long_line_is_refused_and_the_session_goes_on() {
    let (heard, world) = converse(
        vec![
            Act::Open(21),
            say(0, &format!("USER {}\r\nNOOP\r\n", "x".repeat(9000))),
            Act::Hear(0, "500 Line too long.\r\n200 "),
        ],
        World::new(),
    );
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
}

#[test]
fn abor_stops_a_transfer() {
    let (heard, world) = converse(
        vec![
            Act::Open(21),
            say(0, "USER a\r\nPASS b\r\nEPSV\r\n"),
            Act::Hear(0, "229 "),
            Act::Open(61_000),
            say(0, "RETR 99999999.bin\r\n"),
            Act::Hear(0, "150 "),
            Act::Say(0, b"\xff\xf4\xff\xf2ABOR\r\n".to_vec()),
            Act::Hear(0, "426 "),
            Act::Hear(0, "226 "),
            Act::HearEnd(1),
            say(0, "NOOP\r\n"),
            Act::Hear(0, "200 "),
        ],
        World::new(),
    );
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
}

#[test]
fn idle_sessions_and_listeners_are_closed() {
    let (client, heard) = Script::program(
        address(SERVER),
        vec![
            Act::Open(21),
            say(0, "USER a\r\nPASS b\r\nEPSV\r\n"),
            Act::Hear(0, "229 "),
            Act::Hear(0, "421 "),
            Act::HearEnd(0),
            Act::Close(0),
        ],
    );
    let mut world = World::new();
    world.add(SERVER, FtpService { port: 21, seed: SEED }.server());
    world.add(CLIENT, client);
    world.run();
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
    assert_eq!(world.sockets_open(SERVER), 1, "the control port alone");
}

#[test]
fn too_many_sessions_are_turned_away() {
    let mut acts: Vec<Act> = (0..257).map(|_| Act::Open(21)).collect();
    acts.push(Act::Hear(256, "421 "));
    acts.push(Act::HearEnd(256));
    acts.push(say(0, "NOOP\r\n"));
    acts.push(Act::Hear(0, "200 "));
    let (_, world) = converse(acts, World::new());
    assert!(world.programs[1].1.is_done());
}

#[test]
fn a_data_connection_from_elsewhere_is_not_taken() {
    // The server's own host connects to the data port first, when the client tells it to.
    let (thief, stolen) = Script::program(address(SERVER), vec![Act::Accept(99), Act::Open(61_000), Act::HearEnd(1)]);
    let (client, heard) = Script::program(
        address(SERVER),
        vec![
            Act::Open(21),
            say(0, "USER a\r\nPASS b\r\nEPSV\r\n"),
            Act::Hear(0, "229 "),
            Act::Open(99),
            say(0, "RETR 10.bin\r\n"),
            Act::Hear(0, "150 "),
            Act::Open(61_000),
            Act::HearEnd(2),
            Act::Hear(0, "226 "),
        ],
    );
    let mut world = World::new();
    world.add(SERVER, FtpService { port: 21, seed: SEED }.server());
    world.add(SERVER, thief);
    world.add(CLIENT, client);
    world.limit = at_ms(10_000);
    world.run();
    assert!(world.programs[2].1.is_done(), "{}", text(&heard, 0));
    assert_eq!(heard.lock().unwrap()[2].len(), 10);
    assert!(world.programs[1].1.is_done() && stolen.lock().unwrap()[1].is_empty());
}

/// A server's side up to where passive mode is asked for.
fn login() -> Vec<Act> {
    vec![
        Act::Accept(21),
        say(0, "220-Welcome\r\n220 ready\r\n"),
        Act::Hear(0, "USER anonymous\r\n"),
        say(0, "331 Please specify the password.\r\n"),
        Act::Hear(0, "PASS "),
        say(0, "230-\r\n230 Login successful.\r\n"),
        Act::Hear(0, "TYPE I\r\n"),
        say(0, "200 Switching to Binary mode.\r\n"),
        Act::Hear(0, "EPSV\r\n"),
    ]
}

#[test]
fn our_client_falls_back_to_pasv_and_ignores_the_address_in_it() {
    let mut acts = login();
    acts.extend([
        say(0, "500 Unknown command.\r\n"),
        Act::Hear(0, "PASV\r\n"),
        say(0, "227 Entering Passive Mode (192,168,7,7,195,80).\r\n"),
        Act::Accept(50_000),
        Act::Hear(0, "RETR 10.bin\r\n"),
        say(0, "150 Opening BINARY mode data connection for 10.bin (10 bytes).\r\n"),
        say(1, "0123456789"),
        Act::Close(1),
        say(0, "226 Transfer complete.\r\n"),
        Act::Hear(0, "QUIT\r\n"),
        say(0, "221 Goodbye.\r\n"),
        Act::Close(0),
    ]);
    let (report, heard) = against(&spec(Download, 10), acts);
    assert_eq!(report.status, Status::Done, "{}", text(&heard, 0));
    assert_eq!(report.value(quantity::BYTES), Some(10.0));
    assert!(report.value(quantity::COMPLETION_TIME).is_some());
}

#[test]
fn a_client_alone_takes_the_confirmation_for_the_arrival() {
    let mut acts = login();
    acts.extend([
        say(0, "229 Entering Extended Passive Mode (|||50000|)\r\n"),
        Act::Accept(50_000),
        Act::Hear(0, "STOR 10.bin\r\n"),
        say(0, "150 Ok to send data.\r\n"),
        Act::HearEnd(1),
        Act::Close(1),
        say(0, "226 Transfer complete.\r\n"),
        Act::Hear(0, "QUIT\r\n"),
        Act::Close(0),
    ]);
    let (report, heard) = against(&spec(Upload, 10), acts);
    assert_eq!(report.status, Status::Done, "{}", text(&heard, 0));
    assert_eq!(heard.lock().unwrap()[1].len(), 10);
    assert!(report.value(quantity::COMPLETION_TIME).is_some());
}

#[test]
fn refusals_of_a_server_are_quoted() {
    let refuse = |acts: Vec<Act>| error_of(&against(&spec(Download, 10), acts).0);
    assert_eq!(
        refuse(vec![Act::Accept(21), say(0, "421 Too many users.\r\n"), Act::Close(0)]),
        "server said \"421 Too many users.\""
    );
    assert!(refuse(vec![Act::Accept(21), say(0, "SSH-2.0-OpenSSH_9\r\n")]).contains("which is no FTP reply"));
    let mut acts = login();
    acts.extend([
        say(0, "229 Entering Extended Passive Mode (|||50000|)\r\n"),
        Act::Accept(50_000),
        Act::Hear(0, "RETR 10.bin\r\n"),
        // The data connection goes first; the reply is the reason.
        Act::Abort(1),
        say(0, "550 Failed to open file.\r\n"),
    ]);
    assert_eq!(refuse(acts), "server said \"550 Failed to open file.\"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_server_survives_any_client(parts in proptest::collection::vec(
        prop_oneof![
            "(USER|PASS|EPSV|PASV|RETR|STOR|REST|ABOR|LIST|QUIT|SIZE|TYPE) ?[ -~]{0,12}\r\n".prop_map(String::into_bytes),
            Just(b"USER a\r\nPASS b\r\nEPSV\r\nRETR 70000.bin\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..700),
        ], 0..12), step in 1usize..50) {
        let mut acts = vec![Act::Open(21)];
        acts.extend(parts.into_iter().map(|bytes| Act::Say(0, bytes)));
        acts.push(Act::Finish(0));
        let mut world = World::new();
        world.net.send_call_max = step;
        let (client, _) = Script::program(address(SERVER), acts);
        world.add(SERVER, FtpService { port: 21, seed: SEED }.server());
        world.add(CLIENT, client);
        world.run();
        prop_assert!(world.programs[1].1.is_done());
        prop_assert!(world.sockets_open(SERVER) <= 4);
    }

    #[test]
    fn the_client_survives_any_server(words in proptest::collection::vec(
        prop_oneof![
            "[1-5][0-9]{2}[ -][ -~]{0,20}\r\n",
            Just("220 a\r\n331 b\r\n230 c\r\n200 d\r\n".to_owned()),
            Just("229 (|||50000|)\r\n".to_owned()),
            "[ -~\r\n]{0,40}",
        ], 0..10)) {
        let mut acts = vec![Act::Accept(21)];
        acts.extend(words.iter().map(|words| say(0, words)));
        acts.push(Act::Close(0));
        let (report, _) = against(&spec(Download, 10), acts);
        prop_assert!(matches!(report.status, Status::Failed(_)), "{:?}", report.status);
    }
}
