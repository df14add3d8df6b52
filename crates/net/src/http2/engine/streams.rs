//! The lives of streams (RFC 9113, section 5.1), and reading from them.

use super::super::error::{Code, ConnectionError};
use super::super::frame;
use super::super::settings;
use super::super::stream::StreamId;
use super::{Engine, Event};

impl Engine {
    /// The bytes of a stream that wait to be read, and whether the body ends behind them. A body
    /// that was cut off by a reset has no end.
    #[inline]
    pub fn readable(&self, stream: StreamId) -> (&[u8], bool) {
        match self.streams.get(stream) {
            Some(stream) => (stream.body(), stream.is_complete),
            None => (&[], false),
        }
    }

    /// Drops the first `count` readable bytes, so that the peer may send as many again
    /// (RFC 9113, section 5.2). It is told when that is worth a frame.
    #[inline]
    pub fn consume(&mut self, stream: StreamId, count: usize) {
        let dropped = match self.streams.get_mut(stream) {
            Some(stream) => stream.drop_body(count),
            None => 0,
        };
        if dropped > 0 {
            self.consumed(stream, dropped);
        }
    }

    /// Gives the peer back what it has used of the windows of stream and connection.
    fn consumed(&mut self, id: StreamId, count: usize) {
        self.credit_stream(id, count);
        self.dropped(count);
    }

    /// Gives the peer back what it has used of a stream's window.
    pub(super) fn credit_stream(&mut self, id: StreamId, count: usize) {
        let size = self.stream_window();
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.is_receive_ended
            && let Some(by) = stream.receive_window.consume(count, size)
        {
            frame::window_update(&mut self.out, id, by);
        }
    }

    /// How many of the unread bytes are above the bound, so that the connection's window has not
    /// been given back for them.
    #[inline]
    fn withheld(&self) -> usize {
        self.unread.saturating_sub(self.limits.unread_max())
    }

    /// Data has been received for a stream. The connection's window is given back at once: streams
    /// that are not read are held back by their own windows and must not delay the others.
    #[inline]
    pub(super) fn received(&mut self, count: usize) {
        let before = self.withheld();
        self.unread += count;
        let withheld = self.withheld() - before;
        self.credit(count - withheld);
    }

    /// Data of a stream has been consumed, or dropped with the stream.
    #[inline]
    fn dropped(&mut self, count: usize) {
        let before = self.withheld();
        self.unread = self.unread.saturating_sub(count);
        self.memory.uncover(self.unread);
        self.credit(before - self.withheld());
    }

    /// Gives the peer back what it has used of the connection's window.
    pub(super) fn credit(&mut self, count: usize) {
        let size = self.limits.connection_window;
        if count > 0
            && let Some(by) = self.receive_window.consume(count, size)
        {
            frame::window_update(&mut self.out, 0, by);
        }
    }

    /// The window that a stream of the peer begins with.
    pub(super) fn stream_window(&self) -> u32 {
        if self.is_acknowledged {
            self.limits.stream_window
        } else {
            settings::WINDOW
        }
    }

    /// Ends a stream at once (RFC 9113, section 6.4) and releases it.
    pub fn reset(&mut self, stream: StreamId, code: Code) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        if !found.is_over() {
            self.send_reset(stream, code);
        }
        self.remove(stream);
    }

    /// Says that the caller needs a stream no more. One that is still open is reset
    /// (RFC 9113, section 8.1: with NO_ERROR when the response was sent whole). Every stream is
    /// to be released that was opened or of which [`Event::Head`] told.
    #[inline]
    pub fn release(&mut self, stream: StreamId) {
        let Some(found) = self.streams.get(stream) else {
            return;
        };
        if !found.is_over() {
            let is_answered = !self.is_client && found.is_send_ended;
            let code = if is_answered {
                Code::NONE
            } else {
                Code::CANCEL
            };
            self.send_reset(stream, code);
        }
        self.remove(stream);
    }

    /// Whether a stream is over and released at a client. What a server still sends on it was under
    /// way when it had not yet heard of that.
    #[inline]
    pub(super) fn is_past(&self, id: StreamId) -> bool {
        self.is_client && self.streams.get(id).is_none()
    }

    /// Whether nothing was ever sent or received on a stream with this number.
    #[inline]
    pub(super) fn is_idle_stream(&self, id: StreamId) -> bool {
        let first_idle = if self.is_client {
            self.next_local
        } else {
            self.last_peer + 1
        };
        id >= first_idle || id & 1 == 0
    }

    /// A stream that is closed no longer counts (RFC 9113, section 5.1.2).
    #[inline]
    pub(super) fn settle(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.is_counted
            && (stream.is_reset || stream.is_closed())
        {
            stream.is_counted = false;
            self.open = self.open.saturating_sub(1);
        }
    }

    fn remove(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let unread = stream.body().len();
        if stream.is_counted {
            self.open = self.open.saturating_sub(1);
        }
        self.streams.remove(id);
        self.dropped(unread);
    }

    fn send_reset(&mut self, id: StreamId, code: Code) {
        let stream = self.streams.get(id);
        let left = stream.map_or(0, |stream| stream.receive_window.left());
        self.reset_here.add(id, left);
        frame::rst_stream(&mut self.out, id, code);
    }

    /// Answers a frame of the peer with RST_STREAM.
    pub(super) fn put_reset(&mut self, id: StreamId, code: Code) -> Result<(), ConnectionError> {
        self.send_reset(id, code);
        self.replied(frame::HEADER + 4)
    }

    /// A stream error (RFC 9113, section 5.4.2). Errors count like resets of the peer: it can
    /// make streams come to nothing either way.
    pub(super) fn stream_error(&mut self, id: StreamId, code: Code) -> Result<(), ConnectionError> {
        self.guard.reset(&self.limits)?;
        self.put_reset(id, code)?;
        self.end_stream(id, code);
        Ok(())
    }

    /// Marks a stream that was reset by either side, and tells the caller if it knows the stream.
    pub(super) fn end_stream(&mut self, id: StreamId, code: Code) {
        self.end_stream_by(id, code, Event::Reset { stream: id, code });
    }

    /// The same, with what the caller is told.
    pub(super) fn end_stream_by(&mut self, id: StreamId, code: Code, event: Event) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if !stream.is_known {
            return self.remove(id);
        }
        let is_kept = stream.is_complete && code == Code::NONE;
        let unread = if is_kept {
            0
        } else {
            stream.drop_body(usize::MAX)
        };
        stream.is_complete &= is_kept;
        stream.is_reset = true;
        stream.is_send_ended = true;
        stream.is_receive_ended = true;
        stream.is_blocked = false;
        self.settle(id);
        self.dropped(unread);
        self.events.push_back(event);
    }
}
