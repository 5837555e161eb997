//! The built program against a server that answers by a script.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use heliostat_core::protocol::Api;
use heliostat_core::protocol::admin::{
    AlterConfigsResponse, AlteredResource, DescribeConfigsResponse, DescribeConfigsResult,
    DescribedConfig, FeaturesResponse, OfferedApi, UpdateFeaturesResponse,
};
use heliostat_core::protocol::mirror::{
    ClusterMirrorResponse, CreateClusterMirrorRequest, DescribeClusterMirrorsResponse,
    DescribedClusterMirror, DescribedMirrorPartition, DescribedMirrorTopic,
    ListClusterMirrorsResponse, ListedClusterMirror, MirrorTopicResult, MirrorTopicsResponse,
    PauseMirrorTopicsRequest, StartMirrorTopicsRequest, StopMirrorTopicsRequest, decode, encode,
};

/// Runs the program.
fn heliostat(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heliostat")).args(arguments).output().unwrap()
}

/// What it prints when it succeeds.
#[track_caller]
fn printed(at: &str, arguments: &[&str]) -> String {
    let [command, rest @ ..] = arguments else { panic!("no command") };
    let run = heliostat(&[&[*command, "--bootstrap-server", at], rest].concat());
    let errors = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(run.stdout).unwrap()
}

/// The one line that it says when it fails.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let run = heliostat(arguments);
    let errors = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{arguments:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
    errors.trim_end().strip_prefix("heliostat: ").unwrap().to_owned()
}

/// What a server has seen.
#[derive(Debug, Default)]
struct Seen {
    stops: AtomicUsize,
    looks_after_stop: AtomicUsize,
}

/// A server on a free port, which ends with the test.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Seen::default());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            std::thread::spawn(move || serve(stream, port, &seen));
        }
    });
    at
}

/// One connection, until the client has gone.
fn serve(mut stream: TcpStream, port: u16, seen: &Seen) {
    let mut size = [0; 4];
    while stream.read_exact(&mut size).is_ok() {
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        stream.read_exact(&mut frame).unwrap();
        let api = i16::from_be_bytes([frame[0], frame[1]]);
        let client_id = usize::try_from(i16::from_be_bytes([frame[8], frame[9]])).unwrap();
        let body = frame.get(10 + client_id + 1..).unwrap_or_default();
        // Negotiation, and the old Metadata that is offered, have no tags in the header.
        let tags: &[u8] = if matches!(api, 3 | 18) { b"" } else { b"\0" };
        let answer = [&frame[4..8], tags, &answer(api, body, port, seen)].concat();
        stream.write_all(&i32::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&answer).unwrap();
    }
}

/// The body of the answer.
fn answer(api: i16, body: &[u8], port: u16, seen: &Seen) -> Vec<u8> {
    match api {
        3 => metadata(port),
        18 => {
            let offered =
                |api: Api| OfferedApi { api_key: api.key(), min_version: 0, max_version: 4 };
            let api_keys = Api::ALL.map(offered).to_vec();
            encode(&FeaturesResponse { api_keys, ..FeaturesResponse::default() })
        }
        32 => encode(&described_configs()),
        44 => {
            let response = AlteredResource { resource_type: 64, ..AlteredResource::default() };
            encode(&AlterConfigsResponse { throttle_time_ms: 0, responses: vec![response] })
        }
        57 => encode(&UpdateFeaturesResponse::default()),
        94 => encode(&created(&decode(body).unwrap())),
        95 => encode(&started(&decode(body).unwrap())),
        96 => {
            let request: StopMirrorTopicsRequest = decode(body).unwrap();
            if !request.validate_only {
                seen.stops.fetch_add(1, Ordering::SeqCst);
            }
            encode(&stopped(&request))
        }
        98 => {
            let mirror = ListedClusterMirror {
                mirror_name: "west".into(),
                source_bootstrap: "kafka1:9092".into(),
                source_cluster_id: "MkU3OEVBNTcwNTJENDM2Qk".into(),
                topic_count: 2,
                ..ListedClusterMirror::default()
            };
            let mirrors = vec![mirror];
            encode(&ListClusterMirrorsResponse { mirrors, ..ListClusterMirrorsResponse::default() })
        }
        99 => encode(&description(seen)),
        102 => {
            let request: PauseMirrorTopicsRequest = decode(body).unwrap();
            let refused = |name: String| MirrorTopicResult {
                name,
                error_code: 139,
                error_message: Some("it belongs to mirror east".into()),
                ..MirrorTopicResult::default()
            };
            let names = request.topics.into_iter().map(|topic| topic.topic_name);
            results(names.map(refused).collect())
        }
        104 => encode(&ClusterMirrorResponse {
            error_code: 143,
            error_message: Some("topic orders is MIRRORING; stop it first".into()),
            ..ClusterMirrorResponse::default()
        }),
        other => panic!("API {other} was not expected"),
    }
}

