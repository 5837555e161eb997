//! Values by key, each legal by its type.

use std::collections::BTreeMap;
use std::time::Duration;

use super::key::{Key, KeyType};
use super::mirror_config::ConfigError;
use super::nearest::nearest;

/// Characters of a value that an error shows.
const GOT_CHARS_MAX: usize = 80;

/// What was set, of the keys of a table. A value is read by the name of its key; one that is
/// not set has the table's default.
#[derive(Clone, Debug)]
pub(super) struct Values {
    table: Vec<&'static Key>,
    set: BTreeMap<&'static str, String>,
}

impl Values {
    /// Of a key that is there twice the later value holds, as in Java.
    pub(super) fn from_pairs(
        table: impl Iterator<Item = &'static Key>,
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut values = Self { table: table.collect(), set: BTreeMap::new() };
        for (name, value) in pairs {
            values.set(&name, value.trim())?;
        }
        Ok(values)
    }

    fn find(&self, name: &str) -> Option<&'static Key> {
        self.table.iter().find(|key| key.name == name).copied()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let is_security = is_security(name);
        let Some(key) = self.find(name) else {
            if is_security {
                return Err(ConfigError::Security { key: shown(name) });
            }
            let known = self.table.iter().map(|key| key.name);
            return Err(ConfigError::Unknown { key: shown(name), nearest: nearest(name, known) });
        };
        let is_legal = match key.values {
            KeyType::Text | KeyType::List => true,
            KeyType::Boolean => matches!(value, "true" | "false"),
            KeyType::OneOf(words) => words.contains(&value),
            KeyType::Number { min, max } => {
                value.parse::<i64>().is_ok_and(|number| (min..=max).contains(&number))
            }
        };
        if !is_legal && is_security {
            return Err(ConfigError::Security { key: name.to_owned() });
        }
        if !is_legal {
            return Err(wrong(key.name, value, key.values.range()));
        }
        self.set.insert(key.name, value.to_owned());
        Ok(())
    }

    /// What was set, of the keys that `keep` takes.
    pub(super) fn pairs(&self, keep: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let kept = self.set.iter().filter(|(name, _)| keep(name));
        kept.map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    /// The value, if it was set.
    pub(super) fn given(&self, name: &'static str) -> Option<&str> {
        self.set.get(name).map(String::as_str)
    }

    /// A value that has to be there, and not be empty.
    pub(super) fn required(&self, name: &'static str) -> Result<&str, ConfigError> {
        let doc = self.find(name).map_or("", |key| key.doc);
        let given = self.given(name).filter(|value| !value.is_empty());
        given.ok_or(ConfigError::Missing { key: name, doc })
    }

    pub(super) fn text(&self, name: &'static str) -> &str {
        let default = || self.find(name).map_or("", |key| key.default);
        self.given(name).unwrap_or_else(default)
    }

    /// The entries of a list, trimmed, without empty ones.
    pub(super) fn list(&self, name: &'static str) -> Vec<String> {
        let entries = self.text(name).split(',').map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn number(&self, name: &'static str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    pub(super) fn u64(&self, name: &'static str) -> u64 {
        u64::try_from(self.number(name)).unwrap_or_default()
    }

    pub(super) fn u32(&self, name: &'static str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or_default()
    }

    pub(super) fn u16(&self, name: &'static str) -> u16 {
        u16::try_from(self.number(name)).unwrap_or_default()
    }

    pub(super) fn millis(&self, name: &'static str) -> Duration {
        Duration::from_millis(self.u64(name))
    }

    /// -1 is the kernel's choice.
    pub(super) fn buffer(&self, name: &'static str) -> Option<u32> {
        u32::try_from(self.number(name)).ok()
    }

    pub(super) fn ordered(&self, low: &'static str, high: &'static str) -> Result<(), ConfigError> {
        let (low_value, high_value) = (self.number(low), self.number(high));
        if low_value <= high_value {
            return Ok(());
        }
        Err(ConfigError::Order { low, low_value, high, high_value })
    }
}

/// Whether the value may be a secret.
pub(super) fn is_security(name: &str) -> bool {
    ["ssl.", "sasl.", "security."].iter().any(|prefix| name.starts_with(prefix))
}

/// An operator's word, as an error shows it.
fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}

/// A value that the key does not take.
pub(super) fn wrong(key: &'static str, got: &str, want: impl Into<String>) -> ConfigError {
    ConfigError::Value { key, got: got.chars().take(GOT_CHARS_MAX).collect(), want: want.into() }
}
