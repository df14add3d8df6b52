//! Numbers, sizes and times of settings with their ranges.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use config::{ByteSize, Report, Span, Spanned};

use crate::codes::OUT_OF_RANGE;

/// A number, when one is given. One outside the range is reported.
pub(crate) fn count(
    name: &str,
    value: Option<&Spanned<u64>>,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let value = value?;
    if !range.contains(&value.value) {
        let shown = (value.value, *range.start(), *range.end());
        refuse(name, shown, value.span, report);
    }
    Some(value.value)
}

/// A number of bytes, when one is given. One outside the range is reported.
pub(crate) fn size(
    name: &str,
    value: Option<&Spanned<ByteSize>>,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let value = value?;
    if !range.contains(&value.value.0) {
        let (least, most) = (ByteSize(*range.start()), ByteSize(*range.end()));
        refuse(name, (value.value, least, most), value.span, report);
    }
    Some(value.value.0)
}

/// A time. One outside the range is reported.
pub(crate) fn time(
    name: &str,
    value: &Spanned<config::Duration>,
    range: RangeInclusive<Duration>,
    report: &mut Report,
) -> Duration {
    if !range.contains(&value.value.0) {
        let shown = |time: &Duration| config::Duration(*time);
        let shown = (value.value, shown(range.start()), shown(range.end()));
        refuse(name, shown, value.span, report);
    }
    value.value.0
}

fn refuse<T: Display>(
    name: &str,
    (value, least, most): (T, T, T),
    span: Span,
    report: &mut Report,
) {
    let message = format!("`{name}` is {value}, outside its range");
    report
        .error(OUT_OF_RANGE, span, message)
        .hint(format!("from {least} to {most}"));
}