/// Version 4: this server, no topics.
fn metadata(port: u16) -> Vec<u8> {
    let port = i32::from(port).to_be_bytes();
    let broker: &[&[u8]] = &[b"\0\0\0\x01\0\0\0\x01\0\x09127.0.0.1", &port, b"\xff\xff"];
    [&b"\0\0\0\0"[..], &broker.concat(), b"\xff\xff\0\0\0\x01\0\0\0\0"].concat()
}

fn described_configs() -> DescribeConfigsResponse {
    let config = |name: &str, value: &str, is_sensitive| DescribedConfig {
        name: name.into(),
        value: Some(value.into()),
        config_source: 0,
        is_sensitive,
        ..DescribedConfig::default()
    };
    let result = DescribeConfigsResult {
        resource_type: 64,
        resource_name: "west".into(),
        configs: vec![
            config("sasl.jaas.config", "s3cret", true),
            config("bootstrap.servers", "kafka1:9092", false),
        ],
        ..DescribeConfigsResult::default()
    };
    DescribeConfigsResponse { throttle_time_ms: 0, results: vec![result] }
}

fn created(request: &CreateClusterMirrorRequest) -> ClusterMirrorResponse {
    let is_named = request.config.iter().any(|config| config.name == "bootstrap.servers");
    if is_named {
        return ClusterMirrorResponse::default();
    }
    ClusterMirrorResponse {
        error_code: 40,
        error_message: Some("bootstrap.servers is missing".into()),
        ..ClusterMirrorResponse::default()
    }
}

fn result(name: &str) -> MirrorTopicResult {
    MirrorTopicResult {
        name: name.into(),
        num_partitions: 2,
        lag: 3,
        state: "MIRRORING".into(),
        ..MirrorTopicResult::default()
    }
}

fn results(topics: Vec<MirrorTopicResult>) -> Vec<u8> {
    encode(&MirrorTopicsResponse { topics, ..MirrorTopicsResponse::default() })
}

fn started(request: &StartMirrorTopicsRequest) -> MirrorTopicsResponse {
    assert!(request.topics.is_empty(), "the host resolves");
    let is_all = request.include_patterns == [".*"];
    let topics = if is_all { vec![result("orders"), result("pay")] } else { vec![] };
    MirrorTopicsResponse { topics, ..MirrorTopicsResponse::default() }
}

fn stopped(request: &StopMirrorTopicsRequest) -> MirrorTopicsResponse {
    let topics = request.topics.iter().map(|topic| result(&topic.topic_name)).collect();
    MirrorTopicsResponse { topics, ..MirrorTopicsResponse::default() }
}

/// A mirror of one topic; after a stop its partitions are stopped one look after another.
fn description(seen: &Seen) -> DescribeClusterMirrorsResponse {
    let looks = match seen.stops.load(Ordering::SeqCst) {
        0 => 0,
        _ => seen.looks_after_stop.fetch_add(1, Ordering::SeqCst) + 1,
    };
    let state = |index: usize| match looks {
        0 if index == 0 => "MIRRORING",
        0 => "FAILED",
        looks if looks > index => "STOPPED",
        _ => "STOPPING",
    };
    let partition = |index: usize| DescribedMirrorPartition {
        partition_index: i32::try_from(index).unwrap(),
        source_offset: if state(index) == "MIRRORING" { 69 } else { -1 },
        destination_offset: if state(index) == "MIRRORING" { 66 } else { -1 },
        lag: if state(index) == "MIRRORING" { 3 } else { -1 },
        state: state(index).into(),
        retry_attempt: i16::from(state(index) == "FAILED"),
        error_message: (state(index) == "FAILED").then(|| "the epoch was not raised".into()),
        ..DescribedMirrorPartition::default()
    };
    let topic = DescribedMirrorTopic {
        topic_name: "orders".into(),
        partitions: (0..2).map(partition).collect(),
        ..DescribedMirrorTopic::default()
    };
    let mirror = DescribedClusterMirror {
        mirror_name: "west".into(),
        topics: vec![topic],
        ..DescribedClusterMirror::default()
    };
    DescribeClusterMirrorsResponse {
        mirrors: vec![mirror],
        ..DescribeClusterMirrorsResponse::default()
    }
}

