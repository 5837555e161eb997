//! Clients wait for records, compare epochs, and read what rests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::scope;

use heliostat_core::coordinator::StateRecord;
use heliostat_core::protocol::mirror::{
    self, BumpLeaderEpochsRequest, BumpLeaderEpochsResponse, BumpPartition, BumpTopic,
    MirrorRequest as _,
};
use heliostat_core::records::{BatchBuilder, DecodedBatch, NewRecord};
use heliostat_core::types::{Offset, TimestampMs, TopicId, TopicPartition};
use heliostat_io::admin::{NewTopic, StartOptions, StopOptions};
use heliostat_io::host::AppendError;
use kafka_protocol::messages::DeleteTopicsRequest;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::reader::{Ask, Named, Reader, ask, name, size, walk};
use super::world::{
    Running, Source, all_in, in_step, log_bytes, mirror_all, produce, properties, run, until,
};

/// Errors of a partition.
const NOT_LEADER: i16 = 6;
const FENCED: i16 = 74;
const UNKNOWN_EPOCH: i16 = 75;
const UNKNOWN_TOPIC_ID: i16 = 100;

fn batch() -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset::ZERO);
    let timestamp = TimestampMs(1_700_000_000_000);
    let record = NewRecord { timestamp, key: None, value: Some(b"ours"), headers: &[] };
    batch.push(&record).unwrap();
    batch.build().unwrap()
}

fn make(host: &Running, topic: &str, partitions: i32) -> TopicId {
    let topic =
        NewTopic { name: topic.to_owned(), partitions: Some(partitions), ..NewTopic::default() };
    run(async { host.client().create_topics(&[topic], false).await.unwrap()[0].id.unwrap() })
}

fn append(host: &Running, topic: &str, partition: i32) -> i64 {
    let at = TopicPartition::new(topic, partition);
    run(host.handle.append(at, batch())).unwrap().0
}

/// BumpLeaderEpochs, for partition 0.
fn bump(host: &Running, topic_id: TopicId, epoch: i32) {
    let partitions = vec![BumpPartition { partition_index: 0, min_leader_epoch: epoch }];
    let asked = BumpLeaderEpochsRequest { topics: vec![BumpTopic { topic_id, partitions }] };
    let mut request = Vec::new();
    request.extend(BumpLeaderEpochsRequest::API_KEY.to_be_bytes());
    request.extend([0, 0, 0, 0, 0, 1]); // version 0, correlation ID 1
    request.extend([0xff, 0xff, 0]); // no client ID, no tagged fields
    request.extend(mirror::encode(&asked));
    run(async {
        let mut stream = TcpStream::connect(host.handle.address()).await.unwrap();
        stream.write_i32(i32::try_from(request.len()).unwrap()).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let mut answer = vec![0; usize::try_from(stream.read_i32().await.unwrap()).unwrap()];
        stream.read_exact(&mut answer).await.unwrap();
        let answer: BumpLeaderEpochsResponse = mirror::decode(&answer[5..]).unwrap();
        assert_eq!((answer.error_code, answer.topics[0].partitions[0].error_code), (0, 0));
    });
}

fn delete(host: &Running, topic: &str) {
    let state = DeleteTopicState::default().with_name(Some(name(topic)));
    let request = DeleteTopicsRequest::default().with_topics(vec![state]).with_timeout_ms(9_000);
    let response = Reader::connect(host.handle.address()).call(6, &request);
    assert_eq!(response.responses[0].error_code, 0);
}

/// A wait that only a wake-up ends in time.
fn waits(offset: i64) -> Ask {
    Ask { max_wait_ms: 45_000, ..ask(offset) }
}

