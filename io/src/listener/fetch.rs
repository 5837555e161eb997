//! Fetch: session, look, wait, layout, send.

use std::collections::HashMap;
use std::time::Duration;

use glommio::net::TcpStream;
use heliostat_core::log::read_plan::{ReadPlanError, ReadRequest};
use heliostat_core::mirror::leader_epoch::leader_answer;
use heliostat_core::serve::{
    CurrentLeader, FetchBudget, FetchParams, FetchRequestFacts, FetchResponseHead,
    FetchResponseLayout, IsolationLevel, NodeEndpoint, PartitionAnswer, PartitionKey, ReadFault,
    ServedFacts, SessionAnswer, TopicKey, WaitDecision, WaitFacts, admit_read, decide_wait,
};
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicId};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::FetchRequest;
use uuid::Uuid;

use super::frame::{ConnectionError, Request};
use super::hosted::HostedError;
use super::readable::{Place, ReadablePartition};
use super::reading::RecordsRun;
use super::send::send_response;
use super::service::{Service, Watch};

/// First version that tells the leader with an error about it.
const VERSION_LEADER_HINTS: i16 = 16;

/// What was found for all partitions of a request.
#[derive(Default)]
struct Found {
    answers: Vec<PartitionAnswer>,
    runs: HashMap<PartitionKey, RecordsRun>,
    facts: WaitFacts,
}

/// Answers one Fetch request.
pub(super) async fn serve(
    service: &Service,
    stream: &mut TcpStream,
    request: &Request,
    body: &FetchRequest,
) -> Result<(), ConnectionError> {
    let mut asked = FetchRequestFacts::from_wire(request.version, body);
    asked.replica = asked.replica.filter(|_| service.config().followers);
    let begun = service.sessions().begin(service.now(), &asked);
    let (context, partitions) = match begun {
        Ok(begun) => begun,
        Err(error) => return send(service, stream, request, Err(error), Found::default()).await,
    };
    let wait = Duration::from_millis(u64::from(asked.max_wait_ms));
    let deadline = service.now().after(wait);
    let min_bytes = asked.min_bytes.min(asked.max_bytes).min(service.config().fetch_max_bytes);
    let places: Vec<Place> = partitions.iter().map(|(key, _)| find(service, key)).collect();
    // Most are answered by the first look, so it is watched only from the second one on; what
    // comes between a watch and its look is not missed.
    let mut watch = None;
    let mut found = loop {
        let found = look(service, &asked, &partitions, &places);
        match decide_wait(found.facts, min_bytes, deadline, service.now()) {
            WaitDecision::Answer => break found,
            WaitDecision::WaitUntil(until) => {
                if let Some(watch) = watch.take() {
                    Watch::changed(&watch, until).await;
                }
                watch = Some(service.watch(&places));
            }
        }
    };
    drop(watch);
    let (_, id_seed) = Uuid::new_v4().as_u64_pair();
    let id_seed = u32::try_from(id_seed & u64::from(u32::MAX)).unwrap_or(1);
    let session =
        service.sessions().finish(service.now(), context, &asked, &mut found.answers, id_seed);
    let session = match session {
        SessionAnswer::Session(id) => Ok(id),
        SessionAnswer::Error(error) => Err(error),
    };
    send(service, stream, request, session, found).await
}

async fn send(
    service: &Service,
    stream: &mut TcpStream,
    request: &Request,
    session: Result<i32, ResponseError>,
    mut found: Found,
) -> Result<(), ConnectionError> {
    let head = FetchResponseHead {
        version: request.version,
        correlation_id: request.correlation_id,
        throttle_time_ms: 0,
        error: session.err(),
        session_id: session.unwrap_or(0),
        node_endpoints: endpoints(service, &found.answers),
    };
    let layout = FetchResponseLayout::new(&head, &found.answers)
        .map_err(|error| ConnectionError::Response(error.to_string()))?;
    let runs: Vec<_> = found.answers.iter().map(|answer| found.runs.remove(&answer.key)).collect();
    send_response(stream, &layout, &runs).await
}

/// Where the leaders listen that the answers name.
fn endpoints(service: &Service, answers: &[PartitionAnswer]) -> Vec<NodeEndpoint> {
    let named: Vec<BrokerId> =
        answers.iter().filter_map(|answer| Some(answer.current_leader?.leader)).collect();
    if named.is_empty() {
        return Vec::new();
    }
    service.topics().nodes().into_iter().filter(|node| named.contains(&node.node)).collect()
}

fn look(
    service: &Service,
    asked: &FetchRequestFacts,
    partitions: &[(PartitionKey, FetchParams)],
    places: &[Place],
) -> Found {
    let mut found = Found::default();
    let mut budget = FetchBudget::new(asked.max_bytes, service.config().fetch_max_bytes);
    for ((key, params), place) in partitions.iter().zip(places) {
        let answer = match place {
            Err(error) => PartitionAnswer::failed(key.clone(), *error),
            Ok(partition) => {
                found.facts.readable += 1;
                let one = One { service, asked, key, params, partition: partition.as_ref() };
                // A segment may have been deleted, or the log cut, while it was looked at.
                let looked = one.look(&mut budget).or_else(|_| one.look(&mut budget));
                let (answer, run) = looked.unwrap_or_else(|error| (one.unreadable(&error), None));
                found.facts.urgent |= answer.error.is_some() || answer.diverging.is_some();
                if let Some(run) = run {
                    found.facts.bytes = found.facts.bytes.saturating_add(run.len);
                    found.runs.insert(key.clone(), run);
                }
                answer
            }
        };
        found.answers.push(answer);
    }
    found
}

