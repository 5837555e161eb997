//! The fault-injecting proxy before the listener, as other tests use it.

use std::io::Read;
use std::time::{Duration, Instant};

use heliostat_tests::proxy::{Proxy, Then};
use kafka_protocol::messages::{ApiVersionsRequest, FetchRequest};

use crate::client::{Client, PATIENCE, Served, append, ask, batch, fetch, only, records};

/// A topic "one" with one batch of about 100 kB, and a proxy before its listener.
fn served() -> (Served, Proxy, Vec<u8>) {
    let served = Served::new();
    let log = append(&served.topic("one", 1)[0], batch(100, 1000));
    let proxy = Proxy::start(served.address()).expect("loopback");
    (served, proxy, log)
}

#[test]
fn cut_ends_a_response_in_the_middle_and_a_new_connection_works() {
    let (_served, proxy, log) = served();
    let mut client = Client::connect(proxy.address());
    proxy.after(5000, Then::Cut);
    client.send(12, &fetch(12, "one", &[ask(0, 0)]));
    let mut got = Vec::new();
    // The end may come as a reset.
    let _ = client.stream.read_to_end(&mut got);
    assert_eq!(got.len(), 5000);
    let response = Client::connect(proxy.address()).call(12, &fetch(12, "one", &[ask(0, 0)]));
    assert!(records(only(&response)) == log);
}

#[test]
fn stall_holds_a_response_and_resume_completes_it() {
    let (_served, proxy, log) = served();
    let mut client = Client::connect(proxy.address());
    proxy.after(5000, Then::Stall);
    let id = client.send(12, &fetch(12, "one", &[ask(0, 0)]));
    assert!(proxy.wait_forwarded(5000, PATIENCE));
    assert_eq!(proxy.forwarded(), 5000);
    proxy.resume();
    let response = client.receive::<FetchRequest>(12, id);
    assert!(records(only(&response)) == log);
}

#[test]
fn delay_and_refusal_are_as_told() {
    let (_served, proxy, _) = served();
    proxy.delay(Duration::from_millis(80));
    let begun = Instant::now();
    let mut client = Client::connect(proxy.address());
    client.call(3, &ApiVersionsRequest::default());
    assert!(begun.elapsed() >= Duration::from_millis(80));
    proxy.refuse(true);
    assert!(Client::connect(proxy.address()).is_closed());
    proxy.cut();
    assert!(client.is_closed());
}
