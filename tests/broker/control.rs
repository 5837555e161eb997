//! Kafka's own admin client and tools against the control API of a host, which a stand-in with
//! a few topics in memory decides.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{CreateTopicsRequest, CreateTopicsResponse, CreatedTopic};
use heliostat_core::serve::NodeEndpoint;
use heliostat_core::types::{BrokerId, LeaderEpoch, TopicId};
use heliostat_io::listener::control::{
    AlterOperation, ClusterAnswer, ConfigEntry, ConfigResource, ConfigsAnswer, ControlCalls,
    ControlLimits, ControlRequest, ControlResponse, FeatureLevels, FeatureOutcome, MetadataAnswer,
    PartitionAnswer, Refusal, ResourceChanges, ResourceOutcome, TopicAnswer, TopicDeleted,
    TopicOutcome, TopicRef, control_port,
};
use heliostat_io::listener::{Listener, ListenerConfig};
use heliostat_tests::kafka::{Artifacts, Driver, KafkaError, KafkaVersion, Result, or_skip};
use uuid::Uuid;

const NODE: BrokerId = BrokerId(1);

#[derive(Clone, Debug, Default)]
struct Topic {
    id: u128,
    partitions: i32,
    configs: BTreeMap<String, String>,
}

/// Topics in memory, as a host would have them.
struct StandIn {
    node: NodeEndpoint,
    features: Arc<FeatureLevels>,
    topics: BTreeMap<String, Topic>,
}

impl StandIn {
    fn answer(&mut self, request: &ControlRequest) -> ControlResponse {
        match request {
            ControlRequest::Metadata(query) => {
                let topics = match &query.topics {
                    None => self.topics.keys().map(|name| self.topic(name)).collect(),
                    Some(asked) => {
                        asked.iter().map(|topic| self.topic(&self.name(topic))).collect()
                    }
                };
                ControlResponse::Metadata(Ok(MetadataAnswer {
                    brokers: vec![self.node.clone()],
                    cluster_id: "stand-in".to_owned(),
                    controller: NODE,
                    topics,
                    authorized_operations: None,
                }))
            }
            ControlRequest::DescribeCluster(_) => {
                ControlResponse::DescribeCluster(Ok(ClusterAnswer {
                    cluster_id: "stand-in".to_owned(),
                    controller: NODE,
                    brokers: vec![self.node.clone()],
                    authorized_operations: None,
                }))
            }
            ControlRequest::CreateTopics(request) => self.create(request),
            ControlRequest::CreatePartitions(request) => {
                let outcomes = request.topics.iter().map(|asked| {
                    let known = self.topics.get_mut(&asked.name);
                    let result = known.map(|topic| topic.partitions = asked.count);
                    let result = result.ok_or_else(|| unknown(&asked.name));
                    TopicOutcome { name: asked.name.clone(), result }
                });
                ControlResponse::CreatePartitions(outcomes.collect())
            }
            ControlRequest::DeleteTopics(request) => {
                let deleted = request.topics.iter().map(|topic| {
                    let name = self.name(topic);
                    let known = self.topics.remove(&name);
                    let topic_id = known.as_ref().map_or(TopicId::NONE, id_of);
                    let result = known.map(drop).ok_or_else(|| unknown(&name));
                    TopicDeleted { name: Some(name), topic_id, result }
                });
                ControlResponse::DeleteTopics(deleted.collect())
            }
            ControlRequest::DescribeConfigs(query) => {
                let answers = query.resources.iter().map(|asked| self.configs(&asked.resource));
                ControlResponse::DescribeConfigs(answers.collect())
            }
            ControlRequest::IncrementalAlterConfigs(change) => {
                let outcomes = change.resources.iter().map(|asked| self.alter(asked));
                ControlResponse::IncrementalAlterConfigs(outcomes.collect())
            }
            ControlRequest::UpdateFeatures(request) => {
                let outcomes = request.updates.iter().map(|update| {
                    self.features.set_mirror_version(update.level, 2);
                    FeatureOutcome { feature: update.feature.clone(), result: Ok(()) }
                });
                ControlResponse::UpdateFeatures(Ok(outcomes.collect()))
            }
            other => {
                other.refused(&Refusal::new(ErrorCode::INVALID_REQUEST, "not of this stand-in"))
            }
        }
    }

