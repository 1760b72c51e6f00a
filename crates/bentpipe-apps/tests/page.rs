//! Pages between our client and our server, and each of them with others.

mod support;

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::page::{HttpVersion, PageSpec};
use bentpipe_apps::service::HttpService;
use bentpipe_apps::{Report, Status, quantity};
use bentpipe_net::socket::count_wrong;
use proptest::prelude::*;
use support::script::{Act, Heard, Script, say, text};
use support::{CLIENT, FaultKind, SEED, SERVER, World, address, at_ms};

fn page(version: HttpVersion, objects: &[u64], connections: u32) -> PageSpec {
    PageSpec { html_bytes: 2000, objects: objects.to_vec(), connections, version, ..PageSpec::default() }
}

fn image(bytes: u64) -> PageSpec {
    PageSpec { html_bytes: bytes, path: format!("/bytes/{bytes}"), ..PageSpec::default() }
}

fn run(spec: &PageSpec, world: World) -> Report {
    run_world(spec, world).0
}

fn run_world(spec: &PageSpec, mut world: World) -> (Report, World) {
    spec.check().unwrap();
    world.add(SERVER, spec.server(SEED));
    world.add(CLIENT, spec.client(address(SERVER), SEED));
    world.run();
    (spec.combine(world.report(1), world.report(0)), world)
}

fn converse(acts: Vec<Act>) -> (Heard, World) {
    let (client, heard) = Script::program(address(SERVER), acts);
    let mut world = World::new();
    world.add(SERVER, HttpService { port: 80, seed: SEED }.server());
    world.add(CLIENT, client);
    world.limit = at_ms(1_000_000);
    world.run();
    (heard, world)
}

/// What our server says to these bytes until it ends the connection.
fn answer(request: &str) -> String {
    let (heard, world) = converse(vec![Act::Open(80), say(0, request), Act::HearEnd(0), Act::Close(0)]);
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
    text(&heard, 0)
}

fn against(spec: &PageSpec, acts: Vec<Act>) -> Report {
    let (server, _) = Script::program(address(CLIENT), acts);
    let mut world = World::new();
    world.add(SERVER, server);
    world.add(CLIENT, spec.client(address(SERVER), SEED));
    world.run();
    world.report(1)
}

fn error_of(report: &Report) -> String {
    match &report.status {
        Status::Failed(error) => error.clone(),
        other => panic!("not failed: {other:?}"),
    }
}

#[test]
fn an_image_alone() {
    let (report, world) = run_world(&image(524_288), World::new());
    assert_eq!(report.status, Status::Done);
    for (quantity, value) in [
        (quantity::BYTES, 524_288.0),
        (quantity::WRONG_BYTES, 0.0),
        (quantity::OBJECTS_DONE, 0.0),
        (quantity::CONNECTIONS_OPENED, 1.0),
    ] {
        assert_eq!(report.value(quantity), Some(value), "{quantity:?}");
    }
    // Connection 0.2 s, request and answer 0.2 s, then the bytes with their header.
    let took = report.value(quantity::COMPLETION_TIME).unwrap();
    let least = 0.4 + 524_288.0 * 8.0 / 1e6;
    assert!(took > least && took < least + 0.01, "{took}");
    assert_eq!(report.value(quantity::HTML_TIME), Some(took));
    assert!((report.value(quantity::FIRST_BYTE).unwrap() - 0.4).abs() < 0.02);
    assert!((report.value(quantity::GOODPUT).unwrap() - 524_288.0 * 8.0 / took).abs() < 1e-3);
    assert_eq!(world.sockets_open(CLIENT), 0);
}

