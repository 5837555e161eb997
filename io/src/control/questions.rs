//! The task that asks the source, so that the job never waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use heliostat_core::protocol::{
    Api, BrokerApis, ConfigsRequest, EpochEnd, EpochEndQuery, FETCH_VERSION_NAMES_MAX,
    ListedOffset, Metadata, OffsetAt, OffsetQuery, TopicConfigs,
};
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicPartition};
use tokio::sync::mpsc;

use crate::source_client::{Answers, SourceClient, SourceError};

/// What the job wants to know. Partitions come with the epoch of their leader.
#[derive(Debug)]
pub(super) enum Question {
    /// Brokers and all topics.
    Metadata,
    /// First and last offsets.
    Offsets(Vec<(TopicPartition, LeaderEpoch)>),
    /// Where epochs end.
    EpochEnds(Vec<EpochEndQuery>),
    /// Configs of topics that a copy depends on.
    Configs(Vec<Arc<str>>),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    Metadata(Result<Metadata, SourceError>),
    Offsets {
        earliest: Answers<ListedOffset>,
        latest: Answers<ListedOffset>,
        /// Leaders whose Fetch answers cannot tell of a divergence, so that ends of epochs
        /// have to be asked for.
        silent_on_divergence: BTreeSet<BrokerId>,
    },
    EpochEnds(Answers<EpochEnd>),
    Configs(Result<Vec<TopicConfigs>, SourceError>),
}

/// Questions that may wait.
const QUESTIONS_MAX: usize = 64;

/// The job's end of the task. Dropping it ends the task.
#[derive(Debug)]
pub(super) struct Source {
    questions: mpsc::Sender<Question>,
    answers: mpsc::Receiver<Answer>,
}

impl Source {
    /// Starts the task on the current runtime.
    pub(super) fn start(client: SourceClient) -> Self {
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let (answered, answers) = mpsc::channel(QUESTIONS_MAX);
        tokio::spawn(serve(client, asked, answered));
        Self { questions, answers }
    }

    /// Puts a question, or gives it back while too many wait.
    pub(super) fn ask(&self, question: Question) -> Result<(), Question> {
        self.questions.try_send(question).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// The next answer. Never resolves once the task has ended.
    pub(super) async fn answer(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

async fn serve(
    mut client: SourceClient,
    mut questions: mpsc::Receiver<Question>,
    answers: mpsc::Sender<Answer>,
) {
    while let Some(question) = questions.recv().await {
        let answer = async {
            match question {
                Question::Metadata => Answer::Metadata(client.metadata(None).await),
                Question::Offsets(partitions) => offsets(&mut client, &partitions).await,
                Question::EpochEnds(queries) => Answer::EpochEnds(client.epoch_ends(queries).await),
                Question::Configs(topics) => {
                    let keys = Some(ConfigsRequest::PREFLIGHT_KEYS);
                    Answer::Configs(client.topic_configs(&topics, keys).await)
                }
            }
        };
        let answer = tokio::select! {
            answer = answer => answer,
            // A job that ends does not wait for a source that hangs.
            () = answers.closed() => return,
        };
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

async fn offsets(
    client: &mut SourceClient,
    partitions: &[(TopicPartition, LeaderEpoch)],
) -> Answer {
    let queries = |at| {
        let query = |(partition, epoch): &(TopicPartition, LeaderEpoch)| OffsetQuery {
            partition: partition.clone(),
            current_leader_epoch: *epoch,
            at,
        };
        partitions.iter().map(query).collect()
    };
    let earliest = client.list_offsets(queries(OffsetAt::Earliest)).await;
    let latest = client.list_offsets(queries(OffsetAt::Latest)).await;
    let is_silent = |broker: &BrokerId| client.known_apis(*broker).is_some_and(is_silent);
    let silent_on_divergence = client.brokers().keys().copied().filter(is_silent).collect();
    Answer::Offsets { earliest, latest, silent_on_divergence }
}

/// Fetch tells of a divergence from version 12 on. Before, ends of epochs are asked for
/// where a consumer may.
fn is_silent(apis: BrokerApis) -> bool {
    let fetch = apis.negotiate(Api::Fetch).unwrap_or(FETCH_VERSION_NAMES_MAX);
    fetch < FETCH_VERSION_NAMES_MAX && apis.negotiate(Api::OffsetForLeaderEpoch).is_ok()
}