    fn name(&self, topic: &TopicRef) -> String {
        match topic {
            TopicRef::Name(name) => name.clone(),
            TopicRef::Id(id) => {
                let mut known = self.topics.iter();
                known
                    .find(|(_, topic)| id_of(topic) == *id)
                    .map_or_else(String::new, |it| it.0.clone())
            }
        }
    }

    fn topic(&self, name: &str) -> TopicAnswer {
        let known = self.topics.get(name);
        let partition = |partition| PartitionAnswer {
            error: ErrorCode::NONE,
            partition,
            leader: NODE,
            leader_epoch: LeaderEpoch(0),
            replicas: vec![NODE],
            isr: vec![NODE],
            offline_replicas: Vec::new(),
        };
        TopicAnswer {
            error: known.map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |_| ErrorCode::NONE),
            name: Some(name.to_owned()),
            topic_id: known.map_or(TopicId::NONE, id_of),
            is_internal: false,
            partitions: (0..known.map_or(0, |topic| topic.partitions)).map(partition).collect(),
            authorized_operations: None,
        }
    }

    fn create(&mut self, request: &CreateTopicsRequest) -> ControlResponse {
        let mut topics = Vec::new();
        for asked in &request.topics {
            let mut created = CreatedTopic { name: asked.name.clone(), ..CreatedTopic::default() };
            if self.topics.contains_key(&asked.name) {
                created.error_code = ErrorCode::TOPIC_ALREADY_EXISTS.0;
                created.error_message = Some(format!("{} is there already", asked.name));
            } else {
                let id = u128::try_from(self.topics.len()).expect("few") + 1000;
                let config = |config: &heliostat_core::protocol::mirror::CreatableTopicConfig| {
                    (config.name.clone(), config.value.clone().unwrap_or_default())
                };
                let configs = asked.configs.iter().map(config).collect();
                let topic = Topic { id, partitions: asked.num_partitions, configs };
                created.topic_id = id_of(&topic);
                created.num_partitions = topic.partitions;
                created.replication_factor = 1;
                created.configs = Some(Vec::new());
                self.topics.insert(asked.name.clone(), topic);
            }
            topics.push(created);
        }
        ControlResponse::CreateTopics(CreateTopicsResponse { throttle_time_ms: 0, topics })
    }

    fn configs(&self, resource: &ConfigResource) -> ConfigsAnswer {
        let entry = |(name, value): (&String, &String)| ConfigEntry {
            name: name.clone(),
            value: Some(value.clone()),
            read_only: false,
            source: 1,
            is_sensitive: false,
            synonyms: Vec::new(),
            config_type: 2,
            documentation: None,
        };
        let known = self.topics.get(&resource.name);
        let configs = known.map(|topic| topic.configs.iter().map(entry).collect());
        let result = configs.ok_or_else(|| unknown(&resource.name));
        ConfigsAnswer { resource: resource.clone(), result }
    }

    fn alter(&mut self, asked: &ResourceChanges) -> ResourceOutcome {
        let resource = asked.resource.clone();
        let Some(topic) = self.topics.get_mut(&resource.name) else {
            let result = Err(unknown(&resource.name));
            return ResourceOutcome { resource, result };
        };
        for change in &asked.changes {
            assert_eq!(change.operation, AlterOperation::Set);
            topic.configs.insert(change.name.clone(), change.value.clone().unwrap_or_default());
        }
        ResourceOutcome { resource, result: Ok(()) }
    }
}

fn id_of(topic: &Topic) -> TopicId {
    TopicId(Uuid::from_u128(topic.id))
}

fn unknown(name: &str) -> Refusal {
    let message = format!("this host has no topic {name:?}");
    Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message)
}

