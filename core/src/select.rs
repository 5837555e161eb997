//! Which topics of the source are copied.
//!
//! Patterns are comma-separated regular expressions, each anchored at both ends, so
//! that a plain name selects that topic and no other. Exclusion wins over inclusion.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

/// Compiled size of one pattern, in bytes: patterns come from a command line, and a
/// nested repetition must not take the memory of the copy.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Topics that Kafka Streams makes for itself end so.
const STREAMS_SUFFIXES: [&str; 2] = ["-changelog", "-repartition"];

/// Why a list of patterns cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// One of the patterns is no regular expression.
    #[error(
        "{list}: pattern {number} ({pattern:?}) is no regular expression: {reason}{}; \
         patterns are separated by commas, a literal dot is written \\.",
        column.map(|at| format!(" at character {at}")).unwrap_or_default()
    )]
    Pattern {
        /// Which list, as the operator knows it.
        list: &'static str,
        /// Position in the list, from 1.
        number: usize,
        /// The pattern.
        pattern: String,
        /// What is wrong.
        reason: String,
        /// Where in the pattern, from 1; `None` if it is wrong as a whole.
        column: Option<usize>,
    },
    /// No pattern says what to copy.
    #[error("{list}: no pattern; name the topics to copy, or .* for all")]
    Nothing {
        /// Which list.
        list: &'static str,
    },
}

/// Why a topic is copied or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// It is copied.
    Selected,
    /// No pattern includes it.
    NotIncluded,
    /// A pattern excludes it.
    Excluded,
    /// One of Kafka's own topics; copied only if its name stands in the list as it is.
    Internal,
    /// A changelog or repartition topic of Kafka Streams: it belongs to one application's
    /// state at the source. Copied only if its name stands in the list as it is.
    StreamsInternal,
    /// No Kafka broker makes a topic of this name, and it would name other files here.
    IllegalName,
}

impl Selection {
    /// Whether the topic is copied.
    pub fn is_selected(self) -> bool {
        self == Self::Selected
    }

    /// Why not, for an operator; `None` for what is copied or was never asked for.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Selected | Self::NotIncluded => None,
            Self::IllegalName => Some("the name is not one that Kafka allows"),
            Self::Excluded => Some("excluded by a pattern"),
            Self::Internal => Some("internal topic of Kafka; name it literally to copy it"),
            Self::StreamsInternal => Some(
                "changelog or repartition topic of Kafka Streams, which rebuilds it from its \
                 input; name it literally to copy it",
            ),
        }
    }
}

/// Which topics of a source are copied.
pub trait TopicFilter {
    /// Decides on a topic of the source; `is_internal` is what its metadata says.
    fn decide(&self, topic: &str, is_internal: bool) -> Selection;
}

/// Topics by name, and no others.
impl TopicFilter for BTreeSet<Arc<str>> {
    fn decide(&self, topic: &str, _: bool) -> Selection {
        match (self.contains(topic), is_legal_name(topic)) {
            (false, _) => Selection::NotIncluded,
            (true, false) => Selection::IllegalName,
            (true, true) => Selection::Selected,
        }
    }
}

impl TopicFilter for TopicSelector {
    fn decide(&self, topic: &str, is_internal: bool) -> Selection {
        self.decide(topic, is_internal)
    }
}

/// Include and exclude patterns.
#[derive(Clone, Debug)]
pub struct TopicSelector {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    regex: Regex,
}

impl TopicSelector {
    /// `include` and `exclude` are comma-separated patterns; blanks around them do not count.
    ///
    /// # Errors
    ///
    /// [`SelectError`] names the first bad pattern; an empty `include` is an error.
    pub fn new(include: &str, exclude: &str) -> Result<Self, SelectError> {
        let include_list = "topics to copy";
        let include = compile(include_list, include)?;
        if include.is_empty() {
            return Err(SelectError::Nothing { list: include_list });
        }
        Ok(Self { include, exclude: compile("topics to exclude", exclude)? })
    }

