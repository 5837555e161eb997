//! What a reader may see of transactions.

use crate::log::txn_index::AbortedTxn;
use crate::types::Offset;

/// `isolation.level` of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Everything up to the high watermark.
    #[default]
    ReadUncommitted,
    /// Up to the last stable offset, with the list of aborted transactions.
    ReadCommitted,
}

impl IsolationLevel {
    /// As Kafka reads the wire's byte: 1 is read_committed, all else is not.
    pub fn from_wire(code: i8) -> Self {
        if code == 1 { Self::ReadCommitted } else { Self::ReadUncommitted }
    }
}

/// Those of `all` that touch the offsets from `from` (inclusive) to `to`
/// (exclusive), in the order given.
pub fn aborted_in<'a>(
    all: impl IntoIterator<Item = &'a AbortedTxn>,
    from: Offset,
    to: Offset,
) -> Vec<AbortedTxn> {
    all.into_iter()
        .filter(|txn| txn.last_offset >= from && txn.first_offset < to)
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ProducerId;

    #[test]
    fn only_transactions_that_touch_the_range_count() {
        let txn = |first, last| AbortedTxn {
            producer_id: ProducerId(7),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        };
        let all = [txn(0, 9), txn(5, 10), txn(12, 30), txn(20, 21)];
        let seen = aborted_in(&all, Offset(10), Offset(20));
        assert_eq!(seen, [txn(5, 10), txn(12, 30)]);
    }
}
