//! A server that is told to stop.

use super::child::{Home, all_in, in_step, run, until};
use super::source::{Source, stop_t};

#[test]
fn a_first_signal_stops_cleanly() {
    let (source, _) = Source::with_topic();
    let home = Home::new();
    for signal in ["-TERM", "-INT"] {
        let server = home.start();
        assert!(!home.is_clean(), "while it runs nothing vouches for the logs");
        let mut client = server.client();
        run(async {
            if signal == "-TERM" {
                source.mirror(&mut client, &["t"]).await;
            }
            until(&mut client, in_step).await;
        });
        server.signal(signal);
        assert_eq!(server.ends(), (Some(0), "clean stop".to_owned()));
        assert!(home.is_clean());
    }
    for partition in ["t-0", "t-1", "t-2"] {
        assert!(home.bytes(partition) == source.bytes(partition), "{partition}");
    }
}

/// Both signals are there before the server gets on: it gives the clean stop up, and the next
/// start recovers.
#[test]
fn a_second_signal_aborts() {
    let (source, _) = Source::with_topic();
    let home = Home::new();
    let server = home.start();
    let mut client = server.client();
    run(async {
        source.mirror(&mut client, &["t"]).await;
        until(&mut client, in_step).await;
    });
    for signal in ["-STOP", "-TERM", "-INT", "-CONT"] {
        server.signal(signal);
    }
    assert_eq!(server.ends(), (Some(1), "stopped; the next start recovers".to_owned()));
    assert!(!home.is_clean());
    let server = home.start();
    run(until(&mut server.client(), in_step));
    server.stop();
    for partition in ["t-0", "t-1", "t-2"] {
        assert!(home.bytes(partition) == source.bytes(partition), "{partition}");
    }
}

/// A failover of 64 partitions is held at `point`, and goes on with a signal behind it: the stop
/// is clean. The source is still there.
fn is_stopped_in_a_failover(home: &Home, point: &str) -> Source {
    let source = Source::start();
    source.topic("t", 64);
    let server = home.start_to_hold_at(point);
    let mut client = server.client();
    run(async {
        source.mirror(&mut client, &["t"]).await;
        until(&mut client, in_step).await;
        stop_t(&mut client).await;
    });
    server.holds();
    server.signal("-TERM");
    server.signal("-CONT");
    assert_eq!(server.ends(), (Some(0), "clean stop".to_owned()));
    source
}

/// The clean stop waits for those who write markers, or it would vouch for logs that grow.
#[test]
fn a_signal_while_a_failover_looks_at_its_logs_is_clean() {
    let home = Home::new();
    let _source = is_stopped_in_a_failover(&home, "stop.inspecting:4");
    let server = home.start();
    run(until(&mut server.client(), all_in("STOPPED")));
    server.stop();
}

#[test]
fn a_signal_in_the_middle_of_a_failover_is_clean_and_the_next_start_ends_it() {
    let home = Home::new();
    let _source = is_stopped_in_a_failover(&home, "stop.marker-written:4");
    let marked: Vec<_> = (0..64).map(|index| home.bytes(&format!("t-{index}"))).collect();
    assert!(marked.iter().any(|bytes| !bytes.is_empty()));
    let checkpoint = home.log_dir().join("recovery-point-offset-checkpoint");
    let checkpoint = std::fs::read_to_string(checkpoint).unwrap();
    for (index, bytes) in marked.iter().enumerate() {
        let end = i32::from(!bytes.is_empty());
        let line = format!("t {index} {end}");
        assert!(checkpoint.lines().any(|it| it == line), "not {line}: {checkpoint}");
    }
    let server = home.start();
    run(until(&mut server.client(), all_in("STOPPED")));
    server.stop();
    for (index, before) in marked.iter().enumerate() {
        let now = home.bytes(&format!("t-{index}"));
        assert!(before.is_empty() || *before == now, "{index} was marked twice");
        assert!(!now.is_empty(), "{index} was not marked");
    }
}
