//! The emulated path of a benchmark, and what it did.

use std::time::Duration;

use clap::Args;
use heliostat_io::path_emulator::{
    Direction, End, Loss, PathConfig, PathEmulator, PathReport, Rate, duration,
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{approximate, say};

/// Between source and mirror.
#[derive(Args, Clone, Debug)]
pub(super) struct PathArgs {
    /// Put an emulated path between source and mirror, with this round trip; needs root, `ip` and
    /// /dev/net/tun.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    rtt: Option<Duration>,

    /// Bits a second of the path, each way.
    #[arg(long, value_name = "RATE", default_value = "1gbit", requires = "rtt")]
    rate: Rate,

    /// Share of packets that the path loses, each way.
    #[arg(long, value_name = "SHARE", default_value = "0", requires = "rtt")]
    loss: Loss,

    /// Equal seeds lose the packets of equal numbers.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rtt")]
    seed: u64,
}

impl PathArgs {
    pub(super) fn is_asked_for(&self) -> bool {
        self.rtt.is_some()
    }

    /// Makes the path and moves this thread, and all that it starts, to its near end. `None`
    /// without a round trip.
    pub(super) fn start(&self) -> Result<Option<Path>, Failure> {
        let Some(rtt) = self.rtt else { return Ok(None) };
        let failed = |error| Failure::from_error("bench --rtt", error);
        let config = PathConfig { seed: self.seed, ..PathConfig::new(rtt, self.rate, self.loss) };
        let emulator = PathEmulator::start(&config).map_err(failed)?;
        emulator.enter(End::Near).map_err(failed)?;
        Ok(Some(Path { emulator, config }))
    }
}

/// A path in use.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) emulator: PathEmulator,
    config: PathConfig,
}

impl Path {
    /// Processor time that is the path's and not the mirror's.
    pub(super) fn cpu(path: Option<&Self>) -> Duration {
        path.map_or(Duration::ZERO, |path| path.emulator.report().cpu)
    }

    /// What it is like.
    pub(super) fn text(&self) -> String {
        let PathConfig { rtt, rate, loss, .. } = &self.config;
        format!("over an emulated path of {} ms, {rate}, loss {loss}", rtt.as_millis())
    }

    /// What the path is like, what it did in all rounds, and what that cost.
    pub(super) fn say(&self) -> Result<(), Failure> {
        let PathReport { homeward, cpu, .. } = self.emulator.report();
        say(format!(
            "path: {} ms, {}, loss {}; to the mirror {} packets, {} lost, {} dropped by the \
             queue, {:.1} % late; its own processor time {:.1} s",
            self.config.rtt.as_millis(),
            self.config.rate,
            self.config.loss,
            homeward.packets,
            homeward.lost,
            homeward.dropped,
            100.0 * approximate(homeward.late) / approximate(homeward.packets.max(1)),
            cpu.as_secs_f64(),
        ))
    }

    pub(super) fn json(&self) -> Value {
        let report = self.emulator.report();
        let of = |did: Direction| {
            json!({
                "packets": did.packets, "bytes": did.bytes, "lost": did.lost,
                "dropped": did.dropped, "late": did.late,
            })
        };
        json!({
            "rtt_seconds": self.config.rtt.as_secs_f64(),
            "bits_per_second": self.config.rate.0,
            "lost_per_million": self.config.loss.per_million,
            "seed": self.config.seed,
            "to_source": of(report.outward),
            "to_mirror": of(report.homeward),
            "cpu_seconds": report.cpu.as_secs_f64(),
        })
    }
}
