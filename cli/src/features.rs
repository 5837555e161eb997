//! `heliostat features`: `describe` and `upgrade` of `kafka-features.sh`.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use heliostat_io::admin::Features;

use crate::admin_args::{AdminArgs, ask, refused};
use crate::failure::Failure;
use crate::output::say;

/// Arguments of `features`.
#[derive(Args, Debug)]
pub(crate) struct FeaturesArgs {
    #[command(flatten)]
    admin: AdminArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the levels that the server could have, and those that the cluster has.
    Describe,

    /// Raise features to levels.
    Upgrade {
        /// A feature and its level, mirror.version=1; commas between several.
        #[arg(long, value_name = "NAME=LEVEL", value_delimiter = ',', required = true)]
        feature: Vec<String>,

        /// Only check.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Describes or upgrades.
pub(crate) fn run(args: &FeaturesArgs) -> Result<bool, Failure> {
    match &args.verb {
        Verb::Describe => {
            let mut client = args.admin.client()?;
            ask(async {
                let features = client.features().await;
                say(described(&features.map_err(|error| refused("features", error))?))
            })?;
        }
        Verb::Upgrade { feature, dry_run } => {
            let levels = feature.iter().map(|text| level(text)).collect::<Result<Vec<_>, _>>()?;
            let mut client = args.admin.client()?;
            ask(async {
                for (name, level) in levels {
                    let upgraded = client.upgrade_feature(&name, level, *dry_run).await;
                    upgraded.map_err(|error| {
                        let could = if *dry_run { "Can" } else { "Could" };
                        refused(format!("{could} not upgrade {name} to {level}"), error)
                    })?;
                    let did = if *dry_run { "can be" } else { "was" };
                    say(format!("{name} {did} upgraded to {level}."))?;
                }
                Ok(())
            })?;
        }
    }
    Ok(true)
}

fn level(text: &str) -> Result<(String, i16), Failure> {
    let parsed = text.trim().split_once('=');
    let parsed = parsed.and_then(|(name, level)| Some((name, level.parse::<i16>().ok()?)));
    let legal = parsed.filter(|(name, level)| !name.is_empty() && *level >= 0);
    let (name, level) = legal.ok_or_else(|| {
        Failure::new(format!("--feature {text}: want NAME=LEVEL, for example mirror.version=1"))
    })?;
    Ok((name.to_owned(), level))
}

/// As `kafka-features.sh` prints it.
fn described(features: &Features) -> String {
    let mut out = String::new();
    for supported in &features.supported {
        let finalized = features.finalized.iter().find(|it| it.name == supported.name);
        let finalized = finalized.map_or(0, |it| it.max);
        let between = if out.is_empty() { "" } else { "\n" };
        let epoch = if features.epoch < 0 { "-".to_owned() } else { features.epoch.to_string() };
        // A String takes every write.
        let _ = write!(
            out,
            "{between}Feature: {}\tSupportedMinVersion: {}\tSupportedMaxVersion: {}\t\
             FinalizedVersionLevel: {finalized}\tEpoch: {epoch}",
            supported.name, supported.min, supported.max,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use heliostat_io::admin::Feature;

    use super::*;

    #[test]
    fn features_are_printed_as_kafkas_tool_prints_them() {
        let feature = |name: &str, max| Feature { name: name.to_owned(), min: 0, max };
        let features = Features {
            epoch: 3,
            supported: vec![feature("mirror.version", 1), feature("other", 2)],
            finalized: vec![feature("mirror.version", 1)],
        };
        assert_eq!(
            described(&features),
            "Feature: mirror.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 1\t\
             FinalizedVersionLevel: 1\tEpoch: 3\n\
             Feature: other\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\t\
             FinalizedVersionLevel: 0\tEpoch: 3"
        );
    }

    #[test]
    fn levels_are_numbers() {
        assert_eq!(level("mirror.version=1").unwrap(), ("mirror.version".to_owned(), 1));
        for bad in ["mirror.version", "=1", "a=x", "a=-1", "a=99999"] {
            assert!(level(bad).is_err(), "{bad}");
        }
    }
}
