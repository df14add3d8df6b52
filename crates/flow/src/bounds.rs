//! Ranges of sizes, counts and times, and what is said about a value outside its range.

use std::fmt::Display;
use std::time::Duration;

use config::{ByteSize, Report, Spanned};

use crate::codes::OUT_OF_RANGE;

/// The least and the greatest value allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<T> {
    pub least: T,
    pub greatest: T,
}

/// Bodies that are read into memory, in bytes.
pub(crate) const BODY: Bounds<u64> = Bounds {
    least: 1,
    greatest: 1 << 30,
};

/// A time that a client or an upstream is waited for.
pub(crate) const WAIT: Bounds<Duration> = Bounds {
    least: Duration::from_millis(1),
    greatest: Duration::from_secs(24 * 3600),
};

impl<T: PartialOrd> Bounds<T> {
    fn hold(&self, value: &T) -> bool {
        *value >= self.least && *value <= self.greatest
    }
}

impl Bounds<u64> {
    /// The size in bytes, when it is in range.
    pub fn check_size(
        &self,
        name: &str,
        size: &Spanned<ByteSize>,
        report: &mut Report,
    ) -> Option<u64> {
        if self.hold(&size.value.0) {
            return Some(size.value.0);
        }
        let (least, greatest) = (ByteSize(self.least), ByteSize(self.greatest));
        refuse(name, size, &least, &greatest, report);
        None
    }

    /// The count, when it is in range.
    pub fn check_count(
        &self,
        name: &str,
        count: &Spanned<u64>,
        report: &mut Report,
    ) -> Option<u64> {
        if self.hold(&count.value) {
            return Some(count.value);
        }
        refuse(name, count, &self.least, &self.greatest, report);
        None
    }
}

impl Bounds<Duration> {
    /// The time, when it is in range.
    pub fn check_time(
        &self,
        name: &str,
        time: &Spanned<config::Duration>,
        report: &mut Report,
    ) -> Option<Duration> {
        if self.hold(&time.value.0) {
            return Some(time.value.0);
        }
        let (least, greatest) = (
            config::Duration(self.least),
            config::Duration(self.greatest),
        );
        refuse(name, time, &least, &greatest, report);
        None
    }
}

fn refuse<T: Display>(
    name: &str,
    value: &Spanned<T>,
    least: &dyn Display,
    greatest: &dyn Display,
    report: &mut Report,
) {
    let message = format!("`{name}` is {}, outside its range", value.value);
    report
        .error(OUT_OF_RANGE, value.span, message)
        .hint(format!("from {least} to {greatest}"));
}
