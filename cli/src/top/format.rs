//! Numbers in few columns.

use std::time::Duration;

use crate::output::approximate;

/// What is not known.
pub(super) const UNKNOWN: &str = "-";

/// Three digits and a unit; at most six columns.
fn scaled(value: u64, units: [&str; 5]) -> String {
    let mut left = approximate(value);
    let mut unit = 0;
    // What rounds to 1000 is one of the next unit.
    while left >= 999.5 && unit < units.len() - 1 {
        left /= 1_000.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    match unit {
        0 => format!("{value}{name}"),
        _ if left < 9.995 => format!("{left:.2}{name}"),
        _ if left < 99.95 => format!("{left:.1}{name}"),
        _ => format!("{left:.0}{name}"),
    }
}

/// A number of things, in decimal units.
pub(super) fn count(value: u64) -> String {
    scaled(value, ["", "k", "M", "G", "T"])
}

/// A size, in decimal units.
pub(super) fn bytes(value: u64) -> String {
    scaled(value, ["B", "kB", "MB", "GB", "TB"])
}

/// A span of time in its two largest units; at most six columns below 1,000 days.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.is_zero() => "0s".to_owned(),
        0..10 => format!("{}.{}s", seconds, time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Bytes a second, in MB/s.
pub(super) fn rate(bytes_per_second: f64) -> String {
    let rate = bytes_per_second / 1e6;
    match rate {
        _ if bytes_per_second < 0.5 => "0".to_owned(),
        _ if rate < 0.01 => "<0.01".to_owned(),
        _ if rate < 9.995 => format!("{rate:.2}"),
        _ if rate < 99.95 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

/// What is known, or a dash.
pub(super) fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// A text of `width` columns at most. What is cut off is where names are alike: in the middle.
pub(super) fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    if width < 4 {
        return text.chars().take(width).collect();
    }
    let (head, tail) = ((width - 1) / 2, width - 1 - (width - 1) / 2);
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(length - tail).collect();
    format!("{first}…{last}")
}

/// A text of `width` columns at most, cut off at its end.
pub(super) fn cut_end(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A text in lines of `width` columns at most, broken between words where there are some.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        } else if used > 0 {
            line.push(' ');
        }
        while word.len() > width {
            let rest = word.split_off(width);
            lines.push(word.into_iter().collect());
            word = rest;
        }
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A text of others, on one line and without what a terminal would take for an order.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_six_columns_at_most() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.00k"),
            (9_999, "10.0k"),
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (12_345_678, "12.3M"),
            (u64::MAX, "18446744T"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!(bytes(1_234_567_890), "1.23GB");
        assert_eq!(bytes(17), "17B");
    }

    #[test]
    fn spans_have_two_units() {
        for (ms, text) in [
            (0, "0s"),
            (40, "0.0s"),
            (9_990, "9.9s"),
            (59_999, "59s"),
            (192_000, "3m12s"),
            (18_180_000, "5h03m"),
            (273_600_000, "3d04h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn rates_are_in_megabytes() {
        let texts = [0.0, 700.0, 1.5e6, 12.34e6, 1.2e9].map(rate);
        assert_eq!(texts, ["0", "<0.01", "1.50", "12.3", "1200"]);
    }

    #[test]
    fn texts_fit() {
        assert_eq!(cut("orders-eu-1", 11), "orders-eu-1");
        assert_eq!(cut("orders-eu-1", 8), "ord…eu-1");
        assert_eq!(cut("orders", 2), "or");
        assert_eq!(cut_end("orders-eu-1", 8), "orders-…");
        assert_eq!(cut_end("orders", 6), "orders");
        assert_eq!(wrap("a reason of many words", 8), ["a reason", "of many", "words"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("a abcdef", 4), ["a", "abcd", "ef"]);
        assert_eq!(wrap("", 4), Vec::<String>::new());
        assert_eq!(plain("a\u{1b}[31m\nb"), "a [31m b");
    }
}
