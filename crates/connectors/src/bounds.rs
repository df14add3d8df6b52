//! Numbers and times of settings, with their ranges and defaults.

use std::ops::RangeInclusive;
use std::time::Duration;

use config::{ByteSize, Report, Spanned};

use crate::codes::OUT_OF_RANGE;

/// A number, or its default. One outside the range is reported.
pub(crate) fn count(
    value: Option<&Spanned<u64>>,
    default: u64,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> u64 {
    let Some(value) = value else {
        return default;
    };
    if !range.contains(&value.value) {
        report
            .error(OUT_OF_RANGE, value.span, "the number is outside its range")
            .hint(format!("from {} to {}", range.start(), range.end()));
        return default;
    }
    value.value
}

/// A number of bytes, when one is given. One outside the range is reported.
pub(crate) fn size(
    value: Option<&Spanned<ByteSize>>,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let value = value?;
    if !range.contains(&value.value.0) {
        report
            .error(OUT_OF_RANGE, value.span, "the size is outside its range")
            .hint(format!(
                "from {} to {}",
                ByteSize(*range.start()),
                ByteSize(*range.end())
            ));
    }
    Some(value.value.0)
}

/// A time, or its default. One outside the range is reported.
pub(crate) fn time(
    value: Option<&Spanned<config::Duration>>,
    default: Duration,
    range: RangeInclusive<Duration>,
    report: &mut Report,
) -> Duration {
    let Some(value) = value else {
        return default;
    };
    if !range.contains(&value.value.0) {
        let shown = |time: &Duration| config::Duration(*time);
        report
            .error(OUT_OF_RANGE, value.span, "the time is outside its range")
            .hint(format!(
                "from {} to {}",
                shown(range.start()),
                shown(range.end())
            ));
        return default;
    }
    value.value.0
}
