//! The properties of a message (section 1.8.2 of the generated definitions; section 4.2.6.1 for
//! their flags).

use crate::Table;
use crate::error::{Error, TooLong};
use crate::wire::{Reader, put_short};

/// The properties of a message. Texts lie in somebody else's bytes, usually as UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    /// The media type of the body.
    pub content_type: Option<&'a [u8]>,
    /// The coding of the body.
    pub content_encoding: Option<&'a [u8]>,
    /// The headers: a table as [`Table::write`] writes it, without its length.
    pub headers: Option<&'a [u8]>,
    /// 2 when the broker keeps the message on disk.
    pub delivery_mode: Option<u8>,
    /// How urgent it is.
    pub priority: Option<u8>,
    /// Which request it answers.
    pub correlation_id: Option<&'a [u8]>,
    /// The queue for the answer.
    pub reply_to: Option<&'a [u8]>,
    /// How long it may wait in a queue: milliseconds, as a text.
    pub expiration: Option<&'a [u8]>,
    /// Its id.
    pub message_id: Option<&'a [u8]>,
    /// When it was made: seconds since 1970 began.
    pub timestamp: Option<u64>,
    /// What kind of message it is.
    pub kind: Option<&'a [u8]>,
    /// Who made it; a broker checks it.
    pub user_id: Option<&'a [u8]>,
    /// The application that made it.
    pub app_id: Option<&'a [u8]>,
}

const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const KIND: u16 = 1 << 5;
const USER_ID: u16 = 1 << 4;
const APP_ID: u16 = 1 << 3;
const CLUSTER_ID: u16 = 1 << 2;

impl<'a> Properties<'a> {
    /// Reads flags and values.
    ///
    /// # Errors
    /// [`Error::Syntax`] when they are none.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader(bytes);
        let flags = reader.u16()?;
        // Bit 1 is none of a property, bit 0 says that more flags follow.
        if flags & 0b11 != 0 {
            return Err(Error::Syntax);
        }
        let has = |flag: u16| flags & flag != 0;
        let read = &mut reader;
        let short = |read: &mut Reader<'a>, flag| has(flag).then(|| read.short()).transpose();
        let byte = |read: &mut Reader<'a>, flag| has(flag).then(|| read.u8()).transpose();
        let properties = Self {
            content_type: short(read, CONTENT_TYPE)?,
            content_encoding: short(read, CONTENT_ENCODING)?,
            headers: has(HEADERS).then(|| read.long()).transpose()?,
            delivery_mode: byte(read, DELIVERY_MODE)?,
            priority: byte(read, PRIORITY)?,
            correlation_id: short(read, CORRELATION_ID)?,
            reply_to: short(read, REPLY_TO)?,
            expiration: short(read, EXPIRATION)?,
            message_id: short(read, MESSAGE_ID)?,
            timestamp: has(TIMESTAMP).then(|| read.u64()).transpose()?,
            kind: short(read, KIND)?,
            user_id: short(read, USER_ID)?,
            app_id: short(read, APP_ID)?,
        };
        short(read, CLUSTER_ID)?;
        reader.end()?;
        Ok(properties)
    }

    /// The headers; none when there are none.
    ///
    /// # Errors
    /// [`Error::Syntax`] when they are no table.
    pub fn table(&self) -> Result<Table, Error> {
        self.headers
            .map_or_else(|| Ok(Table::default()), Table::read)
    }

    /// Writes flags and values.
    ///
    /// # Errors
    /// When a text has more than 255 bytes; what was written then is of no use.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let at = out.len();
        out.extend_from_slice(&[0; 2]);
        let mut flags = 0;
        let mut short = |out: &mut Vec<u8>, flag: u16, text: Option<&[u8]>| {
            let Some(text) = text else {
                return Ok(());
            };
            flags |= flag;
            put_short(out, text)
        };
        short(out, CONTENT_TYPE, self.content_type)?;
        short(out, CONTENT_ENCODING, self.content_encoding)?;
        if let Some(headers) = self.headers {
            crate::wire::put_long(out, headers)?;
        }
        out.extend(self.delivery_mode);
        out.extend(self.priority);
        short(out, CORRELATION_ID, self.correlation_id)?;
        short(out, REPLY_TO, self.reply_to)?;
        short(out, EXPIRATION, self.expiration)?;
        short(out, MESSAGE_ID, self.message_id)?;
        if let Some(timestamp) = self.timestamp {
            out.extend_from_slice(&timestamp.to_be_bytes());
        }
        short(out, KIND, self.kind)?;
        short(out, USER_ID, self.user_id)?;
        short(out, APP_ID, self.app_id)?;
        for (flag, is_there) in [
            (HEADERS, self.headers.is_some()),
            (DELIVERY_MODE, self.delivery_mode.is_some()),
            (PRIORITY, self.priority.is_some()),
            (TIMESTAMP, self.timestamp.is_some()),
        ] {
            flags |= if is_there { flag } else { 0 };
        }
        if let Some(place) = out.get_mut(at..at + 2) {
            place.copy_from_slice(&flags.to_be_bytes());
        }
        Ok(())
    }
}
