//! All brokers of the source together.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use heliostat_core::fetcher::{Backoff, BackoffPolicy};
use heliostat_core::protocol::{
    Api, BrokerApis, ConfigsRequest, DecodeError, EncodeError, EpochEnd, EpochEndQuery,
    EpochEndsRequest, ErrorCode, ListedOffset, Metadata, MetadataRequest, OffsetQuery,
    OffsetsRequest, RequestId, TopicConfigs,
};
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, TopicPartition};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Connection, ConnectionOptions};
use super::error::{Cause, SourceError};
use super::host_port::HostPort;
use super::transport::SocketOptions;

/// Settings of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Where to begin, and where to begin again when every known broker fails.
    pub bootstrap: Vec<HostPort>,
    /// What the source's logs and quotas know this client by.
    pub client_id: String,
    /// Settings of sockets.
    pub socket: SocketOptions,
    /// Longest wait for an answer.
    pub request_timeout: Duration,
    /// Largest response that is taken, in bytes.
    pub response_bytes_max: u32,
    /// Waits between connection attempts to one broker.
    pub reconnect: BackoffPolicy,
}

impl ClientConfig {
    /// Kafka's defaults, with `bootstrap` to begin at.
    pub fn new(bootstrap: Vec<HostPort>) -> Self {
        Self {
            bootstrap,
            client_id: "heliostat".to_owned(),
            socket: SocketOptions {
                connect_timeout: Duration::from_secs(10),
                receive_buffer_bytes: None,
                send_buffer_bytes: None,
            },
            request_timeout: Duration::from_secs(30),
            response_bytes_max: 100 << 20,
            reconnect: BackoffPolicy::new(Duration::from_millis(50), Duration::from_secs(10)),
        }
    }
}

/// Answers about partitions, from as many brokers as lead them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers<T> {
    /// What was answered; an answer may hold an error code of its partition.
    pub answers: Vec<T>,
    /// Partitions that nobody could be asked about.
    pub unanswered: Vec<Unanswered>,
}

/// A partition whose leader did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The partition.
    pub partition: TopicPartition,
    /// Why.
    pub error: Arc<SourceError>,
}

/// When a broker that failed is tried again.
#[derive(Debug)]
struct Failing {
    backoff: Backoff,
    error: SourceError,
}

/// Client of the source's control path. See the module's text.
#[derive(Debug)]
pub struct SourceClient {
    options: ConnectionOptions,
    bootstrap: Vec<HostPort>,
    reconnect: BackoffPolicy,
    brokers: BTreeMap<BrokerId, HostPort>,
    leaders: HashMap<TopicPartition, BrokerId>,
    /// Idle connections, by where they lead to.
    connections: HashMap<HostPort, Connection>,
    failing: HashMap<HostPort, Failing>,
    /// What brokers offered when they were last connected to.
    apis: HashMap<HostPort, BrokerApis>,
    /// Instant that ticks count from.
    origin: Instant,
}

impl SourceClient {
    /// A client that has not connected yet.
    pub fn new(config: ClientConfig) -> Self {
        let ClientConfig {
            bootstrap,
            client_id,
            socket,
            request_timeout,
            response_bytes_max,
            reconnect,
        } = config;
        Self {
            options: ConnectionOptions { client_id, socket, request_timeout, response_bytes_max },
            bootstrap,
            reconnect,
            brokers: BTreeMap::new(),
            leaders: HashMap::new(),
            connections: HashMap::new(),
            failing: HashMap::new(),
            apis: HashMap::new(),
            origin: Instant::now(),
        }
    }

    /// Brokers, and the topics of these names (`None`: all; empty: none). Any broker
    /// answers. Leaders and brokers of the answer are remembered for later questions.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoBroker`] if every known broker and every bootstrap server failed.
    pub async fn metadata(&mut self, topics: Option<&[Arc<str>]>) -> Result<Metadata, SourceError> {
        let encode = |version, id: RequestId<'_>| MetadataRequest { topics }.encode(version, id);
        let decode = |version, body: &[u8]| {
            Metadata::decode(version, body).map(|metadata| (metadata.throttle_ms, metadata))
        };
        let check = |metadata: &Metadata| metadata.error;
        let metadata = self.ask_any(Api::Metadata, encode, decode, check).await?;
        self.learn(&metadata, topics.is_none());
        Ok(metadata)
    }

    fn learn(&mut self, metadata: &Metadata, is_complete: bool) {
        // A broker that is starting can answer with an empty list.
        if !metadata.brokers.is_empty() {
            self.brokers = metadata
                .brokers
                .iter()
                .map(|broker| {
                    let host = Arc::from(broker.host.as_str());
                    (broker.node, HostPort { host, port: broker.port })
                })
                .collect();
        }
        if is_complete {
            self.leaders.clear();
        }
        for topic in &metadata.topics {
            for partition in &topic.partitions {
                let name = Arc::clone(&topic.identity.name);
                self.leaders.insert(TopicPartition::new(name, partition.index), partition.leader);
            }
        }
    }

