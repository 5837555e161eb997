//! The known key that an unknown one was meant to be.

/// The candidate with the fewest edits to `text`; `None` if all are far from it.
pub(crate) fn nearest<'a>(
    text: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // Longer texts come from no keyboard, and the distance costs their product.
    const CHARS_MAX: usize = 128;
    if text.chars().count() > CHARS_MAX {
        return None;
    }
    let folded = text.to_lowercase().replace(['_', '-'], ".");
    candidates
        .map(|candidate| (distance(&folded, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.chars().count() / 2)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements that make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // One row of the table at a time: `row[j]` is the distance to the first j characters of b.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a_char) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b_char) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a_char != *b_char);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_edits() {
        for (a, b, want) in
            [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("flush.ms", "flush.bytes", 4)]
        {
            assert_eq!(distance(a, b), want, "{a} {b}");
            assert_eq!(distance(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn what_is_far_from_everything_gets_no_advice() {
        let known = ["flush.ms", "segment.bytes"];
        let advice = |text: &str| nearest(text, known.into_iter());
        assert_eq!(advice("flush.m"), Some("flush.ms"));
        assert_eq!(advice("SEGMENT_BYTES"), Some("segment.bytes"));
        assert_eq!(advice("entirely.other"), None);
        assert_eq!(advice(&"f".repeat(1_000)), None);
    }
}
