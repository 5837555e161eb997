//! Where a server listens, as `listeners` and `metrics.listener` spell it.

use std::fmt;

/// A host and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    /// Name or address, without brackets; empty for every address of this machine.
    pub host: String,
    /// TCP port; 0 lets the system choose.
    pub port: u16,
}

impl ListenAddress {
    /// Reads `HOST:PORT`; the host may be left out, an IPv6 address needs its brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.trim().rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        // An address with colons needs its brackets, or its end would be the port.
        let host = bare.or_else(|| (!host.contains(':')).then_some(host))?;
        let is_word = !host.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '[' | ']'));
        let port = port.parse().ok()?;
        is_word.then(|| Self { host: host.to_owned(), port })
    }

    /// Reads `PLAINTEXT://HOST:PORT`.
    pub(super) fn parse_listener(text: &str) -> Option<Self> {
        Self::parse(text.trim().strip_prefix("PLAINTEXT://")?)
    }

    /// Whether it stands for every address of this machine, so that no client can connect to it.
    pub fn is_any(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }
}

impl fmt::Display for ListenAddress {
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
    fn addresses_are_read_and_written() {
        for text in [":9092", "h:0", "[::]:1", "10.0.0.1:65535"] {
            assert_eq!(ListenAddress::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "h", "h:", "h:x", "h:65536", "::1:9092", "a b:1", "http://h:1", "[h:1"] {
            assert_eq!(ListenAddress::parse(bad), None, "{bad}");
        }
        assert!(ListenAddress::parse("[::]:1").unwrap().is_any());
        assert!(!ListenAddress::parse("h:1").unwrap().is_any());
        assert_eq!(ListenAddress::parse_listener("SSL://h:1"), None);
    }
}
