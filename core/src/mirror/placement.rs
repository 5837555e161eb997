//! Which shard owns which partition: balanced by the bytes that were observed.

/// A partition as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed<K> {
    /// The partition.
    pub key: K,
    /// Index of its shard.
    pub shard: usize,
    /// Observed bytes a second.
    pub bytes_per_second: f64,
    /// Records that it is behind, or its size: what a new partition is weighed by.
    pub backlog: u64,
}

/// The shard for a new partition: the one with the least to do, then with the fewest
/// partitions. 0 if there are no shards.
pub fn choose<K>(placed: &[Placed<K>], shards: usize) -> usize {
    let weight = |shard: usize| {
        let own = || placed.iter().filter(|one| one.shard == shard);
        let rate: f64 = own().map(|one| one.bytes_per_second).sum();
        let backlog = own().map(|one| one.backlog).fold(0_u64, u64::saturating_add);
        (rate, backlog, own().count())
    };
    let lighter = |a: &(f64, u64, usize), b: &(f64, u64, usize)| {
        // Rates below noise must not decide over an even spread of what is idle.
        let rates = (a.0 - b.0).abs() > NOISE_BYTES_PER_SECOND;
        let by_rate = if rates { a.0.total_cmp(&b.0) } else { std::cmp::Ordering::Equal };
        by_rate.then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
    };
    (0..shards).min_by(|&a, &b| lighter(&weight(a), &weight(b))).unwrap_or(0)
}

/// Below this, a difference is nothing to move a partition for.
const NOISE_BYTES_PER_SECOND: f64 = 1_000_000.0;
/// The busiest shard does so much more than the mean before something moves.
const IMBALANCE: f64 = 1.3;
/// For so many looks in a row.
const LOOKS: u32 = 3;

/// Finds out whether an imbalance lasts. One instance a job; asked at even intervals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rebalancer {
    looks: u32,
}

impl Rebalancer {
    /// The partition that should move, and the shard that it should move to. `None` while
    /// the load is even, the imbalance new, or no move would make it better.
    pub fn look<K: Copy>(&mut self, placed: &[Placed<K>], shards: usize) -> Option<(K, usize)> {
        let load = |shard: usize| -> f64 {
            let own = placed.iter().filter(|one| one.shard == shard);
            own.map(|one| one.bytes_per_second).sum()
        };
        let loads: Vec<f64> = (0..shards).map(load).collect();
        let busiest = (0..shards).max_by(|&a, &b| loads[a].total_cmp(&loads[b]))?;
        let laziest = (0..shards).min_by(|&a, &b| loads[a].total_cmp(&loads[b]))?;
        let difference = loads[busiest] - loads[laziest];
        let count = u32::try_from(shards).unwrap_or(u32::MAX);
        let mean = loads.iter().sum::<f64>() / f64::from(count);
        if loads[busiest] < mean * IMBALANCE || difference < NOISE_BYTES_PER_SECOND {
            self.looks = 0;
            return None;
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return None;
        }
        self.looks = 0;
        // Half of the difference is the best to move; all of it only changes sides.
        let miss = |one: &&Placed<K>| (one.bytes_per_second - difference / 2.0).abs();
        placed
            .iter()
            .filter(|one| one.shard == busiest)
            .filter(|one| one.bytes_per_second > 0.0 && one.bytes_per_second < difference * 0.9)
            .min_by(|a, b| miss(a).total_cmp(&miss(b)))
            .map(|one| (one.key, laziest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(list: &[(u32, usize, f64)]) -> Vec<Placed<u32>> {
        let one = |&(key, shard, rate): &(u32, usize, f64)| Placed {
            key,
            shard,
            bytes_per_second: rate * 1e6,
            backlog: 0,
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn new_partitions_go_where_least_is_done() {
        assert_eq!(choose::<u32>(&[], 0), 0);
        assert_eq!(choose(&placed(&[(1, 0, 0.0)]), 3), 1);
        assert_eq!(choose(&placed(&[(1, 0, 50.0), (2, 1, 0.1), (3, 1, 0.1)]), 2), 1);
        let mut sized = placed(&[(1, 0, 0.0), (2, 1, 0.0), (3, 1, 0.0)]);
        sized[0].backlog = 1_000;
        assert_eq!(choose(&sized, 2), 1);
    }

    #[test]
    fn only_a_lasting_imbalance_moves_something() {
        let skewed = placed(&[(1, 0, 100.0), (2, 0, 60.0), (3, 0, 5.0), (4, 1, 10.0)]);
        let even = placed(&[(1, 0, 100.0), (2, 1, 95.0)]);
        let mut it = Rebalancer::default();
        assert_eq!(it.look(&skewed, 2), None);
        assert_eq!(it.look(&skewed, 2), None);
        assert_eq!(it.look(&even, 2), None);
        assert_eq!((it.look(&skewed, 2), it.look(&skewed, 2)), (None, None));
        // Half of 155 is nearest to 60 or 100: 100 misses by 22.5, 60 by 17.5.
        assert_eq!(it.look(&skewed, 2), Some((2, 1)));
        assert_eq!(it.look(&skewed, 2), None);
    }

    #[test]
    fn a_single_heavy_partition_stays() {
        let mut it = Rebalancer::default();
        let heavy = placed(&[(1, 0, 100.0), (2, 1, 1.0)]);
        assert!((0..10).all(|_| it.look(&heavy, 2).is_none()));
        assert!((0..10).all(|_| it.look(&heavy, 1).is_none()));
        assert!((0..10).all(|_| it.look::<u32>(&[], 0).is_none()));
    }
}
