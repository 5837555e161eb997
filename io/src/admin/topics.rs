//! New topics.

use heliostat_core::protocol::Api;
use heliostat_core::protocol::mirror::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, MirrorInfo,
};
use heliostat_core::types::TopicId;

use super::client::AdminClient;
use super::error::{AdminError, Refusal};

/// A topic to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Its partitions; `None` for the server's default.
    pub partitions: Option<i32>,
    /// Its own configs.
    pub configs: Vec<(String, String)>,
    /// ID that it has at the source of a mirror; `None` for a new one.
    pub mirror_id: Option<TopicId>,
}

/// What came of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its name.
    pub name: String,
    /// Why it was refused; `None` if it was made, or would be.
    pub refusal: Option<Refusal>,
    /// Its ID, if it was made.
    pub id: Option<TopicId>,
    /// Its partitions, if it was made.
    pub partitions: Option<i32>,
}

impl AdminClient {
    /// Makes topics, by CreateTopics 8, which lets a topic have the ID of its source. With
    /// `validate_only` they are only checked.
    ///
    /// # Errors
    ///
    /// [`AdminError`] if nothing was done; refusals of single topics are in the answer.
    pub async fn create_topics(
        &mut self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Vec<CreatedTopic>, AdminError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(creatable).collect(),
            validate_only,
            ..CreateTopicsRequest::default()
        };
        let answer = self.change(&request).await?;
        let created = answer.topics.into_iter().map(|it| CreatedTopic {
            refusal: Refusal::new(it.error_code, it.error_message.as_deref()),
            name: it.name,
            id: it.topic_id.known(),
            partitions: (it.num_partitions >= 0).then_some(it.num_partitions),
        });
        let created: Vec<_> = created.collect();
        match topics.iter().find(|topic| created.iter().all(|it| it.name != topic.name)) {
            Some(topic) => {
                Err(AdminError::Incomplete { api: Api::CreateTopics, missing: topic.name.clone() })
            }
            None => Ok(created),
        }
    }
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let config = |(name, value): &(String, String)| CreatableTopicConfig {
        name: name.clone(),
        value: Some(value.clone()),
    };
    CreatableTopic {
        name: topic.name.clone(),
        num_partitions: topic.partitions.unwrap_or(-1),
        configs: topic.configs.iter().map(config).collect(),
        mirror_info: topic.mirror_id.map(|topic_id| MirrorInfo { topic_id }),
        ..CreatableTopic::default()
    }
}
