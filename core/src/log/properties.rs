//! Java properties: the syntax of `meta.properties` and of Kafka's configuration files.

use super::format_error::{FileKind, FormatError, excerpt, text};

/// Keys and values in the order of the file, duplicates included.
///
/// Comments (`#`, `!`), the three separators, continued lines and escapes are
/// understood. Text is UTF-8, which Kafka writes, and not Latin-1, which Java reads;
/// for the characters that occur in these files they are the same.
///
/// # Errors
///
/// [`FormatError`] if `bytes` is no text, or for a `\u` without four hexadecimal digits.
pub fn parse(file: FileKind, bytes: &[u8]) -> Result<Vec<(String, String)>, FormatError> {
    let mut found = Vec::new();
    let mut lines = text(file, bytes)?.lines().zip(1_u64..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start_matches(is_blank);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_owned();
        // An odd number of backslashes at the end continues the line.
        while logical.len() % 2 != logical.trim_end_matches('\\').len() % 2 {
            logical.pop();
            let Some((next, _)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(is_blank));
        }
        let wrong = || FormatError::Line {
            file,
            line: number,
            expected: "four hexadecimal digits behind \\u",
            got: excerpt(&logical),
        };
        let (key, value) = split(&logical);
        found.push((unescape(key).ok_or_else(wrong)?, unescape(value).ok_or_else(wrong)?));
    }
    Ok(found)
}

/// `key=value` with what would be read as syntax escaped, as Java writes it.
pub fn format_line(key: &str, value: &str) -> String {
    let mut out = String::with_capacity(key.len() + value.len() + 1);
    escape(&mut out, key, true);
    out.push('=');
    escape(&mut out, value, false);
    out
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// The key ends at the first `=`, `:` or blank that is not escaped; one `=` or `:`
/// among the blanks belongs to the separator.
fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let ends = |c: char| {
        let found = !is_escaped && (matches!(c, '=' | ':') || is_blank(c));
        is_escaped = !is_escaped && c == '\\';
        found
    };
    let (key, rest) = line.split_at(line.find(ends).unwrap_or(line.len()));
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(is_blank))
}

/// `None` for a broken `\u`. Halves of a surrogate pair come together; a half
/// alone becomes U+FFFD.
fn unescape(text: &str) -> Option<String> {
    let mut units = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let unescaped = match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let is_hex = digits.len() == 4 && digits.bytes().all(|d| d.is_ascii_hexdigit());
                    units.push(u16::from_str_radix(&digits, 16).ok().filter(|_| is_hex)?);
                    continue;
                }
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(unescaped.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

fn escape(out: &mut String, text: &str, is_key: bool) {
    for (index, c) in text.chars().enumerate() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => out.extend(['\\', c]),
            ' ' if is_key || index == 0 => out.push_str("\\ "),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: FileKind = FileKind::MetaProperties;

    #[track_caller]
    fn check(line: &str, want: &[(&str, &str)]) {
        let got = parse(FILE, line.as_bytes()).unwrap();
        let want: Vec<_> = want.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(got, want, "{line:?}");
    }

    #[test]
    fn lines_are_read_as_java_reads_them() {
        check("# a=b\n  ! c=d\n\n \t\n", &[]);
        for line in ["a=b", "a:b", "a b", "  a = b", "a\t:\tb", "a   b"] {
            check(line, &[("a", "b")]);
        }
        check("a==b", &[("a", "=b")]);
        check("a= b ", &[("a", "b ")]);
        check("a", &[("a", "")]);
        check("=b", &[("", "b")]);
        check("a\\=b\\:c\\ d=e", &[("a=b:c d", "e")]);
        check("a=b\\\n   c\nd=e", &[("a", "bc"), ("d", "e")]);
        check("a=b\\\\\nd=e", &[("a", "b\\"), ("d", "e")]);
        check("a=b\\", &[("a", "b")]);
        check("a=\\u00e9\\t\\q\\ud83d\\ude00", &[("a", "é\tq😀")]);
        check("a=1\na=2\r\n", &[("a", "1"), ("a", "2")]);
    }

    #[test]
    fn a_broken_escape_is_named() {
        assert_eq!(
            parse(FILE, b"a=1\nb=\\u00g0").unwrap_err().to_string(),
            "meta.properties, line 2: want four hexadecimal digits behind \\u, got \"b=\\\\u00g0\""
        );
        assert!(parse(FILE, b"b=\\u+123").is_err());
        assert!(parse(FILE, b"b=\\u12").is_err());
    }

    proptest! {
        #[test]
        fn lines_round_trip(key in "[ -~\t\n\\\\é]{0,12}", value in "\\PC{0,20}|[ \\\\\n\t=:]{0,8}") {
            let line = format_line(&key, &value);
            prop_assert_eq!(parse(FILE, line.as_bytes()), Ok(vec![(key, value)]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[a\\\\u0=: \n#]{0,40}") {
            let _ = parse(FILE, &bytes);
            let _ = parse(FILE, text.as_bytes());
        }
    }
}
