//! What ways that ask another system have in common: times, and the key of their caches.

use std::time::Duration;

use access::KeyedHash;
use config::{Report, Span, Spanned};

use crate::codes::BAD_WAY;

/// A time between two others, as the file says it.
pub(crate) fn time(
    name: &str,
    value: Option<&Spanned<config::Duration>>,
    (least, most): (Duration, Duration),
    report: &mut Report,
) -> Option<Duration> {
    let value = value?;
    if !(least..=most).contains(&value.value.0) {
        let (least, most) = (config::Duration(least), config::Duration(most));
        let message = format!("`{name}` is not from {least} to {most}");
        report.error(BAD_WAY, value.span, message);
    }
    Some(value.value.0)
}

/// How long one question may take.
pub(crate) fn timeout(value: Option<&Spanned<config::Duration>>, report: &mut Report) -> Duration {
    let range = (Duration::from_millis(1), Duration::from_secs(60));
    time("timeout", value, range, report).unwrap_or(Duration::from_secs(5))
}

/// The key of a cache of answers.
pub(crate) fn hash(span: Span, report: &mut Report) -> Option<KeyedHash> {
    let hash = KeyedHash::random();
    if hash.is_none() {
        let message = "the system has no random bytes to keep answers by";
        report.error(BAD_WAY, span, message);
    }
    hash
}
