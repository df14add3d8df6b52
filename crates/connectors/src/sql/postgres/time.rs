//! Dates, times and intervals of PostgreSQL: from its binary form to RFC 3339 and ISO 8601. The
//! server counts from 2000-01-01 in the proleptic Gregorian calendar.

use std::fmt::Write;

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;
const DAY: i64 = 86_400_000_000;

/// A date: days since 2000-01-01.
pub(super) fn date(days: i32) -> String {
    match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        days => {
            let (date, era) = civil(i64::from(days));
            date + era
        }
    }
}

/// A time stamp: microseconds since 2000-01-01, in UTC when it has a zone.
pub(super) fn timestamp(micros: i64, has_zone: bool) -> String {
    match micros {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        micros => {
            let (date, era) = civil(micros.div_euclid(DAY));
            let zone = if has_zone { "Z" } else { "" };
            format!("{date}T{}{zone}{era}", time(micros.rem_euclid(DAY)))
        }
    }
}

/// A time of the day: microseconds since midnight.
pub(super) fn time(micros: i64) -> String {
    let seconds = micros.div_euclid(1_000_000);
    let mut text = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    text.push_str(&fraction(micros.rem_euclid(1_000_000)));
    text
}

/// The offset of a zone: seconds west of Greenwich.
pub(super) fn zone(west: i32) -> String {
    let sign = if west > 0 { '-' } else { '+' };
    let seconds = west.unsigned_abs();
    let mut text = format!("{sign}{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
    if !seconds.is_multiple_of(60) {
        // Writing to a string does not fail.
        let _ = write!(text, ":{:02}", seconds % 60);
    }
    text
}

/// An interval (ISO 8601, with signs as the server writes and reads them).
pub(super) fn interval(micros: i64, days: i32, months: i32) -> String {
    let mut text = String::from("P");
    let mut put = |number: i64, unit: char| {
        if number != 0 {
            let _ = write!(text, "{number}{unit}");
        }
    };
    put(i64::from(months / 12), 'Y');
    put(i64::from(months % 12), 'M');
    put(i64::from(days), 'D');
    if micros != 0 {
        text.push('T');
        let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
        let (hours, minutes) = (micros / 3_600_000_000, micros / 60_000_000 % 60);
        let rest = micros % 60_000_000;
        let mut put = |number: u64, fraction: &str, unit: char| {
            if number != 0 || !fraction.is_empty() {
                let _ = write!(text, "{sign}{number}{fraction}{unit}");
            }
        };
        put(hours, "", 'H');
        put(minutes, "", 'M');
        put(rest / 1_000_000, &fraction((rest % 1_000_000) as i64), 'S');
    }
    match text.len() {
        1 => "PT0S".to_owned(),
        _ => text,
    }
}

fn fraction(micros: i64) -> String {
    match micros {
        0 => String::new(),
        micros => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    }
}

/// The day so many days after 2000-01-01, and its era when it is before the first year.
fn civil(days: i64) -> (String, &'static str) {
    // Years that begin with March, in cycles of 400 of them.
    let days = days + EPOCH_DAYS + 719_468;
    let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let of_month = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + cycle * 400 + i64::from(month <= 2);
    // There is no year 0: before year 1 comes 1 BC.
    let (year, era) = if year > 0 {
        (year, "")
    } else {
        (1 - year, " BC")
    };
    (format!("{year:04}-{month:02}-{of_month:02}"), era)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times() {
        assert_eq!(date(0), "2000-01-01");
        assert_eq!(date(-1), "1999-12-31");
        assert_eq!(date(59), "2000-02-29");
        assert_eq!(date(-730_119), "0001-01-01");
        assert_eq!(date(-730_120), "0001-12-31 BC");
        assert_eq!(date(2_921_940), "10000-01-01");
        assert_eq!(timestamp(-1, true), "1999-12-31T23:59:59.999999Z");
        assert_eq!(timestamp(1_500_000, false), "2000-01-01T00:00:01.5");
        assert_eq!(timestamp(i64::MAX, true), "infinity");
        assert_eq!(time(86_399_000_000), "23:59:59");
        assert_eq!(
            (zone(-7200), zone(12_600)),
            ("+02:00".into(), "-03:30".into())
        );
    }

    #[test]
    fn intervals() {
        assert_eq!(interval(0, 0, 0), "PT0S");
        assert_eq!(interval(3_723_500_000, 4, 14), "P1Y2M4DT1H2M3.5S");
        assert_eq!(interval(-500_000, -1, 0), "P-1DT-0.5S");
    }
}
