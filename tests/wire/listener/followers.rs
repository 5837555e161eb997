//! Followers of a mirror: Fetch v19 with `MirrorLeaderEpoch`, over real sockets and files.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;

use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::mirror::leader_epoch::{FollowerEpoch, Next, Verdict};
use heliostat_core::mirror::returned::{CopyEnds, Repair, on_diverged};
use heliostat_core::protocol::fetch_stream::{FetchEvent, FetchLimits, FetchStream, PartitionEnd};
use heliostat_core::protocol::{
    FetchPartition, FetchPlan, FetchPosition, FollowerFetch, FollowerPartition, RequestId,
    TopicIdentity,
};
use heliostat_core::records::{BatchBuilder, BatchMeta, BatchWalker, NewRecord, WalkLimits};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs};
use heliostat_io::listener::hosted::{Leadership, Partition};
use kafka_protocol::messages::ApiVersionsRequest;

use crate::client::{Client, NODE, Served, topic_id};

/// What the destination's own elections have come to: above all that the source writes.
const DESTINATION_EPOCH: LeaderEpoch = LeaderEpoch(20);
const RECORDS: i64 = 3;

/// A listener for followers, with one mirrored partition.
fn leader() -> (Served, Arc<Partition>) {
    let served = Served::with(|config| config.followers = true);
    let partition = Arc::clone(&served.topic("one", 1)[0]);
    partition.set_mirrored(true);
    let leadership = Leadership { leader: NODE, epoch: DESTINATION_EPOCH };
    partition.elect(leadership).expect("elected");
    (served, partition)
}

/// Appends a batch for each of `epochs`, as the source's leader of that epoch wrote it.
fn write(partition: &Partition, epochs: &[i32]) {
    for &epoch in epochs {
        let from = partition.facts(NODE).log_end;
        let mut builder = BatchBuilder::new(from).leader_epoch(LeaderEpoch(epoch));
        for record in 0..RECORDS {
            let value = format!("{record} of epoch {epoch} at {from}");
            let value = Some(value.as_bytes());
            let timestamp = TimestampMs(1);
            builder.push(&NewRecord { value, timestamp, key: None, headers: &[] }).expect("small");
        }
        partition.append_verbatim(&builder.build().expect("a batch")).expect("appended");
    }
}

fn bytes_of(partition: &Partition) -> Vec<u8> {
    fs::read(partition.dir().join("00000000000000000000.log")).expect("a segment")
}

/// The batches in `bytes`, each with its own.
fn batches(bytes: &[u8]) -> Vec<(BatchMeta, &[u8])> {
    let mut walker = BatchWalker::new(WalkLimits { batch_bytes_max: 1 << 20, check_crcs: true });
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).expect("sound");
        // A cut-off last batch is fetched again.
        let Some(meta) = meta else { break };
        let (batch, behind) = rest.split_at(used);
        found.push((meta, batch));
        rest = behind;
    }
    found
}

/// One answer: records and what is behind them; `None` for an answer without the partition.
fn answer(client: &mut Client) -> Option<(Vec<u8>, PartitionEnd)> {
    let frame = client.frame();
    let size = u32::try_from(frame.len()).expect("small").to_be_bytes();
    let wire = [&size, &frame[..]].concat();
    let mut stream = FetchStream::new(19, FetchLimits::default());
    let (mut rest, mut records, mut found) = (&wire[..], Vec::new(), None);
    loop {
        let (used, event) = stream.feed(rest).expect("a response of version 19");
        rest = &rest[used..];
        let due = usize::try_from(stream.remaining_records()).expect("small");
        records.extend_from_slice(&rest[..due]);
        rest = &rest[due..];
        stream.records_taken(u64::try_from(due).expect("small"));
        match event {
            Some(FetchEvent::PartitionEnd(end)) => found = Some(end),
            Some(FetchEvent::End { .. }) => return found.map(|end| (records, end)),
            _ => {}
        }
    }
}

