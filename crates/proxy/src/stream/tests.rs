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
