//! Which commit this is: a figure without its commit is none, and a binary outlives its checkout.

use std::process::Command;

fn main() {
    // It gets a line with every commit and checkout.
    println!("cargo::rerun-if-changed=../.git/logs/HEAD");
    println!("cargo::rerun-if-changed=build.rs");
    let run = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = run.map(|run| String::from_utf8_lossy(&run.stdout).trim().to_owned());
    let commit = text.ok().filter(|text| !text.is_empty());
    println!("cargo::rustc-env=HELIOSTAT_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
