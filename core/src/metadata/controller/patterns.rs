//! Patterns of topics, as they are stored in a mirror's configs.

use regex::Regex;

use super::code;
use super::decision::{Draft, Refusal, shown};
use crate::metadata::image::{MetadataImage, ResourceType, config_record};
use crate::select::{anchored, split_patterns};

/// Patterns of topics that are mirrored once they are seen.
pub(super) const INCLUDE: &str = "mirror.topics.include";
/// Patterns of topics that are not; they win.
pub(super) const EXCLUDE: &str = "mirror.topics.exclude";
/// Kafka's own topics, until an operator says otherwise.
pub(super) const EXCLUDE_DEFAULT: &str = "__.*";

/// Patterns that one list may hold, inclusive.
const PATTERNS_MAX: usize = 1_000;

/// One list: the texts and what they match.
#[derive(Debug, Default)]
pub(super) struct Patterns(Vec<(String, Regex)>);

impl Patterns {
    /// Those of a config's value.
    pub(super) fn parse(value: &str) -> Result<Self, Refusal> {
        let mut it = Self::default();
        for text in split_patterns(value).into_iter().filter(|text| !text.is_empty()) {
            it.add(text)?;
        }
        Ok(it)
    }

    /// Those of a request, each of which may be a list.
    pub(super) fn of(texts: &[String]) -> Result<Self, Refusal> {
        let mut it = Self::default();
        for text in texts {
            for (text, regex) in Self::parse(text)?.0 {
                it.insert(text, regex)?;
            }
        }
        Ok(it)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, topic: &str) -> bool {
        self.0.iter().any(|(_, regex)| regex.is_match(topic))
    }

    /// A pattern that matches the topic and is not just its name.
    pub(super) fn matching_beside(&self, topic: &str) -> Option<&str> {
        let mut others = self.0.iter().filter(|(text, _)| text != topic);
        others.find(|(_, regex)| regex.is_match(topic)).map(|(text, _)| text.as_str())
    }

    pub(super) fn add(&mut self, text: &str) -> Result<(), Refusal> {
        let regex = anchored(text).map_err(|reason| {
            let message = format!("pattern {:?} is no regular expression: {reason}", shown(text));
            Refusal::new(code::INVALID_REQUEST, message)
        })?;
        self.insert(text.to_owned(), regex)
    }

    pub(super) fn remove(&mut self, text: &str) {
        self.0.retain(|(known, _)| known != text);
    }

    /// Adds those of `others`, and takes them out of `elsewhere`.
    pub(super) fn take(&mut self, others: &Self, elsewhere: &mut Self) -> Result<(), Refusal> {
        for (text, regex) in &others.0 {
            elsewhere.remove(text);
            self.insert(text.clone(), regex.clone())?;
        }
        Ok(())
    }

    pub(super) fn to_value(&self) -> String {
        let texts: Vec<_> = self.0.iter().map(|(text, _)| text.as_str()).collect();
        texts.join(",")
    }

    fn insert(&mut self, text: String, regex: Regex) -> Result<(), Refusal> {
        if self.0.iter().any(|(known, _)| *known == text) {
            return Ok(());
        }
        if self.0.len() >= PATTERNS_MAX {
            let message = format!(
                "more than {PATTERNS_MAX} patterns of topics; write a few wider ones instead"
            );
            return Err(Refusal::new(code::INVALID_REQUEST, message));
        }
        self.0.push((text, regex));
        Ok(())
    }
}

/// Both lists of a mirror.
#[derive(Debug)]
pub(super) struct TopicFilter {
    pub(super) include: Patterns,
    pub(super) exclude: Patterns,
}

impl TopicFilter {
    /// As they hold now: an unset list is its default, so that it is not lost when the list is
    /// written for the first time.
    pub(super) fn of(image: &MetadataImage, mirror: &str) -> Result<Self, Refusal> {
        let value = |key| image.config(ResourceType::MIRROR, mirror, key);
        let include = Patterns::parse(value(INCLUDE).unwrap_or_default())?;
        let exclude = Patterns::parse(value(EXCLUDE).unwrap_or(EXCLUDE_DEFAULT))?;
        Ok(Self { include, exclude })
    }

    /// Writes the lists that differ from what is stored.
    pub(super) fn store(&self, draft: &mut Draft<'_>, mirror: &str) -> Result<(), Refusal> {
        let lists = [(INCLUDE, &self.include, ""), (EXCLUDE, &self.exclude, EXCLUDE_DEFAULT)];
        for (key, patterns, default) in lists {
            let stored = draft.image().config(ResourceType::MIRROR, mirror, key);
            let value = patterns.to_value();
            if stored.unwrap_or(default) != value {
                draft.push(config_record(ResourceType::MIRROR, mirror, key, Some(&value)))?;
            }
        }
        Ok(())
    }
}

/// Include and exclude as they are stored.
#[cfg(test)]
pub(super) fn stored(image: &MetadataImage, mirror: &str) -> (Option<String>, Option<String>) {
    let value = |key| image.config(ResourceType::MIRROR, mirror, key).map(str::to_owned);
    (value(INCLUDE), value(EXCLUDE))
}
