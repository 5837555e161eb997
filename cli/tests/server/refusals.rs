//! What an operator can get wrong: one line, and nothing starts.

use std::fs;
use std::net::TcpListener;

use super::child::Home;

/// What is said with other properties. Lines that begin with `key` are replaced by `line`.
#[track_caller]
fn said(key: &str, line: &str) -> String {
    let home = Home::new();
    let properties = fs::read_to_string(home.properties()).unwrap();
    let kept = properties.lines().filter(|it| !it.starts_with(key));
    let lines: Vec<&str> = kept.chain([line]).collect();
    fs::write(home.properties(), lines.join("\n")).unwrap();
    home.refusal()
}

#[track_caller]
fn tells(said: &str, words: &[&str]) {
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
}

#[test]
fn wrong_properties_are_told_with_key_and_remedy() {
    tells(
        &said("-", "mirror.state.topic.num.partition=4"),
        &["server.properties", "unknown key", "did you mean mirror.state.topic.num.partitions?"],
    );
    tells(&said("node.id", ""), &["server.properties: node.id is missing"]);
    tells(&said("node.id", "node.id=-1"), &["node.id=-1: want a whole number"]);
    tells(&said("log.dirs", ""), &["log.dirs is missing"]);
    tells(&said("log.dirs", "log.dirs=/a,/b"), &["log.dirs=/a,/b: want one directory"]);
    tells(
        &said("log.dirs", "log.dirs=/dev/null/log"),
        &["/dev/null/log cannot be made", "name a directory"],
    );
    tells(
        &said("listeners", "listeners=PLAINTEXT://nowhere.invalid:0"),
        &["listeners: ", "nowhere.invalid:0 has no address"],
    );
}

#[test]
fn a_missing_file_is_named() {
    let home = Home::new();
    fs::remove_file(home.properties()).unwrap();
    tells(&home.refusal(), &["server.properties: No such file"]);
}

#[test]
fn a_port_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let home = Home::new();
    let properties = fs::read_to_string(home.properties()).unwrap();
    let other = properties.replace("127.0.0.1:0", &address.to_string());
    fs::write(home.properties(), other).unwrap();
    tells(&home.refusal(), &[&address.to_string(), "in use"]);
    // What it has begun goes on elsewhere.
    fs::write(home.properties(), properties).unwrap();
    home.start().stop();
}

#[test]
fn a_log_dir_of_somebody_else_is_left_alone() {
    let home = Home::new();
    let server = home.start();
    tells(&home.refusal(), &[&home.log_dir().display().to_string()]);
    server.stop();
    let properties = fs::read_to_string(home.properties()).unwrap();
    fs::write(home.properties(), properties.replace("node.id=7", "node.id=8")).unwrap();
    tells(&home.refusal(), &["is of node.id 7, the properties say 8"]);
    assert!(home.is_clean());

    let kafka = Home::new();
    fs::create_dir(kafka.log_dir()).unwrap();
    fs::write(kafka.log_dir().join("meta.properties"), "version=1\nnode.id=7\ncluster.id=a\n")
        .unwrap();
    tells(&kafka.refusal(), &["is another program's"]);
}
