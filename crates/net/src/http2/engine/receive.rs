//! What HEADERS, CONTINUATION and DATA do (RFC 9113, sections 6.1, 6.2, 6.10 and 8.1).

use super::super::error::{Code, ConnectionError};
use super::super::flow::{ReceiveWindow, SendWindow};
use super::super::frame::{self, Header};
use super::super::head::{Assembler, Head, Section};
use super::super::hpack::DecodeError;
use super::super::stream::StreamId;
use super::{Engine, Event, Partial};

/// How many interim responses one request may have.
const INTERIMS_MAX: u32 = 16;

/// Why DATA is not for a stream's reader.
enum Ignored {
    /// It was under way when the stream was reset here, within the window that the peer had.
    Expected,
    /// There is no such stream any more.
    Unexpected,
    /// It is an error of the stream.
    Error(Code),
}

impl Engine {
    #[inline]
    pub(super) fn headers(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if header.stream == 0 {
            return Err(ConnectionError::protocol("HEADERS without a stream"));
        }
        let Some(mut block) = frame::unpadded(header, payload) else {
            return Err(ConnectionError::protocol("more padding than HEADERS"));
        };
        let mut is_self_dependent = false;
        if header.has(frame::WITH_PRIORITY) {
            let (Some(on), Some(rest)) = (frame::number(block), block.get(5..)) else {
                return Err(ConnectionError::new(
                    Code::FRAME_SIZE,
                    "HEADERS is too short",
                ));
            };
            is_self_dependent = on & 0x7fff_ffff == header.stream;
            block = rest;
        }
        let is_end = header.has(frame::END_STREAM);
        if header.has(frame::END_HEADERS) {
            return self.section(header.stream, is_end, is_self_dependent, block);
        }
        self.partial = Some(Partial {
            stream: header.stream,
            is_end,
            is_self_dependent,
            frames: 0,
            begun: self.frames,
            block: block.to_vec(),
        });
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let Some(partial) = &mut self.partial else {
            return Err(ConnectionError::protocol("CONTINUATION without HEADERS"));
        };
        partial.frames += 1;
        let length = partial.block.len() + payload.len();
        let has_too_many = !self.is_client && partial.frames > self.limits.continuations;
        // Frames without content would make no progress.
        let is_vain = payload.is_empty() && !header.has(frame::END_HEADERS);
        let is_flood = self.is_client && is_vain;
        if has_too_many || is_flood || length > self.limits.block_max(self.is_client) {
            return Err(ConnectionError::new(
                Code::CALM,
                "a header block is too long",
            ));
        }
        partial.block.extend_from_slice(payload);
        if !header.has(frame::END_HEADERS) {
            return Ok(());
        }
        let Some(partial) = self.partial.take() else {
            return Ok(());
        };
        let Partial {
            stream,
            is_end,
            is_self_dependent,
            block,
            ..
        } = partial;
        self.section(stream, is_end, is_self_dependent, &block)
    }

    /// Takes a whole header block, and finds out what it is.
    #[inline]
    fn section(
        &mut self,
        id: StreamId,
        is_end: bool,
        is_self_dependent: bool,
        block: &[u8],
    ) -> Result<(), ConnectionError> {
        let found = self.streams.get(id).map(|stream| {
            let is_response = self.is_client && !stream.has_head;
            (is_response, stream.is_receive_ended)
        });
        let section = match found {
            Some((true, _)) => Section::Response,
            Some((false, _)) => Section::Trailers,
            None if self.is_client => Section::Response,
            None => Section::Request,
        };
        let is_idle = self.is_idle_stream(id);
        if is_idle && (self.is_client || id & 1 == 0) {
            return Err(ConnectionError::protocol(
                "HEADERS on a stream that cannot be",
            ));
        }
        // Every block is decoded, wanted or not, because it changes the table.
        let (head, mut is_good) = self.decode(section, is_end, block)?;
        is_good &= !is_self_dependent;
        match found {
            None if is_idle => self.request(id, head, is_good),
            None => self.late_headers(id, head),
            Some((_, true)) => self.late_headers(id, head),
            Some(_) if !is_good => self.stream_error(id, Code::PROTOCOL),
            Some((true, _)) => self.response(id, head),
            Some((false, _)) => self.trailers(id, head),
        }
    }

