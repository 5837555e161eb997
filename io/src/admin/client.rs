//! The client: whom it asks, how often, how long; and what it asks of the cluster.

use std::sync::Arc;
use std::time::Duration;

use heliostat_core::config::AdminConfig;
use heliostat_core::protocol::admin::{
    AdminRequest, DescribeClusterRequest, FeatureUpdate, FeaturesRequest, FindCoordinatorRequest,
    UpdateFeaturesRequest,
};
use heliostat_core::protocol::{Api, Metadata, MetadataRequest};
use heliostat_core::types::BrokerId;
use tokio::time::{Instant, sleep, timeout_at};

use super::answer::Answer;
use super::error::{AdminError, Refusal};
use crate::source_client::connection::{Connection, ConnectionOptions};
use crate::source_client::{Cause, HostPort, SocketOptions, SourceError};

/// Largest answer that is taken, in bytes.
const RESPONSE_BYTES_MAX: u32 = 64 << 20;
/// Wait before the first new attempt after an error that passes; doubles from there.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Longest such wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);
/// Type of what a coordinator coordinates: mirrors.
const COORDINATES_MIRRORS: i8 = 3;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its identity.
    pub cluster_id: String,
    /// Node ID of the controller; -1 for unknown.
    pub controller: BrokerId,
    /// Node IDs and addresses; brokers that advertise no TCP port are left out.
    pub brokers: Vec<(BrokerId, HostPort)>,
}

/// Who coordinates a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator {
    /// Node ID.
    pub node: BrokerId,
    /// Host, as it is advertised.
    pub host: String,
    /// TCP port, as it is advertised.
    pub port: i32,
}

/// Levels of a feature, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

/// Features of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Counts the changes of levels; -1 for unknown.
    pub epoch: i64,
    /// Levels that the server could have.
    pub supported: Vec<Feature>,
    /// Levels that the cluster has.
    pub finalized: Vec<Feature>,
}

/// Admin client. See the module's text.
#[derive(Debug)]
pub struct AdminClient {
    bootstrap: Vec<HostPort>,
    options: ConnectionOptions,
    api_timeout: Duration,
    /// The connection that answered last.
    open: Option<(HostPort, Connection)>,
}

impl AdminClient {
    /// A client that has not connected yet. Servers of `bootstrap` are tried in their order.
    pub fn new(bootstrap: Vec<HostPort>, config: AdminConfig) -> Self {
        let options = ConnectionOptions {
            client_id: config.client_id,
            socket: SocketOptions {
                connect_timeout: config.connection_setup_timeout,
                receive_buffer_bytes: None,
                send_buffer_bytes: None,
            },
            request_timeout: config.request_timeout,
            response_bytes_max: RESPONSE_BYTES_MAX,
        };
        Self { bootstrap, options, api_timeout: config.api_timeout, open: None }
    }

