//! Breaks a rule on purpose: its oracle has to see it.

use crate::host::Sabotage;
use crate::run_seed;

const SEEDS: u64 = 150;

#[track_caller]
fn seen(sabotage: Sabotage, oracle: &str) {
    let mut found = Vec::new();
    for seed in 0..SEEDS {
        if let Err(what) = run_seed(seed, sabotage).0 {
            if what.contains(oracle) {
                return;
            }
            found.push(what.lines().next().unwrap_or_default().to_owned());
        }
    }
    panic!("{sabotage:?} went unseen in {SEEDS} seeds; seen was {found:#?}");
}

#[test]
fn a_state_that_was_not_stored_is_seen() {
    seen(Sabotage::AckEarly, "acknowledged state was lost");
}

#[test]
fn a_wish_that_was_not_stored_is_seen() {
    seen(Sabotage::WishEarly, "acknowledged metadata was lost");
}

#[test]
fn a_write_before_the_stop_is_seen() {
    seen(Sabotage::WriteEarly, "was accepted in");
}

#[test]
fn a_batch_above_the_leader_epoch_is_seen() {
    seen(Sabotage::AppendAbove, "its leader is at");
}

#[test]
fn an_alignment_that_cuts_nothing_is_seen() {
    seen(Sabotage::NoCut, "never settles");
}

#[test]
fn two_resets_are_seen() {
    seen(Sabotage::MarkTwice, "2 resets");
}

#[test]
fn an_open_transaction_is_seen() {
    seen(Sabotage::NoAborts, "0 ABORTs for");
}

#[test]
fn a_position_that_is_none_is_seen() {
    seen(Sabotage::FreshPosition, "its position is");
}

#[test]
fn an_epoch_that_is_used_again_is_seen() {
    seen(Sabotage::OldEpoch, "of which it was cut");
}

#[test]
fn a_host_that_forgets_is_seen() {
    seen(Sabotage::Deaf, "never settles");
}

#[test]
fn a_reader_that_is_shown_what_is_accepted_is_seen() {
    seen(Sabotage::ShowEarly, "is shown to");
}

#[test]
fn a_reader_that_is_shown_less_than_before_is_seen() {
    seen(Sabotage::ShowBack, "is shown back");
}

#[test]
fn a_write_that_was_called_complete_is_seen() {
    seen(Sabotage::WritesLie, "bytes of");
}

#[test]
fn a_sync_that_did_nothing_is_seen() {
    seen(Sabotage::SyncsLie, "was lost, durable was");
}

#[test]
fn a_log_that_is_opened_before_its_shard_gave_it_back_is_seen() {
    seen(Sabotage::ReleaseEarly, "while a shard has it");
}

#[test]
fn two_histories_in_one_log_are_seen() {
    seen(Sabotage::Blind, "two histories in one log");
}

#[test]
fn an_epoch_of_the_life_before_is_seen() {
    seen(Sabotage::SameEpoch, "two batches");
}
