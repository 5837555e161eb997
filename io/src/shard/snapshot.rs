//! Figures of a shard, as it shows them to the control thread from time to time.

use std::time::Duration;

use hdrhistogram::Histogram;
use heliostat_core::engine::ShardStats;

/// Longest latency that is told apart, in microseconds: a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Time of a shard's thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardTime {
    /// By the clock.
    pub elapsed: Duration,
    /// Of a processor. What the kernel's workers do for the shard is not in it.
    pub cpu: Duration,
}

/// Counters and latencies since the shard's start.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// Counters; its latency lists are empty.
    pub stats: ShardStats,
    /// Fetch sent to first byte of its answer, of answers with records, in microseconds.
    pub fetch_latency_us: Histogram<u64>,
    /// First byte of a write received to write complete, in microseconds. Not durable yet.
    pub append_latency_us: Histogram<u64>,
    /// Receive buffers lent out, in bytes.
    pub buffers_lent_bytes: usize,
    /// Partitions owned.
    pub partitions: usize,
    /// When this was taken, and how busy the thread was until then.
    pub time: ShardTime,
}

impl Default for ShardSnapshot {
    fn default() -> Self {
        let histogram = || {
            let bounded = Histogram::new_with_max(LATENCY_US_MAX, 2);
            #[expect(clippy::expect_used, reason = "the bounds are constants that a test holds")]
            bounded.expect("two digits up to a minute are legal bounds")
        };
        Self {
            stats: ShardStats::default(),
            fetch_latency_us: histogram(),
            append_latency_us: histogram(),
            buffers_lent_bytes: 0,
            partitions: 0,
            time: ShardTime::default(),
        }
    }
}

/// Processor time of the calling thread.
pub(super) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl ShardSnapshot {
    /// Takes over the shard's counters and drains its latencies.
    pub(super) fn update(&mut self, stats: &mut ShardStats) {
        for took in stats.fetch_latencies.drain(..) {
            record(&mut self.fetch_latency_us, took);
        }
        for took in stats.append.append_latencies.drain(..) {
            record(&mut self.append_latency_us, took);
        }
        self.stats.clone_from(stats);
    }

    /// Adds another shard's figures.
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.stats, &other.stats);
        sum.append.bytes_appended += more.append.bytes_appended;
        sum.append.batches_appended += more.append.batches_appended;
        sum.append.bytes_copied += more.append.bytes_copied;
        sum.append.bytes_discarded += more.append.bytes_discarded;
        sum.append.bytes_written += more.append.bytes_written;
        sum.append.writes += more.append.writes;
        sum.append.syncs += more.append.syncs;
        sum.record_bytes_received += more.record_bytes_received;
        sum.record_bytes_dropped += more.record_bytes_dropped;
        sum.fetches += more.fetches;
        sum.fetches_ahead += more.fetches_ahead;
        sum.disconnects += more.disconnects;
        sum.buffer_waits += more.buffer_waits;
        sum.stripes.ranges += more.stripes.ranges;
        sum.stripes.holes += more.stripes.holes;
        sum.stripes.lost += more.stripes.lost;
        sum.stripes.overlap_bytes += more.stripes.overlap_bytes;
        sum.spent.add(&more.spent);
        sum.broker_throttle_ms += more.broker_throttle_ms;
        self.buffers_lent_bytes += other.buffers_lent_bytes;
        self.partitions += other.partitions;
        self.time.elapsed += other.time.elapsed;
        self.time.cpu += other.time.cpu;
        // The bounds are the same, so adding cannot fail.
        let _ = self.fetch_latency_us.add(&other.fetch_latency_us);
        let _ = self.append_latency_us.add(&other.append_latency_us);
    }
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_takes_processor_time() {
        let began = thread_cpu_time();
        let mut work = 0_u64;
        while thread_cpu_time() < began + Duration::from_millis(2) {
            work = std::hint::black_box(work.wrapping_mul(31) + 1);
        }
        // Another thread's time is not counted here.
        let before = thread_cpu_time();
        let other = std::thread::spawn(|| {
            let began = thread_cpu_time();
            while thread_cpu_time() < began + Duration::from_millis(50) {}
        });
        other.join().unwrap();
        assert!(thread_cpu_time() < before + Duration::from_millis(50));
    }

    #[test]
    fn snapshots_add_up() {
        let mut stats = ShardStats { fetches: 3, fetches_ahead: 1, ..ShardStats::default() };
        stats.fetch_latencies.push(Duration::from_millis(5));
        let mut one = ShardSnapshot::default();
        one.update(&mut stats);
        assert!(stats.fetch_latencies.is_empty());
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!((sum.stats.fetches, sum.fetch_latency_us.len()), (6, 2));
        assert_eq!(sum.stats.fetches_ahead, 2);
        let p50 = sum.fetch_latency_us.value_at_quantile(0.5);
        assert!((5_000..5_100).contains(&p50), "{p50} us");
    }
}