#[test]
fn mirrors_are_made_started_listed_and_described() {
    let at = server();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("west.properties");
    std::fs::write(&file, "bootstrap.servers = kafka1:9092\n").unwrap();
    let file = file.to_str().unwrap();
    let create = ["mirrors", "--create", "--mirror", "west", "--mirror-config", file];
    assert_eq!(printed(&at, &create), "Created mirror west\n");
    let start = ["mirrors", "--start", "--mirror", "west", "--all-topics"];
    assert_eq!(printed(&at, &start), "Started 2 mirror topic(s) in mirror west: [orders, pay]\n");
    let start = ["mirrors", "--start", "--mirror", "west", "--topics", "x.*"];
    assert_eq!(
        printed(&at, &start),
        "No matching topics found yet. The patterns are kept in mirror west for discovery.\n"
    );
    assert_eq!(
        printed(&at, &["mirrors", "--list"]),
        "MIRROR                         TOPICS     CLUSTER-ID                 BOOTSTRAP-SERVER\n\
         west                           2          MkU3OEVBNTcwNTJENDM2Qk     kafka1:9092\n"
    );
    let table = printed(&at, &["mirrors", "--describe", "--mirror", "west"]);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["west", "orders", "0", "69", "66", "3", "MIRRORING"]);
    assert_eq!(rows[2], ["west", "orders", "1", "-", "-", "-", "FAILED"]);
    let failed = printed(&at, &["mirrors", "--describe", "--failed", "--json"]);
    assert_eq!(
        failed,
        "[{\"mirror\":\"west\",\"topic\":\"orders\",\"partition\":1,\"sourceOffset\":-1,\
         \"destinationOffset\":-1,\"lag\":-1,\"state\":\"FAILED\",\"retryAttempt\":1,\
         \"errorMessage\":\"the epoch was not raised\"}]\n"
    );
}

#[test]
fn a_failover_is_tried_dry_and_then_waited_for() {
    let at = server();
    let stop = ["mirrors", "--stop", "--mirror", "west", "--topics", "ord.*"];
    let dry = printed(&at, &[&stop[..], &["--dry-run"]].concat());
    assert!(dry.starts_with("Would stop mirroring for 1 topic(s) in mirror west: [orders]\n"));
    let left_out = "3 record(s) that the source had when it answered last are not copied and \
                    would be left out\n";
    assert!(dry.ends_with(left_out), "{dry}");
    let before = printed(&at, &["mirrors", "--describe"]);
    assert!(before.contains("MIRRORING") && !before.contains("STOPP"), "{before}");

    let done = printed(&at, &[&stop[..], &["--wait"]].concat());
    assert_eq!(done, "Stopped mirroring for 1 topic(s) in mirror west: [orders]\n");
    let after = printed(&at, &["mirrors", "--describe"]);
    assert_eq!(after.matches("STOPPED").count(), 2, "{after}");

    // It never comes back to MIRRORING here.
    let resume = ["mirrors", "--start", "--mirror", "west", "--all-topics"];
    let wait = ["--bootstrap-server", &at, "--wait", "--wait-timeout", "0"];
    let said = String::from_utf8(heliostat(&[&resume[..], &wait].concat()).stderr).unwrap();
    assert!(
        said.contains("after 0 s 4 partitions of 4 not MIRRORING: orders-0 is STOPPED"),
        "{said}"
    );
}

