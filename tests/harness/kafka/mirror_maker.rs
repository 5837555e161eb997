//! MirrorMaker 2 in dedicated mode: Kafka's own replicator, to measure against.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::artifacts::Artifacts;
use super::error::{KafkaError, Result};
use super::process::Process;
use super::properties::Properties;

/// Class path of MirrorMaker; from [`Artifacts::mirror_maker`].
#[derive(Clone, Debug)]
pub struct MirrorMakerJars(pub(crate) String);

/// A running MirrorMaker; it ends with this.
#[derive(Debug)]
pub struct MirrorMaker {
    process: Process,
}

impl MirrorMaker {
    /// Starts it with `properties` and the JVM options `jvm`; configuration and log go into `dir`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Process`], [`KafkaError::File`].
    pub fn start(
        artifacts: &Artifacts,
        jars: &MirrorMakerJars,
        dir: &Path,
        properties: &Properties,
        jvm: &[&str],
    ) -> Result<Self> {
        fs::create_dir_all(dir).map_err(KafkaError::file("create", dir))?;
        let file = dir.join("mm2.properties");
        fs::write(&file, properties.to_file()).map_err(KafkaError::file("write", &file))?;
        let mut command = Command::new(artifacts.java());
        command
            .args(jvm)
            .arg(artifacts.driver_logging())
            .arg("-cp")
            .arg(&jars.0)
            .args(["Launcher", "org.apache.kafka.connect.mirror.MirrorMaker"])
            .arg(&file)
            .current_dir(dir);
        let process = Process::start("mirror-maker", command, &dir.join("mm2.log"))?;
        Ok(Self { process })
    }

    /// Process ID.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Fails when it has ended.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Exited`] with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        self.process.check_alive()
    }
}
