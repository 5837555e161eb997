//! The messages.

use super::AdminRequest;
use crate::protocol::Api;
use crate::protocol::DecodeError;
use crate::protocol::mirror::field::{Field, read_nullable_array, structs};
use crate::protocol::mirror::json::Json;
use crate::protocol::mirror::{CreateTopicsRequest, CreateTopicsResponse};
use crate::protocol::wire::Reader;

macro_rules! apis {
    ($($api:ident $version:literal: $request:ident -> $response:ident,)*) => {
        $(impl AdminRequest for $request {
            const API: Api = Api::$api;
            const VERSION: i16 = $version;
            type Response = $response;
        })*
    };
}

apis! {
    ApiVersions 3: FeaturesRequest -> FeaturesResponse,
    DescribeConfigs 4: DescribeConfigsRequest -> DescribeConfigsResponse,
    CreateTopics 8: CreateTopicsRequest -> CreateTopicsResponse,
    FindCoordinator 4: FindCoordinatorRequest -> FindCoordinatorResponse,
    IncrementalAlterConfigs 1: AlterConfigsRequest -> AlterConfigsResponse,
    UpdateFeatures 1: UpdateFeaturesRequest -> UpdateFeaturesResponse,
    DescribeCluster 0: DescribeClusterRequest -> DescribeClusterResponse,
}

/// Names of configs; `None` for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigNames(pub Option<Vec<String>>);

impl Field for ConfigNames {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        read_nullable_array(reader, name).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Some(names) => names.write(out),
            None => out.push(0),
        }
    }
}

impl Json for ConfigNames {
    fn json(&self, out: &mut String) {
        self.0.json(out);
    }
}

