//! A disaster of throughput, found before anybody measures: the product against a loop that
//! only reads and writes, end to end.

use std::process::Command;

use serde_json::Value;

/// Far below what it is, in builds with and without optimisation.
const RATIO_MIN: f64 = 0.7;

/// Start and stop, which take a quarter of a second together, must not be what is measured.
const BYTES: &str = "--bytes=1200000000";

#[test]
fn a_copy_is_not_far_behind_a_plain_loop() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("bars.json");
    let output = Command::new(env!("CARGO_BIN_EXE_heliostat-bench"))
        .args(["compare", "limit", "--against=plain", BYTES, "--rounds=4"])
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    let bars: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let speeds = |runs: &Value| -> Vec<f64> {
        let speed = |run: &Value| run["bytes"].as_f64().unwrap() / run["seconds"].as_f64().unwrap();
        runs.as_array().unwrap().iter().map(speed).collect()
    };
    let (ours, theirs) = (speeds(&bars[0]["our_runs"]), speeds(&bars[0]["their_runs"]));
    // The best round: noise would have to be against us in every one of them, a disaster is.
    let rounds = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
    let best = rounds.fold(0.0, f64::max);
    assert!(
        best >= RATIO_MIN,
        "a copy makes {best:.2} of a plain loop, {RATIO_MIN} at least; bytes a second of each \
         round: {ours:.0?} and {theirs:.0?}"
    );
}
