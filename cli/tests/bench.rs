//! The benchmark command, small.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use heliostat_io::embedded::{EmbeddedSource, SourceSpec, empty_catalog, listener_config};
use heliostat_io::generate::UniformSpec;
use heliostat_io::listener::{Listener, ListenerConfig};
use serde_json::Value;
use tempfile::TempDir;

fn bench(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heliostat"));
    command.arg("bench").arg("--dir").arg(dir).args(args);
    command
}

/// What it prints, as JSON, of a run that succeeds.
fn json(mut command: Command) -> Value {
    let output = command.arg("--json").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[track_caller]
fn assert_is_empty(dir: &Path) {
    let left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

fn interrupt(child: &Child) {
    let killed = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
}

/// A cluster that is not the benchmark's own.
fn cluster(dir: &Path, bytes: u64) -> (EmbeddedSource, String) {
    let topic = |name: &str, seed| UniformSpec {
        topic: name.to_owned(),
        seed,
        bytes,
        partitions: 2,
        batch_bytes: 10_000,
        value_bytes: 1_000,
    };
    let source = EmbeddedSource::start(&SourceSpec {
        dir: dir.to_path_buf(),
        topics: vec![topic("orders", 1), topic("payments", 2)],
        listen: std::net::Ipv4Addr::LOCALHOST,
        send_buffer_bytes: -1,
    });
    let source = source.unwrap();
    let address = source.address().to_string();
    (source, address)
}

#[test]
fn every_variant_is_measured_in_every_round() {
    let dir = TempDir::new().unwrap();
    let mut command = bench(dir.path(), &["--bytes", "4000000", "--partitions", "3"]);
    command.args(["--rounds", "2", "--batch-bytes", "20000", "--append", "direct,buffered"]);
    command.args(["--fetch-bytes", "100000,1000000"]);
    let printed = json(command);
    let rounds = printed["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2 * 2 * 2);
    for round in rounds {
        assert_eq!(round["bytes"], rounds[0]["bytes"], "each copies everything");
        assert_eq!(round["ended"], "caught up");
        assert!(round["bytes"].as_u64().unwrap() >= 4_000_000, "{round}");
        assert!(round["seconds"].as_f64().unwrap() > 0.0, "{round}");
    }
    assert!(rounds[0]["append.direct"] != rounds[7]["append.direct"]);
    assert_eq!(printed["variants"].as_array().unwrap().len(), 4);
    let all: u64 = rounds.iter().map(|round| round["bytes"].as_u64().unwrap()).sum();
    let series = printed["series"].as_array().unwrap();
    let over_time: u64 = series.iter().map(|point| point[2].as_u64().unwrap()).sum();
    assert_eq!(over_time, all, "the series has all of it");
    assert_is_empty(dir.path());
}

/// Over a path, or with what this machine lacks for one.
#[test]
fn a_path_lies_between_source_and_mirror() {
    let dir = TempDir::new().unwrap();
    let mut command = bench(dir.path(), &["--bytes", "2000000", "--partitions", "3", "--json"]);
    command.args(["--rounds", "1", "--rtt", "10ms", "--rate", "200mbit", "--loss", "0.1%"]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lacks = ["network namespaces", "/dev/net/tun", "`ip`"];
        assert!(lacks.iter().any(|lack| error.contains(lack)), "{error}");
        return;
    }
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = &printed["path"];
    assert!(path["to_mirror"]["bytes"].as_u64() > printed["rounds"][0]["bytes"].as_u64(), "{path}");
    assert!(path["to_source"]["packets"].as_u64() > Some(0), "{path}");
}

/// A table that a newcomer can read, and where the figures come from.
#[test]
fn the_table_says_what_was_measured_where() {
    let dir = TempDir::new().unwrap();
    let output = bench(dir.path(), &["--bytes", "3000000", "--rounds", "1"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for part in ["commit ", kernel.trim(), "embedded, ", "MB/s", "s/GB", "p99.9", "bound by"] {
        assert!(printed.contains(part), "{part} is missing: {printed}");
    }
    assert!(printed.contains("copied all that the source had"), "{printed}");
    assert_is_empty(dir.path());
}

#[test]
fn a_real_cluster_is_copied_until_a_limit_and_its_copy_goes() {
    let (from, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (source, address) = cluster(from.path(), 8_000_000);
    let of = |more: &[&str]| {
        let mut command = bench(dir.path(), &["--source", &address]);
        command.args(more);
        command
    };
    let one = json(of(&["--topics", "orders"]));
    let ended = &one["rounds"][0];
    assert_eq!(
        (&ended["ended"], one["rounds"].as_array().unwrap().len()),
        (&"caught up".into(), 1)
    );
    assert!(ended["bytes"].as_u64().unwrap() >= 8_000_000, "{ended}");
    assert!(one["source"].as_str().unwrap().contains(&address), "{one}");
    assert_is_empty(dir.path());

    let both = json(of(&["--topics", ".*", "--exclude", "none"]));
    let bytes = both["rounds"][0]["bytes"].as_u64().unwrap();
    assert!(bytes >= 16_000_000, "patterns: {bytes}");

    // The throttle makes sure that it is not done first.
    let cut = json(of(&["--topics", ".*", "--bytes", "1000000", "--throttle", "2M"]));
    let ended = &cut["rounds"][0];
    assert_eq!((&ended["ended"], &ended["bound"]), (&"byte limit".into(), &"throttle".into()));
    assert!(ended["bytes"].as_u64().unwrap() < 16_000_000, "{ended}");

    let cut = json(of(&["--topics", ".*", "--seconds", "1", "--throttle", "1M"]));
    let ended = &cut["rounds"][0];
    assert_eq!(ended["ended"], "time limit");
    assert!(ended["bytes"].as_u64().unwrap() < 16_000_000, "{ended}");
    assert_is_empty(dir.path());
    source.stop();
}

/// The disk is not filled: where less than the low-water mark is free, nothing is copied.
#[test]
fn a_disk_that_is_nearly_full_is_left_alone() {
    let (from, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (source, address) = cluster(from.path(), 1_000_000);
    let config = from.path().join("mirror.properties");
    fs::write(
        &config,
        format!("bootstrap.servers={address}\nlog.dir.free.min.bytes={}\n", 1_u64 << 60),
    )
    .unwrap();
    let mut command = bench(dir.path(), &["--topics", "orders", "--source-config"]);
    command.arg(&config);
    let error = refusal(command);
    assert!(error.contains("free") && error.contains("--dir"), "{error}");
    let error = refusal(bench(dir.path(), &["--bytes", "1000000000000000"]));
    assert!(error.contains("needed") && error.contains("--bytes"), "{error}");
    assert_is_empty(dir.path());
    source.stop();
}

#[test]
fn what_does_not_go_together_is_refused() {
    let dir = TempDir::new().unwrap();
    let error = refusal(bench(dir.path(), &["--source", "127.0.0.1:1"]));
    assert!(error.contains("give --topics"), "{error}");
    let error = refusal(bench(dir.path(), &["--topics", "a"]));
    assert!(error.contains("give --source"), "{error}");
    let both = ["--source", "127.0.0.1:1", "--topics", "a", "--rtt", "1ms"];
    assert!(refusal(bench(dir.path(), &both)).contains("leave out --rtt"));
    let error = refusal(bench(dir.path(), &["--html", "/nonexistent/page.html"]));
    assert!(error.contains("--html"), "{error}");
    assert_is_empty(dir.path());
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let (from, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (source, address) = cluster(from.path(), 8_000_000);
    let page = from.path().join("page.html");
    let mut command = bench(dir.path(), &["--source", &address, "--topics", ".*", "--html"]);
    let mut child = command
        .arg(&page)
        .args(["--throttle", "1M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_copy(dir.path(), &mut child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "it is not what was asked for: {printed}");
    assert!(printed.contains("ended by Ctrl-C"), "{printed}");
    assert!(fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    assert_is_empty(dir.path());

    // While the embedded source is being made, no job hears it.
    let mut child = bench(dir.path(), &["--bytes", "500000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("a source", &mut child, || has(dir.path(), "source"));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_is_empty(dir.path());
    source.stop();
}

/// Lines until Ctrl-C, the copy begun anew again and again, and a summary of all.
#[test]
fn a_soak_ends_with_a_summary_when_it_is_told_to() {
    let (from, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let page = from.path().join("page.html");
    let mut command = bench(dir.path(), &["--forever", "--every", "1", "--bytes", "4000000"]);
    let mut child = command
        .args(["--partitions", "2", "--json", "--html"])
        .arg(&page)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let line = next();
        assert_eq!(line["type"], "progress");
        assert!(line["rss_bytes"].as_u64().unwrap() > 1 << 20, "{line}");
        seen.push(line["copy"].as_u64().unwrap());
        // One copy and the source, and what is preallocated for a moment.
        assert!(size_of(dir.path()) < 1 << 30);
    }
    assert!(seen[2] > seen[0], "begun anew meanwhile: {seen:?}");
    interrupt(&child);
    let summary = std::iter::repeat_with(next).find(|line| line["type"] == "summary").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let sum = &summary["variants"][0];
    assert!(sum["rounds"].as_u64().unwrap() > seen[2], "{sum}");
    assert!(sum["bytes"].as_u64().unwrap() >= 4_000_000 * seen[2], "{sum}");
    assert!(fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    assert_is_empty(dir.path());
}

/// Of a real cluster a soak follows, and begins anew when the copy holds so much.
#[test]
fn a_soak_of_a_real_cluster_keeps_its_copy_small() {
    let (from, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (source, address) = cluster(from.path(), 8_000_000);
    let mut command = bench(dir.path(), &["--source", &address, "--topics", ".*", "--forever"]);
    let mut child = command
        .args(["--every", "1", "--bytes", "2000000", "--throttle", "4M", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    while next()["copy"].as_u64().unwrap() < 2 {}
    interrupt(&child);
    let summary = std::iter::repeat_with(next).find(|line| line["type"] == "summary").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    for round in summary["rounds"].as_array().unwrap() {
        assert!(round["bytes"].as_u64().unwrap() < 16_000_000, "never all of it: {round}");
    }
    assert_eq!(summary["rounds"][0]["ended"], "byte limit");
    assert_is_empty(dir.path());
    source.stop();
}

/// A source that is away for a while is waited for, whether in the middle of a copy or between
/// two.
#[test]
fn a_soak_outlives_the_absence_of_its_source() {
    let (from, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (source, address) = cluster(from.path(), 4_000_000);
    let mut command = bench(dir.path(), &["--source", &address, "--topics", ".*", "--forever"]);
    let mut child = command
        .args(["--every", "1", "--bytes", "2000000", "--throttle", "8M", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let copy = |line: &Value| line["copy"].as_u64().unwrap();
    while copy(&next()) < 1 {}
    source.stop();
    let catalog = empty_catalog(from.path()).unwrap();
    let any = listener_config(std::net::Ipv4Addr::LOCALHOST);
    let config = ListenerConfig { address: address.parse().unwrap(), ..any };
    let again = Listener::start(catalog, config).unwrap();
    let before = copy(&next());
    while copy(&next()) < before + 2 {}
    interrupt(&child);
    let summary = std::iter::repeat_with(next).find(|line| line["type"] == "summary").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(summary["variants"][0]["rounds"].as_u64().unwrap() > 2, "{summary}");
    assert_is_empty(dir.path());
    again.stop();
}

#[test]
fn a_page_stands_by_itself_and_escapes_what_was_typed() {
    let dir = TempDir::new().unwrap();
    let page = dir.path().join("<b>&.html");
    let work = dir.path().join("work");
    let mut command = bench(&work, &["--bytes", "4000000", "--rounds", "2", "--html"]);
    command.arg(&page).args(["--append", "direct,buffered"]);
    assert!(command.output().unwrap().status.success());
    let text = fs::read_to_string(&page).unwrap();
    for banned in ["<script", "http://", "https://", "url(", "<link", "<img", "@import", "<b>&"] {
        assert!(!text.contains(banned), "{banned}: {text}");
    }
    for wanted in [
        "&lt;b&gt;&amp;.html",
        "prefers-color-scheme:dark",
        "name=\"viewport\"",
        ">99 %<",
        "Throughput over time",
        "CPU s/GB",
        "What bound",
        "buffered",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // Two curves of two variants, and a line for each of four copies in each of two charts.
    assert!(text.matches("class=\"line s0").count() >= 4, "{text}");
    assert!(text.matches("class=\"line s1").count() >= 4, "{text}");
    assert_well_formed(&text);
}

/// Every element ends, in order, so that a parser of XML could read it too.
#[track_caller]
fn assert_well_formed(page: &str) {
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("an open tag: {tag}"));
        let name = tag.split([' ', '/']).next().unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !tag.starts_with('!') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Whether the benchmark's own directory has such an entry.
fn has(dir: &Path, name: &str) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|place| place.path().join(name).exists())
}

fn wait_for_copy(dir: &Path, child: &mut Child) {
    wait_until("a copy", child, || {
        let places: Vec<_> = fs::read_dir(dir).unwrap().flatten().collect();
        places.iter().any(|place| size_of(&place.path().join("copy")) > 100_000)
    });
}

/// As long as the child runs.
fn wait_until(what: &str, child: &mut Child, is_there: impl Fn() -> bool) {
    while !is_there() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before there was {what}");
        std::thread::yield_now();
    }
}

/// Of a directory that changes meanwhile.
fn size_of(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