    #[inline]
    fn decode(
        &mut self,
        section: Section,
        is_end: bool,
        block: &[u8],
    ) -> Result<(Head, bool), ConnectionError> {
        let spare = self.spare_heads.pop().unwrap_or_else(Head::with_room);
        let size_max = self.limits.section_max(self.is_client);
        let mut assembler = Assembler::new(spare, section, &self.limits, size_max);
        match self.decoder.decode(block, &mut assembler) {
            Ok(()) => Ok(assembler.finish(is_end)),
            Err(DecodeError::Malformed) => Err(ConnectionError::new(
                Code::COMPRESSION,
                "a header block is not HPACK",
            )),
            Err(DecodeError::TooLarge) => Err(ConnectionError::new(
                Code::CALM,
                "a header section is far too large",
            )),
        }
    }

    /// HEADERS for a stream whose receiving side has ended (RFC 9113, section 5.1).
    fn late_headers(&mut self, id: StreamId, head: Head) -> Result<(), ConnectionError> {
        self.recycle(head);
        if self.reset_here.has(id) || self.is_past(id) {
            return self.guard.control(&self.limits);
        }
        if self.streams.get(id).is_some_and(|stream| !stream.is_reset) {
            return self.stream_error(id, Code::STREAM_CLOSED);
        }
        Err(ConnectionError::new(
            Code::STREAM_CLOSED,
            "HEADERS on a closed stream",
        ))
    }

    /// The head of a request opens a stream.
    #[inline]
    fn request(&mut self, id: StreamId, head: Head, is_good: bool) -> Result<(), ConnectionError> {
        self.last_peer = id;
        let streams_max = (self.limits.streams as usize).saturating_mul(2);
        let is_full = self.open >= self.limits.streams || self.streams.len() >= streams_max;
        if is_full || id > self.last_served {
            self.recycle(head);
            self.guard.control(&self.limits)?;
            return self.put_reset(id, Code::REFUSED);
        }
        let is_cut = head.is_end() && head.content_length().is_some_and(|length| length > 0);
        if !is_good || (is_cut && !head.is_too_large()) {
            self.recycle(head);
            return self.stream_error(id, Code::PROTOCOL);
        }
        let receive_window = ReceiveWindow::new(self.stream_window());
        let stream = self.streams.insert(id);
        stream.send_window = SendWindow::new(self.peer.stream_window);
        stream.receive_window = receive_window;
        stream.has_head = true;
        stream.is_receive_ended = head.is_end();
        stream.is_complete = head.is_end();
        stream.is_counted = true;
        stream.expected = head.content_length();
        self.open += 1;
        self.push_head(id, head);
        Ok(())
    }

    fn push_head(&mut self, id: StreamId, head: Head) {
        let end = head.is_end();
        if let Some(stream) = self.streams.get_mut(id) {
            stream.heads.push_back(head);
            self.events.push_back(Event::Head { stream: id, end });
        }
    }

