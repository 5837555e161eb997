//! One mirror at work: the job that follows its source, with shards of its own.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::config::{MirrorLevelConfig, ServerConfig};
use heliostat_core::coordinator::MirrorKey;
use heliostat_core::coordinator::partition::Run;
use heliostat_core::protocol::Metadata;
use heliostat_core::types::{LeaderEpoch, TopicPartition};
use tokio::sync::{mpsc, watch};

use super::run::News;
use crate::control::steering::{Helm, Order, steering};
use crate::control::{
    FleetShare, Job, JobConfig, JobError, JobHandle, ShardFleet, SharedLogDir, spawn_fleet,
};
use crate::source_client::HostPort;

/// Longest time of a mirror's clean stop in which no log is closed.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// Mirrors that share open files and room at least: more may come.
const FLEETS_MIN: usize = 4;

/// What a partition's action is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The source is asked where the common end is.
    LooksUp,
    /// The job cuts the log.
    Aligns,
    /// The job follows.
    Follows,
    /// The job gives it back, for a pause.
    Pauses,
    /// The job gives it back, for a stop.
    Stops,
}

/// The action of one partition that is under way.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) key: MirrorKey,
    pub(super) run: Run,
    pub(super) doing: Doing,
    /// Above the destination's leader epoch, which has to be raised beyond it.
    pub(super) fenced_by: LeaderEpoch,
}

/// What a mirror's job has of its host.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkHost<'a> {
    pub(super) server: &'a ServerConfig,
    pub(super) log_dir: &'a SharedLogDir,
    /// All that there are now.
    pub(super) fleets: usize,
    pub(super) generation: u64,
    pub(super) news: &'a mpsc::UnboundedSender<News>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) config: Rc<MirrorLevelConfig>,
    /// The mirror's configs as they are stored.
    pub(super) stored: BTreeMap<String, String>,
    pub(super) handle: JobHandle,
    orders: mpsc::UnboundedSender<Order>,
    pub(super) fleet: Option<ShardFleet>,
    /// Tells the jobs of one mirror apart, one after another.
    pub(super) generation: u64,
    pub(super) running: BTreeMap<TopicPartition, Running>,
    /// What the source said last.
    pub(super) metadata: Option<Box<Metadata>>,
    /// Where its topics are there.
    pub(super) topics_at: BTreeMap<Arc<str>, usize>,
    /// It is told to end; another one follows if the mirror is still there.
    pub(super) ending: bool,
    /// Dropped with it: whoever asks the source for it asks no more.
    pub(super) gone: watch::Sender<()>,
    /// Another cluster answers at the source's addresses.
    pub(super) other_cluster: Option<String>,
}

impl Link {
    /// Starts the job of a mirror.
    ///
    /// # Errors
    /// [`JobError`] if shards or threads do not start.
    pub(super) fn start(
        mirror: &Arc<str>,
        config: MirrorLevelConfig,
        stored: BTreeMap<String, String>,
        host: LinkHost<'_>,
    ) -> Result<Self, JobError> {
        let LinkHost { server, log_dir, fleets, generation, news } = host;
        let servers = config.source.bootstrap_servers.iter();
        let bootstrap: Vec<_> =
            servers.filter_map(|server| HostPort::from_str(server).ok()).collect();
        let node = server.node_id;
        let mut mirror_config = config.source.clone();
        mirror_config.client_id = format!("mirror-src-admin-{mirror}-{node}");
        let job_config = JobConfig {
            log_dir: server.log_dir.clone(),
            mirror: mirror_config,
            bootstrap,
            selector: config.topics.clone(),
            shards: usize::from(server.shards.unwrap_or(1)),
            follow: true,
            stop_within: STOP_WITHIN,
        };
        let (helm, steering) = steering();
        let mut fleet = None;
        let share = FleetShare {
            of: fleets.max(FLEETS_MIN),
            client_id: &|shard| format!("broker-{node}-fetcher-{shard}-mirror-{mirror}"),
        };
        let spawn = |config: &JobConfig| {
            let (threads, ends) =
                spawn_fleet(&config.log_dir, &config.mirror, config.shards, None, share)?;
            fleet = Some(threads);
            Ok(ends)
        };
        let (job, handle) = Job::steered(job_config, Rc::clone(log_dir), steering, spawn)?;
        let Helm { orders, mut happenings } = helm;
        let (name, sender) = (Arc::clone(mirror), news.clone());
        tokio::task::spawn_local(async move {
            while let Some(happening) = happenings.recv().await {
                let news = News::Happened { mirror: Arc::clone(&name), generation, happening };
                if sender.send(news).is_err() {
                    return;
                }
            }
        });
        let (name, sender) = (Arc::clone(mirror), news.clone());
        tokio::task::spawn_local(async move {
            let outcome = job.run().await;
            // A host that has gone waits for nobody.
            let _ = sender.send(News::JobEnded { mirror: name, generation, outcome });
        });
        Ok(Self {
            config: Rc::new(config),
            stored,
            handle,
            orders,
            fleet,
            generation,
            running: BTreeMap::new(),
            metadata: None,
            topics_at: BTreeMap::new(),
            ending: false,
            gone: watch::Sender::new(()),
            other_cluster: None,
        })
    }

    /// An order for the job. One that has ended says so by itself.
    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Ends the job: cleanly if there is time.
    pub(super) fn end(&mut self) {
        if !self.ending {
            self.ending = true;
            self.handle.cancel();
        }
    }
}
