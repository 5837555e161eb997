//! Settings and limits of a shard.

use std::time::Duration;

use crate::log::cx::AppendLimits;
use crate::log::slot::{MapSlots, map_apart};
use crate::protocol::fetch_stream::FetchLimits;

/// Settings of one shard. Every value is a limit.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Client ID of every connection, on which operators put source quotas.
    pub client_id: String,
    /// Bytes of all receive buffers together.
    pub buffer_bytes: usize,
    /// Where their memory comes from.
    pub map_slots: MapSlots,
    /// Settings of the append path.
    pub append: AppendLimits,
    /// Bytes that may be preallocated beyond the data of all logs together.
    pub preallocate_bytes: u64,
    /// Limits that Fetch responses are held to.
    pub fetch_limits: FetchLimits,
    /// `mirror.fetch.wait.max.ms`: longest wait of a broker for new data.
    pub fetch_wait: Duration,
    /// `mirror.fetch.min.bytes`
    pub fetch_min_bytes: u32,
    /// `mirror.fetch.linger.ms`: least time between two questions of a connection whose last
    /// answer left nothing behind. New records gather for so long at most, and an answer,
    /// its writes and their completions are worth a wake-up each.
    pub fetch_linger: Duration,
    /// `mirror.fetch.max.bytes`: of one response.
    pub fetch_max_bytes: u32,
    /// `mirror.max.partition.fetch.bytes`: of one partition in one response.
    pub partition_max_bytes: u32,
    /// Connections to one broker for partitions that are behind.
    pub busy_connections: usize,
    /// When and how one partition is fetched over several connections.
    pub stripes: StripeLimits,
    /// Connect and handshake, each.
    pub connect_timeout: Duration,
    /// Without a byte of an answer for so long, beyond the broker's wait, a connection is dead.
    pub request_timeout: Duration,
    /// First and longest wait after a failure.
    pub backoff: (Duration, Duration),
    /// Refused or unknown answers of a partition before it is returned.
    pub attempts_max: u32,
    /// `.log` files that may be open at once; as many again while they are being closed.
    pub open_files_max: usize,
    /// An open file that was idle for so long is closed and its reserve given back.
    pub idle_close_after: Duration,
    /// A partition without new data for so long moves to the connection for long polls.
    pub idle_move_after: Duration,
    /// Time between two reports of progress.
    pub report_every: Duration,
}

/// Limits of connections that are opened while they bring throughput, and of striping: one
/// partition over several connections of its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeLimits {
    /// `mirror.num.replica.fetchers.max`: connections to one broker for partitions that are
    /// behind; no more than [`ShardConfig::busy_connections`] are opened if it is not larger.
    pub connections_max: usize,
    /// `mirror.partition.stripes.max`: of these, for one partition; below 2 none is striped.
    pub partition_max: usize,
    /// `mirror.partition.stripe.bytes`: least that a stripe asks for at once.
    ///
    /// A range waits for its turn in its socket, unread. What the socket does not hold comes
    /// after its turn only, as slowly as without stripes; so a range should not be larger than
    /// that. The kernel lets an unread socket hold about 64 KiB at first, and more each time a
    /// full one is read at once, up to half of `net.ipv4.tcp_rmem[2]` (6 MiB by default); that of
    /// a stripe begins with four ranges of this size. A fixed `receive.buffer.bytes` ends both,
    /// and is capped by `net.core.rmem_max`.
    pub range_bytes_min: u32,
    /// On a shorter round trip one connection is fast enough.
    pub rtt_min: Duration,
    /// Least time over which a rate is measured.
    pub measure_for: Duration,
    /// More connections have to raise the rate by so much; 0 keeps them whatever they bring.
    pub gain_percent: u32,
    /// When they did not, they are tried again after so long.
    pub retry_after: Duration,
}

impl Default for StripeLimits {
    fn default() -> Self {
        Self {
            connections_max: 1,
            partition_max: 1,
            range_bytes_min: 512 << 10,
            rtt_min: Duration::from_millis(2),
            measure_for: Duration::from_millis(500),
            gain_percent: 20,
            retry_after: Duration::from_secs(30),
        }
    }
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            client_id: "heliostat".to_owned(),
            buffer_bytes: 32 << 20,
            map_slots: map_apart,
            append: AppendLimits::default(),
            preallocate_bytes: 1 << 30,
            fetch_limits: FetchLimits::default(),
            fetch_wait: Duration::from_millis(500),
            fetch_min_bytes: 1,
            fetch_linger: Duration::from_millis(5),
            fetch_max_bytes: 55 << 20,
            partition_max_bytes: 8 << 20,
            busy_connections: 2,
            stripes: StripeLimits::default(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            backoff: (Duration::from_millis(100), Duration::from_secs(10)),
            attempts_max: 5,
            open_files_max: 1024,
            idle_close_after: Duration::from_secs(60),
            idle_move_after: Duration::from_secs(5),
            report_every: Duration::from_millis(250),
        }
    }
}
