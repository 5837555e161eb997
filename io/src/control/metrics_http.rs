//! `/metrics` and other pages over HTTP/1.1: just enough of it for a scraper and for probes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::metrics_text::render;
use super::status::Status;

/// Requests that are longer are refused.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Of a request that is refused, so much more is read: a reset would overtake the answer.
const DRAINED_BYTES_MAX: usize = 64 << 10;
/// Connections at once.
const CONNECTIONS_MAX: usize = 16;
/// Longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be served on {addr}: {source}; choose another address")]
pub struct MetricsError {
    /// Where.
    pub addr: SocketAddr,
    /// What the system says.
    pub source: std::io::Error,
}

/// What a path shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// It is as it should be: 200. Otherwise 503.
    pub is_good: bool,
    /// Plain text.
    pub body: String,
}

impl Page {
    /// Answered with 200.
    pub fn good(body: impl Into<String>) -> Self {
        Self { is_good: true, body: body.into() }
    }

    /// Answered with 503, and why.
    pub fn bad(body: impl Into<String>) -> Self {
        Self { is_good: false, body: body.into() }
    }
}

/// What is served.
pub trait Pages: Clone + Send + Sync + 'static {
    /// What a path shows, without what may follow a `?`; `None` if there is no such path.
    fn page(&self, path: &str) -> impl Future<Output = Option<Page>> + Send;
}

/// The pages of a single job: its latest figures.
impl Pages for watch::Receiver<Arc<Status>> {
    async fn page(&self, path: &str) -> Option<Page> {
        match path {
            "/metrics" => {
                let status = Arc::clone(&self.borrow());
                Some(Page::good(render(&status)))
            }
            "/health" => Some(Page::good("ok\n")),
            _ => None,
        }
    }
}

/// A bound listener.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
}

impl MetricsServer {
    /// Binds `addr`.
    ///
    /// # Errors
    /// [`MetricsError`] if the address is taken or not ours.
    pub async fn bind(addr: SocketAddr) -> Result<Self, MetricsError> {
        let listener =
            TcpListener::bind(addr).await.map_err(|source| MetricsError { addr, source })?;
        Ok(Self { listener })
    }

    /// Where it listens; port 0 has become a real one.
    ///
    /// # Errors
    /// From the system.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves pages for ever.
    pub async fn serve(self, pages: impl Pages) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let pages = pages.clone();
                    tokio::spawn(async move {
                        let _ = timeout(REQUEST_TIMEOUT, answer(stream, &pages)).await;
                        drop(permit);
                    });
                }
                // Out of file descriptors: others may give some back.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn answer(mut stream: TcpStream, pages: &impl Pages) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES_MAX || stream.read_buf(&mut request).await? == 0 {
            return refuse(stream).await;
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version)) = (method, target, version) else {
        return refuse(stream).await;
    };
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return refuse(stream).await;
    }
    if method != "GET" {
        return respond(&mut stream, "405 Method Not Allowed", "GET only\n").await;
    }
    let path = target.split('?').next().unwrap_or_default();
    match pages.page(path).await {
        Some(Page { is_good: true, body }) => respond(&mut stream, "200 OK", &body).await,
        Some(Page { is_good: false, body }) => {
            respond(&mut stream, "503 Service Unavailable", &body).await
        }
        None => respond(&mut stream, "404 Not Found", "see /metrics\n").await,
    }
}

/// Answers what is no request, or too long for one.
async fn refuse(mut stream: TcpStream) -> std::io::Result<()> {
    respond(&mut stream, "400 Bad Request", "no HTTP request\n").await?;
    let mut drained = Vec::new();
    while drained.len() < DRAINED_BYTES_MAX && stream.read_buf(&mut drained).await? > 0 {}
    Ok(())
}

async fn respond(stream: &mut TcpStream, code: &str, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nAllow: GET\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use heliostat_core::types::{Offset, TopicId, TopicPartition};

    use super::super::status::{PartitionState, PartitionStatus, Totals};
    use super::*;

    fn partition(index: i32) -> PartitionStatus {
        PartitionStatus {
            partition: TopicPartition::new("orders", index),
            topic_id: TopicId::NONE,
            state: PartitionState::Mirroring,
            trouble: None,
            shard: Some(0),
            log_start: Offset(3),
            log_end: Offset(40),
            recovery_point: Offset(40),
            last_stable: Offset(40),
            source_high_watermark: Offset(50),
            source_last_stable: Offset(50),
            target: Some(Offset(50)),
            lag_records: 10,
            lag_bytes: 100,
            lag: Duration::from_millis(1_500),
            size_bytes: 400,
            bytes_appended: 400,
            bytes_per_second: 1.0,
            appended_at: None,
        }
    }

    async fn ask(addr: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn scrapers_get_the_latest_figures() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let status = Status {
                partitions: [partition(0), partition(1)].into(),
                totals: Totals { mirroring: 2, ..Totals::default() },
                ..Status::default()
            };
            let (_sender, receiver) = watch::channel(Arc::new(status));
            let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let addr = server.local_addr().unwrap();
            tokio::spawn(server.serve(receiver));
            let text = ask(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            for line in [
                "# TYPE heliostat_appended_bytes_total counter",
                "heliostat_partition_state{state=\"mirroring\"} 2",
                "heliostat_partition_lag_records{topic=\"orders\",partition=\"1\"} 10",
                "heliostat_partition_lag_seconds{topic=\"orders\",partition=\"0\"} 1.5",
                "heliostat_fetch_latency_seconds{quantile=\"0.999\"} 0",
            ] {
                assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
            }
            assert!(ask(addr, "GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
            assert!(ask(addr, "POST /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
            assert!(ask(addr, "GET /health?x=1 HTTP/1.0\r\n\r\n").await.contains(" 200 "));
            let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * REQUEST_BYTES_MAX));
            for garbage in [long.as_str(), "\r\n\r\n", "GET /metrics\r\n\r\n", "a b c\r\n\r\n"] {
                assert!(ask(addr, garbage).await.starts_with("HTTP/1.1 400"), "{garbage}");
            }
        });
    }

    #[test]
    fn series_are_bounded() {
        let partitions = (0..5_000).map(partition).collect();
        let text = render(&Status { partitions, ..Status::default() });
        assert!(text.lines().count() < 11_000);
        assert!(!text.contains("partition=\"2000\""));
    }
}