fn find(service: &Service, key: &PartitionKey) -> Place {
    let topics = service.topics();
    let by_name = |name: &str| {
        topics.partition(name, key.partition).ok_or(ResponseError::UnknownTopicOrPartition)
    };
    match &key.topic {
        TopicKey::Name(name) => by_name(name),
        TopicKey::Id(id) => match topics.name_of(*id) {
            Some(name) => by_name(&name),
            None => Err(ResponseError::UnknownTopicId),
        },
    }
}

/// One partition of a request.
struct One<'a> {
    service: &'a Service,
    asked: &'a FetchRequestFacts,
    key: &'a PartitionKey,
    params: &'a FetchParams,
    partition: &'a dyn ReadablePartition,
}

impl One<'_> {
    /// # Errors
    /// What could not be read; nothing of the budget is used then.
    fn look(
        &self,
        budget: &mut FetchBudget,
    ) -> Result<(PartitionAnswer, Option<RecordsRun>), HostedError> {
        let Self { service, asked, key, params, partition } = *self;
        let look = match partition.look(service.config().node_id, params.fetch_offset) {
            Ok(look) => look,
            Err(error) => return Ok((self.failed(error), None)),
        };
        let facts = look.facts();
        let ends = match params.last_fetched_epoch.known().map(|epoch| partition.epoch_end(epoch)) {
            Some(Err(error)) => return Ok((self.failed(error), None)),
            Some(Ok(ends)) => ends,
            None => None,
        };
        let topic = match key.topic {
            TopicKey::Id(id) => id,
            TopicKey::Name(_) => TopicId::NONE,
        };
        let is_follower = asked.replica.is_some();
        let readable = if is_follower { facts.read_by_follower() } else { facts };
        let admitted = admit_read(topic, params, asked.isolation, &readable, |_| ends);
        let mut answer = standing(key, asked.isolation, &facts);
        answer.mirror_leader_epoch =
            leader_answer(is_follower, params.mirror_leader_epoch, look.mirror_epoch());
        let bounds = match admitted {
            Ok(bounds) => bounds,
            Err(ReadFault::Diverging(divergence)) => {
                answer.diverging = Some(divergence);
                return Ok((answer, None));
            }
            Err(ReadFault::Error(error)) => return Ok((self.failed(error), None)),
        };
        let take = budget.next(params.partition_max_bytes);
        let request = ReadRequest {
            from: bounds.from,
            to: bounds.to,
            log_end: facts.log_end,
            bytes_max: take.bytes_max,
            first_batch_whole: take.first_batch_whole,
        };
        let Some(run) = look.read(&request)? else { return Ok((answer, None)) };
        if asked.isolation == IsolationLevel::ReadCommitted {
            // Without them, a reader would take what was aborted for committed.
            let aborted = look.aborted(&run, bounds.from);
            let failed = |source| ReadPlanError::Read { segment: bounds.from, source };
            answer.aborted = Some(aborted.map_err(failed)?);
        }
        budget.took(run.len);
        answer.records_bytes = run.len;
        Ok((answer, Some(run)))
    }

    fn unreadable(&self, error: &(dyn std::error::Error + 'static)) -> PartitionAnswer {
        // One that is being cut is asked for again.
        let partition = self.partition;
        match partition.facts(self.service.config().node_id) {
            Err(error) => self.failed(error),
            Ok(_) => {
                tracing::warn!(partition = %partition.at(), error, "fetch cannot read the log");
                PartitionAnswer::failed(self.key.clone(), ResponseError::KafkaStorageError)
            }
        }
    }

    fn failed(&self, error: ResponseError) -> PartitionAnswer {
        let about_leader =
            matches!(error, ResponseError::NotLeaderOrFollower | ResponseError::FencedLeaderEpoch);
        let leadership = self.partition.leadership();
        let hint =
            self.asked.version >= VERSION_LEADER_HINTS && about_leader && leadership.leader.0 >= 0;
        PartitionAnswer {
            current_leader: hint
                .then_some(CurrentLeader { leader: leadership.leader, epoch: leadership.epoch }),
            ..PartitionAnswer::failed(self.key.clone(), error)
        }
    }
}

/// An answer without records.
fn standing(key: &PartitionKey, isolation: IsolationLevel, facts: &ServedFacts) -> PartitionAnswer {
    PartitionAnswer {
        key: key.clone(),
        error: None,
        high_watermark: facts.high_watermark,
        last_stable: facts.last_stable,
        log_start: facts.log_start,
        diverging: None,
        current_leader: None,
        mirror_leader_epoch: LeaderEpoch::NONE,
        aborted: (isolation == IsolationLevel::ReadCommitted).then(Vec::new),
        records_bytes: 0,
    }
}
