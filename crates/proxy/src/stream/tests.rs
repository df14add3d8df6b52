//! What streams carry, and what is left of them.

mod dropped;

use super::*;
use crate::stream::events::Events;
use crate::stream::tunnel::Tunnel;

/// What every open stream carries: tens of thousands are open at a time.
#[test]
fn what_a_stream_carries_is_small() {
    assert!(
        size_of::<Http1Client>() <= 256,
        "{}",
        size_of::<Http1Client>()
    );
    assert!(
        size_of::<Http2Client>() <= 192,
        "{}",
        size_of::<Http2Client>()
    );
    assert!(size_of::<Tunnel>() <= 384, "{}", size_of::<Tunnel>());
    assert!(size_of::<Events>() <= 320, "{}", size_of::<Events>());
    assert!(size_of::<Begun>() <= 72, "{}", size_of::<Begun>());
}

/// The task of an open stream, besides what the feed's own future holds.
#[test]
fn the_task_of_a_stream_is_small() {
    fn of_run<F>(_: impl FnOnce(HandOver, Guest) -> F) -> usize {
        size_of::<F>()
    }
    fn of_http2<F>(_: impl FnOnce(Begun, Http2Client) -> F) -> usize {
        size_of::<F>()
    }
    fn of_serve<F>(_: impl FnOnce(Session, Guest) -> F) -> usize {
        size_of::<F>()
    }
    let sizes = (of_run(HandOver::run), of_http2(run_http2), of_serve(serve));
    assert!(
        sizes.0 <= 240 && sizes.1 <= 176 && sizes.2 <= 3328,
        "{sizes:?}"
    );
}
