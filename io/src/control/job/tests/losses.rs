//! What is lost is on record before it is cut.

use heliostat_core::log::gaps::{GapKind, GapRecord};

use super::*;

/// A failover of very many partitions is aligned one after another: a write and a sync for each
/// cut would hold up the control thread for minutes.
#[test]
fn what_is_cut_next_is_recorded_by_one_write_and_once() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 5, 0, 9))]);
        let one_thread = config(dir.path(), &source, &[("num.recovery.threads.per.data.dir", "1")]);
        let (control, _shard) = FakeShard::pair();
        let started = Job::start(one_thread, |_| Ok(vec![control])).await;
        let (mut job, _handle) = started.unwrap();
        let keys: Vec<PartitionKey> = job.copies.values().map(|copy| copy.key).collect();
        for key in keys {
            let copy = job.copies.get_mut(key).unwrap();
            let record = Box::new(GapRecord {
                kind: GapKind::Truncation,
                partition: copy.at.clone(),
                topic_id: copy.topic_id,
                from: Offset(0),
                to: Offset(4),
                time: TimestampMs(1),
                reason: "a test".into(),
            });
            let how = Opening::Truncated { to: Offset(0), record };
            copy.phase = Phase::Opens { how, due: Tick::ZERO };
        }
        let recorded = || text(dir.path(), "mirror-gaps").lines().count() - 1;
        job.open_what_is_due(Tick::ZERO);
        assert_eq!((job.openers.room(), recorded()), (0, 5));
        // The rest, as threads become free.
        while !job.openers.is_idle() {
            let opened = job.openers.next().await;
            job.take_opened(opened);
            job.open_what_is_due(Tick::ZERO);
        }
        assert_eq!(recorded(), 5, "each of them once");
        assert!(job.copies.next_open().is_none());
    });
}