/// A listener, and a control thread that serves until it is gone.
struct Served {
    listener: Option<Listener>,
    control: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Served {
    fn start() -> Self {
        let features = Arc::new(FeatureLevels::new(0, 1));
        let (port, calls) = control_port(ControlLimits::default(), Arc::clone(&features));
        let config = ListenerConfig::new((Ipv4Addr::LOCALHOST, 0).into(), NODE);
        let listener = Listener::start_control(config, port).expect("loopback");
        let address = listener.address();
        let node = NodeEndpoint { node: NODE, host: "127.0.0.1".into(), port: address.port() };
        let stand_in = StandIn { node, features, topics: BTreeMap::new() };
        let control = thread::spawn(move || serve(calls, stand_in));
        Self { listener: Some(listener), control: Some(control), address }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.listener.take());
        if let Some(control) = self.control.take() {
            control.join().expect("the control thread ends with the listener");
        }
    }
}

fn serve(mut calls: ControlCalls, mut stand_in: StandIn) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        while let Some(call) = calls.next().await {
            let response = stand_in.answer(&call.request);
            call.answer(response);
        }
    });
}

/// What a tool of Kafka's prints, and whether it is content.
fn tool(kafka: &Artifacts, class: &str, arguments: &[&str]) -> (String, bool) {
    let output = Command::new(kafka.java())
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(kafka.class_path())
        .arg(format!("org.apache.kafka.tools.{class}"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("Java starts");
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    (String::from_utf8_lossy(&both).into_owned(), output.status.success())
}

#[test]
fn the_admin_client_makes_changes_and_hears_why_not() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let served = Served::start();
    let client = Driver::start(&kafka)?.client(served.address.to_string());
    client.create_topic("one", 2, 1, &[("cleanup.policy", "compact")])?;
    let view = client.describe("one")?.expect("just made");
    assert_eq!(view.partitions.len(), 2);
    client.create_partitions("one", 5)?;
    assert_eq!(client.describe("one")?.expect("there").partitions.len(), 5);
    client.alter_topic_configs("one", &[("retention.ms", "7")])?;
    let again = client.create_topic("one", 2, 1, &[]);
    let Err(KafkaError::Refused { class, message, .. }) = again else { panic!("{again:?}") };
    assert_eq!(
        (class.as_str(), message.as_str()),
        ("TopicExistsException", "one is there already")
    );
    client.delete_topic("one")?;
    assert_eq!(client.describe("one")?, None);
    let gone = client.alter_topic_configs("one", &[("retention.ms", "7")]);
    let Err(KafkaError::Refused { message, .. }) = gone else { panic!("{gone:?}") };
    assert_eq!(message, "this host has no topic \"one\"");
    Ok(())
}

#[test]
fn the_tools_show_cluster_topics_configs_and_features() {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return };
    let served = Served::start();
    let address = served.address.to_string();
    let at = ["--bootstrap-server", address.as_str()];
    let run = |class: &str, arguments: &[&str]| tool(&kafka, class, &[arguments, &at].concat());
    let ok = |class: &str, arguments: &[&str]| {
        let (output, success) = run(class, arguments);
        assert!(success, "{class} {arguments:?}: {output}");
        output
    };
    assert!(ok("ClusterTool", &["cluster-id"]).contains("stand-in"));
    ok("TopicCommand", &["--create", "--topic", "one", "--partitions", "3"]);
    let listed = ok("TopicCommand", &["--list"]);
    assert!(listed.lines().any(|line| line == "one"), "{listed}");
    let topic = ["--entity-type", "topics", "--entity-name", "one"];
    ok("ConfigCommand", &[&["--alter", "--add-config", "retention.ms=7"], &topic[..]].concat());
    let configs = ok("ConfigCommand", &[&["--describe"], &topic[..]].concat());
    assert!(configs.contains("retention.ms=7"), "{configs}");
    let features = at.iter().copied().chain(["describe"]).collect::<Vec<_>>();
    let (before, success) = tool(&kafka, "FeatureCommand", &features);
    assert!(success, "{before}");
    assert!(before.contains("mirror.version"), "{before}");
    let upgrade = at.iter().copied().chain(["upgrade", "--feature", "mirror.version=1"]);
    let (upgraded, success) = tool(&kafka, "FeatureCommand", &upgrade.collect::<Vec<_>>());
    assert!(success, "{upgraded}");
    let (after, _) = tool(&kafka, "FeatureCommand", &features);
    let line = after.lines().find(|line| line.contains("mirror.version")).expect("the feature");
    assert!(line.contains("FinalizedVersionLevel: 1"), "{after}");
}