#[test]
fn a_page_and_its_objects_by_version() {
    let objects = [5000, 0, 20_000, 1, 9000, 3000, 3000, 7777];
    let all = 2000.0 + objects.iter().sum::<u64>() as f64;
    // Parallel beats one after another; with HTTP/1.0 each object costs a round trip more.
    let mut times = Vec::new();
    for (version, connections, opened) in [
        (HttpVersion::Http11, 6, 6.0),
        (HttpVersion::Http10, 4, 9.0),
        (HttpVersion::Http11, 1, 1.0),
        (HttpVersion::Http10, 1, 9.0),
    ] {
        let report = run(&page(version, &objects, connections), World::new());
        assert_eq!(report.status, Status::Done, "{version:?}");
        assert_eq!(report.value(quantity::BYTES), Some(all));
        assert_eq!(report.value(quantity::WRONG_BYTES), Some(0.0));
        assert_eq!(report.value(quantity::OBJECTS_DONE), Some(8.0));
        assert_eq!(report.value(quantity::CONNECTIONS_OPENED), Some(opened), "{version:?} {connections}");
        assert!(report.value(quantity::OBJECT_TIME_MEAN) <= report.value(quantity::OBJECT_TIME_MAX));
        assert!(report.value(quantity::HTML_TIME) < report.value(quantity::COMPLETION_TIME));
        times.push(report.value(quantity::COMPLETION_TIME).unwrap());
    }
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn one_byte_at_a_time() {
    let mut world = World::new();
    world.net.send_call_max = 1;
    let report = run(&PageSpec { html_bytes: 300, ..page(HttpVersion::Http11, &[100, 200], 2) }, world);
    assert_eq!((report.status.clone(), report.value(quantity::BYTES)), (Status::Done, Some(600.0)));
    assert_eq!(report.value(quantity::WRONG_BYTES), Some(0.0));
}

#[test]
fn failures_name_the_object() {
    let report = run(&image(50_000), World::new().with_fault(0, CLIENT, 20_000, FaultKind::End));
    let error = error_of(&report);
    assert!(
        error.starts_with("/bytes/50000: connection ended ") && error.ends_with("before the end of the body"),
        "{error}"
    );
    let report = run(&image(50_000), World::new().with_fault(0, CLIENT, 20_000, FaultKind::Reset));
    assert!(error_of(&report).ends_with("connection reset by peer"));
    let report = run(&image(50_000), World::new().with_fault(0, CLIENT, 20_000, FaultKind::Blackhole));
    assert!(error_of(&report).starts_with("/bytes/50000: no progress for 60 s after "), "{:?}", report.status);
    let report = run(&image(50_000), World::new().with_fault(0, SERVER, 0, FaultKind::Blackhole));
    assert_eq!(error_of(&report), "/bytes/50000: no progress for 60 s after 0 of 50000 bytes");
    let report = run(&image(50_000), World::new().with_fault(0, SERVER, 0, FaultKind::Refuse));
    assert_eq!(error_of(&report), "/bytes/50000: cannot connect to 10.0.0.2:80: connection refused");
    let report = run(&PageSpec { path: "/nothing".to_owned(), ..PageSpec::default() }, World::new());
    assert_eq!(error_of(&report), "/nothing: status 404 Not Found");
    // The first new connection for an object is reset; the others arrive.
    let spec = page(HttpVersion::Http11, &[9000; 5], 3);
    let report = run(&spec, World::new().with_fault(1, CLIENT, 3000, FaultKind::Reset));
    assert!(error_of(&report).starts_with("/bytes/9000?1: connection ended after "), "{:?}", report.status);
    assert_eq!((report.value(quantity::OBJECTS_DONE), report.value(quantity::OBJECTS_FAILED)), (Some(4.0), Some(1.0)));
}

#[test]
fn damage_is_counted() {
    let report = run(&image(5000), World::new().with_fault(0, CLIENT, 3000, FaultKind::Damage));
    assert_eq!((report.status.clone(), report.value(quantity::WRONG_BYTES)), (Status::Done, Some(1.0)));
}

#[test]
fn our_client_reads_what_other_servers_send() {
    let spec = PageSpec { path: "/x".to_owned(), ..PageSpec::default() };
    let serve = |response: &str| {
        against(&spec, vec![Act::Accept(80), Act::Hear(0, "\r\n\r\n"), say(0, response), Act::Close(0)])
    };
    for (response, bytes) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n5;a=b\r\npedia\r\n0\r\n\r\n", 9.0),
        ("HTTP/1.0 200 OK\r\nServer: x\r\n\r\nto the end", 10.0),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 3.0),
    ] {
        let report = serve(response);
        assert_eq!((report.status.clone(), report.value(quantity::BYTES)), (Status::Done, Some(bytes)), "{response}");
        assert_eq!(report.value(quantity::WRONG_BYTES), Some(0.0));
    }
    for (response, error) in [
        ("HTTP/1.1 301 Moved Permanently\r\nLocation: /y\r\n\r\n", "/x: status 301 Moved Permanently"),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "/x: status 503 Service Unavailable"),
        ("", "/x: connection ended without a response"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "/x: response is not HTTP: invalid HTTP version"),
    ] {
        assert_eq!(error_of(&serve(response)), error);
    }
}

#[test]
fn a_kept_connection_that_breaks_is_replaced_once() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let html = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let spec = PageSpec { path: "/x".to_owned(), objects: vec![3], connections: 1, ..PageSpec::default() };
    let acts = |last: &str| {
        vec![
            Act::Accept(80),
            Act::Hear(0, "GET /x "),
            say(0, html),
            Act::Hear(0, "GET /bytes/3?0 "),
            Act::Abort(0),
            Act::Accept(80),
            Act::Hear(1, "GET /bytes/3?0 "),
            say(1, last),
            Act::Close(1),
        ]
    };
    let report = against(&spec, acts(ok));
    assert_eq!(report.status, Status::Done);
    assert_eq!(report.value(quantity::CONNECTIONS_OPENED), Some(2.0));
    assert_eq!(error_of(&against(&spec, acts(""))), "/bytes/3?0: connection ended without a response");
}

