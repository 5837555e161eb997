//! The product's own verification of a copy, for what files cannot show.

use heliostat_io::source_client::ClientConfig;
use heliostat_io::verify::{Outcome, Report, VerifyOptions, verify};

use super::copy::Copy;
use super::error::{Result, ScenarioError, ensure};

/// Compares a copy with its source, which must be running. Nothing may be different; what was
/// superseded is in the report.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] with the first difference.
pub fn verified(copy: &Copy) -> Result<Report> {
    let bootstrap = copy.plan().bootstrap()?;
    let options = VerifyOptions {
        source: ClientConfig::new(bootstrap),
        dir: copy.dir().to_path_buf(),
        topics: None,
        check_content: true,
    };
    let report = verify(&options, &mut |_| {})
        .map_err(|error| ScenarioError::Wrong(format!("verify: {error}")))?;
    for part in &report.partitions {
        ensure(!matches!(part.outcome, Outcome::Different(_)), || {
            format!("verify: {} {:?}", part.partition, part.outcome)
        })?;
        ensure(part.warnings.is_empty(), || {
            format!("verify: {} {:?}", part.partition, part.warnings)
        })?;
    }
    Ok(report)
}
