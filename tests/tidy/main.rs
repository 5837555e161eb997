//! Rules of the house that matter enough to be tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::{Path, PathBuf};

/// Lines of code in one file, tests not counted.
const FILE_LINES_MAX: usize = 800;

/// Where `unsafe` may stand. Each block has its reason beside it (a lint sees to that).
const UNSAFE_ALLOWED: [&str; 10] = [
    "bench/src/loops/ideas.rs",
    "bench/src/role/librdkafka/consumer.rs",
    "io/src/disk/map.rs",
    "io/src/huge_page.rs",
    "io/src/listener/net.rs",
    "io/src/net/low_water.rs",
    "io/src/net/socket.rs",
    "io/src/path_emulator/device.rs",
    "io/src/ring/bell.rs",
    "io/src/ring/uring.rs",
];

/// The pause between two looks at a condition, and the delay of a slow network.
const SLEEP_ALLOWED: [&str; 5] = [
    // For as long as something is measured.
    "bench/src/compare/host_describe.rs",
    "bench/src/compare/host_scale.rs",
    "tests/harness/kafka/wait.rs",
    "tests/harness/proxy.rs",
    "tests/harness/scenarios/child.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// All Rust files of the packages, by path relative to the root, with their text.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for package in ["core", "io", "cli", "bench", "tests"] {
        collect(&root.join(package), &root, &mut found);
    }
    assert!(found.len() > 100, "the sources are where this test looks for them");
    found
}

fn collect(dir: &Path, root: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, root, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

fn is_code(line: &&str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

#[test]
fn files_are_rooms() {
    for (name, text) in sources() {
        if name.starts_with("tests/") || name.contains("/tests") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(is_code).count();
        assert!(
            lines <= FILE_LINES_MAX,
            "{name} has {lines} lines of code, {FILE_LINES_MAX} at most"
        );
    }
}

#[test]
fn unsafe_stays_in_few_places() {
    let mark = ["uns", "afe "].concat();
    for (name, text) in sources() {
        let uses = text.lines().filter(is_code).any(|line| line.contains(&mark));
        let allowed = UNSAFE_ALLOWED.contains(&name.as_str());
        assert!(!uses || allowed || name.starts_with("tests/tidy"), "{name} uses {mark}");
    }
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [["TO", "DO"], ["FIX", "ME"], ["#[ig", "nore"], ["thread::sl", "eep("]];
    for (name, text) in sources() {
        for mark in &marks {
            let mark = mark.concat();
            let allowed = mark.starts_with("thread") && SLEEP_ALLOWED.contains(&name.as_str());
            assert!(allowed || !text.contains(&mark), "{name} says {mark}");
        }
    }
}

#[test]
fn core_does_no_io() {
    for (name, text) in sources() {
        if !name.starts_with("core/src/") {
            continue;
        }
        for banned in ["std::fs::File", "std::net::Tcp", "Instant::now", "SystemTime::now"] {
            assert!(!text.contains(banned), "{name} uses {banned}");
        }
    }
}