    /// Patterns of topics that are to be found as they appear. Each list comes with its name for
    /// errors. An empty `include` selects nothing.
    ///
    /// # Errors
    ///
    /// [`SelectError`] names the first bad pattern.
    pub fn for_discovery(
        include: (&'static str, &str),
        exclude: (&'static str, &str),
    ) -> Result<Self, SelectError> {
        let (include, exclude) = (compile(include.0, include.1)?, compile(exclude.0, exclude.1)?);
        Ok(Self { include, exclude })
    }

    /// Decides on a topic of the source; `is_internal` is what its metadata says.
    pub fn decide(&self, topic: &str, is_internal: bool) -> Selection {
        if !self.include.iter().any(|pattern| pattern.regex.is_match(topic)) {
            return Selection::NotIncluded;
        }
        if !is_legal_name(topic) {
            return Selection::IllegalName;
        }
        if self.exclude.iter().any(|pattern| pattern.regex.is_match(topic)) {
            return Selection::Excluded;
        }
        if self.include.iter().any(|pattern| pattern.text == topic) {
            return Selection::Selected;
        }
        if is_internal || topic.starts_with("__") {
            return Selection::Internal;
        }
        if STREAMS_SUFFIXES.iter().any(|suffix| topic.ends_with(suffix)) {
            return Selection::StreamsInternal;
        }
        Selection::Selected
    }

    /// Whether a pattern of `exclude` matches the topic.
    pub fn excludes(&self, topic: &str) -> bool {
        self.exclude.iter().any(|pattern| pattern.regex.is_match(topic))
    }

    /// Names of `include` that are plain topic names: what the operator expects to exist.
    pub fn literal_names(&self) -> impl Iterator<Item = &str> {
        let is_name = |text: &&str| text.bytes().all(is_name_byte);
        self.include.iter().map(|pattern| pattern.text.as_str()).filter(is_name)
    }
}

/// Kafka's rule for topic names. Directories are named after them, so it is ours as well.
pub fn is_legal_name(topic: &str) -> bool {
    const BYTES_MAX: usize = 249;
    let length = (1..=BYTES_MAX).contains(&topic.len());
    length && topic != "." && topic != ".." && topic.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn compile(list: &'static str, patterns: &str) -> Result<Vec<Pattern>, SelectError> {
    let texts = split_patterns(patterns);
    texts
        .into_iter()
        .enumerate()
        .filter(|(_, text)| !text.is_empty())
        .map(|(index, text)| {
            let refused = |error: regex::Error| {
                let (reason, column) = explain(&error);
                let (number, pattern) = (index + 1, text.to_owned());
                SelectError::Pattern { list, number, pattern, reason, column }
            };
            // Alone first, so that an error's position counts in the operator's text.
            build(text).map_err(refused)?;
            let regex = build(&format!("^(?:{text})$")).map_err(refused)?;
            Ok(Pattern { text: text.to_owned(), regex })
        })
        .collect()
}

fn build(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build()
}

/// A pattern that matches whole names, or what is wrong with it.
pub(crate) fn anchored(pattern: &str) -> Result<Regex, String> {
    // Alone first: parentheses that do not match each other could match ours.
    let built = build(pattern).and_then(|_| build(&format!("^(?:{pattern})$")));
    built.map_err(|error| explain(&error).0)
}

/// Divides at commas, but not inside `{1,3}` or `[a,b]`; blanks around the parts do not count.
pub fn split_patterns(patterns: &str) -> Vec<&str> {
    let (mut depth, mut is_escaped) = (0_u32, false);
    let divides = |c: char| {
        let escaped = is_escaped;
        is_escaped = c == '\\' && !escaped;
        match c {
            _ if escaped => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    patterns.split(divides).map(str::trim).collect()
}

/// The error's sentence, and the character that it points at.
fn explain(error: &regex::Error) -> (String, Option<usize>) {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or(&text).trim();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason).to_owned();
    // The position is in the text only: a line of carets below the indented pattern.
    let carets = text.lines().find(|line| line.trim_start().starts_with('^'));
    let column = carets.map(|line| (line.len() - line.trim_start().len()).saturating_sub(3));
    (reason, column.filter(|column| *column > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(include: &str, exclude: &str, topic: &str, want: Selection) {
        let selector = TopicSelector::new(include, exclude).unwrap();
        assert_eq!(selector.decide(topic, false), want, "{topic} in {include} without {exclude}");
    }

    #[test]
    fn patterns_are_anchored_and_exclusion_wins() {
        check("orders", "", "orders", Selection::Selected);
        check("orders", "", "orders2", Selection::NotIncluded);
        check("orders", "", "my-orders", Selection::NotIncluded);
        check("a|b", "", "ab", Selection::NotIncluded);
        check(" orders.* , pay", "", "pay", Selection::Selected);
        check("orders.*", ".*-test", "orders-test", Selection::Excluded);
        check("orders-test", "orders-test", "orders-test", Selection::Excluded);
    }

    #[test]
    fn commas_inside_a_pattern_do_not_divide() {
        check("a{1,3},b", "", "aaa", Selection::Selected);
        check("a{1,3},b", "", "b", Selection::Selected);
        check("x[a,b]", "", "xb", Selection::Selected);
        check("a\\{,b", "", "b", Selection::Selected);
    }

    #[test]
    fn topics_that_are_not_the_users_need_their_name() {
        check(".*", "", "__consumer_offsets", Selection::Internal);
        check("__.*", "", "__consumer_offsets", Selection::Internal);
        check("__consumer_offsets", "", "__consumer_offsets", Selection::Selected);
        check(".*", "", "app-store-changelog", Selection::StreamsInternal);
        check(".*", "", "app-by-key-repartition", Selection::StreamsInternal);
        check("app-store-changelog", "", "app-store-changelog", Selection::Selected);
        check(".*,app-store-changelog", "", "app-store-changelog", Selection::Selected);
        let all = TopicSelector::new(".*", "").unwrap();
        assert_eq!(all.decide("plain", true), Selection::Internal);
        assert_eq!(all.decide("changelog", false), Selection::Selected);
    }

    #[test]
    fn errors_name_list_pattern_and_place() {
        let message = |include, exclude| {
            let error = TopicSelector::new(include, exclude).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            message("good,or(ders", ""),
            "topics to copy: pattern 2 (\"or(ders\") is no regular expression: unclosed group at \
             character 3; patterns are separated by commas, a literal dot is written \\."
        );
        assert!(message("a", "*").starts_with("topics to exclude: pattern 1 (\"*\")"));
        // Would be legal if it were only put between anchors.
        assert!(message("a)|(b", "").contains("\"a)|(b\""));
        assert!(message("(a{1000}){1000}{1000}", "").starts_with("topics to copy: pattern 1"));
        for nothing in ["", " , "] {
            assert!(message(nothing, "").starts_with("topics to copy: no pattern"));
        }
    }

    #[test]
    fn names_that_are_no_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", "\u{e9}", &"x".repeat(250)] {
            check(".*", "", name, Selection::IllegalName);
        }
        assert!(is_legal_name(&"x".repeat(249)) && is_legal_name("a.B_c-9"));
    }

    #[test]
    fn literal_names_are_those_without_syntax() {
        let selector = TopicSelector::new("a.b,c*,d-e", "").unwrap();
        assert_eq!(selector.literal_names().collect::<Vec<_>>(), ["a.b", "d-e"]);
    }

    proptest! {
        #[test]
        fn arbitrary_patterns_never_panic(include in "\\PC{0,20}|[a(){}\\[\\],*\\\\|]{0,16}", topic in "[a-c_-]{0,6}") {
            if let Ok(selector) = TopicSelector::new(&include, "") {
                selector.decide(&topic, false);
            }
        }
    }
}
