//! The `Date` of the stub's answers, which a server with a clock sends (RFC 9110, section 6.6.1).

use std::cell::RefCell;

use http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

thread_local! {
    static CACHED: RefCell<(i64, HeaderValue)> =
        const { RefCell::new((i64::MIN, HeaderValue::from_static(""))) };
}

/// The date now, made once a second on each thread.
pub(super) fn now() -> HeaderValue {
    let now = Timestamp::now();
    CACHED.with_borrow_mut(|(second, text)| {
        if *second != now.as_second() {
            let made = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
            // invariant: a date of this century can be printed, in ASCII.
            let made = made.unwrap_or_default();
            *text = HeaderValue::try_from(made).unwrap_or(HeaderValue::from_static(""));
            *second = now.as_second();
        }
        text.clone()
    })
}
