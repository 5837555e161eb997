//! An operator's session with the built program: a host, a real Kafka as its source, and every
//! command of KIP-1279 in turn.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heliostat_tests::kafka::{
    Artifacts, Cluster, Driver, KafkaClient, KafkaVersion, Workload, dump_log, files, or_skip, wait,
};

const MIRROR: &str = "my-mirror";
/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_mins(2);

/// `heliostat server` in a process of its own.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn start(dir: &Path) -> Self {
        let file = dir.join("server.properties");
        let text = format!(
            "node.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={}\n\
             mirror.metadata.refresh.interval.ms=300\nlog.dir.free.min.bytes=0\n",
            dir.join("data").display()
        );
        fs::write(&file, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_heliostat"))
            .arg("server")
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, at }
    }

    /// Ends it as an operator does; it has to end cleanly.
    fn stop(mut self) {
        let killed = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(killed.unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Standard output, standard error and exit status of a command that asks this host.
    fn run(&self, line: &str) -> (String, String, Option<i32>) {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_heliostat"))
            .args([command, "--bootstrap-server", &self.at])
            .args(words)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(run.stdout), text(run.stderr), run.status.code())
    }

    /// What a command prints; it has to succeed.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let (out, errors, status) = self.run(line);
        assert_eq!(status, Some(0), "{line}: {errors}");
        out
    }

    #[track_caller]
    fn prints(&self, line: &str, wanted: &str) {
        assert_eq!(self.ok(line), format!("{wanted}\n"), "{line}");
    }

    /// One line on standard error, nothing on standard output.
    #[track_caller]
    fn refuses(&self, line: &str, code: &str) {
        let (out, errors, status) = self.run(line);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{line}: {errors}");
        assert!(errors.lines().count() == 1 && errors.contains(code), "{line}: {errors}");
    }

    /// Waits until a command prints this.
    #[track_caller]
    fn comes_to(&self, line: &str, wanted: &str) {
        let mut last = String::new();
        let found = wait::until(line, DEADLINE, || {
            last = self.ok(line);
            Ok((last.trim_end_matches('\n') == wanted).then_some(()))
        });
        if let Err(error) = found {
            panic!("{error}:\n{last}\nwanted:\n{wanted}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Of a test that has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A table of `--describe`: topic, partition, both offsets, lag, state.
fn table(rows: &[(&str, i32, &str, &str, &str, &str)]) -> String {
    let line = |cells: [&str; 7]| {
        let [mirror, topic, partition, theirs, ours, lag, state] = cells;
        format!(
            "{mirror:<30} {topic:<40} {partition:<10} {theirs:<15} {ours:<18} {lag:<10} {state:<12}"
        )
    };
    let header =
        ["MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "STATE"];
    let rows = rows.iter().map(|(topic, partition, theirs, ours, lag, state)| {
        line([MIRROR, topic, &partition.to_string(), theirs, ours, lag, state])
    });
    [line(header)].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

fn produce(client: &KafkaClient, topic: &str, partition: i32, count: u64) {
    let workload = Workload { partition: Some(partition), ..Workload::new(topic, count) };
    client.produce(&workload).unwrap();
}

#[test]
fn a_session_from_create_to_delete() {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return };
    let mut cluster = Cluster::builder(&kafka).start().unwrap();
    let client = Driver::start(&kafka).unwrap().client(cluster.bootstrap());
    for (topic, partitions) in [("foo-1", 2), ("foo-2", 1), ("foo-private", 1), ("bar", 1)] {
        client.create_topic(topic, partitions, 1, &[]).unwrap();
    }
    produce(&client, "foo-1", 0, 10);
    produce(&client, "foo-1", 1, 20);
    produce(&client, "foo-2", 0, 5);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());

    made_and_started(&server, dir.path(), &cluster.bootstrap());
    paused_and_resumed(&server, &client);
    configured(&server, &client);
    stopped_without_source(&server, &mut cluster);
    server.stop();
    logs_are_kafkas(&kafka, &dir.path().join("data"));
}

fn made_and_started(server: &Server, dir: &Path, source: &str) {
    server.prints("mirrors --list", "No mirrors found");
    server.prints("mirrors --describe", "No mirror partitions found");
    server.prints("mirrors --describe --json", "[]");
    let file = dir.join("my-mirror.properties");
    fs::write(&file, format!("bootstrap.servers={source}\n")).unwrap();
    let create = format!("mirrors --create --mirror {MIRROR} --mirror-config {}", file.display());
    server.prints(&create, "Created mirror my-mirror");
    server.refuses(&create, "CLUSTER_MIRROR_ALREADY_EXISTS");

    let start = |what: &str| format!("mirrors --start --mirror {MIRROR} {what}");
    server.prints(
        &start("--topics zzz.*"),
        "No matching topics found yet. The patterns are kept in mirror my-mirror for discovery.",
    );
    let run = server.run(&start("--topics foo.* --exclude foo-private --wait"));
    let started = "Started 2 mirror topic(s) in mirror my-mirror: [foo-1, foo-2]\n";
    assert_eq!((run.0.as_str(), run.2), (started, Some(0)), "{}", run.1);
    let listed = server.ok("mirrors --list");
    let cells: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    let [name, topics, cluster_id, bootstrap] = cells[..] else { panic!("{listed}") };
    assert_eq!((name, topics, bootstrap), (MIRROR, "2", source));
    let row = |cells: [&str; 4]| {
        format!("{:<30} {:<10} {:<26} {}\n", cells[0], cells[1], cells[2], cells[3])
    };
    let header = ["MIRROR", "TOPICS", "CLUSTER-ID", "BOOTSTRAP-SERVER"];
    assert_eq!(cluster_id.len(), 22);
    assert_eq!(listed, row(header) + &row([name, topics, cluster_id, bootstrap]));

    let describe = format!("mirrors --describe --mirror {MIRROR}");
    let rows = [
        ("foo-1", 0, "10", "10", "0", "MIRRORING"),
        ("foo-1", 1, "20", "20", "0", "MIRRORING"),
        ("foo-2", 0, "5", "5", "0", "MIRRORING"),
    ];
    server.comes_to(&describe, &table(&rows));
    let object = |(topic, partition, theirs, ours, lag, state): (_, i32, _, _, _, _)| {
        format!(
            "{{\"mirror\":\"{MIRROR}\",\"topic\":\"{topic}\",\"partition\":{partition},\
             \"sourceOffset\":{theirs},\"destinationOffset\":{ours},\"lag\":{lag},\
             \"state\":\"{state}\",\"retryAttempt\":0,\"errorMessage\":null,\
             \"desiredState\":\"MIRRORING\"}}"
        )
    };
    let json = format!("[{}]", rows.map(object).join(","));
    server.prints(&format!("{describe} --json"), &json);
    server.prints(&format!("{describe} --failed"), "No failed partitions found");
}

fn paused_and_resumed(server: &Server, client: &KafkaClient) {
    let describe = format!("mirrors --describe --mirror {MIRROR}");
    server.prints(
        &format!("mirrors --pause --mirror {MIRROR} --topics foo-1 --wait"),
        "Paused mirroring for 1 topic(s) in mirror my-mirror: [foo-1]",
    );
    produce(client, "foo-1", 0, 3);
    let rows = [
        ("foo-1", 0, "-", "-", "-", "PAUSED"),
        ("foo-1", 1, "-", "-", "-", "PAUSED"),
        ("foo-2", 0, "5", "5", "0", "MIRRORING"),
    ];
    server.prints(&describe, &table(&rows));
    server.prints(
        &format!("mirrors --resume --mirror {MIRROR} --topics foo-1 --wait"),
        "Resumed mirroring for 1 topic(s) in mirror my-mirror: [foo-1]",
    );
    let rows = [
        ("foo-1", 0, "13", "13", "0", "MIRRORING"),
        ("foo-1", 1, "20", "20", "0", "MIRRORING"),
        ("foo-2", 0, "5", "5", "0", "MIRRORING"),
    ];
    server.comes_to(&describe, &table(&rows));
    server.refuses(
        &format!("mirrors --pause --mirror {MIRROR} --topics bar"),
        "UNKNOWN_TOPIC_OR_PARTITION",
    );
    server.refuses("mirrors --describe --mirror other", "UNKNOWN_CLUSTER_MIRROR");
}

fn configured(server: &Server, client: &KafkaClient) {
    let of_mirror = format!("configs --entity-type cluster-mirrors --entity-name {MIRROR}");
    server.prints(
        &format!("{of_mirror} --alter --add-config mirror.fetch.wait.max.ms=250"),
        "Completed updating config for mirror my-mirror.",
    );
    let configs = server.ok(&format!("{of_mirror} --describe"));
    assert!(configs.starts_with("Dynamic configs for mirror my-mirror are:\n"), "{configs}");
    for wanted in [
        "\n  mirror.fetch.wait.max.ms=250 sensitive=false synonyms={",
        "\n  mirror.topics.include=zzz.*,foo.* sensitive=false",
        "\n  bootstrap.servers=127.0.0.1:",
        "\n  mirror.source.cluster.id=",
    ] {
        assert!(configs.contains(wanted), "{wanted} is not in {configs}");
    }
    server.refuses(
        &format!("{of_mirror} --alter --add-config mirror.fetch.wait.max.ms=long"),
        "INVALID_CONFIG",
    );
    server.refuses(
        &format!("{of_mirror} --alter --add-config mirror.source.cluster.id=x"),
        "INVALID_CONFIG",
    );
    let of_topic = "configs --entity-type topics --entity-name foo-1";
    let unclean = "mirror.support.unclean.leader.election=true";
    server.prints(
        &format!("{of_topic} --alter --add-config {unclean}"),
        "Completed updating config for topic foo-1.",
    );
    let configs = server.ok(&format!("{of_topic} --describe"));
    assert!(configs.contains(&format!("\n  {unclean} sensitive=false synonyms={{")), "{configs}");
    server.prints(
        "configs --entity-type brokers --entity-name 7 --describe",
        "Dynamic configs for broker 7 are:",
    );
    // Other settings, other connections: it goes on.
    produce(client, "foo-2", 0, 2);
    let rows = [
        ("foo-1", 0, "13", "13", "0", "MIRRORING"),
        ("foo-1", 1, "20", "20", "0", "MIRRORING"),
        ("foo-2", 0, "7", "7", "0", "MIRRORING"),
    ];
    server.comes_to(&format!("mirrors --describe --mirror {MIRROR}"), &table(&rows));
}

/// The failover that all of it is for.
fn stopped_without_source(server: &Server, cluster: &mut Cluster) {
    let delete = format!("mirrors --delete --mirror {MIRROR}");
    server.refuses(&delete, "CLUSTER_MIRROR_NOT_EMPTY");
    let stop = format!("mirrors --stop --mirror {MIRROR} --topics foo.*");
    let dry = server.ok(&format!("{stop} --dry-run"));
    let lines: Vec<&str> = dry.lines().collect();
    let would = "Would stop mirroring for 2 topic(s) in mirror my-mirror: [foo-1, foo-2]";
    let nothing = "0 record(s) that the source had when it answered last are not copied and would \
                   be left out";
    assert_eq!((lines[0], *lines.last().unwrap()), (would, nothing), "{dry}");
    cluster.node_mut(1).unwrap().kill().unwrap();
    let stopped = "Stopped mirroring for 2 topic(s) in mirror my-mirror: [foo-1, foo-2]";
    server.prints(&format!("{stop} --wait"), stopped);
    let rows = [
        ("foo-1", 0, "-", "-", "-", "STOPPED"),
        ("foo-1", 1, "-", "-", "-", "STOPPED"),
        ("foo-2", 0, "-", "-", "-", "STOPPED"),
    ];
    server.prints("mirrors --describe", &table(&rows));
    server.prints(&delete, "Deleted mirror my-mirror");
    server.prints("mirrors --list", "No mirrors found");
    server.refuses(&delete, "UNKNOWN_CLUSTER_MIRROR");
}

/// What the host has written of itself, read by Kafka's tool and by ours.
fn logs_are_kafkas(kafka: &Artifacts, data: &Path) {
    let metadata = files::segments(&data.join("__cluster_metadata-0")).unwrap();
    let flags = ["--cluster-metadata-decoder", "--deep-iteration"];
    let theirs = dump_log(kafka, &metadata, &flags).unwrap();
    assert!(theirs.success, "{}", theirs.stderr);
    assert_eq!(theirs.complaints(false), []);
    assert!(!theirs.stdout.contains("Error at"), "{}", theirs.stdout);
    let ours = dumped(&metadata, "--cluster-metadata-decoder");
    let payloads = |text: &str| -> Vec<String> {
        let payload = |line: &str| line.split_once("payload: ").map(|(_, it)| it.to_owned());
        text.lines().filter_map(payload).collect()
    };
    assert_eq!(payloads(&ours), payloads(&theirs.stdout), "the same records in the same words");
    assert!(payloads(&ours).iter().any(|it| it.contains("my-mirror.stopped")), "{ours}");

    let mut states = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("__mirror_state-") {
            states.extend(files::segments(&entry.path()).unwrap());
        }
    }
    let theirs = dump_log(kafka, &states, &["--deep-iteration"]).unwrap();
    assert_eq!(theirs.complaints(true), []);
    let ours = dumped(&states, "--mirror-state-decoder");
    // Where each partition was stopped, and that its mirror was deleted.
    for wanted in [
        "\"mirrorName\":\"my-mirror\",\"topicId\":\"",
        "\"lastMirrorOffset\":13",
        "\"lastMirrorOffset\":20",
        "\"lastMirrorOffset\":7",
        "payload: null",
    ] {
        assert!(ours.contains(wanted), "{wanted} is not in {ours}");
    }
}

/// What `dump-log` prints of files that are as they should be.
fn dumped(files: &[PathBuf], decoder: &str) -> String {
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let run = Command::new(env!("CARGO_BIN_EXE_heliostat"))
        .args(["dump-log", decoder, "--files", &names.join(",")])
        .output()
        .unwrap();
    let out = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(!out.contains("Error at"), "{out}");
    out
}