#[test]
fn what_the_host_refuses_is_one_line() {
    let at = server();
    let at = at.as_str();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("west.properties");
    std::fs::write(&file, "request.timeout.ms=1\n").unwrap();
    let file = file.to_str().unwrap();
    let mirror = ["--mirror", "west", "--bootstrap-server", at];
    let create = [&["mirrors", "--create", "--mirror-config", file][..], &mirror].concat();
    assert_eq!(refused(&create), "mirror west: INVALID_CONFIG (40): bootstrap.servers is missing");
    let delete = [&["mirrors", "--delete", "--dry-run"][..], &mirror].concat();
    assert_eq!(
        refused(&delete),
        "mirror west: CLUSTER_MIRROR_NOT_EMPTY (143): topic orders is MIRRORING; stop it first"
    );
    let pause = [&["mirrors", "--pause", "--topics", "orders,typo"][..], &mirror].concat();
    assert_eq!(
        refused(&pause),
        "topic orders: TOPIC_NOT_IN_CLUSTER_MIRROR (139): it belongs to mirror east; topic typo: \
         TOPIC_NOT_IN_CLUSTER_MIRROR (139): it belongs to mirror east"
    );
    let told = refused(&["mirrors", "--list", "--bootstrap-server", "127.0.0.1:1"]);
    assert!(told.contains("no server answers ListClusterMirrors: 127.0.0.1:1: connection refused"));
}

#[test]
fn configs_and_features_are_shown_and_changed() {
    let at = server();
    let entity = ["configs", "--entity-type", "cluster-mirrors", "--entity-name", "west"];
    assert_eq!(
        printed(&at, &[&entity[..], &["--describe"]].concat()),
        "Dynamic configs for mirror west are:\n  \
         bootstrap.servers=kafka1:9092 sensitive=false synonyms={}\n  \
         sasl.jaas.config=null sensitive=true synonyms={}\n"
    );
    let alter = ["--alter", "--add-config", "mirror.fetch.max.bytes=9"];
    let done = "Completed updating config for mirror west.\n";
    assert_eq!(printed(&at, &[&entity[..], &alter].concat()), done);
    let delete = ["--alter", "--delete-config", "bootstrap.servers"];
    assert_eq!(printed(&at, &[&entity[..], &delete].concat()), done);
    let server = ["--bootstrap-server", &at, "--alter", "--delete-config", "typo"];
    assert_eq!(refused(&[&entity[..], &server].concat()), "Invalid config(s): typo");
    let upgrade = ["features", "upgrade", "--feature", "mirror.version=1"];
    assert_eq!(printed(&at, &upgrade), "mirror.version was upgraded to 1.\n");
}

#[test]
fn wrong_options_are_told_on_one_line() {
    let at = ["--bootstrap-server", "127.0.0.1:1"];
    let mirrors = |options: &[&str]| refused(&[&["mirrors"], options, &at].concat());
    let cases: [(&[&str], &str); 6] = [
        (&[], "no action; give exactly one of --create"),
        (&["--list", "--describe"], "--list and --describe; give exactly one of"),
        (&["--stop", "--mirror", "m"], "--stop needs --topics REGEX or --all-topics"),
        (&["--stop", "--mirror", "m", "--topics", "("], "is no regular expression"),
        (&["--list", "--json"], "--json does not go with --list"),
        (
            &["--create", "--mirror", "m", "--mirror-config", "/no/such/file"],
            "/no/such/file: No such file or directory (os error 2); name a readable file",
        ),
    ];
    for (options, words) in cases {
        let said = mirrors(options);
        assert!(said.contains(words), "{options:?}: {said}");
    }
    let said = refused(&["mirrors", "--list"]);
    assert_eq!(said, "no server is named; give --bootstrap-server HOST:PORT");
    let said = refused(&["mirrors", "--list", "--bootstrap-server", "kafka1"]);
    assert!(said.starts_with("--bootstrap-server: \"kafka1\" is no broker: want host:port"));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client.properties");
    std::fs::write(&file, "sasl.jaas.config=s3cret\n").unwrap();
    let config = ["mirrors", "--list", "--command-config", file.to_str().unwrap()];
    let said = refused(&[&config[..], &at].concat());
    assert!(said.contains("sasl.jaas.config: this release") && !said.contains("s3cret"), "{said}");
}
