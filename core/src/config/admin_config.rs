//! Settings of an admin client: what `--command-config` may hold.

use std::time::Duration;

use super::key::{INT_MAX, Key, KeyType, LONG_MAX, number, other};
use super::mirror_config::ConfigError;
use super::values::Values;
use crate::log::{FileKind, properties};

/// Every key that an admin client knows.
pub const ADMIN_KEYS: &[Key] = &[
    other("client.id", KeyType::Text, "heliostat-admin", "name that logs and quotas know it by"),
    other(
        "security.protocol",
        KeyType::OneOf(&["PLAINTEXT"]),
        "PLAINTEXT",
        "how connections are protected",
    ),
    number(
        "request.timeout.ms",
        1,
        INT_MAX,
        "30000",
        "longest wait for one answer, in milliseconds",
    ),
    number(
        "default.api.timeout.ms",
        1,
        INT_MAX,
        "60000",
        "longest time that a question may take with all its attempts, in milliseconds",
    ),
    number(
        "socket.connection.setup.timeout.ms",
        1,
        LONG_MAX,
        "10000",
        "longest wait for a connection, in milliseconds",
    ),
];

/// Settings of an admin client, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// `client.id`
    pub client_id: String,
    /// `request.timeout.ms`
    pub request_timeout: Duration,
    /// `default.api.timeout.ms`
    pub api_timeout: Duration,
    /// `socket.connection.setup.timeout.ms`
    pub connection_setup_timeout: Duration,
}

impl AdminConfig {
    /// Reads a properties file; an empty one gives Kafka's defaults.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the first thing that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let pairs = properties::parse(FileKind::Configuration, bytes)?;
        let values = Values::from_pairs(ADMIN_KEYS.iter(), pairs).map_err(|error| match error {
            ConfigError::Security { key } => ConfigError::ListenerSecurity { key },
            other => other,
        })?;
        values.ordered("request.timeout.ms", "default.api.timeout.ms")?;
        Ok(Self {
            client_id: values.text("client.id").to_owned(),
            request_timeout: values.millis("request.timeout.ms"),
            api_timeout: values.millis("default.api.timeout.ms"),
            connection_setup_timeout: values.millis("socket.connection.setup.timeout.ms"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_checked() {
        let it = AdminConfig::parse(b"").unwrap();
        assert_eq!(it.request_timeout, Duration::from_secs(30));
        assert_eq!((it.client_id.as_str(), it.api_timeout.as_secs()), ("heliostat-admin", 60));
        let it = AdminConfig::parse(b"client.id=ops\nrequest.timeout.ms=5\n").unwrap();
        assert_eq!((it.client_id.as_str(), it.request_timeout.as_millis()), ("ops", 5));
        let refused = |text: &str| AdminConfig::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused("retry=1"), "unknown key retry");
        assert_eq!(
            refused("request.timeout=1"),
            "unknown key request.timeout; did you mean request.timeout.ms?"
        );
        assert_eq!(
            refused("default.api.timeout.ms=9"),
            "request.timeout.ms=30000 must not be above default.api.timeout.ms=9"
        );
        let secret = refused("sasl.jaas.config=password=s3cret");
        assert!(secret.starts_with("sasl.jaas.config: ") && !secret.contains("s3cret"), "{secret}");
    }
}
