//! What must hold of a partition that is STOPPED.

use heliostat_core::coordinator::LastMirrored;
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::producer_state::ProducerState;
use heliostat_core::records::{BatchMeta, BatchWalker, ControlType, WalkLimits};
use heliostat_core::types::{LeaderEpoch, Offset};

use crate::registry::{Id, id};
use crate::source::Batch;

fn meta(batch: &Batch) -> BatchMeta {
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
    let fed = BatchWalker::new(limits).feed(&batch.bytes);
    fed.expect("a batch of a log is whole").1.expect("a batch of a log is whole")
}

/// One ABORT for each transaction that was open, one reset, once; the position is where they
/// begin, and the leader epoch is above all that was mirrored.
pub(crate) fn stopped(
    log: &ColdLog,
    batches: &[Batch],
    last: Option<LastMirrored>,
    leader_epoch: LeaderEpoch,
) -> Result<(), String> {
    let mirrored = last.map_or(LeaderEpoch::NONE, |last| last.epoch);
    let ours = batches.iter().position(|batch| batch.epoch > mirrored).unwrap_or(batches.len());
    let (copied, ours) = batches.split_at(ours);
    if leader_epoch <= mirrored || batches.iter().any(|batch| batch.epoch > leader_epoch) {
        return Err(format!("its leader epoch {leader_epoch} is not above {mirrored}"));
    }
    let mut producers = ProducerState::new(log.log_start());
    for batch in copied {
        producers.on_batch(&meta(batch));
    }
    let is_open = |id: &heliostat_core::types::ProducerId| {
        producers.producer(*id).is_some_and(|it| it.txn_first_offset().is_some())
    };
    let open = producers.producers().filter(|(id, _)| is_open(id)).count();
    let metas: Vec<BatchMeta> = ours.iter().map(meta).collect();
    let aborts = metas.iter().take_while(|it| it.control == Some(ControlType::Abort)).count();
    if aborts != open {
        return Err(format!("{aborts} ABORTs for {open} open transactions"));
    }
    let resets = metas.iter().filter(|it| it.control == Some(ControlType::MirrorPidReset)).count();
    let reset = metas.get(aborts).and_then(|it| it.control);
    if resets != 1 || reset != Some(ControlType::MirrorPidReset) {
        return Err(format!("{resets} resets, {reset:?} behind the ABORTs"));
    }
    let begins = ours.first().map_or(log.log_end(), |batch| batch.base);
    let newest = copied.last().map_or(LeaderEpoch::NONE, |batch| batch.epoch);
    match last {
        Some(last) if last.offset != begins => {
            Err(format!("its position is {last:?}, our own begin at {begins}"))
        }
        Some(last) if !copied.is_empty() && last.epoch != newest => {
            Err(format!("its position is {last:?}, mirrored was epoch {newest}"))
        }
        None if !copied.is_empty() => Err("it has no position".to_owned()),
        _ => Ok(()),
    }
}

/// Both logs hold the same between the later start and the earlier end.
pub(crate) fn same(ours: &[Batch], theirs: &[Batch], from: Offset) -> Result<(), String> {
    let behind = |all: &[Batch]| {
        let all = all.iter().filter(|batch| batch.base >= from);
        all.map(|batch| (id(batch), batch.bytes.clone())).collect::<Vec<_>>()
    };
    let (ours, theirs) = (behind(ours), behind(theirs));
    if ours == theirs {
        return Ok(());
    }
    let common = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
    let rest = |all: &[(Id, _)]| all[common..].iter().map(|it| it.0).collect::<Vec<_>>();
    let (ours, theirs) = (rest(&ours), rest(&theirs));
    Err(format!("from {from} on the copy is not its source's: {ours:?}, there {theirs:?}"))
}
