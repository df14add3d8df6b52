//! Topics as server-sent events (WHATWG HTML, section 9.2): requests for streams, and the streams.

mod feed;
mod handler;

pub(crate) use feed::in_ticks;
pub(crate) use handler::{Of, SseHandler, busy, enter, ready};
