//! Where a broker listens, as operators and brokers write it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A host name or address, and a port. Names are resolved at each connect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

/// A text that names no listener.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no broker: want host:port, for example kafka1.example.com:9092")]
pub struct HostPortError {
    /// The text.
    pub text: String,
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (host, port) = text.trim().rsplit_once(':')?;
            let port = port.parse().ok().filter(|port| *port > 0)?;
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            // An address with colons needs its brackets, or its end would be the port.
            let host = bare.or_else(|| (!host.contains(':')).then_some(host))?;
            let is_word =
                !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
            is_word.then(|| Self { host: Arc::from(host), port })
        };
        parse().ok_or_else(|| HostPortError { text: text.chars().take(100).collect() })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_and_written() {
        for text in ["kafka1:9092", "10.0.0.1:1", "[::1]:9092"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        assert_eq!(&*"[::1]:9092".parse::<HostPort>().unwrap().host, "::1");
        for bad in ["", "kafka1", "kafka1:", ":9092", "a:0", "a:65536", "::1:9092", "http://a:1"] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }
}
