//! Tests that need a second process run their own binary again.

use std::process::Command;

/// Tells a test that it is the second process, and what to work on.
const ARGUMENT: &str = "HELIOSTAT_TEST_CHILD";
/// Before what the second process has to say.
const ANSWER: &str = "answer: ";

/// What the first process wants, in the second one.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// Says something to the first process.
#[expect(clippy::print_stdout, reason = "standard output is the way back to the first process")]
pub(crate) fn answer(text: &str) {
    println!("{ANSWER}{text}");
}

/// Runs `test` of this binary in a second process, through a shell that first does
/// `prepare`; returns what it answered.
pub(crate) fn run(test: &str, argument: &str, prepare: &str) -> String {
    let binary = std::env::current_exe().expect("we run from a file");
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("{prepare}\nexec \"$0\" --exact \"$1\" --nocapture"))
        .arg(binary)
        .arg(test)
        .env(ARGUMENT, argument)
        .output()
        .expect("sh is there");
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.split_once(ANSWER));
    match found {
        Some((_, answer)) => answer.to_owned(),
        None => panic!("no answer in {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}