#[test]
fn waiters_are_woken_by_records_epochs_deletion_and_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start_with(properties(dir.path(), &[("num.network.threads", "2")]));
    let address = host.handle.address();
    let id = make(&host, "t", 8);
    let waiters = || {
        let all: Vec<_> = (0..24).map(|number| (number % 8, Reader::connect(address))).collect();
        all.into_iter()
    };
    // Each partition has three of them, on any thread.
    let wait = |offset: i64, epoch: i32| {
        let sent = waiters().map(|(partition, mut reader)| {
            let asked = Ask { epoch, ..waits(offset) };
            reader.send_fetch(13, Named::Id(id), partition, asked);
            (partition, reader)
        });
        sent.collect::<Vec<_>>()
    };
    let waiting = wait(0, -1);
    (0..8).for_each(|partition| assert_eq!(append(&host, "t", partition), 0));
    for (partition, mut reader) in waiting {
        let got = reader.fetched(13);
        assert_eq!((got.error_code, got.partition_index, got.high_watermark), (0, partition, 1));
        assert_eq!(walk(&got.records.unwrap()).len(), 1);
    }
    // Nothing comes, and the wait ends.
    let mut reader = Reader::connect(address);
    let got = reader.fetch(13, Named::Id(id), 0, Ask { max_wait_ms: 50, ..ask(1) });
    assert_eq!((got.error_code, got.records.unwrap_or_default().len()), (0, 0));
    // A newer epoch fences who waits, and nobody else.
    let (_, epoch) = reader.list_offset("t", -1).unwrap();
    let waiting = wait(1, epoch);
    bump(&host, id, epoch + 3);
    let (mut fenced, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|it| it.0 == 0);
    for (_, reader) in &mut fenced {
        assert_eq!(reader.fetched(13).error_code, FENCED);
    }
    // A topic that goes takes those along that still wait.
    delete(&host, "t");
    for (_, mut reader) in others {
        assert_eq!(reader.fetched(13).error_code, NOT_LEADER);
    }
    let got = reader.fetch(13, Named::Id(id), 0, ask(0));
    assert_eq!(got.error_code, UNKNOWN_TOPIC_ID);
    // One of the same name is another one.
    let other = make(&host, "t", 1);
    append(&host, "t", 0);
    assert_eq!(reader.fetch(13, Named::Id(id), 0, ask(0)).error_code, UNKNOWN_TOPIC_ID);
    let got = reader.fetch(13, Named::Id(other), 0, ask(0));
    assert_eq!((got.error_code, walk(&got.records.unwrap()).len()), (0, 1));
    // The stop does not wait for them.
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let mut reader = Reader::connect(address);
            reader.send_fetch(12, Named::Name("t"), 0, waits(1));
            reader
        })
        .collect();
    assert!(host.stop().clean);
    for mut reader in waiting {
        let answer = reader.try_receive::<kafka_protocol::messages::FetchRequest>(12);
        assert!(answer.is_none(), "the connection is closed");
    }
}

#[test]
fn epochs_end_where_the_next_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let id = make(&host, "t", 1);
    let mut reader = Reader::connect(host.handle.address());
    let led = |reader: &mut Reader| reader.list_offset("t", -1).unwrap().1;
    // Nothing is written, but it is led.
    let first = led(&mut reader);
    assert_eq!(reader.epoch_end("t", -1, first), Ok((first, 0)));
    (0..3).for_each(|offset| assert_eq!(append(&host, "t", 0), offset));
    bump(&host, id, first + 4);
    let second = led(&mut reader);
    assert!(second >= first + 4);
    // A consumer that is at the end has the epoch that ListOffsets said, and nothing of it.
    assert_eq!(reader.epoch_end("t", second, second), Ok((second, 3)));
    assert_eq!(reader.epoch_end("t", second, first), Ok((first, 3)));
    assert_eq!(reader.epoch_end("t", second, first + 1), Ok((first, 3)));
    (3..5).for_each(|offset| assert_eq!(append(&host, "t", 0), offset));
    bump(&host, id, second + 4);
    let third = led(&mut reader);
    let ends = [
        (first, Ok((first, 3))),
        (first + 1, Ok((first, 3))),
        (second, Ok((second, 5))),
        (third, Ok((third, 5))),
        (third + 1, Ok((-1, -1))),
        (-1, Ok((-1, -1))),
    ];
    for (epoch, want) in ends {
        assert_eq!(reader.epoch_end("t", -1, epoch), want, "{epoch}");
    }
    assert_eq!(reader.epoch_end("t", second, first), Err(FENCED));
    assert_eq!(reader.epoch_end("t", third + 1, first), Err(UNKNOWN_EPOCH));
    let mut fetched = |epoch, last_epoch, offset| {
        let asked = Ask { epoch, last_epoch, ..ask(offset) };
        reader.fetch(12, Named::Name("t"), 0, asked)
    };
    assert_eq!(fetched(second, -1, 0).error_code, FENCED);
    assert_eq!(fetched(third + 1, -1, 0).error_code, UNKNOWN_EPOCH);
    assert_eq!(fetched(third, second, 5).error_code, 0);
    // It has read on where the first epoch had ended.
    let diverging = fetched(third, first, 4).diverging_epoch;
    assert_eq!((diverging.epoch, diverging.end_offset), (first, 3));
    assert!(host.stop().clean);
}

/// Every record of `__mirror_state` as it was read.
fn states(bytes: &[u8]) -> usize {
    let (mut rest, mut count) = (bytes, 0);
    for meta in walk(bytes) {
        let (own, behind) = rest.split_at(size(&meta));
        rest = behind;
        let batch = DecodedBatch::decode(&meta, own, 1 << 24).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            StateRecord::decode(record.key.unwrap(), record.value).unwrap();
            count += 1;
        }
    }
    count
}

