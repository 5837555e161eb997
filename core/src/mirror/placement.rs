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
}

/// What a shard has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Observed bytes a second of its partitions.
    pub bytes_per_second: f64,
    /// Records that they are behind: what counts before there is a rate.
    pub backlog: u64,
    /// How many they are.
    pub partitions: usize,
}

/// The shard for a new partition: the one with the least to do, then with the fewest
/// partitions. 0 if there are no shards.
pub fn choose(loads: &[Load]) -> usize {
    let lighter = |a: &Load, b: &Load| {
        // Rates below noise must not decide over an even spread of what is idle.
        let differ = (a.bytes_per_second - b.bytes_per_second).abs() > NOISE_BYTES_PER_SECOND;
        let by_rate = a.bytes_per_second.total_cmp(&b.bytes_per_second);
        let by_rate = if differ { by_rate } else { std::cmp::Ordering::Equal };
        by_rate.then(a.backlog.cmp(&b.backlog)).then(a.partitions.cmp(&b.partitions))
    };
    let lightest = loads.iter().enumerate().min_by(|(_, a), (_, b)| lighter(a, b));
    lightest.map_or(0, |(shard, _)| shard)
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
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn new_partitions_go_where_least_is_done() {
        let load = |rate: f64, backlog, partitions| Load {
            bytes_per_second: rate * 1e6,
            backlog,
            partitions,
        };
        assert_eq!(choose(&[]), 0);
        assert_eq!(choose(&[load(0.0, 0, 1), load(0.0, 0, 0), load(0.0, 0, 0)]), 1);
        assert_eq!(choose(&[load(50.0, 0, 1), load(0.2, 0, 2)]), 1);
        assert_eq!(choose(&[load(0.0, 1_000, 1), load(0.0, 0, 2)]), 1);
        assert_eq!(choose(&[load(0.5, 0, 1), load(0.0, 0, 2)]), 0);
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