#[test]
fn curl_gets_bytes_and_a_range_over_one_connection() {
    let (heard, world) = converse(vec![
        Act::Open(80),
        say(0, "GET /bytes/1000 HTTP/1.1\r\nHost: 10.0.0.2\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n"),
        Act::Hear(0, "Content-Length: 1000\r\n"),
        say(0, "GET /bytes/1000 HTTP/1.1\r\nHost: 10.0.0.2\r\nRange: bytes=900-\r\n\r\n"),
        Act::Hear(0, "HTTP/1.1 206 Partial Content\r\n"),
        Act::Hear(0, "Content-Range: bytes 900-999/1000\r\n"),
        say(0, "HEAD / HTTP/1.1\r\nHost: 10.0.0.2\r\nConnection: close\r\n\r\n"),
        Act::Hear(0, "Connection: close\r\n\r\n"),
        Act::HearEnd(0),
        Act::Close(0),
    ]);
    assert!(world.programs[1].1.is_done(), "{}", text(&heard, 0));
    let all = heard.lock().unwrap()[0].clone();
    let mut starts = all.windows(4).enumerate().filter(|(_, w)| *w == b"\r\n\r\n").map(|(at, _)| at + 4);
    let (first, second, third) = (starts.next().unwrap(), starts.next().unwrap(), starts.next().unwrap());
    assert_eq!(count_wrong(SEED, 0, &all[first..first + 1000]), 0);
    assert_eq!(count_wrong(SEED, 900, &all[second..second + 100]), 0);
    assert_eq!(third, all.len(), "HEAD has no body");
    assert_eq!(world.report(0).value(quantity::REQUESTS), Some(3.0));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let one = "GET /bytes/5 HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET /bytes/7 HTTP/1.0\r\n\r\n";
    let text = answer(&format!("{}{last}", one.repeat(40)));
    assert_eq!(text.matches("Content-Length: 5\r\n").count(), 40);
    assert_eq!(text.matches("Content-Length: 7\r\n").count(), 1);
}

#[test]
fn what_is_wrong_gets_a_status() {
    for (request, status) in [
        ("GET /index.html HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET http://a/bytes/0 HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /bytes/0 HTTP/1.0\r\nRange: bytes=0-\r\n\r\n", "416 Range Not Satisfiable"),
        ("GET /bytes/-1 HTTP/1.0\r\n\r\n", "404 Not Found"),
        ("GET /../etc/passwd HTTP/1.0\r\n\r\n", "404 Not Found"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nGET ", "405 Method Not Allowed"),
        ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("\u{16}\u{3}\u{1} TLS\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/3.0\r\n\r\n", "505 HTTP Version Not Supported"),
    ] {
        let text = answer(request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {text}");
        assert!(text.contains("Connection: close\r\n"));
    }
    let text = answer(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(20_000)));
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
}

#[test]
fn idle_and_half_sent_requests_end() {
    for request in ["", "GET / HTTP/1.1\r\nHost:"] {
        let (heard, world) = converse(vec![Act::Open(80), say(0, request), Act::HearEnd(0), Act::Close(0)]);
        assert!(world.programs[1].1.is_done());
        assert!((120.0..121.0).contains(&world.net.now.as_secs_f64()), "{:?}", world.net.now);
        assert!(text(&heard, 0).is_empty());
        assert_eq!(world.sockets_open(SERVER), 1, "the listener alone");
    }
    let (_, world) = converse(vec![Act::Open(80), say(0, "GET /"), Act::Finish(0), Act::HearEnd(0)]);
    assert!(world.programs[1].1.is_done() && world.net.now < at_ms(2000));
}

#[test]
fn too_many_connections_are_turned_away() {
    let mut acts: Vec<Act> = (0..257).map(|_| Act::Open(80)).collect();
    acts.push(Act::HearEnd(256));
    acts.push(say(0, "GET / HTTP/1.0\r\n\r\n"));
    acts.push(Act::Hear(0, "200 OK"));
    let (_, world) = converse(acts);
    assert!(world.programs[1].1.is_done());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_server_survives_any_client(parts in proptest::collection::vec(
        prop_oneof![
            "(GET|HEAD|PUT) /(bytes/[0-9]{1,5})? HTTP/1.[01]\r\n(Host: a\r\n)?(Range: bytes=[0-9]{0,3}-[0-9]{0,3}\r\n)?\r\n".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..400),
        ], 0..8)) {
        let mut acts = vec![Act::Open(80)];
        acts.extend(parts.into_iter().map(|bytes| Act::Say(0, bytes)));
        acts.push(Act::Finish(0));
        acts.push(Act::HearEnd(0));
        let (_, world) = converse(acts);
        prop_assert!(world.programs[1].1.is_done());
    }

    #[test]
    fn the_client_survives_any_server(text in prop_oneof![
        "[ -~\r\n]{0,200}",
        "HTTP/1.[01] (200|100|404) ?[a-z]{0,4}\r\n((Content-Length: [0-9]{1,3}|Transfer-Encoding: chunked|Connection: close)\r\n){0,2}\r\n[0-9a-f\r\n]{0,40}",
    ]) {
        let spec = PageSpec { path: "/x".to_owned(), objects: vec![3], ..PageSpec::default() };
        let report = against(&spec, vec![Act::Accept(80), say(0, &text), Act::Close(0)]);
        prop_assert!(report.status != Status::Running || report.value(quantity::OBJECTS_DONE) == Some(0.0));
        prop_assert!(!matches!(report.status, Status::Done));
    }
}
