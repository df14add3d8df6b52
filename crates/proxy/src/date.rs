//! The `Date` field (RFC 9110, section 6.6.1), made once a second.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// How long the text is: `Sun, 06 Nov 1994 08:49:37 GMT`.
const LENGTH: usize = 29;

/// The current date as IMF-fixdate (RFC 9110, section 5.6.7).
#[derive(Default)]
pub(crate) struct DateField {
    cached: RefCell<(Option<Instant>, String)>,
}

impl DateField {
    /// The date as text.
    pub fn text(&self, now: Instant) -> Vec<u8> {
        let mut text = Vec::with_capacity(LENGTH);
        self.append(now, &mut text);
        text
    }

    /// Appends the date to a head that is being written.
    pub fn append(&self, now: Instant, out: &mut Vec<u8>) {
        let mut cached = self.cached.borrow_mut();
        let fresh = cached
            .0
            .is_some_and(|made| now < made + Duration::from_millis(500));
        if !fresh {
            let time = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            *cached = (Some(now), imf_fixdate(time.as_secs()));
        }
        out.extend_from_slice(cached.1.as_bytes());
    }
}

/// Seconds since 1970 as IMF-fixdate. The civil date is computed in eras of 400 years from
/// 1 March of year 0.
fn imf_fixdate(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
    ];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    let mut text = String::with_capacity(LENGTH);
    text.push_str(&format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_standard() {
        let cases = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ];
        for (seconds, text) in cases {
            assert_eq!(imf_fixdate(seconds), text);
            assert_eq!(text.len(), LENGTH);
        }
    }
}
