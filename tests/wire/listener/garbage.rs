//! What is no Kafka client is shown the door, and harms nobody.

use std::io::Write;
use std::net::SocketAddr;

use kafka_protocol::messages::ApiVersionsRequest;

use crate::client::Served;

#[test]
fn strangers_are_closed_and_others_go_on() {
    let served = Served::new();
    let mut patient = served.client();
    patient.call(3, &ApiVersionsRequest::default());
    let frame = |length: i32, body: &[u8]| [&length.to_be_bytes()[..], body].concat();
    let strangers: [(&str, Vec<u8>); 9] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec()),
        ("TLS hello", [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 400]].concat()),
        ("largest length", frame(i32::MAX, b"abc")),
        ("negative length", frame(-1, b"abc")),
        ("empty frame", frame(0, b"")),
        ("short header", frame(5, b"\0\x12\0\x03x")),
        ("unknown API", frame(10, &[0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff])),
        // Metadata v1 for two billion topics.
        ("false count", frame(14, &[0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff])),
        (
            "garbage body",
            frame(20, &[0, 1, 0, 12, 0, 0, 0, 1, 0xff, 0xff, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]),
        ),
    ];
    for (name, bytes) in strangers {
        let mut stranger = served.client();
        stranger.stream.write_all(&bytes).expect("sent");
        assert!(stranger.is_closed(), "{name}");
        patient.call(3, &ApiVersionsRequest::default());
    }
}

#[test]
fn frame_may_come_in_single_bytes() {
    let served = Served::new();
    let mut client = served.client();
    // ApiVersions v0 with correlation ID 1 and no client ID.
    let frame = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    for byte in frame {
        client.stream.write_all(&[byte]).expect("sent");
    }
    assert_eq!(client.receive::<ApiVersionsRequest>(0, 1).error_code, 0);
}

#[test]
fn connections_are_bounded() {
    let served = Served::with(|config| config.connections_max = 2);
    let mut first = served.client();
    let mut second = served.client();
    first.call(3, &ApiVersionsRequest::default());
    second.call(3, &ApiVersionsRequest::default());
    assert!(served.client().is_closed());
    first.call(3, &ApiVersionsRequest::default());
}

#[test]
fn stop_closes_connections_and_frees_the_port() {
    // An address of its own: a test beside this one may get the port that is free again.
    let own = SocketAddr::from(([127, 0, 0, 62], 0));
    let mut served = Served::with(|config| config.address = own);
    let mut idle = served.client();
    idle.call(3, &ApiVersionsRequest::default());
    let address = served.address();
    served.listener.take().expect("running").stop();
    assert!(idle.is_closed());
    assert!(std::net::TcpStream::connect(address).is_err());
}
