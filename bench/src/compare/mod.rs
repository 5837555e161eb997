//! The comparisons, one module each.

mod host;
mod host_describe;
mod host_scale;
mod ideas;
mod latency;
mod librdkafka;
mod limit;
mod mm2;
mod producer_latency;
mod scale;
mod throttle;
mod tiny;
mod wan;

use clap::Subcommand;

use crate::bar::Bar;
use crate::error::BenchError;

/// What to compare with.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Loops that only move bytes: what this machine can do at best.
    Limit(limit::LimitArgs),
    /// The direct loop with one thing done otherwise, beside itself.
    Ideas(ideas::IdeasArgs),
    /// A loop that writes each arrival at once: what an append takes at least.
    Latency(latency::LatencyArgs),
    /// A throttle with its rate, and unthrottled partitions with themselves alone.
    Throttle(throttle::ThrottleArgs),
    /// Few partitions beside very many, from a source that answers from memory.
    Scale(scale::ScaleArgs),
    /// A mirroring host with very many partitions: create, stop, restart.
    HostScale(host_scale::HostScaleArgs),
    /// A mirroring host that is asked how it stands all the time, beside itself alone.
    HostDescribe(host_describe::HostDescribeArgs),
    /// Plain TCP over an emulated long path; needs root.
    Wan(wan::WanArgs),
    /// librdkafka, which consumes to nowhere, beside a copy to disk; from a real Kafka.
    Librdkafka(librdkafka::LibrdkafkaArgs),
    /// The worst case, batches of one small record, with what is asked of it.
    Tiny(tiny::TinyArgs),
    /// MirrorMaker 2, between two real Kafkas.
    Mm2(mm2::Mm2Args),
    /// MirrorMaker 2 under a load that does not wait: from the producer to the copy.
    ProducerLatency(producer_latency::ProducerLatencyArgs),
}

/// Runs a comparison.
pub(crate) fn run(what: &What) -> Result<Vec<Bar>, BenchError> {
    match what {
        What::Limit(args) => limit::run(args),
        What::Ideas(args) => ideas::run(args),
        What::Latency(args) => latency::run(args),
        What::Throttle(args) => throttle::run(args),
        What::Scale(args) => scale::run(args),
        What::HostScale(args) => host_scale::run(args),
        What::HostDescribe(args) => host_describe::run(args),
        What::Wan(args) => wan::run(args),
        What::Librdkafka(args) => librdkafka::run(args),
        What::Tiny(args) => tiny::run(args),
        What::Mm2(args) => mm2::run(args),
        What::ProducerLatency(args) => producer_latency::run(args),
    }
}
