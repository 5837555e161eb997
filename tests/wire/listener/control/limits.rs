//! How many connections, and for how long.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use heliostat_io::listener::control::{ControlLimits, ControlResponse};
use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use rustix::net::{AddressFamily, SocketType};

use super::host::{Host, ask_for, nothing};
use crate::client::{Client, PATIENCE};

/// ApiVersions v0 with correlation ID 1 and no client ID.
const HELLO: &[u8] = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff";

/// Whether the listener answers.
fn is_served(stream: &mut TcpStream) -> bool {
    // A connection that is closed already takes the bytes or does not.
    let _ = stream.write_all(HELLO);
    stream.read_exact(&mut [0; 4]).is_ok()
}

/// Whether the listener answers a new connection before long.
fn is_served_soon(address: SocketAddr) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if is_served(&mut Client::connect(address).stream) {
            return true;
        }
    }
    false
}

#[test]
fn of_200_connections_100_are_served() {
    let host = Host::with(ControlLimits::default(), |config| config.connections_max = 100);
    let mut clients: Vec<_> = (0..200).map(|_| host.client()).collect();
    let (first, others) = clients.split_at_mut(100);
    for client in others {
        assert!(client.is_closed());
    }
    for client in &mut *first {
        assert!(is_served(&mut client.stream));
    }
    assert!(host.client().is_closed());
    // Who leaves makes room.
    clients.truncate(99);
    assert!(is_served_soon(host.address()));
    for client in &mut clients {
        assert!(is_served(&mut client.stream));
    }
}

/// A connection from an address of choice.
fn connect_from(own: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrV4::new(own.into(), 0)).expect("loopback");
    rustix::net::connect(&socket, &to).expect("listening");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

#[test]
fn each_address_has_its_own_limit() {
    let host = Host::with(ControlLimits::default(), |config| config.connections_per_ip_max = 2);
    let mut first = host.client();
    let mut second = host.client();
    first.call(3, &ApiVersionsRequest::default());
    second.call(3, &ApiVersionsRequest::default());
    assert!(host.client().is_closed());
    let mut others = [(); 2].map(|()| connect_from([127, 0, 0, 77], host.address()));
    assert!(others.iter_mut().all(is_served));
    assert!(!is_served(&mut connect_from([127, 0, 0, 77], host.address())));
    drop(first);
    assert!(is_served_soon(host.address()));
    second.call(3, &ApiVersionsRequest::default());
}

#[test]
fn silent_connections_end_and_waiting_ones_do_not() {
    let idle = Duration::from_millis(300);
    let mut host =
        Host::with(ControlLimits::default(), |config| config.connections_max_idle = idle);
    let mut waiting = host.client();
    let id = waiting.send(13, &ask_for("slow"));
    let call = host.next();
    let mut silent = host.client();
    let mut half = host.client();
    half.stream.write_all(&HELLO[..9]).expect("sent");
    assert!(silent.is_closed());
    assert!(half.is_closed());
    assert!(call.answer(ControlResponse::Metadata(Ok(nothing()))));
    waiting.receive::<MetadataRequest>(13, id);
    assert!(waiting.is_closed());
}
