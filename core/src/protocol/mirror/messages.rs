//! The messages. See the module above for what is tagged.

use super::MirrorRequest;
use super::field::structs;
use crate::protocol::Api;
use crate::types::TopicId;

macro_rules! apis {
    ($($key:literal $api:ident: $request:ident -> $response:ident,)*) => {
        $(impl MirrorRequest for $request {
            const API: Api = Api::$api;
            const API_KEY: i16 = $key;
            type Response = $response;
        })*

        /// The keys, in order.
        pub const MIRROR_API_KEYS: &[i16] = &[$($key),*];
    };
}

apis! {
    94 CreateClusterMirror: CreateClusterMirrorRequest -> ClusterMirrorResponse,
    95 StartMirrorTopics: StartMirrorTopicsRequest -> MirrorTopicsResponse,
    96 StopMirrorTopics: StopMirrorTopicsRequest -> MirrorTopicsResponse,
    98 ListClusterMirrors: ListClusterMirrorsRequest -> ListClusterMirrorsResponse,
    99 DescribeClusterMirrors: DescribeClusterMirrorsRequest -> DescribeClusterMirrorsResponse,
    100 ReadMirrorStates: ReadMirrorStatesRequest -> ReadMirrorStatesResponse,
    101 WriteMirrorStates: WriteMirrorStatesRequest -> WriteMirrorStatesResponse,
    102 PauseMirrorTopics: PauseMirrorTopicsRequest -> MirrorTopicsResponse,
    103 ResumeMirrorTopics: ResumeMirrorTopicsRequest -> MirrorTopicsResponse,
    104 DeleteClusterMirror: DeleteClusterMirrorRequest -> ClusterMirrorResponse,
    105 BumpLeaderEpochs: BumpLeaderEpochsRequest -> BumpLeaderEpochsResponse,
    107 RecoverMirrorTopics: RecoverMirrorTopicsRequest -> MirrorTopicsResponse,
}