    /// Brokers, and the topics of these names (`None`: all; empty: none). Creates no topic.
    ///
    /// # Errors
    ///
    /// [`AdminError`]; errors of single topics are in the answer.
    pub async fn metadata(&mut self, topics: Option<&[Arc<str>]>) -> Result<Metadata, AdminError> {
        let (api, after) = (Api::Metadata, self.api_timeout);
        let asked = async {
            let mut attempts = Vec::new();
            for peer in self.peers() {
                let outcome = async {
                    let mut connection = self.connect(&peer).await?;
                    let encode = |version, id: heliostat_core::protocol::RequestId<'_>| {
                        MetadataRequest { topics }.encode(version, id)
                    };
                    let decode = |version, body: &[u8]| {
                        Metadata::decode(version, body).map(|it| (it.throttle_ms, it))
                    };
                    let answer = connection.call(api, encode, decode).await?;
                    self.open = Some((peer.clone(), connection));
                    Ok(answer)
                };
                match outcome.await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => attempts.push(error),
                }
            }
            Err(AdminError::Unanswered { api, attempts })
        };
        let metadata = match timeout_at(Instant::now() + after, asked).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(AdminError::Timeout { api, after, last: None }),
        };
        match Refusal::new(metadata.error.0, None) {
            None => Ok(metadata),
            Some(refusal) => Err(AdminError::Refused { api, refusal }),
        }
    }

    /// Identity and brokers of the cluster.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn describe_cluster(&mut self) -> Result<Cluster, AdminError> {
        let answer = self.read(&DescribeClusterRequest::default()).await?;
        let broker = |it: &heliostat_core::protocol::admin::ClusterBroker| {
            let port = u16::try_from(it.port).ok()?;
            Some((BrokerId(it.broker_id), HostPort { host: it.host.as_str().into(), port }))
        };
        Ok(Cluster {
            brokers: answer.brokers.iter().filter_map(broker).collect(),
            cluster_id: answer.cluster_id,
            controller: BrokerId(answer.controller_id),
        })
    }

    /// Who coordinates the mirror.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn find_coordinator(&mut self, mirror: &str) -> Result<Coordinator, AdminError> {
        let coordinator_keys = vec![mirror.to_owned()];
        let request = FindCoordinatorRequest { key_type: COORDINATES_MIRRORS, coordinator_keys };
        let answer = self.read(&request).await?;
        let found = answer.coordinators.into_iter().find(|it| it.key == mirror);
        let missing =
            || AdminError::Incomplete { api: Api::FindCoordinator, missing: mirror.to_owned() };
        let found = found.ok_or_else(missing)?;
        Ok(Coordinator { node: BrokerId(found.node_id), host: found.host, port: found.port })
    }

    /// Features, supported and finalized.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn features(&mut self) -> Result<Features, AdminError> {
        let request = FeaturesRequest {
            client_software_name: "heliostat".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let answer = self.read(&request).await?;
        let supported = answer.supported_features.into_iter();
        let finalized = answer.finalized_features.into_iter();
        Ok(Features {
            epoch: answer.finalized_features_epoch,
            supported: supported
                .map(|it| Feature { name: it.name, min: it.min_version, max: it.max_version })
                .collect(),
            finalized: finalized
                .map(|it| Feature {
                    name: it.name,
                    min: it.min_version_level,
                    max: it.max_version_level,
                })
                .collect(),
        })
    }

    /// Raises a feature to `level`. With `validate_only` it is only checked.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn upgrade_feature(
        &mut self,
        feature: &str,
        level: i16,
        validate_only: bool,
    ) -> Result<(), AdminError> {
        let update = FeatureUpdate {
            feature: feature.to_owned(),
            max_version_level: level,
            ..FeatureUpdate::default()
        };
        let timeout_ms = i32::try_from(self.api_timeout.as_millis()).unwrap_or(i32::MAX);
        let request =
            UpdateFeaturesRequest { timeout_ms, feature_updates: vec![update], validate_only };
        self.change(&request).await.map(drop)
    }

    /// Asks any server; another one if it fails.
    pub(crate) async fn read<R>(&mut self, request: &R) -> Result<R::Response, AdminError>
    where
        R: AdminRequest<Response: Answer>,
    {
        self.repeat(request, None, false).await
    }

    /// Asks this server.
    pub(crate) async fn read_of<R>(
        &mut self,
        peer: &HostPort,
        request: &R,
    ) -> Result<R::Response, AdminError>
    where
        R: AdminRequest<Response: Answer>,
    {
        self.repeat(request, Some(peer), false).await
    }

    /// Asks the first server that there is a connection to, once.
    pub(super) async fn change<R>(&mut self, request: &R) -> Result<R::Response, AdminError>
    where
        R: AdminRequest<Response: Answer>,
    {
        self.repeat(request, None, true).await
    }

    /// As [`Self::change`], of this server.
    pub(super) async fn change_of<R>(
        &mut self,
        peer: Option<&HostPort>,
        request: &R,
    ) -> Result<R::Response, AdminError>
    where
        R: AdminRequest<Response: Answer>,
    {
        self.repeat(request, peer, true).await
    }

    /// Asks until the answer is not one that passes: such a refusal has changed nothing.
    async fn repeat<R>(
        &mut self,
        request: &R,
        only: Option<&HostPort>,
        is_change: bool,
    ) -> Result<R::Response, AdminError>
    where
        R: AdminRequest<Response: Answer>,
    {
        let (api, after) = (R::API, self.api_timeout);
        let (deadline, mut wait, mut last) = (Instant::now() + after, RETRY_AFTER, None);
        loop {
            let answer = match timeout_at(deadline, self.ask(request, only, is_change)).await {
                Ok(outcome) => outcome?,
                Err(_) => return Err(AdminError::Timeout { api, after, last }),
            };
            match answer.refusal() {
                None => return Ok(answer),
                Some(refusal) if refusal.is_passing() => {
                    if Instant::now() + wait >= deadline {
                        return Err(AdminError::Timeout { api, after, last: Some(refusal) });
                    }
                    last = Some(refusal);
                    sleep(wait).await;
                    wait = (wait * 2).min(RETRY_AFTER_MAX);
                }
                Some(refusal) => return Err(AdminError::Refused { api, refusal }),
            }
        }
    }

    async fn ask<R: AdminRequest>(
        &mut self,
        request: &R,
        only: Option<&HostPort>,
        is_change: bool,
    ) -> Result<R::Response, AdminError> {
        let api = R::API;
        let peers = only.map_or_else(|| self.peers(), |peer| vec![peer.clone()]);
        let mut attempts = Vec::new();
        for peer in peers {
            // One that has been idle may be closed, and then nobody could tell whether the
            // change was made.
            if is_change {
                self.open = None;
            }
            let mut connection = match self.connect(&peer).await {
                Ok(connection) => connection,
                Err(error) => {
                    attempts.push(error);
                    continue;
                }
            };
            match connection.ask(request).await {
                Ok(answer) => {
                    self.open = Some((peer, connection));
                    return Ok(answer);
                }
                Err(SourceError::Broker { cause: Cause::Version { .. }, .. }) => {
                    return Err(AdminError::Unsupported { api, peer });
                }
                Err(error) if is_change => return Err(AdminError::Uncertain { api, error }),
                Err(error) => attempts.push(error),
            }
        }
        Err(AdminError::Unanswered { api, attempts })
    }

    /// Servers to ask: the one that answered last, then those that the operator named.
    fn peers(&self) -> Vec<HostPort> {
        let open = self.open.iter().map(|(peer, _)| peer);
        let mut peers: Vec<HostPort> = open.cloned().collect();
        // The first of them once more, since its connection may have been closed meanwhile.
        peers.extend(self.bootstrap.iter().cloned());
        peers
    }

    /// The connection that is there, or a new one.
    async fn connect(&mut self, peer: &HostPort) -> Result<Connection, SourceError> {
        match self.open.take() {
            Some((open, connection)) if open == *peer => Ok(connection),
            _ => Connection::open(peer, &self.options).await,
        }
    }
}
