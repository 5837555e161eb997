//! Failover: markers and epochs, whatever state the source and the partition are in.

use heliostat_io::admin::{StartOptions, StopOptions};

use super::world::{
    Running, Source, all_in, in_step, log_bytes, open_transaction, produce, run, until,
};

/// Control types of the batches that a stop has appended behind the source's bytes.
fn appended(ours: &[u8], theirs: &[u8]) -> Vec<(i16, i32)> {
    assert!(ours.starts_with(theirs));
    let mut rest = &ours[theirs.len()..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = i32::from_be_bytes(rest[8..12].try_into().unwrap());
        let epoch = i32::from_be_bytes(rest[12..16].try_into().unwrap());
        let size = usize::try_from(length).unwrap() + 12;
        let marker = heliostat_core::records::read_marker(&rest[61..size]).unwrap();
        found.push((marker.control.code(), epoch));
        rest = &rest[size..];
    }
    found
}

#[test]
fn two_open_transactions_leave_three_records_above_the_mirrored_epoch() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 3);
    open_transaction(&topic.partitions[0], 5);
    open_transaction(&topic.partitions[0], 9);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        let configs = vec![("bootstrap.servers".to_owned(), source.address())];
        client.create_cluster_mirror("m", configs).await.unwrap();
        let options =
            StartOptions { include_patterns: vec!["t".to_owned()], ..StartOptions::default() };
        client.start_mirror_topics("m", &[], options).await.unwrap();
        until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
        client.stop_mirror_topics("m", &["t".to_owned()], StopOptions::default()).await.unwrap();
        until(&mut client, "m", all_in("STOPPED")).await;
    });
    assert!(host.stop().clean);
    let markers = appended(&log_bytes(&dir.path().join("t-0")), &source.bytes("t-0"));
    let codes: Vec<i16> = markers.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [0, 0, 7], "two ABORTs and a reset");
    assert!(markers.iter().all(|(_, epoch)| *epoch > 0), "{markers:?}");
}