/// What a follower asks of the one partition.
#[derive(Clone, Copy)]
struct Question {
    offset: Offset,
    last_epoch: LeaderEpoch,
    mirror_epoch: LeaderEpoch,
    bytes_max: u32,
    replica: i32,
    session: (i32, i32),
}

impl Question {
    fn from_start() -> Self {
        Self {
            offset: Offset(0),
            last_epoch: LeaderEpoch::NONE,
            mirror_epoch: LeaderEpoch(0),
            bytes_max: 1 << 20,
            replica: 2,
            session: (0, -1),
        }
    }

    fn encode(self) -> bytes::Bytes {
        let partition = FetchPartition {
            topic: TopicIdentity { name: Arc::from("one"), id: topic_id("one") },
            index: 0,
            position: FetchPosition {
                fetch_offset: self.offset,
                current_leader_epoch: DESTINATION_EPOCH,
                last_fetched_epoch: self.last_epoch,
                partition_max_bytes: self.bytes_max,
            },
        };
        let plan = FetchPlan {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 1 << 20,
            session_id: self.session.0,
            session_epoch: self.session.1,
            partitions: &[partition],
            forgotten: &[],
            rack: "",
        };
        let own =
            FollowerPartition { log_start: Offset(0), mirror_leader_epoch: self.mirror_epoch };
        let replica = BrokerId(self.replica);
        let fetch = FollowerFetch { plan, replica, replica_epoch: 1, partitions: &[own] };
        fetch.encode(RequestId { correlation_id: 5, client_id: "follower" }).expect("encodes")
    }

    fn send(self, client: &mut Client) {
        client.stream.write_all(&self.encode()).expect("sent");
    }
}

/// A follower with a log of its own. It obeys [`FollowerEpoch`], or, to show what that is for,
/// appends whatever comes.
struct Follower {
    client: Client,
    epoch: FollowerEpoch,
    epochs: EpochCache,
    log: Arc<Partition>,
    _dir: Served,
    checks: bool,
}

impl Follower {
    fn new(leader: &Served, checks: bool) -> Self {
        let dir = Served::new();
        let log = Arc::clone(&dir.topic("one", 1)[0]);
        log.set_mirrored(true);
        Self {
            client: leader.client(),
            epoch: FollowerEpoch::new(LeaderEpoch::NONE),
            epochs: EpochCache::default(),
            log,
            _dir: dir,
            checks,
        }
    }

    fn end(&self) -> Offset {
        self.log.facts(NODE).log_end
    }

    fn question(&self) -> Question {
        Question {
            offset: self.end(),
            last_epoch: self.epoch.last_fetched(),
            mirror_epoch: self.epoch.value(),
            ..Question::from_start()
        }
    }

    /// One round: how many batches were appended, and what follows.
    fn fetch(&mut self, question: Question) -> (usize, Next) {
        let value = self.epoch.value();
        question.send(&mut self.client);
        let (records, end) = answer(&mut self.client).expect("of the partition");
        let mut appended = 0;
        for (meta, bytes) in batches(&records) {
            let verdict = self.epoch.on_batch(meta.leader_epoch);
            if verdict == Verdict::Append || !self.checks {
                assert!(!self.checks || meta.leader_epoch <= value, "above what it asked with");
                self.log.append_verbatim(bytes).expect("behind its end");
                self.epochs.on_batch(&meta);
                appended += 1;
            }
        }
        let next = self.epoch.on_answer_end(&end);
        if let Next::Align(diverging) = next {
            let copy = CopyEnds { log_start: Offset(0), log_end: self.end() };
            let to = match on_diverged(diverging, copy, &self.epochs, true) {
                Repair::Truncate { to } => to,
                Repair::Reset { start } => start,
                other => panic!("{other:?} of {diverging:?}"),
            };
            let end = self.log.truncate(to).expect("cut");
            self.epochs.truncate_from_end(end);
            let last = self.epochs.latest().map_or(LeaderEpoch::NONE, |latest| latest.epoch);
            self.epoch.truncated(last);
        }
        (appended, next)
    }

