//! A fetch session with very many partitions, and the requests that it builds.

use std::sync::Arc;

use bytes::Bytes;
use heliostat_core::protocol::{
    ErrorCode, FetchPlan, FetchPosition, FetchSession, RequestId, TopicIdentity,
};
use heliostat_core::types::{LeaderEpoch, Offset, TopicId};

use crate::answer::{TOPIC_PARTITIONS, VERSION, topic_id};

/// Partitions of the session.
pub const PARTITIONS: i32 = 1_000;

/// A session whose next request is to be built.
#[derive(Debug)]
pub struct Session {
    session: FetchSession,
    topics: Vec<TopicIdentity>,
}

impl Session {
    /// The next request opens it: it names every partition.
    pub fn opening() -> Self {
        let topics = (0..PARTITIONS / TOPIC_PARTITIONS)
            .map(|n| TopicIdentity {
                name: Arc::from(format!("topic-{n}")),
                id: TopicId(topic_id(n * TOPIC_PARTITIONS)),
            })
            .collect();
        let mut it = Self { session: FetchSession::new(VERSION), topics };
        for n in 0..PARTITIONS {
            it.want(n, 0);
        }
        it
    }

    /// The next request tells of `changed` partitions that have moved on.
    pub fn moved(changed: i32) -> Self {
        let mut it = Self::opening();
        it.build();
        it.session.on_response_header(ErrorCode::NONE, 9);
        for n in 0..changed {
            it.want(n * (PARTITIONS / changed), 1_000);
        }
        it
    }

    fn want(&mut self, n: i32, offset: i64) {
        let Some(topic) =
            usize::try_from(n / TOPIC_PARTITIONS).ok().and_then(|topic| self.topics.get(topic))
        else {
            return;
        };
        let position = FetchPosition {
            fetch_offset: Offset(offset),
            current_leader_epoch: LeaderEpoch(3),
            last_fetched_epoch: LeaderEpoch(3),
            partition_max_bytes: 8 << 20,
        };
        self.session.want(topic, n % TOPIC_PARTITIONS, n.unsigned_abs(), position);
    }

    /// Plans and encodes the next request.
    ///
    /// # Panics
    /// If there is nothing to encode it with: names are short here.
    pub fn build(&mut self) -> Bytes {
        let request = self.session.plan();
        let plan = FetchPlan {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 55 << 20,
            session_id: request.session_id,
            session_epoch: request.session_epoch,
            partitions: &request.partitions,
            forgotten: &request.forgotten,
            rack: "",
        };
        let id = RequestId { correlation_id: 1, client_id: "heliostat" };
        plan.encode(VERSION, id).expect("short names")
    }
}
