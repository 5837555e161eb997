//! What a scenario measured or counted, in the order in which it did.

use std::fmt;

/// Names and values for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures(Vec<(String, String)>);

impl Figures {
    /// Adds one; names may repeat.
    pub fn add(&mut self, name: impl Into<String>, value: impl ToString) {
        self.0.push((name.into(), value.to_string()));
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.0 {
            writeln!(f, "{name}: {value}")?;
        }
        Ok(())
    }
}