    /// Fetches until it has what `leader` has.
    fn converge(&mut self, leader: &Partition) {
        for _ in 0..10 {
            if self.end() == leader.facts(NODE).log_end && bytes_of(&self.log) == bytes_of(leader) {
                return;
            }
            self.fetch(self.question());
        }
        panic!("at {} of {}, after ten answers", self.end(), leader.facts(NODE).log_end);
    }

    /// Epochs of its batches.
    fn held(&self) -> Vec<i32> {
        let bytes = bytes_of(&self.log);
        batches(&bytes).iter().map(|(meta, _)| meta.leader_epoch.0).collect()
    }
}

#[test]
fn follower_converges_across_an_unclean_election() {
    let (a, log_a) = leader();
    write(&log_a, &[3, 3, 3, 5, 5]);
    let mut follower = Follower::new(&a, true);
    assert_eq!(follower.epoch.value(), LeaderEpoch(0));
    assert_eq!(follower.fetch(follower.question()), (0, Next::Fetch), "3 is above 0");
    assert_eq!((follower.epoch.value(), follower.end()), (LeaderEpoch(5), Offset(0)));
    // A part: four of the five, which are of one size.
    let batch = u32::try_from(bytes_of(&log_a).len() / 5).expect("small");
    let part = Question { bytes_max: 4 * batch, ..follower.question() };
    assert_eq!(follower.fetch(part), (4, Next::Fetch));
    assert_eq!(follower.held(), [3, 3, 3, 5]);

    // The new leader has lost the third and what came after it, and has had a leader of its
    // own at the source.
    let (b, log_b) = leader();
    write(&log_b, &[3, 3, 7, 7, 7]);
    follower.client = b.client();
    follower.epoch.new_leader();
    assert_eq!(follower.epoch.value(), LeaderEpoch(0), "another leader, another beginning");
    let (appended, next) = follower.fetch(follower.question());
    assert!(appended == 0 && matches!(next, Next::Align(_)), "{next:?}");
    assert_eq!(follower.held(), [3, 3]);
    assert_eq!(follower.fetch(follower.question()), (0, Next::Fetch), "7 is above 3");
    assert_eq!(follower.epoch.value(), LeaderEpoch(7));
    assert_eq!(follower.fetch(follower.question()), (3, Next::Fetch));
    follower.converge(&log_b);
    assert_eq!(bytes_of(&follower.log), bytes_of(&log_b));
}

/// The leader's log becomes another between the check of the position and the read. The leader
/// here checks again before it reads; so the follower leaves out what had been checked before.
#[test]
fn only_the_check_keeps_two_histories_apart() {
    for checks in [true, false] {
        let (served, log) = leader();
        write(&log, &[3, 3, 5, 5]);
        let mut follower = Follower::new(&served, checks);
        for _ in 0..2 {
            follower.fetch(follower.question());
        }
        follower.converge(&log);
        // The source has elected a leader without 5's batches, and the mirror's leader has
        // followed it.
        log.truncate(Offset(2 * RECORDS)).expect("cut");
        write(&log, &[7, 7, 7, 7]);
        let checked = Question { last_epoch: LeaderEpoch::NONE, ..follower.question() };
        let (appended, _) = follower.fetch(checked);
        if !checks {
            assert_eq!(follower.held(), [3, 3, 5, 5, 7, 7], "5 and 7 are of two histories");
            continue;
        }
        assert_eq!((appended, follower.epoch.value()), (0, LeaderEpoch(7)));
        let (_, next) = follower.fetch(follower.question());
        assert!(matches!(next, Next::Align(_)), "{next:?}");
        assert_eq!(follower.held(), [3, 3]);
        follower.converge(&log);
        assert_eq!(follower.held(), [3, 3, 7, 7, 7, 7]);
    }
}

