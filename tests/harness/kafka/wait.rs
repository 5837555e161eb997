//! Waiting for a condition, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use super::error::{KafkaError, Result};

/// Time between two looks at a condition. Conditions cost a request or a small file.
const STEP: Duration = Duration::from_millis(50);

/// Looks at `condition` until it gives a value, and returns that.
///
/// # Errors
///
/// The condition's own error at once, [`KafkaError::Timeout`] after `timeout`.
pub fn until<T>(
    what: impl Into<String>,
    timeout: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = condition()? {
            return Ok(found);
        }
        let waited = begun.elapsed();
        if waited >= timeout {
            return Err(KafkaError::Timeout { what: what.into(), waited });
        }
        thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_false_condition_ends_at_the_deadline_and_names_itself() {
        let failed = until("the moon", Duration::ZERO, || Ok(None::<()>)).unwrap_err();

        assert!(failed.to_string().contains("the moon"), "{failed}");
    }

    #[test]
    fn a_condition_is_asked_again_until_it_holds() {
        let mut asked = 0;
        let found = until("three", Duration::from_secs(10), || {
            asked += 1;
            Ok((asked == 3).then_some(asked))
        });

        assert_eq!(found.unwrap(), 3);
    }
}
