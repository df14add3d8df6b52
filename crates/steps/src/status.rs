//! What a reply means that is no success.

use std::time::Duration;

use component::handler::Services;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use message::{Fault, Reply};

/// The failure that a reply with this status is.
pub fn status_fault(reply: &Reply, services: &dyn Services) -> Fault {
    let fault = Fault::of_status(reply.status);
    match retry_after(reply, services) {
        Some(time) => fault.with_retry_after(time),
        None => fault,
    }
}

/// When the other side wants to be asked again: seconds, or a time (RFC 9110, section 10.2.3).
fn retry_after(reply: &Reply, services: &dyn Services) -> Option<Duration> {
    let text = std::str::from_utf8(reply.headers.get("Retry-After")?)
        .ok()?
        .trim();
    if !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) {
        // What does not fit is as long as it gets.
        let seconds = text.parse().unwrap_or(u32::MAX);
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = Duration::from_secs(u64::try_from(http_date(text)?.as_second()).ok()?);
    Some(at.saturating_sub(services.wall()))
}

/// A time in any of the three forms that a recipient has to understand (RFC 9110, section 5.6.7).
fn http_date(text: &str) -> Option<Timestamp> {
    if let Ok(time) = jiff::fmt::rfc2822::parse(text) {
        return Some(time.timestamp());
    }
    let obsolete = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let time = obsolete
        .iter()
        .find_map(|format| DateTime::strptime(format, text).ok())?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeServices;

    #[test]
    fn retry_after_is_a_number_or_a_time() {
        let services = FakeServices::default();
        let wait = |text: &str| {
            let mut reply = Reply::new(503);
            reply.headers.append("Retry-After", text);
            status_fault(&reply, &services).retry_after
        };
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        // The clock of these services stands at the beginning of 1970. The example of RFC 9110,
        // section 5.6.7.
        let time = wait("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(time, Some(Duration::from_secs(784_111_777)));
        assert_eq!(wait("Sunday, 06-Nov-94 08:49:37 GMT"), time);
        assert_eq!(wait("Sun Nov  6 08:49:37 1994"), time);
        let longest = Some(Duration::from_secs(u32::MAX.into()));
        assert_eq!(wait("4294967296"), longest);
        assert_eq!(wait("100000000000000000000000"), longest);
        for nothing in ["soon", "", "-1", "1.5"] {
            assert_eq!(wait(nothing), None);
        }
    }
}
