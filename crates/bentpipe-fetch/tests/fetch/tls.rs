//! HTTPS: only with a certificate to trust.

use crate::place::{Place, options};
use bentpipe_fetch::{Failure, Options};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

#[test]
fn a_private_certificate_is_trusted_when_configured() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (listener, config) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(config));
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = stream.unwrap();
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            // A client that does not trust us ends the handshake.
            let mut request = [0; 4096];
            let Ok(length) = tls.read(&mut request) else { continue };
            if request[..length].starts_with(b"GET /cut ") {
                // Somebody on the way ends the connection: TLS has not said that this is the end (RFC 8446 §6.1).
                tls.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel").unwrap();
                continue;
            }
            tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello").unwrap();
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    let place = Place::new();
    let url = format!("https://localhost:{port}/file");
    let failure = place.fails(&url, &options(1));
    assert!(matches!(failure, Failure::Tls(_)), "{failure}");
    let other = Place::new();
    let ca = other.0.join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    place.expect(&url, &Options { ca: Some(ca), ..options(1) }, b"hello");
    let trusting = Options { ca: Some(other.0.join("ca.pem")), retries: 0, ..options(1) };
    let failure = Place::new().fails(&url.replace("/file", "/cut"), &trusting);
    assert!(matches!(failure, Failure::ClosedEarly(_)), "{failure}");
    let failure = Place::new()
        .fails(&url.replace("localhost", "127.0.0.1"), &Options { ca: Some(other.0.join("ca.pem")), ..options(1) });
    assert!(matches!(failure, Failure::Tls(_)), "{failure}");
}
