//! `check` of a directory that holds something already.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use heliostat_core::log::config::LogConfig;
use heliostat_core::types::BrokerId;
use heliostat_io::disk::LogDirLock;
use heliostat_io::listener::hosted::{Catalog, CatalogConfig};
use heliostat_io::listener::{Listener, ListenerConfig};

/// Exit status and output.
fn check(source: &str, to: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heliostat"));
    command.args(["check", "--source", source, "--topics", "nosuch", "--to"]).arg(to);
    let run = command.output().unwrap();
    (run.status.code(), String::from_utf8(run.stdout).unwrap())
}

/// The lines of one fact.
fn fact(out: &str, name: &str) -> String {
    let lines: Vec<_> = out.lines().collect();
    let at = lines.iter().position(|line| line.split_whitespace().nth(1) == Some(name));
    let at = at.unwrap_or_else(|| panic!("no {name}: {out}"));
    let rest = lines[at + 1..].iter().take_while(|line| line.starts_with("      "));
    rest.fold(lines[at].to_owned(), |text, line| text + "\n" + line)
}

#[test]
fn another_clusters_copy_and_a_directory_in_use_are_in_the_way() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = CatalogConfig {
        cluster_id: "this".to_owned(),
        node_id: BrokerId(1),
        log: LogConfig::default(),
    };
    let catalog = Arc::new(Catalog::open(from.path(), config).unwrap());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::start(catalog, ListenerConfig::new(any, BrokerId(1))).unwrap();
    let source = listener.address().to_string();
    let bind = |cluster: &str| {
        let text =
            format!("version=1\ncluster.id=c\nnode.id=1\nmirror.source.cluster.id={cluster}\n");
        std::fs::write(to.path().join("meta.properties"), text).unwrap();
    };

    bind("this");
    let (_, out) = check(&source, to.path());
    assert!(fact(&out, "source.cluster").starts_with("ok"), "{out}");

    bind("another");
    let (code, out) = check(&source, to.path());
    let told = fact(&out, "source.cluster");
    assert!(told.starts_with("FAIL") && told.contains("copy of cluster another"), "{out}");
    assert!(told.contains("-> name the right source") && code == Some(1), "{out}");
    assert!(fact(&out, "log_dir.lock").starts_with("ok"), "{out}");
    assert!(fact(&out, "source.topics").starts_with("warn"), "{out}");

    bind("this");
    let held = LogDirLock::acquire(to.path()).unwrap();
    let (code, out) = check(&source, to.path());
    let told = fact(&out, "log_dir.lock");
    assert!(told.starts_with("FAIL") && told.contains(&std::process::id().to_string()), "{out}");
    assert!(told.contains("-> stop that process") && code == Some(1), "{out}");
    println!("{told}");
    drop(held);

    // A port that was free a moment ago.
    drop(listener);
    let (code, out) = check(&source, to.path());
    assert!(!fact(&out, "source").contains("source: ") && code == Some(1), "{out}");
}