#[test]
fn elections_of_the_destination_begin_no_epoch_of_a_mirror() {
    let (served, log) = leader();
    write(&log, &[3]);
    log.elect(Leadership { leader: NODE, epoch: DESTINATION_EPOCH }).expect("elected");
    let mut client = served.client();
    Question::from_start().send(&mut client);
    let (_, end) = answer(&mut client).expect("of the partition");
    assert_eq!(end.mirror_leader_epoch, Some(LeaderEpoch(3)));
}

/// The answer of version 19 is version 18's, byte for byte, to whoever is no follower of a
/// mirror, and where the partition is none.
#[test]
fn nobody_else_sees_the_field() {
    let (served, log) = leader();
    write(&log, &[3, 5]);
    let mut client = served.client();
    let mut frames = |question: Question| {
        let mut sent = question.encode().to_vec();
        client.stream.write_all(&sent).expect("sent");
        let new = client.frame();
        // The version in the header; the field is an unknown one then.
        assert_eq!(sent[6..8], [0, 19]);
        sent[7] = 18;
        client.stream.write_all(&sent).expect("sent");
        (new, client.frame())
    };
    let follower = Question::from_start();
    let (new, old) = frames(follower);
    assert_eq!(new.len(), old.len() + 6, "tag, size, epoch");
    assert!(new.windows(7).any(|bytes| bytes == [1, 3, 4, 0, 0, 0, 5]), "tag 3 holds 5");
    let consumer = Question { replica: -1, ..follower };
    let silent = Question { mirror_epoch: LeaderEpoch::NONE, ..follower };
    for question in [consumer, silent] {
        let (new, old) = frames(question);
        assert_eq!(new, old);
    }
    log.set_mirrored(false);
    let (new, old) = frames(follower);
    assert_eq!(new, old, "no mirror");
}

#[test]
fn session_tells_an_epoch_that_changed() {
    let (served, log) = leader();
    write(&log, &[3]);
    let mut client = served.client();
    let from =
        Question { offset: Offset(RECORDS), last_epoch: LeaderEpoch(3), ..Question::from_start() };
    Question { session: (0, 0), ..from }.send(&mut client);
    let frame = client.frame();
    // Behind correlation ID, tagged fields, throttle time and error.
    let id = i32::from_be_bytes(frame[11..15].try_into().expect("four bytes"));
    assert_ne!(id, 0);
    Question { session: (id, 1), ..from }.send(&mut client);
    assert!(answer(&mut client).is_none(), "nothing new");
    write(&log, &[5]);
    Question { session: (id, 2), ..from }.send(&mut client);
    let (_, end) = answer(&mut client).expect("news");
    assert_eq!(end.mirror_leader_epoch, Some(LeaderEpoch(5)));
}

#[test]
fn only_a_listener_for_followers_has_version_19() {
    let offered = |served: &Served| {
        let response = served.client().call(3, &ApiVersionsRequest::default());
        response.api_keys.iter().find(|api| api.api_key == 1).map(|api| api.max_version)
    };
    let (for_followers, log) = leader();
    assert_eq!(offered(&for_followers), Some(19));
    // A follower moves the high watermark, so it reads past it; a consumer does not.
    write(&log, &[3, 3]);
    log.hold_high_watermark(Some(Offset(RECORDS)));
    for (replica, want) in [(2, 2), (-1, 1)] {
        let mut client = for_followers.client();
        Question { replica, ..Question::from_start() }.send(&mut client);
        let (records, _) = answer(&mut client).expect("of the partition");
        assert_eq!(batches(&records).len(), want, "replica {replica}");
    }
    let ordinary = Served::new();
    ordinary.topic("one", 1);
    assert_eq!(offered(&ordinary), Some(18));
    let mut client = ordinary.client();
    Question::from_start().send(&mut client);
    assert!(client.is_closed());
}
