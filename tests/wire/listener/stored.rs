//! What is on disk, and what a restart makes of it.

use std::fs;
use std::sync::Arc;

use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::types::Offset;
use heliostat_io::listener::Listener;
use heliostat_io::listener::hosted::Catalog;

use crate::client::{
    Ask, Client, NODE, Served, append, ask, batch, catalog_config, fetch, listener_config, marker,
    only, records, transactional,
};

fn small_segments() -> LogConfig {
    LogConfig::new(LogConfigValues { segment_bytes: 20_000, ..LogConfigValues::default() })
        .expect("legal")
}

#[test]
fn log_reads_the_same_after_a_restart() {
    let mut served = Served::new();
    let partition = &served.topic_with("one", 1, small_segments())[0];
    for _ in 0..40 {
        append(partition, batch(2, 1000));
    }
    append(partition, transactional(7, 1));
    partition.delete_records(Offset(33)).expect("within the log");
    let facts = partition.facts(NODE);
    let whole = Ask { max_bytes: i32::MAX, ..ask(0, 40) };
    let before = served.client().call(12, &fetch(12, "one", &[whole]));
    served.listener.take().expect("running").stop();
    served.catalog.close().expect("closed");

    let catalog = Arc::new(Catalog::open(served.dir.path(), catalog_config()).expect("opened"));
    let listener = Listener::start(Arc::clone(&catalog), listener_config()).expect("loopback");
    let reopened = catalog.partition("one", 0).expect("there");
    assert_eq!(reopened.facts(NODE), facts);
    assert_eq!(reopened.topic_id(), partition.topic_id());
    let after = Client::connect(listener.address()).call(12, &fetch(12, "one", &[whole]));
    assert_eq!(only(&after), only(&before));
    // The open transaction is known again.
    append(&reopened, marker(7, false));
    assert_eq!(reopened.facts(NODE).last_stable, reopened.facts(NODE).log_end);
}

#[test]
fn torn_tail_is_cut_at_the_last_whole_batch() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    let first = append(partition, batch(3, 100));
    append(partition, batch(3, 100));
    let log = partition.dir().join("00000000000000000000.log");
    let bytes = fs::read(&log).expect("readable");
    fs::write(&log, &bytes[..bytes.len() - 10]).expect("writable");
    let catalog = Catalog::open(served.dir.path(), catalog_config()).expect("opened");
    let reopened = catalog.partition("one", 0).expect("there");
    assert_eq!(reopened.facts(NODE).log_end, Offset(3));
    assert_eq!(fs::read(&log).expect("readable"), first);
}

#[test]
fn segments_below_the_log_start_are_deleted() {
    let served = Served::new();
    let partition = &served.topic_with("one", 1, small_segments())[0];
    for _ in 0..40 {
        append(partition, batch(2, 1000));
    }
    let count = || {
        let names = fs::read_dir(partition.dir()).expect("there");
        names
            .filter(|entry| {
                let name = entry.as_ref().expect("entry").file_name();
                name.to_string_lossy().ends_with(".log")
            })
            .count()
    };
    assert!(count() > 3);
    partition.delete_records(Offset(80)).expect("within the log");
    assert_eq!(count(), 1);
    let response = served.client().call(12, &fetch(12, "one", &[ask(0, 80)]));
    assert_eq!(only(&response).log_start_offset, 80);
}

#[test]
fn reader_across_segments_gets_every_byte() {
    let served = Served::new();
    let partition = &served.topic_with("one", 1, small_segments())[0];
    let mut log = Vec::new();
    for _ in 0..60 {
        log.extend(append(partition, batch(2, 1000)));
    }
    let mut client = served.client();
    let mut got = Vec::new();
    let mut offset = 0;
    while got.len() < log.len() {
        let response = client.call(12, &fetch(12, "one", &[ask(0, offset)]));
        let bytes = records(only(&response));
        assert!(!bytes.is_empty(), "nothing at offset {offset}");
        got.extend_from_slice(bytes);
        offset = 2 * i64::try_from(got.len() / (log.len() / 60)).expect("small");
    }
    assert!(got == log);
}