structs! {
    /// Makes a mirror.
    struct CreateClusterMirrorRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Its configs; secrets are kept by the host.
        config: Vec<ClusterMirrorConfig> = "Config",
    }

    /// One config of a mirror.
    struct ClusterMirrorConfig {
        /// The key.
        name: String = "Name",
        /// The value; null for the default.
        value: Option<String> = "Value",
    }

    /// What came of a request about a whole mirror.
    struct ClusterMirrorResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
    }

    /// Wants topics mirrored. Without topics the host matches the patterns at the source.
    struct StartMirrorTopicsRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Topics by name.
        topics: Vec<StartMirrorTopic> = "Topics",
        /// Patterns of topics to mirror, now and later.
        include_patterns: Vec<String> = "IncludePatterns",
        /// Patterns of topics to leave out; they win.
        exclude_patterns: Vec<String> = "ExcludePatterns",
        @ 1000
        /// Whether only to say what would happen.
        validate_only: bool = "ValidateOnly" or false,
    }

    /// A topic to mirror.
    struct StartMirrorTopic {
        /// Its ID; all zeros for unknown.
        topic_id: TopicId = "TopicId",
        /// Name of the topic.
        topic_name: String = "TopicName",
        /// Its partitions at the source; 0 or less for unknown.
        num_partitions: i32 = "NumPartitions",
    }

    /// Wants topics writable here: failover.
    struct StopMirrorTopicsRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Topics by name.
        topics: Vec<MirrorTopic> = "Topics",
        /// Patterns of topics to stop, and to leave out from now on.
        patterns: Vec<String> = "Patterns",
        @ 1000
        /// Whether only to say what would happen.
        validate_only: bool = "ValidateOnly" or false,
    }

    /// Wants topics left as they are, and still not writable.
    struct PauseMirrorTopicsRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Topics by name.
        topics: Vec<MirrorTopic> = "Topics",
    }

    /// Wants paused topics mirrored again.
    struct ResumeMirrorTopicsRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Topics by name.
        topics: Vec<MirrorTopic> = "Topics",
    }

    /// A topic of a mirror.
    struct MirrorTopic {
        /// Its ID; all zeros for unknown.
        topic_id: TopicId = "TopicId",
        /// Name of the topic.
        topic_name: String = "TopicName",
    }

    /// Wants failed partitions tried again, with all their attempts.
    struct RecoverMirrorTopicsRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Topics by name.
        topics: Vec<RecoverMirrorTopic> = "Topics",
    }

    /// A topic of a mirror, by name alone.
    struct RecoverMirrorTopic {
        /// Name of the topic.
        topic_name: String = "TopicName",
    }

    /// What came of a request about topics.
    struct MirrorTopicsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// One entry for each topic, those that patterns brought included.
        topics: Vec<MirrorTopicResult> = "Topics",
    }

    /// What came of a request about one topic.
    struct MirrorTopicResult {
        /// Name of the topic.
        name: String = "Name",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        @ 1000
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage" or None,
        @ 1001
        /// Its partitions; -1 for unknown.
        num_partitions: i32 = "NumPartitions" or -1,
        @ 1002
        /// Records of the source that a stop now would leave out, of all partitions; -1 for
        /// unknown.
        lag: i64 = "Lag" or -1,
        @ 1003
        /// Name of the state of its partitions, the least advanced of them; empty for unknown.
        state: String = "State" or String::new(),
    }

    /// Removes a mirror whose topics are all stopped.
    struct DeleteClusterMirrorRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        @ 1000
        /// Whether only to say what would happen.
        validate_only: bool = "ValidateOnly" or false,
    }

    /// Asks for all mirrors.
    struct ListClusterMirrorsRequest {
        @ 1000
        /// Whether their topics are named.
        include_topic_names: bool = "IncludeTopicNames" or false,
    }

    /// All mirrors.
    struct ListClusterMirrorsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// In the order of their names.
        mirrors: Vec<ListedClusterMirror> = "Mirrors",
    }

    /// One mirror.
    struct ListedClusterMirror {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// `bootstrap.servers` of the source; empty for unset.
        source_bootstrap: String = "SourceBootstrap",
        /// Cluster ID of the source; empty for unknown.
        source_cluster_id: String = "SourceClusterId",
        /// Topics that are wanted mirrored.
        topic_count: i32 = "TopicCount",
        @ 1000
        /// Topics that are not stopped, if asked for.
        topic_names: Vec<String> = "TopicNames" or Vec::new(),
    }

    /// Asks for mirrors with their partitions.
    struct DescribeClusterMirrorsRequest {
        /// Which; empty for all.
        mirror_names: Vec<String> = "MirrorNames",
        /// Whether to say what the client may do.
        include_authorized_operations: bool = "IncludeAuthorizedOperations",
        @ 1000
        /// Cluster ID of who asks, before a failback; null for everybody else.
        cluster_id: Option<String> = "ClusterId" or None,
        @ 1001
        /// Partitions whose last mirrored position is wanted.
        last_mirror_epoch_lookups: Vec<EpochLookup> = "LastMirrorEpochLookups" or Vec::new(),
        @ 1002
        /// Whether figures are wanted: of mirrors, and of what is listed in them.
        include_figures: bool = "IncludeFigures" or false,
        @ 1003
        /// What is listed of a mirror: 0 nothing, 1 topics without partitions, 2 both.
        depth: i8 = "Depth" or 2,
        @ 1004
        /// Topics that are listed, by name; empty for all.
        topic_names: Vec<String> = "TopicNames" or Vec::new(),
        @ 1005
        /// Only topics are listed whose name, or the state or reason of one of whose partitions,
        /// holds this text, in any case; empty for all.
        contains: String = "Contains" or String::new(),
        @ 1006
        /// Topics of a mirror, and partitions of a topic, that are listed at most: those that do
        /// not get on before others, then those that lack the most records. -1 for no limit.
        rows_max: i32 = "RowsMax" or -1,
    }

    /// Partitions of a topic to be looked up.
    struct EpochLookup {
        /// The topic.
        topic_id: TopicId = "TopicId",
        /// Their indexes.
        partitions: Vec<i32> = "Partitions",
    }

    /// Mirrors with their partitions.
    struct DescribeClusterMirrorsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// In the order of their names.
        mirrors: Vec<DescribedClusterMirror> = "Mirrors",
        @ 1000
        /// What was looked up.
        lookup_results: Vec<EpochLookupResult> = "LookupResults" or Vec::new(),
        @ 1001
        /// Milliseconds since the start of the host at which the figures of partitions and topics
        /// were taken; -1 for none.
        taken_at_ms: i64 = "TakenAtMs" or -1,
    }

    /// One mirror.
    struct DescribedClusterMirror {
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Bits of what the client may do; the least number for not asked.
        authorized_operations: i32 = "AuthorizedOperations" or i32::MIN,
        /// In the order of their names.
        topics: Vec<DescribedMirrorTopic> = "Topics",
        @ 1000
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage" or None,
        @ 1001
        /// `bootstrap.servers` of the source; empty for unknown.
        source_bootstrap: String = "SourceBootstrap" or String::new(),
        @ 1002
        /// Cluster ID of the source; empty for unknown.
        source_cluster_id: String = "SourceClusterId" or String::new(),
        @ 1003
        /// Topics of the mirror; -1 unless figures are asked for.
        topic_count: i32 = "TopicCount" or -1,
        @ 1004
        /// Topics that would be listed and are left out by the limit.
        topics_left_out: i32 = "TopicsLeftOut" or 0,
        @ 1005
        /// Sums over its partitions, if asked for.
        figures: MirrorFigures = "Figures" or MirrorFigures::default(),
        @ 1006
        /// Where the time of its connections and shards went, if asked for.
        time: MirrorTime = "Time" or MirrorTime::default(),
    }

    /// Sums over partitions.
    struct MirrorFigures {
        /// Partitions.
        partition_count: i32 = "PartitionCount" or 0,
        /// How many are in which state; states of none are left out.
        states: Vec<MirrorStateCount> = "States",
        /// Partitions that have failed, or that do not get on.
        failing: i32 = "Failing" or 0,
        /// Failed ones that wait for an operator.
        given_up: i32 = "GivenUp" or 0,
        /// Failures since the last success, of all.
        retry_attempts: i64 = "RetryAttempts" or 0,
        /// Records of the source that are missing; -1 for unknown.
        lag: i64 = "Lag" or -1,
        /// The same in bytes, an estimate; -1 for unknown.
        lag_bytes: i64 = "LagBytes" or -1,
        /// Longest time that a partition has lacked something, in milliseconds; -1 for unknown.
        lag_ms: i64 = "LagMs" or -1,
        /// Bytes appended since the start of the mirror's job; -1 for unknown.
        bytes_appended: i64 = "BytesAppended" or -1,
        /// Why the mirror, or the one that has failed first, does not get on.
        error_message: Option<String> = "ErrorMessage" or None,
        /// Since when, in milliseconds since the Unix epoch; -1 for unknown.
        failing_since_ms: i64 = "FailingSinceMs" or -1,
    }

    /// Partitions in a state.
    struct MirrorStateCount {
        /// Name of the state.
        state: String = "State",
        /// How many.
        partitions: i32 = "Partitions",
    }

    /// Where time went since the start of a mirror's job, in milliseconds. Of connections it is
    /// the time of all of them together.
    struct MirrorTime {
        /// Since the start of the job; -1 for unknown. [`MirrorFigures::bytes_appended`] is of
        /// this moment too.
        elapsed_ms: i64 = "ElapsedMs" or -1,
        /// Answers of the source were waited for.
        source_ms: i64 = "SourceMs" or 0,
        /// Answers were on their way.
        network_ms: i64 = "NetworkMs" or 0,
        /// The disk had not taken what came before.
        disk_ms: i64 = "DiskMs" or 0,
        /// A throttle did not let fetch.
        throttle_ms: i64 = "ThrottleMs" or 0,
        /// Shards, in their order.
        shards: Vec<MirrorShardTime> = "Shards",
    }

    /// Time of a shard's thread since its start, in milliseconds.
    struct MirrorShardTime {
        /// By the clock.
        elapsed_ms: i64 = "ElapsedMs",
        /// Of a processor.
        cpu_ms: i64 = "CpuMs",
    }

    /// A topic of a mirror.
    struct DescribedMirrorTopic {
        /// Name of the topic.
        topic_name: String = "TopicName",
        /// In their order.
        partitions: Vec<DescribedMirrorPartition> = "Partitions",
        @ 1000
        /// Partitions that are left out by the limit.
        partitions_left_out: i32 = "PartitionsLeftOut" or 0,
        @ 1001
        /// Sums over its partitions, if asked for.
        figures: MirrorFigures = "Figures" or MirrorFigures::default(),
    }

    /// A partition of a mirror.
    struct DescribedMirrorPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// High watermark of the source, exclusive; -1 unless mirroring.
        source_offset: i64 = "SourceOffset" or -1,
        /// Log end offset here, exclusive; -1 unless mirroring.
        destination_offset: i64 = "DestinationOffset" or -1,
        /// Records between the two; -1 unless mirroring.
        lag: i64 = "Lag" or -1,
        /// Name of its state.
        state: String = "StateValue",
        /// Epoch of the last mirrored batch, once stopped; -1 for none.
        last_mirror_epoch: i32 = "LastMirrorEpoch" or -1,
        @ 1000
        /// Where mirroring ended, exclusive; -1 for unknown.
        last_mirror_offset: i64 = "LastMirrorOffset" or -1,
        @ 1001
        /// Failures since the last success; -1 if an operator has to act.
        retry_attempt: i16 = "RetryAttempt" or 0,
        @ 1002
        /// Why it failed, or why its source cannot be reached.
        error_message: Option<String> = "ErrorMessage" or None,
        @ 1003
        /// Name of the state that an operator wants; empty for unknown.
        desired_state: String = "DesiredState" or String::new(),
        @ 1004
        /// Since when it has not got on, in milliseconds since the Unix epoch; -1 if it does.
        failing_since_ms: i64 = "FailingSinceMs" or -1,
        @ 1005
        /// What `Lag` is in bytes, an estimate; -1 for unknown or not asked.
        lag_bytes: i64 = "LagBytes" or -1,
        @ 1006
        /// For how long it has lacked something, in milliseconds; -1 for unknown or not asked.
        lag_ms: i64 = "LagMs" or -1,
        @ 1007
        /// Bytes appended since the start of the mirror's job; -1 for unknown or not asked.
        bytes_appended: i64 = "BytesAppended" or -1,
        @ 1008
        /// Whether it has failed and is not tried again by itself; false if not asked.
        given_up: bool = "GivenUp" or false,
    }

    /// What was looked up of a topic.
    struct EpochLookupResult {
        /// The topic.
        topic_id: TopicId = "TopicId",
        /// Partitions that are known here.
        partitions: Vec<EpochLookupPartition> = "Partitions",
    }

    /// Where mirroring of a partition ended.
    struct EpochLookupPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// Epoch of the last mirrored batch; -1 for none.
        last_mirror_epoch: i32 = "LastMirrorEpoch" or -1,
        @ 1000
        /// Log end offset then, exclusive; -1 for unknown.
        last_mirror_offset: i64 = "LastMirrorOffset" or -1,
    }

    /// Asks the coordinator for states.
    struct ReadMirrorStatesRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Which.
        topics: Vec<ReadStatesTopic> = "Topics",
    }

    /// Partitions of a topic.
    struct ReadStatesTopic {
        /// Name of the topic.
        name: String = "Name",
        /// Which.
        partitions: Vec<ReadStatesPartition> = "Partitions",
    }

    /// One of them.
    struct ReadStatesPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
    }

    /// States.
    struct ReadMirrorStatesResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// As asked.
        topics: Vec<StatesOfTopic> = "Topics",
    }

    /// States of a topic.
    struct StatesOfTopic {
        /// Name of the topic.
        name: String = "Name",
        /// As asked.
        partitions: Vec<StateOfPartition> = "Partitions",
    }

    /// State of a partition, as it is stored.
    struct StateOfPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// Epoch of the last mirrored batch; -1 for none.
        last_mirror_epoch: i32 = "LastMirrorEpoch" or -1,
        /// Number of its state; 16 for unknown.
        state: i8 = "State",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        @ 0
        /// Where a failed one was; 16 for none.
        previous_state: i8 = "PreviousState" or 16,
        @ 1
        /// Failures since the last success.
        retry_attempt: i16 = "RetryAttempt" or 0,
        @ 1000
        /// Why it failed.
        error_message: Option<String> = "ErrorMessage" or None,
        @ 1001
        /// Leader epoch of who wrote it; -1 for unknown.
        leader_epoch: i32 = "LeaderEpoch" or -1,
        @ 1002
        /// Counts the writes.
        state_epoch: i32 = "StateEpoch" or 0,
        @ 1003
        /// Where mirroring ended, exclusive; -1 for unknown.
        last_mirror_offset: i64 = "LastMirrorOffset" or -1,
    }

    /// Gives the coordinator states to store.
    struct WriteMirrorStatesRequest {
        /// Name of the mirror.
        mirror_name: String = "MirrorName",
        /// Which.
        topics: Vec<WriteStatesTopic> = "Topics",
        /// Topics all of whose partitions are stopped.
        stopped_topics: Vec<String> = "StoppedTopics",
    }

    /// Partitions of a topic.
    struct WriteStatesTopic {
        /// Name of the topic.
        name: String = "Name",
        /// Which.
        partitions: Vec<WriteStatesPartition> = "Partitions",
    }

    /// A state, a last mirrored epoch, or both.
    struct WriteStatesPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// -1 for none.
        last_mirror_epoch: i32 = "LastMirrorEpoch" or -1,
        /// 16 for none.
        state: i8 = "State",
        @ 1000
        /// Leader epoch of who writes; an older one is refused.
        leader_epoch: i32 = "LeaderEpoch" or -1,
        @ 1001
        /// The count that the writer has seen; another one is refused.
        state_epoch: i32 = "StateEpoch" or -1,
        @ 1002
        /// Where mirroring ended, exclusive; -1 for unknown.
        last_mirror_offset: i64 = "LastMirrorOffset" or -1,
        @ 1003
        /// Why it failed.
        error_message: Option<String> = "ErrorMessage" or None,
        @ 1004
        /// Failures since the last success; -1 leaves it to the coordinator.
        retry_attempt: i32 = "RetryAttempt" or -1,
        @ 1005
        /// Whether an operator has to act.
        non_retryable: bool = "NonRetryable" or false,
    }

    /// What was stored.
    struct WriteMirrorStatesResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// As given.
        topics: Vec<WrittenTopic> = "Topics",
    }

    /// Partitions of a topic.
    struct WrittenTopic {
        /// Name of the topic.
        name: String = "Name",
        /// As given.
        partitions: Vec<WrittenPartition> = "Partitions",
    }

    /// Whether a state was stored.
    struct WrittenPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        @ 1000
        /// Why not.
        error_message: Option<String> = "ErrorMessage" or None,
        @ 1001
        /// The count after it.
        state_epoch: i32 = "StateEpoch" or -1,
    }

    /// Wants leader epochs raised.
    struct BumpLeaderEpochsRequest {
        /// Which.
        topics: Vec<BumpTopic> = "Topics",
    }

    /// Partitions of a topic.
    struct BumpTopic {
        /// The topic.
        topic_id: TopicId = "TopicId",
        /// Which.
        partitions: Vec<BumpPartition> = "Partitions",
    }

    /// One of them.
    struct BumpPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// The new epoch is above this one, and above its own.
        min_leader_epoch: i32 = "MinLeaderEpoch" or -1,
    }

    /// What came of it.
    struct BumpLeaderEpochsResponse {
        /// Milliseconds for which a quota holds the client up.
        throttle_time_ms: i32 = "ThrottleTimeMs",
        /// Of the whole request; 0 for none.
        error_code: i16 = "ErrorCode",
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage",
        /// As asked.
        topics: Vec<BumpedTopic> = "Topics",
    }

    /// Partitions of a topic.
    struct BumpedTopic {
        /// Name of the topic.
        topic_name: String = "TopicName",
        /// As asked.
        partitions: Vec<BumpedPartition> = "Partitions",
    }

    /// One of them.
    struct BumpedPartition {
        /// The partition.
        partition_index: i32 = "PartitionIndex",
        /// 0 for none.
        error_code: i16 = "ErrorCode",
        @ 1000
        /// The thing, the cause and the remedy.
        error_message: Option<String> = "ErrorMessage" or None,
    }
}