    /// First or last offsets, asked of the partitions' leaders as the last metadata names them.
    pub async fn list_offsets(&mut self, queries: Vec<OffsetQuery>) -> Answers<ListedOffset> {
        self.ask_leaders(queries).await
    }

    /// Ends of epochs, asked of the partitions' leaders as the last metadata names them.
    pub async fn epoch_ends(&mut self, queries: Vec<EpochEndQuery>) -> Answers<EpochEnd> {
        self.ask_leaders(queries).await
    }

    /// Configs of topics; `keys` of `None` stands for all. Any broker answers.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoBroker`] as [`Self::metadata`].
    pub async fn topic_configs(
        &mut self,
        topics: &[Arc<str>],
        keys: Option<&[&'static str]>,
    ) -> Result<Vec<TopicConfigs>, SourceError> {
        let encode =
            |version, id: RequestId<'_>| ConfigsRequest { topics, keys }.encode(version, id);
        self.ask_any(Api::DescribeConfigs, encode, TopicConfigs::decode, |_| ErrorCode::NONE).await
    }

    /// Where the leader of a partition listens, as the last metadata names it.
    pub fn leader(&self, partition: &TopicPartition) -> Option<&HostPort> {
        self.brokers.get(self.leaders.get(partition)?)
    }

    /// Brokers of the last metadata.
    pub fn brokers(&self) -> &BTreeMap<BrokerId, HostPort> {
        &self.brokers
    }

    /// What a broker offered when it last answered; `None` if it never did.
    pub fn known_apis(&self, broker: BrokerId) -> Option<BrokerApis> {
        self.apis.get(self.brokers.get(&broker)?).copied()
    }

    /// What each known broker offers, or why it could not be asked.
    pub async fn broker_apis(&mut self) -> BTreeMap<BrokerId, Result<BrokerApis, SourceError>> {
        let mut out = BTreeMap::new();
        for (broker, peer) in self.brokers.clone() {
            let opened = match self.idle_connection(&peer) {
                Ok(Some(connection)) => Ok(connection),
                Ok(None) => Connection::open(&peer, &self.options).await,
                Err(error) => Err(error),
            };
            let apis = opened.as_ref().map(Connection::apis).map_err(Clone::clone);
            self.note(&peer, opened.ok(), apis.as_ref().err());
            out.insert(broker, apis);
        }
        out
    }

    /// Asks brokers in turn until one answers: those with a connection first, then the
    /// others that are known, then the bootstrap servers.
    async fn ask_any<T>(
        &mut self,
        api: Api,
        encode: impl Fn(i16, RequestId<'_>) -> Result<Bytes, EncodeError>,
        decode: impl Fn(i16, &[u8]) -> Result<(u32, T), DecodeError>,
        check: impl Fn(&T) -> ErrorCode,
    ) -> Result<T, SourceError> {
        let mut peers: Vec<_> = self.brokers.values().cloned().collect();
        peers.sort_by_key(|peer| !self.connections.contains_key(peer));
        for peer in &self.bootstrap {
            if !peers.contains(peer) {
                peers.push(peer.clone());
            }
        }
        let mut attempts = Vec::new();
        for peer in peers {
            let idle = match self.idle_connection(&peer) {
                Ok(idle) => idle,
                Err(error) => {
                    attempts.push(error);
                    continue;
                }
            };
            let (kept, outcome) = ask(idle, &peer, &self.options, api, &encode, &decode).await;
            self.note(&peer, kept, outcome.as_ref().err());
            match outcome.map(|answer| (check(&answer), answer)) {
                Ok((ErrorCode::NONE, answer)) => return Ok(answer),
                Ok((error, _)) => {
                    attempts
                        .push(SourceError::Broker { peer, cause: Cause::Answer { api, error } });
                }
                Err(error) => attempts.push(error),
            }
        }
        Err(SourceError::NoBroker { attempts })
    }

    /// The idle connection to `peer`, `None` if there has to be a new one. Within the
    /// back-off of an earlier failure its error is given again without an attempt.
    fn idle_connection(&mut self, peer: &HostPort) -> Result<Option<Connection>, SourceError> {
        let idle = self.connections.remove(peer);
        match self.failing.get(peer) {
            Some(failing) if idle.is_none() && !failing.backoff.is_due(self.now()) => {
                Err(failing.error.clone())
            }
            _ => Ok(idle),
        }
    }

    fn note(&mut self, peer: &HostPort, kept: Option<Connection>, error: Option<&SourceError>) {
        if let Some(connection) = kept {
            self.failing.remove(peer);
            self.apis.insert(peer.clone(), connection.apis());
            self.connections.insert(peer.clone(), connection);
        }
        if let Some(error) = error {
            let fresh = Failing { backoff: Backoff::default(), error: error.clone() };
            let (now, policy) = (self.now(), self.reconnect);
            let failing = self.failing.entry(peer.clone()).or_insert(fresh);
            failing.backoff.failed(policy, now, random());
            failing.error = error.clone();
        }
    }

    fn now(&self) -> Tick {
        Tick::ZERO.after(self.origin.elapsed())
    }

    async fn ask_leaders<Q: Question>(&mut self, queries: Vec<Q>) -> Answers<Q::Answer> {
        let mut out = Answers { answers: Vec::new(), unanswered: Vec::new() };
        let mut by_leader = BTreeMap::<HostPort, Vec<Q>>::new();
        for query in queries {
            let leader = self.leaders.get(query.partition());
            match leader.and_then(|leader| self.brokers.get(leader)) {
                Some(peer) => by_leader.entry(peer.clone()).or_default().push(query),
                None => out.refuse([query], &SourceError::NoLeader),
            }
        }

        let mut asking = JoinSet::new();
        for (peer, mut queries) in by_leader {
            // Neighbours of one topic share its entry in the request.
            queries.sort_by(|a, b| a.partition().cmp(b.partition()));
            let idle = match self.idle_connection(&peer) {
                Ok(idle) => idle,
                Err(error) => {
                    out.refuse(queries, &error);
                    continue;
                }
            };
            let options = self.options.clone();
            asking.spawn(async move {
                let (kept, outcome) = ask_leader(idle, &peer, &options, &queries).await;
                (peer, queries, kept, outcome)
            });
        }
        while let Some(joined) = asking.join_next().await {
            let Ok((peer, queries, kept, outcome)) = joined else { continue };
            self.note(&peer, kept, outcome.as_ref().err());
            match outcome {
                Ok(answers) => out.answers.extend(answers),
                Err(error) => out.refuse(queries, &error),
            }
        }
        out
    }
}

impl<T> Answers<T> {
    fn refuse<Q: Question>(&mut self, queries: impl IntoIterator<Item = Q>, error: &SourceError) {
        let error = Arc::new(error.clone());
        self.unanswered.extend(queries.into_iter().map(|query| Unanswered {
            partition: query.partition().clone(),
            error: Arc::clone(&error),
        }));
    }
}

/// Asks one broker. The connection comes back if it is still in step. One that had been
/// idle may have been closed meanwhile, which is no failure of the broker: the question is
/// asked once more on a new one.
async fn ask<T>(
    idle: Option<Connection>,
    peer: &HostPort,
    options: &ConnectionOptions,
    api: Api,
    encode: &impl Fn(i16, RequestId<'_>) -> Result<Bytes, EncodeError>,
    decode: &impl Fn(i16, &[u8]) -> Result<(u32, T), DecodeError>,
) -> (Option<Connection>, Result<T, SourceError>) {
    if let Some(mut connection) = idle {
        match connection.call(api, encode, decode).await {
            Ok(answer) => return (Some(connection), Ok(answer)),
            Err(SourceError::Broker {
                cause: Cause::Closed { .. } | Cause::Lost { .. }, ..
            }) => {}
            Err(error) => return (None, Err(error)),
        }
    }
    match Connection::open(peer, options).await {
        Ok(mut connection) => {
            let outcome = connection.call(api, encode, decode).await;
            (outcome.is_ok().then_some(connection), outcome)
        }
        Err(error) => (None, Err(error)),
    }
}

async fn ask_leader<Q: Question>(
    idle: Option<Connection>,
    peer: &HostPort,
    options: &ConnectionOptions,
    queries: &[Q],
) -> (Option<Connection>, Result<Vec<Q::Answer>, SourceError>) {
    let timeout_ms = u32::try_from(options.request_timeout.as_millis()).unwrap_or(u32::MAX);
    let encode = |version, id: RequestId<'_>| Q::encode(queries, timeout_ms, version, id);
    ask(idle, peer, options, Q::API, &encode, &Q::decode).await
}

/// A question about one partition that only its leader can answer.
trait Question: Send + Sync + 'static {
    type Answer: Send + 'static;
    const API: Api;

    fn partition(&self) -> &TopicPartition;
    fn encode(
        queries: &[Self],
        timeout_ms: u32,
        version: i16,
        id: RequestId<'_>,
    ) -> Result<Bytes, EncodeError>
    where
        Self: Sized;
    fn decode(version: i16, body: &[u8]) -> Result<(u32, Vec<Self::Answer>), DecodeError>;
}

impl Question for OffsetQuery {
    type Answer = ListedOffset;
    const API: Api = Api::ListOffsets;

    fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    fn encode(
        queries: &[Self],
        timeout_ms: u32,
        version: i16,
        id: RequestId<'_>,
    ) -> Result<Bytes, EncodeError> {
        OffsetsRequest { queries, timeout_ms }.encode(version, id)
    }

    fn decode(version: i16, body: &[u8]) -> Result<(u32, Vec<ListedOffset>), DecodeError> {
        ListedOffset::decode(version, body)
    }
}

impl Question for EpochEndQuery {
    type Answer = EpochEnd;
    const API: Api = Api::OffsetForLeaderEpoch;

    fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    fn encode(
        queries: &[Self],
        _timeout_ms: u32,
        version: i16,
        id: RequestId<'_>,
    ) -> Result<Bytes, EncodeError> {
        EpochEndsRequest { queries }.encode(version, id)
    }

    fn decode(version: i16, body: &[u8]) -> Result<(u32, Vec<EpochEnd>), DecodeError> {
        EpochEnd::decode(version, body)
    }
}

/// Random enough for a back-off.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
