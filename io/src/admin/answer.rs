//! Where answers carry the error of the whole request.

use heliostat_core::protocol::admin::{
    AlterConfigsResponse, DescribeClusterResponse, DescribeConfigsResponse, FeaturesResponse,
    FindCoordinatorResponse, UpdateFeaturesResponse,
};
use heliostat_core::protocol::mirror::{
    ClusterMirrorResponse, CreateTopicsResponse, DescribeClusterMirrorsResponse,
    ListClusterMirrorsResponse, MirrorTopicsResponse,
};

use super::error::Refusal;

/// An answer that may refuse everything.
pub(crate) trait Answer {
    /// Why everything is refused; `None` if the parts have to be looked at.
    fn refusal(&self) -> Option<Refusal>;
}

macro_rules! at_the_top {
    ($($response:ident)*) => {$(
        impl Answer for $response {
            fn refusal(&self) -> Option<Refusal> {
                Refusal::new(self.error_code, self.error_message.as_deref())
            }
        }
    )*};
}

at_the_top! {
    ClusterMirrorResponse
    DescribeClusterMirrorsResponse
    DescribeClusterResponse
    ListClusterMirrorsResponse
}

impl Answer for MirrorTopicsResponse {
    /// The KIP repeats the first topic's error at the top, where it says less.
    fn refusal(&self) -> Option<Refusal> {
        if self.topics.iter().any(|topic| topic.error_code != 0) {
            return None;
        }
        Refusal::new(self.error_code, self.error_message.as_deref())
    }
}

impl Answer for CreateTopicsResponse {
    /// Each topic has its own error.
    fn refusal(&self) -> Option<Refusal> {
        None
    }
}

impl Answer for UpdateFeaturesResponse {
    fn refusal(&self) -> Option<Refusal> {
        let at_the_top = Refusal::new(self.error_code, self.error_message.as_deref());
        let of_a_feature = || {
            let mut results = self.results.iter();
            results.find_map(|it| Refusal::new(it.error_code, it.error_message.as_deref()))
        };
        at_the_top.or_else(of_a_feature)
    }
}

impl Answer for FeaturesResponse {
    fn refusal(&self) -> Option<Refusal> {
        Refusal::new(self.error_code, None)
    }
}

// One resource is asked about at a time, so that its error is the whole request's.

impl Answer for DescribeConfigsResponse {
    fn refusal(&self) -> Option<Refusal> {
        let mut results = self.results.iter();
        results.find_map(|it| Refusal::new(it.error_code, it.error_message.as_deref()))
    }
}

impl Answer for AlterConfigsResponse {
    fn refusal(&self) -> Option<Refusal> {
        let mut responses = self.responses.iter();
        responses.find_map(|it| Refusal::new(it.error_code, it.error_message.as_deref()))
    }
}

impl Answer for FindCoordinatorResponse {
    fn refusal(&self) -> Option<Refusal> {
        let mut coordinators = self.coordinators.iter();
        coordinators.find_map(|it| Refusal::new(it.error_code, it.error_message.as_deref()))
    }
}
