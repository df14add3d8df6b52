//! Ranges of counts, times and parts, and what is said about a value outside its range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use config::{ByteSize, Report, Span, Spanned};

use crate::codes::OUT_OF_RANGE;

/// The longest time of most settings: a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What a step keeps in memory of one message, in bytes.
pub const ONE: RangeInclusive<u64> = 1..=1 << 30;

/// What a step keeps in memory of all messages, in bytes.
pub const ALL: RangeInclusive<u64> = 1 << 10..=64 << 30;

/// A count in its range, or the default when none is said. One outside its range is reported.
pub fn count(
    name: &str,
    value: Option<&Spanned<u64>>,
    range: RangeInclusive<u64>,
    default: u64,
    report: &mut Report,
) -> usize {
    let Some(value) = value else {
        return default as usize;
    };
    if !range.contains(&value.value) {
        let shown = (value.value, range.start(), range.end());
        refuse(name, shown, value.span, report);
        return default as usize;
    }
    value.value as usize
}

/// A time from 1ms to 1d. One outside this range is reported.
pub fn time(name: &str, value: &Spanned<config::Duration>, report: &mut Report) -> Duration {
    let least = Duration::from_millis(1);
    let time = value.value.0;
    if !(least..=LONGEST).contains(&time) {
        let range = (config::Duration(least), config::Duration(LONGEST));
        refuse(name, (value.value, range.0, range.1), value.span, report);
    }
    time
}

/// The same with a default when none is said.
pub fn time_or(
    name: &str,
    value: Option<&Spanned<config::Duration>>,
    default: Duration,
    report: &mut Report,
) -> Duration {
    value.map_or(default, |value| time(name, value, report))
}

/// A time that something is remembered, from 1ms to 366d. One outside this range is reported.
pub fn age(name: &str, value: &Spanned<config::Duration>, report: &mut Report) -> Duration {
    let range = Duration::from_millis(1)..=Duration::from_secs(366 * 24 * 3600);
    let time = value.value.0;
    if !range.contains(&time) {
        let (least, most) = range.into_inner();
        let shown = (value.value, config::Duration(least), config::Duration(most));
        refuse(name, shown, value.span, report);
    }
    time
}

/// A number of bytes in its range, or the default when none is said. One outside its range is
/// reported.
pub fn size(
    name: &str,
    value: Option<&Spanned<ByteSize>>,
    range: RangeInclusive<u64>,
    default: u64,
    report: &mut Report,
) -> usize {
    let size = value.map_or(default, |value| value.value.0);
    if let Some(value) = value
        && !range.contains(&size)
    {
        let shown = (
            value.value,
            ByteSize(*range.start()),
            ByteSize(*range.end()),
        );
        refuse(name, shown, value.span, report);
    }
    size as usize
}

/// Whether a time that comes with a message is not too long.
pub fn is_time(time: Duration) -> bool {
    time <= LONGEST
}

fn refuse<T: Display, U: Display>(
    name: &str,
    (value, least, most): (T, U, U),
    span: Span,
    report: &mut Report,
) {
    let message = format!("`{name}` is {value}, outside its range");
    let diagnostic = report.error(OUT_OF_RANGE, span, message);
    diagnostic.hint(format!("from {least} to {most}"));
}
