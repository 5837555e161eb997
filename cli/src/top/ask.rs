//! Asks the host for figures, again and again.

use std::time::Duration;

use heliostat_core::protocol::mirror::DescribeClusterMirrorsResponse;
use heliostat_io::admin::{AdminClient, FiguresQuery};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::failure::Failure;

/// Longest wait for an answer. The host waits for its jobs for half of it at most.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Wait after the first failure; doubles from there.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Longest such wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Times what an answer took: a host that has much to say is asked less often.
const TIMES_WHAT_IT_TOOK: u32 = 10;

/// How a failure begins; on the screen that is said already.
const NO_FIGURES: &str = "no figures";

/// What came of a question.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) asked: FiguresQuery,
    /// An answer, or why there is none.
    pub(super) outcome: Result<Box<DescribeClusterMirrorsResponse>, String>,
    /// When the next question follows.
    pub(super) next_in: Duration,
}

/// Asks once.
pub(super) async fn ask(
    client: &mut AdminClient,
    query: &FiguresQuery,
) -> Result<DescribeClusterMirrorsResponse, Failure> {
    match timeout(ANSWERED_WITHIN, client.mirror_figures(query)).await {
        Ok(outcome) => outcome.map_err(|error| Failure::from_error(NO_FIGURES, error)),
        Err(_) => {
            let seconds = ANSWERED_WITHIN.as_secs();
            Err(Failure::new(format!("{NO_FIGURES}: no answer within {seconds} s")))
        }
    }
}

/// Wait after so many failures in a row, of which there is one at least.
fn back_off(failures: u32) -> Duration {
    let times = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    RETRY_AFTER.saturating_mul(times).min(RETRY_AFTER_MAX)
}

/// Asks what is wanted, every `interval` and at once when something else is wanted, until
/// nobody listens.
pub(super) async fn ask_for_ever(
    mut client: AdminClient,
    mut wanted: watch::Receiver<FiguresQuery>,
    heard: mpsc::Sender<Heard>,
    interval: Duration,
) {
    let mut failures = 0_u32;
    loop {
        let query = wanted.borrow_and_update().clone();
        let began = tokio::time::Instant::now();
        let outcome = tokio::select! {
            outcome = ask(&mut client, &query) => outcome,
            changed = wanted.changed() => match changed {
                // The answer would be to what is no longer on the screen.
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let next_in = if outcome.is_ok() {
            failures = 0;
            interval.max(began.elapsed().saturating_mul(TIMES_WHAT_IT_TOOK))
        } else {
            failures = failures.saturating_add(1);
            back_off(failures).max(interval.min(RETRY_AFTER_MAX))
        };
        let outcome = outcome.map(Box::new).map_err(|failure| {
            let text = failure.to_string();
            text.strip_prefix(NO_FIGURES)
                .map_or(&*text, |rest| rest.trim_start_matches(": "))
                .to_owned()
        });
        if heard.send(Heard { asked: query, outcome, next_in }).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(next_in) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heliostat_core::config::AdminConfig;
    use heliostat_io::source_client::HostPort;

    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = [1, 2, 3, 5, 6, 99].map(|failures| back_off(failures).as_millis());
        assert_eq!(waits, [500, 1_000, 2_000, 8_000, 10_000, 10_000]);
    }

    /// Goal: nothing ends the asking but who listens. Method: an address that refuses.
    #[tokio::test]
    async fn a_host_that_is_not_there_is_asked_again_and_a_new_question_does_not_wait() {
        // Bound and dropped: nobody listens there.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = free.local_addr().unwrap();
        drop(free);
        let at = HostPort { host: Arc::from(at.ip().to_string()), port: at.port() };
        let client = AdminClient::new(vec![at], AdminConfig::parse(b"").unwrap());
        let (sender, wanted) = watch::channel(FiguresQuery::Mirrors);
        let (heard_sender, mut heard) = mpsc::channel(1);
        let asking = ask_for_ever(client, wanted, heard_sender, Duration::from_hours(1));
        let listening = async {
            let first = heard.recv().await.unwrap();
            assert!(first.outcome.unwrap_err().contains("127.0.0.1"));
            assert_eq!(first.next_in, RETRY_AFTER_MAX);
            let other =
                FiguresQuery::Topics { mirror: "m".into(), contains: String::new(), rows_max: 1 };
            sender.send(other.clone()).unwrap();
            let second = timeout(RETRY_AFTER_MAX, heard.recv()).await.unwrap();
            assert_eq!(second.unwrap().asked, other);
            drop(heard);
            drop(sender);
        };
        tokio::join!(asking, listening);
    }
}
