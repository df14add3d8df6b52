//! What a broker sends, made into events: methods, and messages put together from their frames.

use std::fmt;

use bytes::Bytes;

use crate::error::Error;
use crate::frame::{self, Frame};
use crate::method::{self, Deliver, Method, Return};
use crate::properties::Properties;
use crate::wire::Reader;

/// The most bytes that are set aside for a message before they have come.
const AHEAD_MAX: usize = 1024 * 1024;
/// The most channels with a message under way; a broker sends one message after the other.
const PARTIAL_MAX: usize = 2048;
/// The class of messages.
const BASIC: u16 = 60;

/// What came.
#[derive(Debug)]
pub enum Event<'a> {
    /// A method on a channel; 0 is the connection itself.
    Method(u16, Method<'a>),
    /// A whole message on a channel.
    Message(u16, Message),
    /// The broker is there.
    Heartbeat,
    /// A part of a message.
    Part,
}

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// For a consumer.
    Delivered(Deliver<'a>),
    /// Back, for nobody wants it.
    Returned(Return<'a>),
}

/// A message: all its parts lie in one piece of memory.
#[derive(Clone, Debug)]
pub struct Message {
    method: Bytes,
    properties: Bytes,
    /// The body; empty when there was no room for it.
    pub body: Bytes,
    /// How many bytes the body has, also when it was not kept.
    pub size: u64,
}

impl Message {
    /// How it came.
    ///
    /// # Errors
    /// None for a message that a [`Receiver`] has given.
    pub fn received(&self) -> Result<Received<'_>, Error> {
        let mut reader = Reader(&self.method);
        match (reader.u16()?, reader.u16()?) {
            (BASIC, 60) => method::read_deliver(&mut reader).map(Received::Delivered),
            (BASIC, 50) => method::read_return(&mut reader).map(Received::Returned),
            _ => Err(Error::Unexpected),
        }
    }

    /// The properties.
    ///
    /// # Errors
    /// None for a message that a [`Receiver`] has given.
    pub fn properties(&self) -> Result<Properties<'_>, Error> {
        Properties::read(&self.properties)
    }

    /// The properties as they came.
    pub fn raw_properties(&self) -> &[u8] {
        &self.properties
    }

    /// Whether the body was not kept: it is longer than the receiver takes, or was discarded.
    pub fn is_without_body(&self) -> bool {
        self.size != self.body.len() as u64
    }
}

/// What becomes of a message whose body is about to come.
pub enum Room {
    /// It is kept.
    Keep,
    /// It is kept, and this makes its bytes of what has been collected: so they can carry what is
    /// reserved for them.
    KeepBy(Hold),
    /// Its body is passed over.
    Discard,
    /// Nothing more is read until there is room.
    Wait,
}

/// Makes the bytes of a message of what has been collected.
pub type Hold = Box<dyn FnOnce(Vec<u8>) -> Bytes + Send>;

/// Makes events of bytes.
#[derive(Debug)]
pub struct Receiver {
    frame_max: usize,
    body_max: u64,
    partial: Vec<Partial>,
}

/// A message of which parts have come.
struct Partial {
    channel: u16,
    /// The method, then the properties, then the body.
    bytes: Vec<u8>,
    /// Where the properties end, once they have come.
    head: Option<Head>,
    method_end: usize,
    hold: Option<Hold>,
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            channel,
            head,
            method_end,
            ..
        } = self;
        let shown = (channel, self.bytes.len(), head, method_end);
        shown.fmt(f)
    }
}

#[derive(Clone, Copy, Debug)]
struct Head {
    end: usize,
    size: u64,
    is_kept: bool,
    /// How many bytes of the body have come.
    came: u64,
}

impl Receiver {
    /// Takes frames up to so many bytes, and messages with bodies up to so many.
    pub fn new(frame_max: u32, body_max: u64) -> Self {
        Self {
            frame_max: frame_max as usize,
            body_max,
            partial: Vec::new(),
        }
    }

    /// The length of frames that has been agreed on.
    pub fn set_frame_max(&mut self, frame_max: u32) {
        self.frame_max = frame_max as usize;
    }

