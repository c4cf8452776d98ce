//! Seconds since 1970 as a date in UTC, and times as people type them.

use std::time::Duration;

/// Reads a time from the command line: seconds, or with a unit, as in `500ms`, `2s`, `1m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        _ => f64::NAN,
    };
    let is_number = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = digits
        .parse()
        .map_or(f64::NAN, |number: f64| number * unit_s);
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if is_number && !time.is_zero() => Ok(time),
        _ => Err("not a time: write seconds, or 500ms, 2s, 1m".to_owned()),
    }
}

/// `2026-01-31 23:59:58 UTC`, by the proleptic Gregorian calendar.
pub(crate) fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of the month, `days` after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last of its year and months have the
/// lengths 31, 30, 31, 30, 31 in turn: 153 days in five months.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH_DAYS: u64 = 719_468;
    const DAYS_PER_400_YEARS: u64 = 146_097;

    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    // The last day of each 4, 100 and 400 years is a leap day or the lack of one; taken out first,
    // what is left divides by 365.
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, next_year) = if month_from_march < 10 {
        (month_from_march + 3, 0)
    } else {
        (month_from_march - 9, 1)
    };
    (era * 400 + year_of_era + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, milliseconds) in [
            ("2", 2000),
            ("0.5", 500),
            ("30ms", 30),
            ("2s", 2000),
            ("1m", 60_000),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in [
            "",
            "s",
            "0",
            "-1",
            "1e3",
            "inf",
            "nan",
            "2 h",
            "99999999999999999999m",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn known_instants() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_709_164_800), "2024-02-29 00:00:00 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(utc(2_147_483_647), "2038-01-19 03:14:07 UTC");
    }

    #[test]
    fn dates_follow_each_other_for_four_centuries() {
        let mut before = date(0);
        for days in 1..150_000 {
            let (year, month, day) = date(days);
            let next_day = (year, month, day) == (before.0, before.1, before.2 + 1);
            let next_month = day == 1 && (year, month) == (before.0, before.1 + 1);
            let next_year = (year, month, day) == (before.0 + 1, 1, 1) && before.1 == 12;
            assert!(next_day || next_month || next_year, "day {days}");
            before = (year, month, day);
        }
    }

    #[test]
    fn the_largest_number_is_a_date() {
        assert!(utc(u64::MAX).ends_with(" UTC"));
    }
}