    /// The head of a response (RFC 9113, section 8.1).
    fn response(&mut self, id: StreamId, head: Head) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if head.is_too_large() {
            return self.too_large(id, head);
        }
        if head.is_interim() {
            stream.interims += 1;
            if stream.interims > INTERIMS_MAX {
                return self.stream_error(id, Code::CALM);
            }
            self.push_head(id, head);
            return Ok(());
        }
        stream.has_head = true;
        let has_no_body = stream.is_bodiless || matches!(head.status(), 204 | 304);
        stream.expected = if has_no_body {
            Some(0)
        } else {
            head.content_length()
        };
        if head.is_end() {
            if stream.expected.is_some_and(|length| length > 0) {
                return self.stream_error(id, Code::PROTOCOL);
            }
            stream.is_receive_ended = true;
            stream.is_complete = true;
        }
        self.push_head(id, head);
        self.settle(id);
        Ok(())
    }

    fn trailers(&mut self, id: StreamId, head: Head) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        if !head.is_end() || stream.expected.is_some_and(|left| left > 0) {
            return self.stream_error(id, Code::PROTOCOL);
        }
        if head.is_too_large() {
            return self.too_large(id, head);
        }
        stream.trailers = Some(head.fields);
        stream.is_receive_ended = true;
        stream.is_complete = true;
        self.data_event(id);
        self.settle(id);
        Ok(())
    }

    /// A response's head or trailers that are above the limits end the stream. For a client that
    /// sends them this counts like any error of its own.
    fn too_large(&mut self, id: StreamId, head: Head) -> Result<(), ConnectionError> {
        self.recycle(head);
        self.guard.reset(&self.limits)?;
        self.put_reset(id, Code::CALM)?;
        self.end_stream_by(id, Code::CALM, Event::TooLarge { stream: id });
        Ok(())
    }

    #[inline]
    fn data_event(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && !stream.has_data_event
        {
            stream.has_data_event = true;
            self.events.push_back(Event::Data { stream: id });
        }
    }

    pub(super) fn data(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        let id = header.stream;
        if id == 0 || self.is_idle_stream(id) {
            return Err(ConnectionError::protocol(
                "DATA on a stream that is not open",
            ));
        }
        if !self.receive_window.take(payload.len()) {
            let reason = "more DATA than the connection's window";
            return Err(ConnectionError::new(Code::FLOW_CONTROL, reason));
        }
        let Some(data) = frame::unpadded(header, payload) else {
            return Err(ConnectionError::protocol("more padding than DATA"));
        };
        let is_end = header.has(frame::END_STREAM);
        if data.is_empty() && !is_end {
            self.guard.control(&self.limits)?;
        }
        match self.data_fits(id, data.len(), payload.len(), is_end) {
            Ok(()) => self.take_data(id, data, payload.len(), is_end),
            Err(ignored) => {
                self.credit(payload.len());
                match ignored {
                    Ignored::Error(code) => self.stream_error(id, code),
                    Ignored::Unexpected => self.guard.control(&self.limits),
                    Ignored::Expected => Ok(()),
                }
            }
        }
    }

    /// Takes the frame's share of the stream's window and of its length.
    fn data_fits(
        &mut self,
        id: StreamId,
        length: usize,
        padded: usize,
        is_end: bool,
    ) -> Result<(), Ignored> {
        let is_past = self.is_past(id);
        let stream = self.streams.get_mut(id);
        let Some(stream) = stream.filter(|stream| !stream.is_receive_ended) else {
            return match self.reset_here.take(id, padded) {
                Some(true) => Err(Ignored::Expected),
                None if !is_past => Err(Ignored::Error(Code::STREAM_CLOSED)),
                _ => Err(Ignored::Unexpected),
            };
        };
        if !stream.has_head {
            return Err(Ignored::Error(Code::PROTOCOL));
        }
        if !stream.receive_window.take(padded) {
            return Err(Ignored::Error(Code::FLOW_CONTROL));
        }
        if let Some(left) = &mut stream.expected {
            *left = left
                .checked_sub(length as u64)
                .ok_or(Ignored::Error(Code::PROTOCOL))?;
            if is_end && *left > 0 {
                return Err(Ignored::Error(Code::PROTOCOL));
            }
        }
        Ok(())
    }

    fn take_data(
        &mut self,
        id: StreamId,
        data: &[u8],
        padded: usize,
        is_end: bool,
    ) -> Result<(), ConnectionError> {
        if self.memory.cover(self.unread + data.len()).is_err() {
            return self.no_room(id, padded);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(());
        };
        stream.append(data);
        stream.is_receive_ended |= is_end;
        stream.is_complete |= is_end;
        if padded > data.len() {
            self.credit_stream(id, padded - data.len());
            self.credit(padded - data.len());
        }
        self.received(data.len());
        if is_end || !data.is_empty() {
            self.data_event(id);
        }
        if is_end {
            self.settle(id);
        }
        Ok(())
    }

    /// Resets a stream whose DATA the process has no memory for. It is no error of the peer, which
    /// has kept to its windows, and does not count as one.
    #[cold]
    fn no_room(&mut self, id: StreamId, padded: usize) -> Result<(), ConnectionError> {
        self.credit(padded);
        self.put_reset(id, Code::CALM)?;
        self.end_stream(id, Code::CALM);
        Ok(())
    }
}