structs! {
    /// Asks what the broker speaks, and at which levels its features are.
    struct FeaturesRequest {
        /// Who asks.
        client_software_name: String = "ClientSoftwareName",
        /// Its version.
        client_software_version: String = "ClientSoftwareVersion",
    }

    /// What the broker speaks, and at which levels its features are.
    struct FeaturesResponse {
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// APIs.
        api_keys: Vec<OfferedApi> = "ApiKeys",
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        @ 0
        /// Levels that the broker could have.
        supported_features: Vec<SupportedFeature> = "SupportedFeatures" or Vec::new(),
        @ 1
        /// Counts the changes of levels; -1 for unknown.
        finalized_features_epoch: i64 = "FinalizedFeaturesEpoch" or -1,
        @ 2
        /// Levels that the cluster has.
        finalized_features: Vec<FinalizedFeature> = "FinalizedFeatures" or Vec::new(),
    }

    /// Versions of an API.
    struct OfferedApi {
        /// Its key.
        api_key: i16 = "ApiKey",
        /// Oldest version.
        min_version: i16 = "MinVersion",
        /// Newest version.
        max_version: i16 = "MaxVersion",
    }

    /// Levels of a feature that a broker could have.
    struct SupportedFeature {
        /// Name of the feature.
        name: String = "Name",
        /// Lowest level.
        min_version: i16 = "MinVersion",
        /// Highest level.
        max_version: i16 = "MaxVersion",
    }

    /// Level of a feature in a cluster.
    struct FinalizedFeature {
        /// Name of the feature.
        name: String = "Name",
        /// Highest level.
        max_version_level: i16 = "MaxVersionLevel",
        /// Lowest level.
        min_version_level: i16 = "MinVersionLevel",
    }

    /// Asks for configs.
    struct DescribeConfigsRequest {
        /// Of what.
        resources: Vec<DescribeConfigsResource> = "Resources",
        /// Whether to say where a value could come from.
        include_synonyms: bool = "IncludeSynonyms",
        /// Whether to say what a config means.
        include_documentation: bool = "IncludeDocumentation",
    }

    /// Something that has configs.
    struct DescribeConfigsResource {
        /// 2 for a topic, 4 for a broker, 64 for a mirror.
        resource_type: i8 = "ResourceType",
        /// Its name.
        resource_name: String = "ResourceName",
        /// Which configs.
        configuration_keys: ConfigNames = "ConfigurationKeys",
    }

    /// Configs.
    struct DescribeConfigsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// As asked.
        results: Vec<DescribeConfigsResult> = "Results",
    }

    /// Configs of one resource.
    struct DescribeConfigsResult {
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// As asked.
        resource_type: i8 = "ResourceType",
        /// As asked.
        resource_name: String = "ResourceName",
        /// In any order.
        configs: Vec<DescribedConfig> = "Configs",
    }

    /// One config.
    struct DescribedConfig {
        /// The key.
        name: String = "Name",
        /// The value; null for none, and for a secret.
        value: Option<String> = "Value",
        /// Whether nobody can alter it.
        read_only: bool = "ReadOnly",
        /// Where the value comes from.
        config_source: i8 = "ConfigSource" or -1,
        /// Whether the value is a secret.
        is_sensitive: bool = "IsSensitive",
        /// Where it could come from, the first counts.
        synonyms: Vec<ConfigSynonym> = "Synonyms",
        /// What values it takes; 0 for unknown.
        config_type: i8 = "ConfigType",
        /// What it means.
        documentation: Option<String> = "Documentation",
    }

    /// Where a value could come from.
    struct ConfigSynonym {
        /// The key there.
        name: String = "Name",
        /// The value there; null for none, and for a secret.
        value: Option<String> = "Value",
        /// Which place.
        source: i8 = "Source",
    }

    /// Asks who coordinates.
    struct FindCoordinatorRequest {
        /// 3 for mirrors.
        key_type: i8 = "KeyType",
        /// What is coordinated.
        coordinator_keys: Vec<String> = "CoordinatorKeys",
    }

    /// Who coordinates.
    struct FindCoordinatorResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// As asked.
        coordinators: Vec<FoundCoordinator> = "Coordinators",
    }

    /// Who coordinates one thing.
    struct FoundCoordinator {
        /// The thing.
        key: String = "Key",
        /// Node ID; -1 for none.
        node_id: i32 = "NodeId",
        /// Its host.
        host: String = "Host",
        /// Its TCP port.
        port: i32 = "Port",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// Why nobody.
        error_message: Option<String> = "ErrorMessage",
    }

    /// Wants configs altered.
    struct AlterConfigsRequest {
        /// Of what.
        resources: Vec<AlterConfigsResource> = "Resources",
        /// Whether only to check.
        validate_only: bool = "ValidateOnly",
    }

    /// Something that has configs.
    struct AlterConfigsResource {
        /// 2 for a topic, 4 for a broker, 64 for a mirror.
        resource_type: i8 = "ResourceType",
        /// Its name.
        resource_name: String = "ResourceName",
        /// What to alter.
        configs: Vec<AlteredConfig> = "Configs",
    }

    /// A config to alter.
    struct AlteredConfig {
        /// The key.
        name: String = "Name",
        /// 0 sets, 1 deletes, 2 appends to a list, 3 takes from a list.
        config_operation: i8 = "ConfigOperation",
        /// The value.
        value: Option<String> = "Value",
    }

    /// What came of it.
    struct AlterConfigsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// As asked.
        responses: Vec<AlteredResource> = "Responses",
    }

    /// What came of one resource; all of its changes are made, or none.
    struct AlteredResource {
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// As asked.
        resource_type: i8 = "ResourceType",
        /// As asked.
        resource_name: String = "ResourceName",
    }

    /// Wants features at other levels.
    struct UpdateFeaturesRequest {
        /// Longest time that it may take.
        timeout_ms: i32 = "TimeoutMs" or 60_000,
        /// Which.
        feature_updates: Vec<FeatureUpdate> = "FeatureUpdates",
        /// Whether only to check.
        validate_only: bool = "ValidateOnly",
    }

    /// A feature and its new level.
    struct FeatureUpdate {
        /// Name of the feature.
        feature: String = "Feature",
        /// The new level; 0 takes it away.
        max_version_level: i16 = "MaxVersionLevel",
        /// 1 for upgrades only, 2 for safe downgrades, 3 for any.
        upgrade_type: i8 = "UpgradeType" or 1,
    }

    /// What came of it.
    struct UpdateFeaturesResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// As asked.
        results: Vec<UpdatedFeature> = "Results",
    }

    /// What came of one feature.
    struct UpdatedFeature {
        /// Name of the feature.
        feature: String = "Feature",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
    }

    /// Asks who makes up the cluster.
    struct DescribeClusterRequest {
        /// Whether to say what the client may do.
        include_cluster_authorized_operations: bool = "IncludeClusterAuthorizedOperations",
    }

    /// Who makes up the cluster.
    struct DescribeClusterResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// Identity of the cluster.
        cluster_id: String = "ClusterId",
        /// Node ID of the controller; -1 for unknown.
        controller_id: i32 = "ControllerId" or -1,
        /// In any order.
        brokers: Vec<ClusterBroker> = "Brokers",
        /// Bits of what the client may do; the least number for not asked.
        cluster_authorized_operations: i32 = "ClusterAuthorizedOperations" or i32::MIN,
    }

    /// One broker.
    struct ClusterBroker {
        /// Node ID.
        broker_id: i32 = "BrokerId",
        /// Its host.
        host: String = "Host",
        /// Its TCP port.
        port: i32 = "Port",
        /// Its rack.
        rack: Option<String> = "Rack",
    }
}
