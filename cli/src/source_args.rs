//! How to reach the source: the arguments that several commands share.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use heliostat_core::config::MirrorConfig;
use heliostat_io::source_client::{ClientConfig, HostPort, SocketOptions};

use crate::failure::Failure;

/// Where the source is, and settings.
#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// Brokers of the source to begin at, HOST:PORT; commas between several.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub(crate) source: Vec<HostPort>,

    /// Properties file with Kafka's names: bootstrap.servers, request.timeout.ms, mirror.*, …
    #[arg(long, value_name = "FILE")]
    pub(crate) source_config: Option<PathBuf>,
}

/// Source and settings, checked.
#[derive(Clone, Debug)]
pub(crate) struct SourceSettings {
    /// Where to begin; empty if nobody said.
    pub(crate) bootstrap: Vec<HostPort>,
    /// Everything else.
    pub(crate) mirror: MirrorConfig,
}

impl SourceArgs {
    /// Reads the file, if one is named. `--source` wins over its `bootstrap.servers`.
    pub(crate) fn load(&self) -> Result<SourceSettings, Failure> {
        let mirror = match &self.source_config {
            Some(path) => {
                let name = path.display().to_string();
                let bytes = fs::read(path).map_err(|error| {
                    let failure = Failure::from_error(&name, error);
                    failure.remedy("name a readable file with --source-config")
                })?;
                MirrorConfig::parse(&bytes).map_err(|error| Failure::from_error(&name, error))?
            }
            None => MirrorConfig::default(),
        };
        let mut bootstrap = self.source.clone();
        if bootstrap.is_empty() {
            for text in &mirror.bootstrap_servers {
                let server = text.parse();
                bootstrap
                    .push(server.map_err(|error| Failure::from_error("bootstrap.servers", error))?);
            }
        }
        Ok(SourceSettings { bootstrap, mirror })
    }
}

impl SourceSettings {
    /// Refuses settings that name no source.
    pub(crate) fn required(self) -> Result<Self, Failure> {
        if self.bootstrap.is_empty() {
            let remedy = "give --source HOST:PORT, or bootstrap.servers in --source-config";
            return Err(Failure::new("no source is named").remedy(remedy));
        }
        Ok(self)
    }

    /// Settings of a client for everything but the mirror itself.
    pub(crate) fn client(&self) -> ClientConfig {
        let mirror = &self.mirror;
        ClientConfig {
            client_id: mirror.client_id.clone(),
            socket: SocketOptions {
                connect_timeout: mirror.connection_setup_timeout,
                receive_buffer_bytes: mirror.receive_buffer_bytes,
                send_buffer_bytes: mirror.send_buffer_bytes,
            },
            request_timeout: mirror.request_timeout,
            ..ClientConfig::new(self.bootstrap.clone())
        }
    }
}
