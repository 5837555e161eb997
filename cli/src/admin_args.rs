//! How to reach a host as an operator: the arguments that several commands share.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use heliostat_core::config::AdminConfig;
use heliostat_io::admin::{AdminClient, AdminError};
use heliostat_io::source_client::HostPort;

use crate::failure::Failure;

/// Where the host is, and settings.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// Servers to begin at, HOST:PORT; commas between several. Required.
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap_server: Option<String>,

    /// Properties file with settings of the client: request.timeout.ms, client.id, …
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
}

impl AdminArgs {
    /// Where it begins, as it was typed.
    pub(crate) fn servers(&self) -> String {
        self.bootstrap_server.clone().unwrap_or_default()
    }

    /// A client that has not connected yet.
    pub(crate) fn client(&self) -> Result<AdminClient, Failure> {
        let servers = self.bootstrap_server.as_deref().unwrap_or_default();
        let servers = servers.split(',').map(str::trim).filter(|text| !text.is_empty());
        let mut bootstrap = Vec::new();
        for text in servers {
            let server = text.parse::<HostPort>();
            bootstrap
                .push(server.map_err(|error| Failure::from_error("--bootstrap-server", error))?);
        }
        if bootstrap.is_empty() {
            return Err(
                Failure::new("no server is named").remedy("give --bootstrap-server HOST:PORT")
            );
        }
        let config = match &self.command_config {
            Some(path) => {
                let name = path.display().to_string();
                let bytes = fs::read(path).map_err(|error| {
                    let failure = Failure::from_error(&name, error);
                    failure.remedy("name a readable file with --command-config")
                })?;
                AdminConfig::parse(&bytes).map_err(|error| Failure::from_error(&name, error))?
            }
            None => AdminConfig::parse(b"").map_err(|error| Failure::from_error("", error))?,
        };
        Ok(AdminClient::new(bootstrap, config))
    }
}

/// Runs a command's questions to their end, on this thread.
pub(crate) fn ask<T>(asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::from_error("no runtime", error))?.block_on(asking)
}

/// A server's no, or none at all.
pub(crate) fn refused(what: impl Into<String>, error: AdminError) -> Failure {
    Failure::from_error(what, error)
}
