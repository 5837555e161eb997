//! Class-data archives: what the JVM otherwise parses and verifies anew at each start.
//!
//! They halve the processor time of a broker's start, which is most of a small test. An archive
//! is written by a JVM that ends, so one broker and one driver run once for each version, do a
//! little of everything, and leave theirs in the cache. A JVM that cannot use an archive (another
//! JDK, another path) goes on without.

use std::fs;
use std::path::{Path, PathBuf};

use super::artifacts::Artifacts;
use super::client::{Compression, Isolation, Workload};
use super::cluster::{Cluster, JVM_TEST};
use super::driver::Driver;
use super::error::{KafkaError, Result};

/// Options that use the archive at `path`, unless it is missing or the empty sign of a failure.
pub(crate) fn options(path: &Path) -> Vec<String> {
    match fs::metadata(path) {
        Ok(file) if file.len() > 0 => vec![
            format!("-XX:SharedArchiveFile={}", path.display()),
            // A JVM that declines the archive must not say so on standard output.
            "-Xlog:disable".to_owned(),
        ],
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// Writes the archives of brokers of this version, and of the driver, that are missing. The
/// caller holds the lock of the cache. An archive is a convenience: a failure leaves an empty
/// file, so that it is not tried each time.
pub(crate) fn prepare(artifacts: &Artifacts) {
    let (broker, driver) = (artifacts.broker_archive(), artifacts.driver_archive());
    if broker.exists() && driver.exists() {
        return;
    }
    let _ = write(artifacts, &broker, &driver);
    for path in [broker, driver] {
        if !path.exists() {
            let _ = fs::write(path, b"");
        }
    }
}

fn write(artifacts: &Artifacts, broker: &Path, driver: &Path) -> Result<()> {
    let (broker_part, driver_part) = (partial(broker), partial(driver));
    let mut jvm = JVM_TEST.map(str::to_owned).to_vec();
    jvm.push(format!("-XX:ArchiveClassesAtExit={}", broker_part.display()));
    let mut cluster = Cluster::builder(artifacts).jvm(jvm).start()?;
    let mut options = options(driver);
    if !driver.exists() {
        options.push(format!("-XX:ArchiveClassesAtExit={}", driver_part.display()));
    }
    let clients = Driver::start_with(artifacts, &options)?;
    let client = clients.client(cluster.bootstrap());
    client.create_topic("archive", 1, 1, &[])?;
    client.produce(&Workload { compression: Compression::Lz4, ..Workload::new("archive", 10) })?;
    client.consume("archive", 0, Isolation::ReadUncommitted)?;
    client.delete_records("archive", 0, 5)?;
    clients.exit()?;
    cluster.stop_all()?;
    for (part, whole) in [(broker_part, broker), (driver_part, driver)] {
        if part.exists() {
            fs::rename(&part, whole).map_err(KafkaError::file("rename", part))?;
        }
    }
    Ok(())
}

fn partial(path: &Path) -> PathBuf {
    path.with_extension("partial")
}