    /// The first event of these bytes and how many it takes; `None` when it is not all there.
    ///
    /// # Errors
    /// When the bytes are not what a broker sends; nothing behind them can be understood.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Event<'a>, usize)>, Error> {
        self.next_within(bytes, &mut |_, _| Room::Keep)
    }

    /// The same, when there may be no room for a message: `admit` gets the channel and the size of
    /// each body before the first byte of it is kept, and once more with each call while it says
    /// [`Room::Wait`], for which this gives `None`.
    ///
    /// # Errors
    /// When the bytes are not what a broker sends; nothing behind them can be understood.
    pub fn next_within<'a>(
        &mut self,
        bytes: &'a [u8],
        admit: &mut dyn FnMut(u16, u64) -> Room,
    ) -> Result<Option<(Event<'a>, usize)>, Error> {
        let Some((frame, count)) = frame::parse(bytes, self.frame_max)? else {
            return Ok(None);
        };
        let event = match frame.kind {
            frame::METHOD => self.method(frame)?,
            frame::HEADER => match self.header(frame, admit)? {
                Some(event) => event,
                None => return Ok(None),
            },
            frame::BODY => self.body(frame)?,
            _ if frame.channel == 0 && frame.payload.is_empty() => Event::Heartbeat,
            _ => return Err(Error::Frame),
        };
        Ok(Some((event, count)))
    }

    /// A channel is over: what has come of a message on it will never be whole.
    pub fn forget(&mut self, channel: u16) {
        self.partial.retain(|it| it.channel != channel);
    }

    fn at(&self, channel: u16) -> Option<usize> {
        self.partial.iter().position(|it| it.channel == channel)
    }

    fn method<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, Error> {
        let method = method::read(frame.payload)?;
        let has_content = matches!(method, Method::BasicDeliver(_) | Method::BasicReturn(_));
        if let Some(at) = self.at(frame.channel) {
            // The end of a channel may come at any time, anything else only behind a message.
            if !matches!(method, Method::ChannelClose(_)) {
                return Err(Error::Content);
            }
            self.partial.swap_remove(at);
        }
        if !has_content {
            return Ok(Event::Method(frame.channel, method));
        }
        if frame.channel == 0 || self.partial.len() >= PARTIAL_MAX {
            return Err(Error::Content);
        }
        // Room for the properties of most messages.
        let mut bytes = Vec::with_capacity(frame.payload.len() + 512);
        bytes.extend_from_slice(frame.payload);
        self.partial.push(Partial {
            channel: frame.channel,
            method_end: bytes.len(),
            bytes,
            head: None,
            hold: None,
        });
        Ok(Event::Part)
    }

    /// `None` when there is no room for the body yet.
    fn header<'a>(
        &mut self,
        frame: Frame<'a>,
        admit: &mut dyn FnMut(u16, u64) -> Room,
    ) -> Result<Option<Event<'a>>, Error> {
        let at = self.at(frame.channel).ok_or(Error::Content)?;
        let partial = self.partial.get_mut(at).ok_or(Error::Content)?;
        if partial.head.is_some() {
            return Err(Error::Content);
        }
        let mut reader = Reader(frame.payload);
        let (class, _weight, size) = (reader.u16()?, reader.u16()?, reader.u64()?);
        if class != BASIC {
            return Err(Error::Content);
        }
        Properties::read(reader.0)?;
        let room = match size {
            0 => Room::Keep,
            size if size > self.body_max => Room::Discard,
            size => admit(frame.channel, size),
        };
        let is_kept = !matches!(room, Room::Discard);
        match room {
            Room::Wait => return Ok(None),
            Room::KeepBy(hold) => partial.hold = Some(hold),
            Room::Keep | Room::Discard => {}
        }
        let kept = if is_kept { size } else { 0 };
        let ahead = usize::try_from(kept).unwrap_or(AHEAD_MAX).min(AHEAD_MAX);
        partial.bytes.reserve(reader.0.len() + ahead);
        partial.bytes.extend_from_slice(reader.0);
        partial.head = Some(Head {
            end: partial.bytes.len(),
            size,
            is_kept,
            came: 0,
        });
        Ok(Some(match size {
            0 => self.finish(at, frame.channel),
            _ => Event::Part,
        }))
    }

    fn body<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, Error> {
        let at = self.at(frame.channel).ok_or(Error::Content)?;
        let partial = self.partial.get_mut(at).ok_or(Error::Content)?;
        let head = partial.head.as_mut().ok_or(Error::Content)?;
        head.came += frame.payload.len() as u64;
        if head.came > head.size {
            return Err(Error::Content);
        }
        if head.is_kept {
            partial.bytes.extend_from_slice(frame.payload);
        }
        match head.came == head.size {
            true => Ok(self.finish(at, frame.channel)),
            false => Ok(Event::Part),
        }
    }

    fn finish<'a>(&mut self, at: usize, channel: u16) -> Event<'a> {
        let partial = self.partial.swap_remove(at);
        let bytes = match partial.hold {
            Some(hold) => hold(partial.bytes),
            None => Bytes::from(partial.bytes),
        };
        let (end, size) = partial
            .head
            .map_or((bytes.len(), 0), |it| (it.end, it.size));
        let message = Message {
            method: bytes.slice(..partial.method_end),
            properties: bytes.slice(partial.method_end..end),
            body: bytes.slice(end..),
            size,
        };
        Event::Message(channel, message)
    }
}
