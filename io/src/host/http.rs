//! The host's HTTP endpoint: `/metrics`, `/health`, `/ready`, on a thread of its own.
//!
//! It shares nothing with the control thread but snapshots: a scrape of very many series, or one
//! that is read slowly, holds up nobody else.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::HostError;
use super::http_text::render;
use super::snapshot::{ANSWERS_WITHIN, Look, Phase, Viewer};
use crate::control::metrics_http::{MetricsError, MetricsServer, Page, Pages};

/// The endpoint; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Binds `at`, and serves from here on.
    ///
    /// # Errors
    /// [`HostError::Http`] if the address is taken or not ours, or if there is no thread.
    pub(super) fn start(at: SocketAddr, viewer: Viewer) -> Result<Self, HostError> {
        let (stop, stopped) = oneshot::channel();
        let (sender, bound) = mpsc::sync_channel(1);
        let failed = move |source| MetricsError { addr: at, source };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                // Whoever started this waits for the word.
                Err(error) => return drop(sender.send(Err(failed(error)))),
            };
            runtime.block_on(async {
                let server = MetricsServer::bind(at).await;
                let address = server
                    .as_ref()
                    .map_err(|error| std::io::Error::from(error.source.kind()))
                    .and_then(MetricsServer::local_addr);
                let _ = match (server, address) {
                    (Err(error), _) => sender.send(Err(error)),
                    (Ok(_), Err(error)) => sender.send(Err(failed(error))),
                    (Ok(server), Ok(address)) => {
                        let told = sender.send(Ok(address));
                        tokio::select! {
                            _ = stopped => {}
                            () = server.serve(HostPages(viewer)) => {}
                        }
                        told
                    }
                };
            });
        });
        let thread = thread.map_err(|error| HostError::Http(failed(error)))?;
        let gone = |_| HostError::Http(failed(std::io::Error::other("its thread has ended")));
        let address = bound.recv().map_err(gone)?.map_err(HostError::Http)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it is; the real port if 0 was asked for.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A page that panicked has ended its own task only.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Debug)]
struct HostPages(Viewer);

impl Pages for HostPages {
    async fn page(&self, path: &str) -> Option<Page> {
        let page: fn(&Look) -> Page = match path {
            "/metrics" => |look| Page::good(render(look)),
            "/health" => health,
            "/ready" => ready,
            _ => return None,
        };
        Some(page(&self.0.look().await))
    }
}

/// Whether it is any use to leave the process running. A start that replays long logs is no
/// reason to end it, nor is a stop.
fn health(look: &Look) -> Page {
    let Look { snapshot, is_late } = look;
    let mut wrong = Vec::new();
    if *is_late {
        let seconds = ANSWERS_WITHIN.as_secs();
        wrong.push(format!(
            "the control thread has not answered within {seconds} s; see this host's log and its \
             disk, and restart it if that stays"
        ));
    }
    let failed = snapshot.shard_errors.iter();
    wrong.extend(failed.map(|error| format!("a shard has failed: {error}; restart the host")));
    match snapshot.phase {
        _ if !wrong.is_empty() => Page::bad(lines(&wrong)),
        Phase::Starting => Page::good("starting\n"),
        Phase::Running => Page::good("ok\n"),
        Phase::Stopping => Page::good("stopping\n"),
    }
}

/// Whether it does all that it is there for.
fn ready(look: &Look) -> Page {
    let Look { snapshot, is_late } = look;
    match snapshot.phase {
        Phase::Starting => Page::bad("the host's logs are being replayed\n"),
        Phase::Stopping => Page::bad("the host is being stopped\n"),
        Phase::Running if *is_late => Page::bad("the control thread does not answer\n"),
        Phase::Running if !snapshot.missing.is_empty() => Page::bad(lines(&snapshot.missing)),
        Phase::Running => Page::good("ready\n"),
    }
}

fn lines(all: &[String]) -> String {
    let mut text = String::new();
    for line in all {
        text.push_str(&line.replace(['\r', '\n'], " "));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::snapshot::{Snapshot, view};
    use super::*;

    fn look(snapshot: Snapshot) -> Look {
        Look { snapshot: Arc::new(snapshot), is_late: false }
    }

    #[test]
    fn health_is_about_shards_and_the_control_thread() {
        let of = |phase| health(&look(Snapshot { phase, ..Snapshot::default() }));
        assert_eq!(of(Phase::Running), Page::good("ok\n"));
        assert_eq!(of(Phase::Starting), Page::good("starting\n"));
        assert_eq!(of(Phase::Stopping), Page::good("stopping\n"));
        let shard_errors = vec!["mirror m: no\nring".to_owned()];
        let snapshot = Snapshot { phase: Phase::Running, shard_errors, ..Snapshot::default() };
        let failed = health(&look(snapshot.clone()));
        let said = "a shard has failed: mirror m: no ring; restart the host\n";
        assert_eq!(failed, Page::bad(said));
        let late = health(&Look { is_late: true, ..look(snapshot) });
        assert!(late.body.starts_with("the control thread has not answered within 3 s"));
        assert_eq!(late.body.lines().count(), 2);
    }

    #[test]
    fn ready_says_what_is_missing() {
        let of = |phase| ready(&look(Snapshot { phase, ..Snapshot::default() }));
        assert_eq!(of(Phase::Running), Page::good("ready\n"));
        assert_eq!(of(Phase::Starting), Page::bad("the host's logs are being replayed\n"));
        assert!(!of(Phase::Stopping).is_good);
        let missing = vec!["mirror a: gone".to_owned(), "mirror b: gone".to_owned()];
        let snapshot = Snapshot { phase: Phase::Running, missing, ..Snapshot::default() };
        assert_eq!(ready(&look(snapshot.clone())).body, "mirror a: gone\nmirror b: gone\n");
        let late = ready(&Look { is_late: true, ..look(snapshot) });
        assert_eq!(late, Page::bad("the control thread does not answer\n"));
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let (_publisher, viewer) = view();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let first = Endpoint::start(any, viewer.clone()).unwrap();
        let error = Endpoint::start(first.address(), viewer.clone()).unwrap_err().to_string();
        assert!(error.contains(&first.address().to_string()), "{error}");
        let at = first.address();
        drop(first);
        Endpoint::start(at, viewer).unwrap();
    }
}
