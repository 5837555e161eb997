//! Copies that are and are not what the source has, over the embedded source.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;

use heliostat_core::log::config::LogConfig;
use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{BrokerId, LeaderEpoch, TimestampMs};
use uuid::Uuid;

use super::*;
use crate::listener::hosted::{Catalog, CatalogConfig, TopicSpec};
use crate::listener::{Listener, ListenerConfig};
use crate::source_client::HostPort;

const LOG: &str = "t-0/00000000000000000000.log";

/// Offsets `base` to `base + 9`, of which `keep` are there.
fn batch(base: i64, keep: &[i32]) -> Vec<u8> {
    let mut batch =
        BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(2)).last_offset_delta(9);
    for delta in keep {
        let timestamp = TimestampMs(1_000 + base + i64::from(*delta));
        let value = [b'v'; 100];
        let record = NewRecord { timestamp, key: Some(b"k"), value: Some(&value), headers: &[] };
        batch.push_at(*delta, &record).unwrap();
    }
    batch.build().unwrap()
}

const ALL: [i32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

fn catalog(dir: &Path, policy: &str, batches: &[Vec<u8>]) -> Arc<Catalog> {
    let log = LogConfig::default();
    let config = CatalogConfig { cluster_id: "test".to_owned(), node_id: BrokerId(1), log };
    let catalog = Catalog::open(dir, config).unwrap();
    let topic = catalog
        .create_topic(TopicSpec {
            name: "t".to_owned(),
            partitions: 1,
            topic_id: TopicId(Uuid::from_u128(77)),
            configs: BTreeMap::from([("cleanup.policy".to_owned(), policy.to_owned())]),
            log,
        })
        .unwrap();
    for batch in batches {
        topic.partitions[0].append_verbatim(batch).unwrap();
    }
    topic.partitions[0].flush().unwrap();
    Arc::new(catalog)
}

struct World {
    _dirs: (tempfile::TempDir, tempfile::TempDir),
    copy: PathBuf,
    source: Arc<Catalog>,
    listener: Listener,
}

impl World {
    fn new(policy: &str, copy: &[Vec<u8>], source: &[Vec<u8>]) -> Self {
        let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        catalog(dirs.0.path(), policy, copy).close().unwrap();
        // A clean stop: whatever is torn then is damage.
        fs::write(dirs.0.path().join(names::CLEAN_SHUTDOWN), b"").unwrap();
        let source = catalog(dirs.1.path(), policy, source);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = ListenerConfig::new(address, BrokerId(1));
        let listener = Listener::start(Arc::clone(&source), config).unwrap();
        Self { copy: dirs.0.path().to_path_buf(), _dirs: dirs, source, listener }
    }

    fn options(&self, topics: Option<TopicSelector>) -> VerifyOptions {
        let address = self.listener.address();
        let host = HostPort { host: address.ip().to_string().into(), port: address.port() };
        let source = ClientConfig::new(vec![host]);
        VerifyOptions { source, dir: self.copy.clone(), topics, check_content: true }
    }

    fn verify(&self) -> PartitionReport {
        self.verify_and(&mut || ())
    }

    /// Calls `tick` at each progress.
    fn verify_and(&self, tick: &mut dyn FnMut()) -> PartitionReport {
        let options = self.options(None);
        let mut seen = Progress::default();
        let report = verify(&options, &mut |progress| {
            seen = progress.clone();
            tick();
        });
        let report = report.unwrap();
        assert_eq!((seen.partitions_done, seen.partitions), (1, 1));
        report.partitions[0].clone()
    }

    fn flip(&self, at: u64) {
        let file = fs::File::options().read(true).write(true).open(self.copy.join(LOG)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

fn four() -> Vec<Vec<u8>> {
    (0..4).map(|index| batch(index * 10, &ALL)).collect()
}

fn found(report: &PartitionReport) -> &Difference {
    match &report.outcome {
        Outcome::Different(found) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_that_is_shorter_is_equal_up_to_its_end() {
    let world = World::new("delete", &four()[..3], &four());
    let report = world.verify();
    assert_eq!(report.outcome, Outcome::Equal);
    assert_eq!((report.copy_end, report.source_end), (Offset(30), Offset(40)));
    assert_eq!((report.behind(), report.batches), (10, 3));
}

#[test]
fn a_flipped_byte_is_found_and_placed() {
    let world = World::new("delete", &four(), &four());
    let size = u64::try_from(four()[0].len()).unwrap();
    world.flip(size + 100);
    let report = world.verify();
    let difference = found(&report);
    assert_eq!(difference.offset, Some(Offset(10)));
    assert_eq!(difference.field, "records, byte 100 of the batch");
    assert!(difference.copy.starts_with("0x77") || difference.source.starts_with("0x76"));
    let place = format!("{} at byte {size}", world.copy.join(LOG).display());
    assert_eq!(difference.place.as_deref(), Some(place.as_str()));
    assert!(difference.meaning.contains("stored CRC"), "{}", difference.meaning);
}

#[test]
fn a_flipped_byte_that_no_checksum_covers_is_found() {
    for (at, field) in [
        (7, "baseOffset of the batch"),
        (11, "batchLength of the batch"),
        (15, "partitionLeaderEpoch of the batch"),
    ] {
        let world = World::new("compact", &four(), &four());
        world.flip(at);
        let report = world.verify();
        let difference = found(&report);
        assert!(difference.offset.is_some_and(|offset| offset.0 <= 1), "{difference:?}");
        if at != 7 {
            assert_eq!(difference.field, field);
        }
    }
}

#[test]
fn what_the_source_cleaned_or_trimmed_is_superseded() {
    let mut cleaned = four();
    cleaned[1] = batch(10, &[3, 9]);
    cleaned.remove(2);
    let world = World::new("compact", &four(), &cleaned);
    world.source.partition("t", 0).unwrap().delete_records(Offset(10)).unwrap();
    let report = world.verify();
    assert_eq!(report.outcome, Outcome::Superseded);
    let trimmed =
        SupersededRange { why: Why::Trimmed, from: Offset(0), to: Offset(10), records: 10 };
    let gone = SupersededRange { why: Why::Cleaned, from: Offset(10), to: Offset(30), records: 18 };
    assert_eq!(report.superseded, [trimmed, gone]);
    let report = Report { partitions: vec![report] };
    assert!(report.agrees(false) && !report.agrees(true));
}

#[test]
fn a_topic_that_is_not_compacted_loses_nothing_in_its_middle() {
    let mut lossy = four();
    lossy.remove(2);
    let report = World::new("delete", &four(), &lossy).verify();
    assert_eq!(found(&report).offset, Some(Offset(20)));
}

#[test]
fn what_the_copy_lacks_is_a_difference_and_a_known_gap_is_none() {
    let mut lossy = four();
    lossy.remove(2);
    let world = World::new("compact", &lossy, &four());
    assert_eq!(found(&world.verify()).offset, Some(Offset(20)));

    let gap = GapRecord {
        kind: heliostat_core::log::gaps::GapKind::Gap,
        partition: TopicPartition::new("t", 0),
        topic_id: TopicId(Uuid::from_u128(77)),
        from: Offset(20),
        to: Offset(30),
        time: TimestampMs(0),
        reason: "retention".into(),
    };
    let text = heliostat_core::log::gaps::header() + &gap.encode().unwrap();
    fs::write(world.copy.join(names::MIRROR_GAPS), text).unwrap();
    let report = world.verify();
    assert_eq!(report.outcome, Outcome::Equal);
    assert_eq!(report.gaps, [gap]);
}

#[test]
fn a_copy_that_goes_on_where_the_source_ends_is_different() {
    let report = World::new("delete", &four(), &four()[..3]).verify();
    assert_eq!(found(&report).offset, Some(Offset(30)));
}

#[test]
fn a_torn_end_is_damage_only_after_a_clean_stop() {
    let world = World::new("delete", &four(), &four());
    let file = fs::File::options().write(true).open(world.copy.join(LOG)).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 10).unwrap();
    assert_eq!(found(&world.verify()).offset, Some(Offset(30)));

    fs::remove_file(world.copy.join(names::CLEAN_SHUTDOWN)).unwrap();
    // A crash tears only what was not durable yet.
    fs::write(world.copy.join(names::RECOVERY_POINT_CHECKPOINT), "0\n1\nt 0 30\n").unwrap();
    file.set_len(len + 8_192).unwrap();
    let report = world.verify();
    assert_eq!((&report.outcome, report.copy_end), (&Outcome::Equal, Offset(30)));
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
}

#[test]
fn another_clusters_copy_is_refused() {
    let world = World::new("delete", &four(), &four());
    let meta = "version=1\ncluster.id=c\nnode.id=1\nmirror.source.cluster.id=another\n";
    fs::write(world.copy.join(names::META_PROPERTIES), meta).unwrap();
    let address = world.listener.address();
    let host = HostPort { host: address.ip().to_string().into(), port: address.port() };
    let options = VerifyOptions {
        source: ClientConfig::new(vec![host]),
        dir: world.copy.clone(),
        topics: Some(TopicSelector::new("t", "").unwrap()),
        check_content: false,
    };
    let error = verify(&options, &mut |_| ()).unwrap_err();
    assert!(matches!(error, VerifyError::OtherCluster { .. }), "{error}");
    let none = VerifyOptions { topics: Some(TopicSelector::new("u", "").unwrap()), ..options };
    assert!(matches!(verify(&none, &mut |_| ()), Err(VerifyError::Nothing { .. })));
}

#[test]
fn a_copy_that_is_being_written_is_not_called_corrupt() {
    let world = World::new("delete", &four(), &four());
    let _mirror = LogDirLock::acquire(&world.copy).unwrap();
    let file = fs::File::options().write(true).open(world.copy.join(LOG)).unwrap();
    let third = four()[2].clone();
    let at = u64::try_from(third.len() * 2).unwrap();
    // The fourth batch is on disk before the third.
    file.write_all_at(&vec![0; third.len()], at).unwrap();
    let mut ticks = 0;
    let report = world.verify_and(&mut || {
        ticks += 1;
        if ticks == 2 {
            file.write_all_at(&third, at).unwrap();
        }
    });
    assert_eq!((&report.outcome, report.copy_end), (&Outcome::Equal, Offset(40)));
}

#[test]
fn damage_is_found_while_a_mirror_runs() {
    let world = World::new("delete", &four(), &four());
    let _mirror = LogDirLock::acquire(&world.copy).unwrap();
    world.flip(u64::try_from(four()[0].len() + 100).unwrap());
    let report = world.verify();
    assert_eq!(found(&report).offset, Some(Offset(10)));
    assert!(found(&report).meaning.contains("stop the mirror"), "{report:?}");
}

#[test]
fn a_log_that_lost_its_end_is_different() {
    let one = u64::try_from(four()[0].len()).unwrap();
    for (kept, end) in [(Some(one * 3), 30), (Some(0), 0), (None, 0)] {
        for is_live in [false, true] {
            let world = World::new("delete", &four(), &four());
            let _mirror = is_live.then(|| LogDirLock::acquire(&world.copy).unwrap());
            let log = world.copy.join(LOG);
            match kept {
                Some(len) => fs::File::options().write(true).open(log).unwrap().set_len(len),
                None => fs::remove_file(log),
            }
            .unwrap();
            let report = world.verify();
            assert_eq!(report.copy_end, Offset(end));
            let said = &found(&report).meaning;
            let place = format!("t-0 ends at {end}, below its recovery point 40");
            assert!(said.contains(&place) && said.contains("start the mirror again"), "{said}");
        }
    }
}

#[test]
fn a_partition_that_lost_its_directory_is_different() {
    for is_live in [false, true] {
        let world = World::new("delete", &four(), &four());
        let _mirror = is_live.then(|| LogDirLock::acquire(&world.copy).unwrap());
        fs::remove_dir_all(world.copy.join("t-0")).unwrap();
        let report = verify(&world.options(None), &mut |_| ()).unwrap();
        let said = &found(&report.partitions[0]).meaning;
        assert!(said.contains("t-0 has no directory, and its recovery point is 40"), "{said}");
        assert!(said.contains("start the mirror again"), "{said}");
        assert!(!report.agrees(false));
        // Whoever no longer wants the topic leaves it out.
        let others = world.options(Some(TopicSelector::new("u", "").unwrap()));
        assert!(matches!(verify(&others, &mut |_| ()), Err(VerifyError::Nothing { .. })));
    }
}

#[test]
fn a_log_that_was_trimmed_whole_has_lost_nothing() {
    let world = World::new("delete", &four(), &four());
    world.source.partition("t", 0).unwrap().delete_records(Offset(40)).unwrap();
    fs::rename(world.copy.join(LOG), world.copy.join("t-0/00000000000000000040.log")).unwrap();
    let log = fs::File::options().write(true).open(world.copy.join("t-0/00000000000000000040.log"));
    log.unwrap().set_len(0).unwrap();
    let report = world.verify();
    assert_eq!((&report.outcome, report.copy_end), (&Outcome::Equal, Offset(40)));
}

#[test]
fn a_log_that_the_mirror_cuts_meanwhile_has_lost_nothing() {
    let world = World::new("delete", &four()[..3], &four()[..3]);
    let _mirror = LogDirLock::acquire(&world.copy).unwrap();
    let path = world.copy.join(names::RECOVERY_POINT_CHECKPOINT);
    let cut = fs::read_to_string(&path).unwrap();
    fs::write(&path, cut.replace("t 0 30", "t 0 40")).unwrap();
    let report = world.verify_and(&mut || fs::write(&path, &cut).unwrap());
    assert_eq!(report.outcome, Outcome::Equal);
}