#[test]
fn what_rests_is_read_after_a_restart() {
    let source = Source::start();
    for topic in ["stopped", "paused", "broken"] {
        produce(&source.topic(topic, 1).partitions[0], 40);
    }
    let dir = tempfile::tempdir().unwrap();
    let config = || properties(dir.path(), &[("mirror.state.topic.num.partitions", "1")]);
    let host = Running::start_with(config());
    make(&host, "ours", 1);
    (0..3).for_each(|offset| assert_eq!(append(&host, "ours", 0), offset));
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "stopped,paused,broken").await;
        client.pause_mirror_topics("m", &["paused".to_owned()]).await.unwrap();
        let named = ["stopped".to_owned(), "broken".to_owned()];
        client.stop_mirror_topics("m", &named, StopOptions::default()).await.unwrap();
        until(&mut client, "m", |all| {
            all["paused"][0].state == "PAUSED"
                && all["stopped"][0].state == "STOPPED"
                && all["broken"][0].state == "STOPPED"
        })
        .await;
    });
    let names = ["stopped", "paused", "ours", "__mirror_state"];
    let logs = || names.map(|topic| log_bytes(&dir.path().join(format!("{topic}-0"))));
    let read = |host: &Running| {
        let mut reader = Reader::connect(host.handle.address());
        names.map(|topic| reader.read_all(topic, 0))
    };
    let before = logs();
    assert_eq!(read(&host), before);
    assert!(states(&before[3]) > 6);
    assert!(host.stop().clean);
    for is_clean in [true, false] {
        if !is_clean {
            std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
            // What cannot be opened is hidden, and nothing else.
            let log = dir.path().join("broken-0/00000000000000000000.log");
            std::fs::rename(&log, dir.path().join("broken-0/kept")).unwrap();
            std::fs::create_dir(&log).unwrap();
        }
        let host = Running::start_with(config());
        let got = read(&host);
        assert_eq!(got, logs());
        assert_eq!(got[..3], before[..3]);
        let mut reader = Reader::connect(host.handle.address());
        let broken = reader.fetch(12, Named::Name("broken"), 0, ask(0));
        assert_eq!(broken.error_code, if is_clean { 0 } else { NOT_LEADER });
        assert_eq!(host.stop().clean, is_clean);
    }
}

#[test]
fn appends_are_refused_where_they_would_harm() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 5);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let append =
        |topic: &str, bytes: Vec<u8>| run(host.handle.append(TopicPartition::new(topic, 0), bytes));
    run(mirror_all(&mut host.client(), &source, "t"));
    make(&host, "ours", 1);
    assert!(matches!(append("t", batch()), Err(AppendError::ReadOnly { .. })));
    assert!(matches!(append("__mirror_state", batch()), Err(AppendError::Internal(_))));
    assert!(matches!(append("nowhere", batch()), Err(AppendError::Unknown(_))));
    let two = batch().repeat(2);
    let damaged = [&two[..two.len() - 1], &[two[two.len() - 1] ^ 1]].concat();
    let mut old = batch();
    old[16] = 1;
    for bad in [vec![7; 200], two[..two.len() - 1].to_vec(), two[..80].to_vec(), damaged, old] {
        assert!(append("ours", bad).is_err());
    }
    assert_eq!(append("ours", two).unwrap(), Offset(0), "nothing was left of the others");
    let mut reader = Reader::connect(host.handle.address());
    let led = reader.list_offset("ours", -1).unwrap().1;
    let all = reader.read_all("ours", 0);
    let stamped: Vec<_> =
        walk(&all).iter().map(|it| (it.base_offset.0, it.leader_epoch.0)).collect();
    assert_eq!(stamped, [(0, led), (1, led)]);
    assert!(host.stop().clean);
    let host = Running::start(dir.path());
    assert_eq!(Reader::connect(host.handle.address()).read_all("ours", 0), all);
    assert!(host.stop().clean);
}

/// Whoever appends while the topic is started, or stopped, is refused or cut: the log of a
/// mirrored topic is the source's.
#[test]
fn an_append_never_mixes_with_a_mirror() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 5);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(mirror_all(&mut client, &source, "t"));
    let named = ["t".to_owned()];
    let (is_over, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    let order = Ordering::SeqCst;
    scope(|scope| {
        let appender = scope.spawn(|| {
            let mut refused = 0;
            while !is_over.load(order) {
                let at = TopicPartition::new("t", 0);
                match run(host.handle.append(at, batch())) {
                    Ok(_) => {
                        taken.fetch_add(1, order);
                    }
                    Err(AppendError::ReadOnly { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            refused
        });
        run(async {
            for _ in 0..6 {
                client.stop_mirror_topics("m", &named, StopOptions::default()).await.unwrap();
                until(&mut client, "m", all_in("STOPPED")).await;
                let before = taken.load(order);
                while taken.load(order) == before {
                    tokio::task::yield_now().await;
                }
                produce(&topic.partitions[0], 3);
                let started =
                    client.start_mirror_topics("m", &named, StartOptions::default()).await;
                assert!(started.unwrap().iter().all(|it| it.refusal.is_none()));
                until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
                let read = Reader::connect(host.handle.address()).read_all("t", 0);
                assert_eq!(read, source.bytes("t-0"));
            }
        });
        is_over.store(true, order);
        assert!(appender.join().unwrap() > 0);
    });
    assert!(host.stop().clean);
}
