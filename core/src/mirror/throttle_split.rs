//! The host's throttle divided between shards.

/// Each shard's part of `rate` (bytes a second): what has something to copy shares it
/// evenly, and the others keep a hundredth between them, so that one that wakes up need
/// not wait for the next division. The parts never add up to more than `rate`.
pub fn split(rate: u64, is_hungry: &[bool]) -> Vec<u64> {
    let count = |hungry: bool| {
        let same = is_hungry.iter().filter(|one| **one == hungry).count();
        u64::try_from(same).unwrap_or(u64::MAX)
    };
    let (hungry, idle) = (count(true), count(false));
    if hungry == 0 || idle == 0 {
        return vec![rate / (hungry + idle).max(1); is_hungry.len()];
    }
    let reserve = rate / 100;
    let part = |one: &bool| if *one { (rate - reserve) / hungry } else { reserve / idle };
    is_hungry.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_has_something_to_copy_gets_the_rate() {
        assert_eq!(split(1_000, &[true, true]), [500, 500]);
        assert_eq!(split(1_000, &[true, false]), [990, 10]);
        assert_eq!(split(1_000, &[false, false]), [500, 500]);
        assert_eq!(split(1_000, &[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn parts_never_exceed_the_rate(rate in 0..u64::MAX, hungry: Vec<bool>) {
            let sum: u128 = split(rate, &hungry).into_iter().map(u128::from).sum();
            prop_assert!(sum <= u128::from(rate));
        }
    }
}
