//! Times of day in milliseconds since 1970, and how they are written (RFC 3339).

use component::handler::Services;
use jiff::Timestamp;

/// The time of day.
pub(super) fn now_ms(services: &dyn Services) -> u64 {
    u64::try_from(services.wall().as_millis()).unwrap_or(u64::MAX)
}

/// A time as RFC 3339 writes it, always with milliseconds, so that texts sort as the times do; none
/// beyond the year 9999.
pub(super) fn rfc3339(ms: u64) -> Option<String> {
    let ms = i64::try_from(ms).ok()?;
    let time = Timestamp::from_millisecond(ms).ok()?;
    Some(format!("{time:.3}"))
}

/// The time that a text of RFC 3339 names; none before 1970.
pub(super) fn parse(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        let text = "2023-11-14T22:13:20.123Z";
        assert_eq!(rfc3339(1_700_000_000_123).as_deref(), Some(text));
        assert_eq!(parse(text), Some(1_700_000_000_123));
        for (ms, text) in [(700, "0.700Z"), (1000, "1.000Z"), (1010, "1.010Z")] {
            assert_eq!(rfc3339(ms), Some(format!("1970-01-01T00:00:0{text}")));
        }
        assert_eq!(parse("1970-01-01T01:00:01+01:00"), Some(1000));
        assert_eq!(rfc3339(u64::MAX), None);
        for wrong in ["", "yesterday", "1969-12-31T23:59:59Z"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
