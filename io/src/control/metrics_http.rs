//! `/metrics` over HTTP/1.1: just enough of it for a scraper.

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

    /// Serves the latest status for ever.
    pub async fn serve(self, status: watch::Receiver<Arc<Status>>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let status = status.clone();
                    tokio::spawn(async move {
                        let _ = timeout(REQUEST_TIMEOUT, answer(stream, &status)).await;
                        drop(permit);
                    });
                }
                // Out of file descriptors: others may give some back.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    status: &watch::Receiver<Arc<Status>>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES_MAX || stream.read_buf(&mut request).await? == 0 {
            return respond(&mut stream, "400 Bad Request", "no HTTP request\n").await;
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            let status = Arc::clone(&status.borrow());
            respond(&mut stream, "200 OK", &render(&status)).await
        }
        (Some("GET"), Some("/health")) => respond(&mut stream, "200 OK", "ok\n").await,
        (Some("GET"), _) => respond(&mut stream, "404 Not Found", "see /metrics\n").await,
        _ => respond(&mut stream, "405 Method Not Allowed", "GET only\n").await,
    }
}

async fn respond(stream: &mut TcpStream, code: &str, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n",
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
            let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(REQUEST_BYTES_MAX));
            assert!(ask(addr, &long).await.starts_with("HTTP/1.1 400"));
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
