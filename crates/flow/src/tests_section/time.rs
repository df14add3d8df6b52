//! Points in time as RFC 3339, section 5.6 writes them.

use std::time::Duration;

/// The time since 1970 began (UTC) of a text such as `2026-01-31T12:00:00Z`; `None` when it is no
/// such text or before that.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, offset) = split_offset(rest)?;
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, digits)) => (clock, nanoseconds(digits)?),
        None => (clock, 0),
    };
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_date = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let seconds = u64::try_from(seconds - offset).ok()?;
    Some(Duration::new(seconds, fraction))
}

/// Numbers of these many digits with a sign between.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|it| it.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(found)
}

/// The time of day and how many seconds it is ahead of UTC.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (clock, offset) = text.split_at_checked(at)?;
    let (sign, offset) = match offset.strip_prefix('-') {
        Some(offset) => (-1, offset),
        None => (1, offset.strip_prefix('+')?),
    };
    let [hours, minutes, _] = numbers(&format!("{offset}:00"), ':', [2, 2, 2])?;
    (hours < 24 && minutes < 60).then_some((clock, sign * (hours * 3600 + minutes * 60)))
}

fn nanoseconds(digits: &str) -> Option<u32> {
    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
    if digits.is_empty() || digits.len() > 9 || !is_number {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let years = before * 365 + before / 4 - before / 100 + before / 400;
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    // From the first day of the year 1 to that of 1970.
    years + months + day - 1 - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1994-11-06T08:49:37Z", 784_111_777),
            ("2000-02-29T00:00:00+01:00", 951_778_800),
            ("2026-01-01T00:00:00Z", 1_767_225_600),
            ("2026-01-01 00:00:00-00:30", 1_767_227_400),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        let fraction = parse("1970-01-01T00:00:01.25Z");
        assert_eq!(fraction, Some(Duration::from_millis(1250)));
        for text in [
            "2026-02-29T00:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "1969-12-31T00:00:00Z",
            "26-1-1T0:0:0Z",
            "2026-01-01T00:00:00.Z",
            "noon",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
