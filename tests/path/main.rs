//! The path emulator with a real kernel's TCP at both ends.
//!
//! Needs root, `/dev/net/tun` and `ip`; where one is missing the tests say so and pass, unless
//! `HELIOSTAT_REQUIRE_PATH=1`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]
#![expect(clippy::print_stderr, reason = "what is missing is for people to read")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use heliostat_io::path_emulator::{End, Loss, PathConfig, PathEmulator, PathError};

const BYTES: usize = 1 << 20;

fn path(loss: &str) -> PathConfig {
    let loss: Loss = loss.parse().unwrap();
    PathConfig::new(Duration::from_millis(20), "200mbit".parse().unwrap(), loss)
}

/// The path, unless this machine cannot make one.
fn start(config: &PathConfig) -> Option<PathEmulator> {
    match PathEmulator::start(config) {
        Ok(path) => Some(path),
        Err(
            error @ (PathError::NotAllowed { .. }
            | PathError::NoTun { .. }
            | PathError::NoIp { .. }),
        ) => {
            assert!(std::env::var_os("HELIOSTAT_REQUIRE_PATH").is_none(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn byte_at(position: usize) -> u8 {
    u8::try_from(position % 251).unwrap()
}

/// Sends from far to near, checks each byte, and returns how long the handshake took.
fn transfer(path: &PathEmulator) -> Duration {
    std::thread::scope(|scope| {
        let listener = scope
            .spawn(|| {
                path.enter(End::Far).unwrap();
                TcpListener::bind((path.address(End::Far), 0)).unwrap()
            })
            .join()
            .unwrap();
        let address = listener.local_addr().unwrap();
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let data: Vec<u8> = (0..BYTES).map(byte_at).collect();
            stream.write_all(&data).unwrap();
        });
        let near = scope.spawn(move || {
            path.enter(End::Near).unwrap();
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).unwrap();
            let handshake = begun.elapsed();
            stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), BYTES);
            assert!(received.iter().enumerate().all(|(at, &byte)| byte == byte_at(at)));
            handshake
        });
        near.join().unwrap()
    })
}

/// Goal: bytes pass whole, and not before their time. Method: a handshake is one round trip.
#[test]
fn a_clean_path_delays_and_changes_nothing() {
    let Some(path) = start(&path("0")) else { return };
    let handshake = transfer(&path);
    assert!(handshake >= Duration::from_millis(20), "{handshake:?}");
    let report = path.report();
    assert_eq!((report.homeward.lost, report.outward.lost), (0, 0));
    assert!(report.homeward.bytes > u64::try_from(BYTES).unwrap(), "{report:?}");
    assert!(report.outward.packets > 0 && report.cpu > Duration::ZERO, "{report:?}");
}

#[test]
fn what_is_lost_is_counted_and_tcp_sends_it_again() {
    let Some(path) = start(&path("2%")) else { return };
    transfer(&path);
    let report = path.report();
    assert!(report.homeward.lost > 0, "{report:?}");
}

/// Goal: the queue has its limit. Method: one of ten packets, and a sender that starts faster
/// than that.
#[test]
fn a_short_queue_drops_and_never_exceeds_its_limit() {
    let config = PathConfig { queue_bytes: Some(15_000), ..path("0") };
    let Some(path) = start(&config) else { return };
    transfer(&path);
    let report = path.report();
    assert!(report.homeward.dropped > 0, "{report:?}");
    assert!(report.homeward.queue_bytes_max <= 15_000, "{report:?}");
}

#[test]
fn two_paths_do_not_meet() {
    let (Some(one), Some(two)) = (start(&path("0")), start(&path("0"))) else { return };
    transfer(&one);
    let idle = two.report();
    assert_eq!((idle.outward.packets, idle.homeward.packets), (0, 0));
    transfer(&two);
}

#[test]
fn a_congestion_control_that_is_not_there_is_named() {
    let config = PathConfig { congestion_control: "none-such".to_owned(), ..path("0") };
    match PathEmulator::start(&config) {
        Err(PathError::CongestionControl { name, .. }) => assert_eq!(name, "none-such"),
        Err(PathError::NotAllowed { .. } | PathError::NoTun { .. }) => {}
        other => panic!("{other:?}"),
    }
}
