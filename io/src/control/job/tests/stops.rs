//! How long a clean stop may take.

use super::*;

/// Very many logs, or a slow disk: as long as one after another is closed, it is worth waiting
/// for, for the next start would recover all of them.
#[test]
fn a_stop_goes_on_as_long_as_logs_are_closed() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 4, 5, 9))]);
        let within = Duration::from_secs(8);
        let config = JobConfig { stop_within: within, ..config(dir.path(), &source, &[]) };
        let mut running = Running::start(config).await;
        let mut keys = Vec::new();
        for _ in 0..4 {
            keys.push(running.added().await.0);
        }
        running.handle.cancel();
        assert_eq!(running.shard.next().await, Seen::Stopped);
        tokio::time::pause();
        for key in keys {
            tokio::time::sleep(within * 3 / 4).await;
            running.shard.give_back(key, ReturnReason::Asked);
        }
        running.shard.stop();
        let report = running.job.await.unwrap().unwrap();
        assert_eq!((report.ended, report.clean), (Ended::Stopped, true));
    });
}
