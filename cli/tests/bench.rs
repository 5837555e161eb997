//! The benchmark command, small.

use std::process::Command;

#[test]
fn every_variant_is_measured_in_every_round() {
    let dir = std::env::temp_dir();
    let output = Command::new(env!("CARGO_BIN_EXE_heliostat"))
        .args(["bench", "--bytes", "4000000", "--partitions", "3", "--rounds", "2", "--json"])
        .args(["--batch-bytes", "20000", "--append", "direct,buffered"])
        .args(["--fetch-bytes", "100000,1000000", "--dir"])
        .arg(&dir)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rounds = printed["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2 * 2 * 2);
    for round in rounds {
        assert_eq!(round["bytes"], rounds[0]["bytes"], "each copies everything");
        assert!(round["bytes"].as_u64().unwrap() >= 4_000_000, "{round}");
        assert!(round["seconds"].as_f64().unwrap() > 0.0, "{round}");
    }
    assert!(rounds[0]["append.direct"] != rounds[7]["append.direct"]);
}

/// Over a path, or with what this machine lacks for one.
#[test]
fn a_path_lies_between_source_and_mirror() {
    let output = Command::new(env!("CARGO_BIN_EXE_heliostat"))
        .args(["bench", "--bytes", "2000000", "--partitions", "3", "--rounds", "1", "--json"])
        .args(["--rtt", "10ms", "--rate", "200mbit", "--loss", "0.1%", "--dir"])
        .arg(std::env::temp_dir())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lacks = ["network namespaces", "/dev/net/tun", "`ip`"];
        assert!(lacks.iter().any(|lack| error.contains(lack)), "{error}");
        return;
    }
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = &printed["path"];
    assert!(path["to_mirror"]["bytes"].as_u64() > printed["rounds"][0]["bytes"].as_u64(), "{path}");
    assert!(path["to_source"]["packets"].as_u64() > Some(0), "{path}");
}
