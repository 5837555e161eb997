//! Copies of a real Kafka, and what happens to source and copy meanwhile. The long versions of
//! these, and the other ones, run in the campaign.

use std::sync::{Mutex, MutexGuard, PoisonError};

use heliostat_tests::kafka::{KafkaVersion, or_skip};
use heliostat_tests::scenarios::faults::{Faults, leaders_move_and_die};
use heliostat_tests::scenarios::identity::{Size, identical};
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
