//! RFC 3339 times in UTC, from and to milliseconds since the Unix epoch.

use crate::types::TimestampMs;

const MS_PER_DAY: i64 = 86_400_000;
/// 400 years of the Gregorian calendar.
const DAYS_PER_ERA: i64 = 146_097;
/// From 0000-03-01, where an era begins, to 1970-01-01.
const DAYS_TO_UNIX: i64 = 719_468;

/// `2026-11-29T20:53:02.125Z`. Times outside the years 0 to 9999, which the format
/// cannot spell, become the nearest that it can.
pub fn format(time: TimestampMs) -> String {
    const MIN: i64 = -DAYS_TO_UNIX * MS_PER_DAY - 60 * MS_PER_DAY;
    const MAX: i64 = 253_402_300_799_999;
    let ms = time.0.clamp(MIN, MAX);
    let (year, month, day) = date(ms.div_euclid(MS_PER_DAY));
    let in_day = ms.rem_euclid(MS_PER_DAY);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month, day of the `days`th day from 1970-01-01. Years begin in March here,
/// so that the leap day is the last one and every month starts at a fixed day.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_UNIX;
    let (era, day) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day = (153 * month + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + year * 365 + year / 4 - year / 100 + day - DAYS_TO_UNIX
}

/// Reads what [`format`] writes, and nothing else.
pub fn parse(text: &str) -> Option<TimestampMs> {
    let field = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|d| d.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<i64>().ok()
    };
    let day = days(field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let minutes = field(11, 13)? * 60 + field(14, 16)?;
    let ms = (minutes * 60 + field(17, 19)?) * 1_000 + field(20, 23)?;
    let time = TimestampMs(day * MS_PER_DAY + ms);
    // Impossible dates and wrong punctuation come out spelled otherwise.
    (format(time) == text).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_spelled_right() {
        let check = |ms, want: &str| {
            assert_eq!(format(TimestampMs(ms)), want);
            assert_eq!(parse(want), Some(TimestampMs(ms)));
        };
        check(0, "1970-01-01T00:00:00.000Z");
        check(-1, "1969-12-31T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(1_709_251_199_999, "2024-02-29T23:59:59.999Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(253_402_300_799_999, "9999-12-31T23:59:59.999Z");
        assert_eq!(format(TimestampMs(i64::MAX)), "9999-12-31T23:59:59.999Z");
        assert_eq!(format(TimestampMs(i64::MIN)), "0000-01-01T00:00:00.000Z");
    }

    #[test]
    fn other_spellings_are_no_times() {
        for not in [
            "",
            "2100-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-11-29T24:00:00.000Z",
            "2026-11-29 20:53:02.125Z",
            "2026-11-29T20:53:02Z",
            "2026-11-29T20:53:02.125+00:00",
            "+026-11-29T20:53:02.125Z",
        ] {
            assert_eq!(parse(not), None, "{not}");
        }
    }

    proptest! {
        #[test]
        fn times_round_trip(ms in -62_000_000_000_000..253_402_300_799_999_i64) {
            prop_assert_eq!(parse(&format(TimestampMs(ms))), Some(TimestampMs(ms)));
        }

        #[test]
        fn later_is_greater(ms in -62_000_000_000_000..253_000_000_000_000_i64, step in 1..100_000_000_i64) {
            prop_assert!(format(TimestampMs(ms)) < format(TimestampMs(ms + step)));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,30}|[0-9TZ:.-]{20,26}") {
            let _ = parse(&text);
        }
    }
}
