//! What those get who come to a channel while a snapshot is the newest: made once for all who come
//! together.

use bytes::Bytes;

use super::Channel;
use crate::event::EventId;

/// The most bytes in front of the newest snapshot that others may get too.
const HEAD_MAX: usize = 128;

/// The newest snapshot behind what stands in front of it.
pub(super) struct Opening {
    newest: EventId,
    head: Box<[u8]>,
    /// Both, as the wire wants them.
    sealed: Bytes,
}

impl Channel {
    /// The newest snapshot behind these bytes, as the wire wants both, when somebody has got just
    /// that: hundreds may come at once, and the snapshot may be large.
    pub fn opening(&self, head: &[u8]) -> Option<Bytes> {
        let newest = self.members.first()?.branch.latest()?.id;
        let opening = self.opening.borrow();
        let opening = opening.as_ref()?;
        let is_it = opening.newest == newest && *opening.head == *head;
        is_it.then(|| opening.sealed.clone())
    }

    /// Notes that somebody gets these bytes, which are the newest snapshot behind a head.
    pub fn note_opening(&self, head: &[u8], sealed: &Bytes) {
        let first = self.members.first();
        let newest = first.and_then(|it| it.branch.latest()).map(|it| it.id);
        if let Some(newest) = newest.filter(|_| head.len() <= HEAD_MAX) {
            *self.opening.borrow_mut() = Some(Opening {
                newest,
                head: head.into(),
                sealed: sealed.clone(),
            });
        }
    }
}
