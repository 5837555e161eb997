//! placeholder
use crate::bar::Bar;
use crate::error::BenchError;
use clap::Args;

/// Arguments of `host-describe`.
#[derive(Args, Debug)]
pub(crate) struct HostDescribeArgs {}

pub(super) fn run(_: &HostDescribeArgs) -> Result<Vec<Bar>, BenchError> {
    Ok(Vec::new())
}
