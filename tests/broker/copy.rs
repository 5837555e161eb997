//! Copies of a real Kafka, and what happens to source and copy meanwhile. The long versions of
//! these, and the other ones, run in the campaign.

use std::sync::{Mutex, MutexGuard, PoisonError};

use heliostat_tests::kafka::{KafkaVersion, or_skip};
use heliostat_tests::scenarios::chance::Chance;
use heliostat_tests::scenarios::damaged::{Damage, damaged_copy};
use heliostat_tests::scenarios::disk_full::{Filling, disk_full};
use heliostat_tests::scenarios::faults::{Faults, leaders_move_and_die};
use heliostat_tests::scenarios::identity::{Size, identical};
use heliostat_tests::scenarios::kills::{Kills, killed_again_and_again};
use heliostat_tests::scenarios::mount::TmpFs;
use heliostat_tests::scenarios::retention::{Kept, retention_overtakes};
use heliostat_tests::scenarios::source_away::{Away, source_away};
use heliostat_tests::scenarios::takeover::{Takeover, take_over};
use heliostat_tests::scenarios::unclean::unclean_election;
use heliostat_tests::scenarios::{Figures, Result, child};

/// One cluster at a time: ten brokers on two processors would be mistaken for dead.
fn alone() -> MutexGuard<'static, ()> {
    static CLUSTER: Mutex<()> = Mutex::new(());
    CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Figures go to the captured output.
#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn show(figures: &Figures) {
    println!("{figures}");
}

/// Does nothing, unless a scenario has started this binary again to copy.
#[test]
fn the_second_process_copies() -> Result<()> {
    child::run_if_asked().map(drop)
}

#[test]
fn a_copy_is_byte_identical_while_producers_of_every_kind_write() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&identical(&kafka, Size::SMALL)?);
    Ok(())
}

#[test]
fn a_broker_serves_the_same_from_the_files_of_the_copy() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    let how = [Takeover::CleanShutdown, Takeover::NoMarker, Takeover::CopyKilled];
    show(&take_over(&kafka, &how)?);
    Ok(())
}

#[test]
fn a_copy_follows_leaders_that_move_and_die() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&leaders_move_and_die(&kafka, Faults::FEW)?);
    Ok(())
}

#[test]
fn a_tail_that_an_unclean_election_lost_is_cut_by_policy() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&unclean_election(&kafka)?);
    Ok(())
}

#[test]
fn a_copy_that_is_killed_again_and_again_ends_equal() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&killed_again_and_again(&kafka, Kills::FEW, &mut Chance::new(1))?);
    Ok(())
}

#[test]
fn a_copy_on_a_full_disk_waits_for_room() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    if !TmpFs::is_allowed() {
        eprintln!("skipped: no small file system can be mounted without root");
        return Ok(());
    }
    let _alone = alone();
    show(&disk_full(&kafka, Filling::SHORT)?);
    Ok(())
}

#[test]
fn a_copy_goes_on_by_itself_when_the_source_is_back() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&source_away(&kafka, Away::SHORT)?);
    Ok(())
}

#[test]
fn what_retention_takes_before_it_is_copied_is_on_record() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&retention_overtakes(&kafka, Kept::FEW)?);
    Ok(())
}

#[test]
fn a_killed_copy_whose_files_are_damaged_converges() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    show(&damaged_copy(&kafka, Damage::FEW)?);
    Ok(())
}
