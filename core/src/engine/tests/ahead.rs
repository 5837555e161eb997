//! The question that is asked while an answer is still coming, over a connection with several
//! partitions.

use super::*;

const RTT_MS: u64 = 40;
const PARTITIONS: i32 = 4;
/// Batches of one partition in an answer.
const BATCHES: usize = 4;

/// A shard with four partitions of the same contents, and the connection that they share.
struct Shared {
    world: World,
    connection: ConnectionId,
}

impl Shared {
    fn new() -> Self {
        let config = ShardConfig { busy_connections: 1, ..ShardConfig::default() };
        let mut world = World::new(config);
        world.piece = 1 << 20;
        world.produce(BATCHES * 3, 30_000);
        for index in 0..PARTITIONS {
            let log = World::empty_log(&format!("t-{index}"));
            world.add_log(PartitionKey(u64::try_from(index).unwrap()), index, log);
        }
        world.act();
        let connection = world.made[0];
        let mut shared = Self { world, connection };
        // The greeting tells the round trip.
        let (_, greeting) = shared.asked();
        shared.pass(RTT_MS);
        let frame = response(&greeting, 16, |_| FetchResponse::default());
        shared.world.deliver(connection, &frame);
        shared
    }

    fn pass(&mut self, ms: u64) {
        self.world.now.0 += ms * 1_000_000;
        self.world.shard.set_time(self.world.now, 1_000);
    }

    /// The only request that was sent since the last time.
    #[track_caller]
    fn asked(&mut self) -> (ConnectionId, Bytes) {
        self.world.act();
        assert_eq!(self.world.sent.len(), 1);
        self.world.sent.remove(0)
    }

    /// Partitions with their offsets, and forgotten ones, of the next question.
    #[track_caller]
    fn question(&mut self) -> (Bytes, Vec<(i32, i64)>, Vec<i32>) {
        let (_, bytes) = self.asked();
        let mut request = bytes.slice(4..);
        RequestHeader::decode(&mut request, 2).unwrap();
        let fetch = FetchRequest::decode(&mut request, 16).unwrap();
        let partitions = fetch.topics.iter().flat_map(|topic| &topic.partitions);
        let mut asked: Vec<_> = partitions.map(|it| (it.partition, it.fetch_offset)).collect();
        let topics = fetch.forgotten_topics_data.iter();
        let mut forgotten: Vec<_> = topics.flat_map(|it| it.partitions.clone()).collect();
        asked.sort_unstable();
        forgotten.sort_unstable();
        (bytes, asked, forgotten)
    }

    /// The answer to a question: the next batches of these partitions.
    fn answer(&self, question: &Bytes, partitions: &[i32], batch: usize) -> Vec<u8> {
        let start = self.world.offsets[batch].1;
        let end = self.world.offsets[batch + BATCHES].1;
        let records = Bytes::copy_from_slice(&self.world.log[start..end]);
        response(question, 16, |_| {
            let data = |&index: &i32| {
                PartitionData::default()
                    .with_partition_index(index)
                    .with_high_watermark(self.world.high_watermark)
                    .with_last_stable_offset(self.world.high_watermark)
                    .with_records(Some(records.clone()))
            };
            let topic = FetchableTopicResponse::default().with_topic_id(TOPIC);
            let topics = vec![topic.with_partitions(partitions.iter().map(data).collect())];
            FetchResponse::default().with_session_id(9).with_responses(topics)
        })
    }
}

/// Goal: the next question is there before the source has sent the answer. Method: look for it
/// when half of the answer has come; it must leave out what may still come, and the one behind
/// it must bring that back.
#[test]
fn half_an_answer_ahead_asks_for_the_other_half() {
    let mut it = Shared::new();
    let (question, asked, _) = it.question();
    assert_eq!(asked, [(0, 0), (1, 0), (2, 0), (3, 0)]);
    it.pass(RTT_MS);
    let frame = it.answer(&question, &[2, 0, 1, 3], 0);
    let (first, rest) = frame.split_at(frame.len() / 4 + 500);
    it.world.deliver(it.connection, first);
    it.world.act();
    assert!(it.world.sent.is_empty(), "too little could be asked for");
    let (second, rest) = rest.split_at(frame.len() / 4);
    it.world.deliver(it.connection, second);
    let next = i64::try_from(BATCHES * 3).unwrap();
    let (question, asked, forgotten) = it.question();
    assert_eq!(
        (asked.as_slice(), forgotten.as_slice()),
        (&[(0, next), (2, next)][..], &[1, 3][..])
    );

    // What was left out is still taken from the answer that it is in.
    it.pass(5);
    it.world.deliver(it.connection, rest);
    it.world.act();
    assert!(it.world.sent.is_empty(), "one question ahead");
    it.pass(5);
    let frame = it.answer(&question, &[0, 2], BATCHES);
    it.world.deliver(it.connection, &frame[..2_000]);
    let (question, asked, forgotten) = it.question();
    assert_eq!(
        (asked.as_slice(), forgotten.as_slice()),
        (&[(1, next), (3, next)][..], &[0, 2][..])
    );
    it.world.deliver(it.connection, &frame[2_000..]);
    let frame = it.answer(&question, &[1, 3], BATCHES);
    it.world.deliver(it.connection, &frame);
    for key in 0..u64::try_from(PARTITIONS).unwrap() {
        let log = it.world.shard.log(PartitionKey(key)).unwrap();
        assert_eq!(log.fetch_offset(), Offset(next * 2), "partition {key}");
    }
}
