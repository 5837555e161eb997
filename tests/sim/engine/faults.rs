//! What goes wrong in the world, one thing at a time.

use std::time::Duration;

use heliostat_core::engine::message::{Command, PartitionKey};

use crate::control::Question;
use crate::disk::CrashKind;
use crate::oracle::Checked;
use crate::world::{Event, Link, World, ms};

impl World {
    pub(crate) fn fault(&mut self) -> Checked {
        if self.healing {
            return Ok(());
        }
        let pause = self.chance.between(20, 400);
        self.schedule(ms(pause), Event::Fault);
        if self.stopping {
            return Ok(());
        }
        let p = self.chance.below(self.cluster.partitions.len());
        let ids: Vec<i32> = self.brokers.keys().copied().collect();
        let broker = self.chance.pick(&ids);
        let kind = self.chance.below(100);
        self.note(format_args!("fault {kind} of partition {p} or broker {broker}"));
        match kind {
            0..14 => self.leader_change(p, false),
            14..24 => self.leader_change(p, true),
            24..32 => {
                self.cluster.shrink_isr(p);
            }
            32..40 => return self.toggle_broker(broker),
            40..44 => {
                if let Some(it) = self.brokers.get_mut(&broker) {
                    it.forget_sessions();
                }
            }
            44..50 => {
                self.count("cleaner");
                self.cluster.clean(p);
            }
            50..56 => {
                self.count("records deleted");
                self.cluster.delete_records(p);
            }
            56..60 => {
                self.count("retention");
                let percent = self.chance.pick(&[20, 50, 100]);
                self.cluster.retain(p, percent);
            }
            60..64 => return self.cut_any(),
            64..68 => {
                self.count("parked");
                for shard in 0..self.shards.len() {
                    self.command(shard, Command::SetParked(true))?;
                }
                let pause = self.chance.between(5, 600);
                self.schedule(ms(pause), Event::Unpark);
            }
            68..73 => return self.throttle(p),
            73..78 => {
                self.count("moved to another shard");
                return self.rebalance(p);
            }
            78..81 => self.crash(),
            81..84 => {
                self.count("clean stop and start");
                return self.restart();
            }
            84..86 => {
                self.count("partition added");
                let topic = self.cluster.partitions[p].topic;
                if self.cluster.partitions.len() < 14 && !self.cluster.topics[topic].deleted {
                    self.cluster.add_partition(topic);
                }
            }
            86 => {
                let topic = self.cluster.partitions[p].topic;
                if topic > 0 {
                    self.count("topic removed");
                    self.cluster.topics[topic].deleted = true;
                }
            }
            87..92 => {
                self.count("epoch bumped");
                self.cluster.bump_epoch(p);
            }
            _ => {
                self.cluster.spread_views(p, 30);
                self.cluster.elect_if_none(p);
            }
        }
        Ok(())
    }

    fn leader_change(&mut self, p: usize, unclean: bool) {
        if unclean && !self.unclean {
            return;
        }
        match self.cluster.elect(p, unclean) {
            Some(true) => self.count("unclean election, records lost"),
            Some(false) if unclean => self.count("unclean election"),
            Some(false) => self.count("clean election"),
            None => return,
        }
        let lagging = self.chance.pick(&[0, 30, 80]);
        if lagging > 0 {
            self.count("stale views");
        }
        self.cluster.spread_views(p, lagging);
    }

    fn toggle_broker(&mut self, broker: i32) -> Checked {
        if !self.cluster.is_up(broker) {
            self.cluster.start_broker(broker);
            return Ok(());
        }
        self.cluster.stop_broker(broker);
        if let Some(it) = self.brokers.get_mut(&broker) {
            it.forget_sessions();
        }
        if self.chance.percent(30) {
            self.count("broker vanished");
            return Ok(());
        }
        self.count("broker down");
        let links: Vec<Link> = self
            .sockets
            .iter()
            .filter(|(_, it)| it.broker == broker)
            .map(|(link, _)| *link)
            .collect();
        for link in links {
            self.cut(link, "connection closed")?;
        }
        Ok(())
    }

    fn cut_any(&mut self) -> Checked {
        let links: Vec<Link> = self.sockets.keys().copied().collect();
        if links.is_empty() {
            return Ok(());
        }
        self.count("connection cut");
        let link = self.chance.pick(&links);
        self.cut(link, "connection reset")
    }

    fn throttle(&mut self, p: usize) -> Checked {
        self.count("throttle changed");
        let rate = self.chance.pick(&[None, Some(20_000), Some(2_000_000)]);
        let throttled = self.chance.percent(60);
        for shard in 0..self.shards.len() {
            self.command(shard, Command::SetThrottleRate(rate))?;
            let key = PartitionKey(u64::try_from(p).expect("small"));
            self.command(shard, Command::SetThrottled { key, throttled })?;
        }
        Ok(())
    }

    fn crash(&mut self) {
        let kind =
            self.chance.pick(&[CrashKind::Process, CrashKind::Power, CrashKind::PowerNothingKept]);
        self.count(match kind {
            CrashKind::Process => "process killed",
            CrashKind::Power => "power lost",
            CrashKind::PowerNothingKept => "power lost, nothing kept",
        });
        self.control.save_some_checkpoints(&self.shards);
        drop(self.disk.crash(kind));
        self.revive(false);
    }

    fn revive(&mut self, clean: bool) {
        let shards = self.shards.len();
        self.boot(shards);
        // Answers to the old life's questions mean nothing to the new one.
        self.events.retain(|_, event| !matches!(event, Event::Control(_)));
        self.control.restart(clean);
        self.schedule(Duration::ZERO, Event::Control(Question::Metadata));
    }

    /// Stops as a signal would, and starts again.
    fn restart(&mut self) -> Checked {
        self.stop_shards()?;
        self.revive(true);
        Ok(())
    }
}
