//! What can be typed. Arguments only; behaviour is each command's own.

use clap::{Parser, Subcommand};

/// A standalone, byte-identical cluster mirror for Apache Kafka.
#[derive(Debug, Parser)]
#[command(name = "heliostat", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant a verb.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show it all on this machine: an embedded source, a mirror of it, every byte verified.
    Demo(crate::demo::DemoArgs),

    /// Measure: MB/s, processor time, latencies, and what binds; of this machine with an embedded
    /// source in about a minute, or of a real cluster (--source).
    ///
    /// The copy is in a directory of its own that goes at the end, also after Ctrl-C. Exit
    /// status 1 if it ended before it was to.
    Bench(crate::bench::BenchArgs),

    /// The embedded source of `bench`.
    #[command(hide = true)]
    BenchSource(crate::bench::source::SourceArgs),

    /// Copy topics of a source, once or for as long as it runs.
    ///
    /// Ctrl-C and SIGTERM stop cleanly, a second one at once; the same command goes on where
    /// the copy ends.
    Mirror(crate::mirror::MirrorArgs),

    /// Say what will bind or fail, and what to type: this machine, the log dir, the source.
    ///
    /// Exit status 1 if something stands in the way.
    Check(crate::check::CheckArgs),

    /// Print the files of a partition as Kafka's own DumpLogSegments does.
    ///
    /// Exit status 1 if a file is not as it should be.
    DumpLog(crate::dump_log::DumpLogArgs),

    /// Compare a copy with its source, byte for byte, by fetching the source again.
    ///
    /// Exit status 1 if they differ; what the source has cleaned or trimmed since counts as a
    /// difference with --strict only.
    Verify(crate::verify::VerifyArgs),

    /// Run a mirroring host: mirrors of any number of clusters, kept by commands of `mirrors`.
    ///
    /// Ctrl-C and SIGTERM stop cleanly, a second one at once; the next start goes on.
    Server(crate::server::ServerArgs),

    /// Make, start, stop and look at the mirrors of a host, as kafka-cluster-mirrors.sh does.
    Mirrors(crate::mirrors::MirrorsArgs),

    /// Show mirrors, topics and partitions of a host live: states, lag, MB/s, what binds, retries.
    ///
    /// What does not get on comes first. Enter goes into a mirror or a topic, Esc back, s sorts,
    /// / filters, f leaves what fails, ? explains the rest. Without an answer the last figures
    /// stay, marked as old.
    Top(crate::top::TopArgs),

    /// Show and alter configs of mirrors, topics and brokers, as kafka-configs.sh does.
    Configs(crate::configs::ConfigsArgs),

    /// Show and raise levels of features, as kafka-features.sh does.
    Features(crate::features::FeaturesArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
