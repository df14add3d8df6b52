//! What a caller sends: heads, data, trailers (RFC 9113, section 8.1).

use message::Field;

use super::super::error::{NotOpen, OpenError};
use super::super::flow::{ReceiveWindow, SendWindow};
use super::super::frame;
use super::super::stream::StreamId;
use super::{Engine, Event};

impl Engine {
    /// Sends the head of a response; `end` tells that nothing follows. A status below 200 makes
    /// it interim. `fields` is what `HeadersView::iter` gives: names may be in any case, and
    /// fields of an HTTP/1.1 connection are left out (RFC 9113, section 8.2.2).
    pub fn respond<'a>(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
        end: bool,
    ) -> Result<(), NotOpen> {
        let found = self.streams.get_mut(stream).ok_or(NotOpen)?;
        if self.is_client || found.is_answered || found.is_send_ended {
            return Err(NotOpen);
        }
        let is_interim = (100..200).contains(&status);
        let is_end = end && !is_interim;
        found.is_answered = !is_interim;
        found.is_send_ended = is_end;
        let start = self.begin_head();
        self.encoder.status(status, &mut self.out);
        self.fields(fields, false);
        self.seal(start, stream, is_end);
        Ok(())
    }

    /// Sends the head of a request and so opens a stream; `end` tells that nothing follows.
    /// `scheme` and `path` are left out for CONNECT (RFC 9113, section 8.5). A field `host` is
    /// left out when there is an `authority`.
    pub fn open<'a>(
        &mut self,
        method: &[u8],
        scheme: &[u8],
        authority: &[u8],
        path: &[u8],
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
        end: bool,
    ) -> Result<StreamId, OpenError> {
        self.may_open()?;
        let id = self.next_local;
        self.next_local += 2;
        self.open += 1;
        let receive_window = ReceiveWindow::new(self.stream_window());
        let stream = self.streams.insert(id);
        stream.send_window = SendWindow::new(self.peer.stream_window);
        stream.receive_window = receive_window;
        stream.is_counted = true;
        stream.is_known = true;
        stream.is_answered = true;
        stream.is_send_ended = end;
        stream.is_bodiless = method == b"HEAD";
        let start = self.begin_head();
        self.encoder.method(method, &mut self.out);
        if method != b"CONNECT" {
            self.encoder.scheme(scheme, &mut self.out);
        }
        if !authority.is_empty() {
            self.encoder.authority(authority, &mut self.out);
        }
        if method != b"CONNECT" {
            self.encoder.path(path, &mut self.out);
        }
        self.fields(fields, !authority.is_empty());
        self.seal(start, id, end);
        Ok(id)
    }

    /// Whether [`Engine::open`] would open a stream now.
    pub fn may_open(&self) -> Result<(), OpenError> {
        if self.failed.is_some() || !self.is_client {
            return Err(OpenError::Closed);
        }
        if self.peer_last.is_some() || self.has_sent_goaway || self.next_local > i32::MAX as u32 {
            return Err(OpenError::GoingAway);
        }
        if self.open >= self.peer.streams || self.is_overfull() {
            return Err(OpenError::TooManyStreams);
        }
        Ok(())
    }

    /// How many streams the peer's limit leaves.
    pub fn streams_left(&self) -> usize {
        self.peer.streams.saturating_sub(self.open) as usize
    }

    /// Whether so much is held unread that no more streams are opened.
    pub fn is_overfull(&self) -> bool {
        self.unread > self.limits.unread_max()
    }

    /// Sends trailers, which end the stream. All data must have been taken before.
    pub fn send_trailers<'a>(
        &mut self,
        stream: StreamId,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
    ) -> Result<(), NotOpen> {
        let found = self.streams.get_mut(stream).ok_or(NotOpen)?;
        if !found.is_answered || found.is_send_ended {
            return Err(NotOpen);
        }
        found.is_send_ended = true;
        let start = self.begin_head();
        self.fields(fields, false);
        self.seal(start, stream, true);
        Ok(())
    }

    #[inline]
    fn begin_head(&mut self) -> usize {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; frame::HEADER]);
        self.encoder.begin(&mut self.out);
        start
    }

    #[inline]
    fn fields<'a>(
        &mut self,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
        is_host_told: bool,
    ) {
        for (field, name, value) in fields {
            let is_sent = match field {
                Field::Other => true,
                Field::Connection
                | Field::Http2Settings
                | Field::KeepAlive
                | Field::ProxyConnection
                | Field::TransferEncoding
                | Field::Upgrade => false,
                Field::Host => !is_host_told,
                Field::Te => value.eq_ignore_ascii_case(b"trailers"),
                _ => true,
            };
            if is_sent {
                self.encoder.field(field, name, value, &mut self.out);
            }
        }
    }

    #[inline]
    fn seal(&mut self, start: usize, id: StreamId, is_end: bool) {
        let flags = if is_end { frame::END_STREAM } else { 0 };
        frame::seal(&mut self.out, start, self.peer.frame as usize, flags, id);
        self.messages += 1;
        if is_end {
            self.guard.sent(0, true);
            self.settle(id);
        }
    }

    /// How many bytes [`Engine::send_data`] would take on this stream now.
    pub fn capacity(&self, stream: StreamId) -> usize {
        match self.streams.get(stream) {
            Some(found) if !found.is_send_ended => found.send_window.size().min(self.room()),
            _ => 0,
        }
    }

    /// How much data the connection's window and the output have room for.
    #[inline]
    fn room(&self) -> usize {
        let backlog = self.limits.backlog.saturating_sub(self.pending().len());
        backlog.min(self.send_window.size())
    }

    /// Sends data behind a head; the answer is how much of it was taken. When that is less than
    /// all, [`Event::Writable`] follows. `end` holds only when all was taken.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        data: &[u8],
        end: bool,
    ) -> Result<usize, NotOpen> {
        let room = self.room();
        let found = self.streams.get_mut(stream).ok_or(NotOpen)?;
        if !found.is_answered || found.is_send_ended {
            return Err(NotOpen);
        }
        let count = data.len().min(room).min(found.send_window.size());
        let is_whole = count == data.len();
        let is_end = end && is_whole;
        found.send_window.take(count);
        if count > 0 {
            self.turn += 1;
            found.served = self.turn;
        }
        found.is_blocked = !is_whole;
        found.is_send_ended = is_end;
        let waits_for_all = !is_whole && found.send_window.size() > 0;
        if waits_for_all && !found.is_listed {
            found.is_listed = true;
            self.blocked.push_back(stream);
        }
        self.send_window.take(count);
        if count > 0 || is_end {
            self.put_data(stream, data.get(..count).unwrap_or_default(), is_end);
            self.guard.sent(count, is_whole);
        }
        if is_end {
            self.settle(stream);
        }
        Ok(count)
    }

    #[inline]
    fn put_data(&mut self, id: StreamId, mut data: &[u8], is_end: bool) {
        let most = self.peer.frame as usize;
        self.messages += 1;
        while let Some((part, rest)) = data.split_at_checked(most)
            && !rest.is_empty()
        {
            self.messages += 1;
            frame::header(&mut self.out, part.len(), frame::DATA, 0, id);
            self.out.extend_from_slice(part);
            data = rest;
        }
        let flags = if is_end { frame::END_STREAM } else { 0 };
        frame::header(&mut self.out, data.len(), frame::DATA, flags, id);
        self.out.extend_from_slice(data);
    }

    /// Raises [`Event::Writable`] for a stream that waits for room, if there is some.
    pub(super) fn wake(&mut self, id: StreamId) {
        let room = self.room();
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if !stream.is_blocked || stream.send_window.size() == 0 {
            return;
        }
        if room == 0 {
            if !stream.is_listed {
                stream.is_listed = true;
                self.blocked.push_back(id);
            }
            return;
        }
        stream.is_blocked = false;
        if !stream.has_writable_event {
            stream.has_writable_event = true;
            self.events.push_back(Event::Writable { stream: id });
        }
    }

    /// Raises [`Event::Writable`] for the streams that wait for the connection. The first to ask
    /// may take all the room there is, so those come first that have sent nothing for longest.
    pub(super) fn wake_all(&mut self) {
        if self.room() == 0 {
            return;
        }
        let streams = &self.streams;
        let served = |id: &StreamId| streams.get(*id).map_or(0, |stream| stream.served);
        self.blocked.make_contiguous().sort_by_key(served);
        while let Some(id) = self.blocked.pop_front() {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.is_listed = false;
            }
            self.wake(id);
        }
    }
}
