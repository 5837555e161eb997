//! Figures of a host's mirrors, for who looks at them all the time.

use heliostat_core::protocol::Api;
use heliostat_core::protocol::mirror::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse,
};

use super::client::AdminClient;
use super::error::{AdminError, Refusal};

/// What [`AdminClient::mirror_figures`] is to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FiguresQuery {
    /// Sums of all mirrors, without their topics.
    Mirrors,
    /// A mirror and the sums of its topics, without their partitions.
    Topics {
        /// The mirror.
        mirror: String,
        /// Only topics whose name, or the state or reason of one of whose partitions, holds this
        /// text, in any case; empty for all.
        contains: String,
        /// Topics in the answer at most: those that do not get on before others, then those that
        /// lack the most.
        rows_max: i32,
    },
    /// A mirror and one of its topics with partitions.
    Partitions {
        /// The mirror.
        mirror: String,
        /// The topic.
        topic: String,
        /// Partitions in the answer at most, as with topics.
        rows_max: i32,
    },
}

impl FiguresQuery {
    fn request(&self) -> DescribeClusterMirrorsRequest {
        let base = DescribeClusterMirrorsRequest {
            include_figures: true,
            ..DescribeClusterMirrorsRequest::default()
        };
        match self.clone() {
            Self::Mirrors => DescribeClusterMirrorsRequest { depth: 0, ..base },
            Self::Topics { mirror, contains, rows_max } => DescribeClusterMirrorsRequest {
                mirror_names: vec![mirror],
                depth: 1,
                contains,
                rows_max,
                ..base
            },
            Self::Partitions { mirror, topic, rows_max } => DescribeClusterMirrorsRequest {
                mirror_names: vec![mirror],
                topic_names: vec![topic],
                rows_max,
                ..base
            },
        }
    }
}

impl AdminClient {
    /// Figures, as the host gives them. One server is asked: only a host, which is a cluster of
    /// its own, has them.
    ///
    /// # Errors
    ///
    /// [`AdminError`]: also if the mirror is refused, and [`AdminError::Incomplete`] if the
    /// server describes mirrors without figures.
    pub async fn mirror_figures(
        &mut self,
        query: &FiguresQuery,
    ) -> Result<DescribeClusterMirrorsResponse, AdminError> {
        let api = Api::DescribeClusterMirrors;
        let answer = self.read(&query.request()).await?;
        if answer.taken_at_ms < 0 {
            let missing = "figures, which only a Heliostat host of this version has".to_owned();
            return Err(AdminError::Incomplete { api, missing });
        }
        let refused = answer
            .mirrors
            .iter()
            .find_map(|mirror| Refusal::new(mirror.error_code, mirror.error_message.as_deref()));
        match refused {
            // One that went while all were looked at is nobody's error.
            Some(refusal) if *query != FiguresQuery::Mirrors => {
                Err(AdminError::Refused { api, refusal })
            }
            _ => Ok(answer),
        }
    }
}
