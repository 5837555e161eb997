//! `mirror-topics`: topics whose source has no topic IDs. The copy's files need one, so it
//! is made up here, and replaced when the source gives the topic an ID of its own.
//!
//! A text file of our own at the top of a log dir, replaced whole. Tabs divide:
//!
//! ```text
//! mirror-topics<TAB>1
//! orders<TAB>AAAAAAAAAAAAAAAAAAAAAQ
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::log::format_error::{count, excerpt, text};
use crate::log::{FileKind, FormatError};
use crate::types::TopicId;

const FILE: FileKind = FileKind::MirrorTopics;
const HEADER: &str = "mirror-topics\t1";

/// IDs that were made up, by topic.
pub type OwnIds = BTreeMap<Arc<str>, TopicId>;

/// Contents of the file.
pub fn encode(ids: &OwnIds) -> String {
    let mut out = format!("{HEADER}\n");
    for (topic, id) in ids {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{topic}\t{id}");
    }
    out
}

/// Reads the file.
///
/// # Errors
///
/// [`FormatError`] with the first line that is wrong.
pub fn decode(bytes: &[u8]) -> Result<OwnIds, FormatError> {
    let mut lines = text(FILE, bytes)?.lines().enumerate();
    let wrong = |index: usize, expected, line: &str| FormatError::Line {
        file: FILE,
        line: count(index) + 1,
        expected,
        got: excerpt(line),
    };
    match lines.next() {
        None => return Ok(OwnIds::new()),
        Some((_, HEADER)) => {}
        Some((index, line)) => return Err(wrong(index, "`mirror-topics` and version 1", line)),
    }
    lines
        .map(|(index, line)| {
            let parts = line.split_once('\t').filter(|(topic, _)| !topic.is_empty());
            let id = parts.and_then(|(topic, id)| Some((topic, id.parse::<TopicId>().ok()?)));
            match id {
                Some((topic, id)) if id.known().is_some() => Ok((Arc::from(topic), id)),
                _ => Err(wrong(index, "a topic and its ID", line)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn wrong_lines_are_named() {
        let id = "AAAAAAAAAAAAAAAAAAAAAQ";
        for (text, line) in [
            ("mirror-topics\t2\n".to_owned(), 1),
            (format!("{HEADER}\n\t{id}\n"), 2),
            (format!("{HEADER}\na\t{id}\nb {id}\n"), 3),
            (format!("{HEADER}\na\tAAAAAAAAAAAAAAAAAAAAAA\n"), 2),
        ] {
            let error = decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("mirror-topics, line {line}: want ")), "{error}");
        }
        assert_eq!(decode(b""), Ok(OwnIds::new()));
    }

    proptest! {
        #[test]
        fn files_round_trip(ids in prop::collection::btree_map("[a-z.]{1,8}", 1..u128::MAX, 0..5)) {
            let ids: OwnIds = ids
                .into_iter()
                .map(|(topic, id)| (Arc::from(topic), TopicId(Uuid::from_u128(id))))
                .collect();
            prop_assert_eq!(decode(encode(&ids).as_bytes()), Ok(ids));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
            let mut whole = format!("{HEADER}\n").into_bytes();
            whole.extend(bytes);
            let _ = decode(&whole);
        }
    }
}
