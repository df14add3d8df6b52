//! What the frames without content do (RFC 9113, sections 6.3 to 6.9).

use super::super::error::{Code, ConnectionError};
use super::super::frame::{self, Header};
use super::super::settings;
use super::super::stream::StreamId;
use super::{Engine, Event};

impl Engine {
    /// PRIORITY means nothing any more (RFC 9113, section 5.3.2), but its form is checked.
    pub(super) fn priority(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if header.stream == 0 {
            return Err(ConnectionError::protocol("PRIORITY without a stream"));
        }
        self.guard.control(&self.limits)?;
        let on = frame::number(payload).unwrap_or_default() & 0x7fff_ffff;
        let code = match payload.len() {
            5 if on == header.stream => Code::PROTOCOL,
            5 => return Ok(()),
            _ => Code::FRAME_SIZE,
        };
        if self.is_idle_stream(header.stream) {
            return Err(ConnectionError::new(code, "wrong PRIORITY"));
        }
        self.stream_error(header.stream, code)
    }

    pub(super) fn rst_stream(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let id = header.stream;
        if id == 0 || self.is_idle_stream(id) {
            return Err(ConnectionError::protocol(
                "RST_STREAM on a stream that is not open",
            ));
        }
        let (Some(code), 4) = (frame::number(payload), payload.len()) else {
            return Err(ConnectionError::new(
                Code::FRAME_SIZE,
                "RST_STREAM of wrong size",
            ));
        };
        let Some(stream) = self.streams.get(id).filter(|stream| !stream.is_over()) else {
            // Many clients reset what they have not sent whole, though it has been answered.
            return self.guard.answer(&self.limits);
        };
        if !self.is_client && !stream.is_answered {
            self.guard.reset(&self.limits)?;
        }
        self.end_stream(id, Code(code));
        Ok(())
    }

    pub(super) fn settings(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        self.guard.control(&self.limits)?;
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                let reason = "SETTINGS with ACK is not empty";
                return Err(ConnectionError::new(Code::FRAME_SIZE, reason));
            }
            self.acknowledged();
            return Ok(());
        }
        let window = self.peer.stream_window;
        // What a server tells about push concerns clients; what a client tells, us.
        let is_first = !self.has_settings;
        self.peer.apply(payload, self.is_client, is_first)?;
        self.has_settings = true;
        self.encoder.set_limit(self.peer.header_table as usize);
        let by = i64::from(self.peer.stream_window) - i64::from(window);
        if by != 0 {
            self.resize_windows(by)?;
        }
        frame::header(&mut self.out, 0, frame::SETTINGS, frame::ACK, 0);
        if !self.has_settings_event {
            self.has_settings_event = true;
            self.events.push_back(Event::Settings);
        }
        self.replied(frame::HEADER)
    }

    /// The peer's initial window changes those of all streams (RFC 9113, section 6.9.2).
    fn resize_windows(&mut self, by: i64) -> Result<(), ConnectionError> {
        let mut is_good = true;
        let mut waiting = Vec::new();
        for stream in self.streams.iter_mut() {
            is_good &= stream.send_window.change(by);
            if stream.is_blocked {
                waiting.push(stream.id);
            }
        }
        if !is_good {
            let reason = "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large";
            return Err(ConnectionError::new(Code::FLOW_CONTROL, reason));
        }
        for id in waiting {
            self.wake(id);
        }
        Ok(())
    }

    /// The peer knows our settings: from here on they hold (RFC 9113, section 6.5.3).
    fn acknowledged(&mut self) {
        if self.is_acknowledged {
            return;
        }
        self.is_acknowledged = true;
        self.decoder.set_limit(self.limits.header_table as usize);
        let by = i64::from(self.limits.stream_window) - i64::from(settings::WINDOW);
        for stream in self.streams.iter_mut() {
            stream.receive_window.change(by);
        }
    }

    pub(super) fn ping_frame(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else {
            return Err(ConnectionError::new(Code::FRAME_SIZE, "PING of wrong size"));
        };
        self.guard.answer(&self.limits)?;
        if header.has(frame::ACK) {
            if self.ping == Some(payload) {
                self.ping = None;
                self.events.push_back(Event::Pong);
            }
            return Ok(());
        }
        frame::ping(&mut self.out, frame::ACK, payload);
        self.replied(frame::HEADER + payload.len())
    }

    pub(super) fn goaway(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("GOAWAY on a stream"));
        }
        let code = payload.get(4..).and_then(frame::number);
        let (Some(last), Some(code)) = (frame::number(payload), code) else {
            return Err(ConnectionError::new(
                Code::FRAME_SIZE,
                "GOAWAY is too short",
            ));
        };
        self.guard.control(&self.limits)?;
        let (last, code) = (last & 0x7fff_ffff, Code(code));
        let last = self.peer_last.map_or(last, |before| before.min(last));
        self.peer_last = Some(last);
        self.events.push_back(Event::GoAway { last, code });
        if self.is_client {
            self.refuse_above(last);
        }
        Ok(())
    }

    /// Streams that the peer will never answer are over.
    fn refuse_above(&mut self, last: StreamId) {
        let above = |id: StreamId| id > last;
        let refused: Vec<StreamId> = self
            .streams
            .iter_mut()
            .filter(|stream| above(stream.id) && !stream.is_over())
            .map(|stream| stream.id)
            .collect();
        for id in refused {
            self.end_stream(id, Code::REFUSED);
        }
    }

    pub(super) fn window_update(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let (Some(by), 4) = (frame::number(payload), payload.len()) else {
            return Err(ConnectionError::new(
                Code::FRAME_SIZE,
                "WINDOW_UPDATE of wrong size",
            ));
        };
        self.guard.answer(&self.limits)?;
        let by = i64::from(by & 0x7fff_ffff);
        let id = header.stream;
        if id == 0 {
            return self.connection_window_update(by);
        }
        if self.is_idle_stream(id) {
            return Err(ConnectionError::protocol(
                "WINDOW_UPDATE on a stream that is not open",
            ));
        }
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.is_over()) else {
            return Ok(());
        };
        if by == 0 {
            return self.stream_error(id, Code::PROTOCOL);
        }
        if !stream.send_window.change(by) {
            return self.stream_error(id, Code::FLOW_CONTROL);
        }
        if stream.is_blocked {
            self.wake(id);
        }
        Ok(())
    }

    fn connection_window_update(&mut self, by: i64) -> Result<(), ConnectionError> {
        if by == 0 {
            return Err(ConnectionError::protocol("WINDOW_UPDATE of nothing"));
        }
        if !self.send_window.change(by) {
            let reason = "the connection's window is too large";
            return Err(ConnectionError::new(Code::FLOW_CONTROL, reason));
        }
        if !self.blocked.is_empty() {
            self.wake_all();
        }
        Ok(())
    }
}
