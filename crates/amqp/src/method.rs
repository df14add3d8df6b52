//! The methods that a broker sends (section 1 of the generated definitions, with RabbitMQ's
//! extensions).

use crate::Table;
use crate::error::Error;
use crate::wire::Reader;

/// What a broker says of itself first.
#[derive(Clone, Debug, PartialEq)]
pub struct Start<'a> {
    /// The version of the protocol.
    pub version: (u8, u8),
    /// What it says about itself.
    pub properties: Table,
    /// The ways to say who one is, with spaces between.
    pub mechanisms: &'a [u8],
}

/// The limits that a broker proposes; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tune {
    /// The most channels.
    pub channel_max: u16,
    /// The most bytes of a frame.
    pub frame_max: u32,
    /// The seconds from one heartbeat to the next.
    pub heartbeat: u16,
}

/// Why a channel or a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed<'a> {
    /// The code (section 1.2 of the definitions), such as 404.
    pub code: u16,
    /// The same in words.
    pub text: &'a [u8],
}

/// A message for a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deliver<'a> {
    /// The consumer.
    pub consumer: &'a [u8],
    /// Its number on the channel.
    pub tag: u64,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    /// The exchange that it was published to.
    pub exchange: &'a [u8],
    /// The routing key.
    pub key: &'a [u8],
}

/// A message that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return<'a> {
    /// Why, such as 312 (no route).
    pub code: u16,
    /// The same in words.
    pub text: &'a [u8],
    /// The exchange that it was published to.
    pub exchange: &'a [u8],
    /// The routing key.
    pub key: &'a [u8],
}

/// A method that a broker sends.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Method<'a> {
    ConnectionStart(Start<'a>),
    ConnectionSecure,
    ConnectionTune(Tune),
    ConnectionOpenOk,
    ConnectionClose(Closed<'a>),
    ConnectionCloseOk,
    /// The broker takes no messages for now, and says why.
    ConnectionBlocked(&'a [u8]),
    ConnectionUnblocked,
    ChannelOpenOk,
    /// Whether messages may be sent.
    ChannelFlow(bool),
    ChannelFlowOk,
    ChannelClose(Closed<'a>),
    ChannelCloseOk,
    ExchangeDeclareOk,
    ExchangeBindOk,
    /// The queue's name.
    QueueDeclareOk(&'a [u8]),
    QueueBindOk,
    QueuePurgeOk,
    QueueDeleteOk,
    BasicQosOk,
    /// The consumer's name.
    BasicConsumeOk(&'a [u8]),
    /// The broker ends a consumer: its queue is gone.
    BasicCancel(&'a [u8]),
    BasicCancelOk(&'a [u8]),
    /// A content follows.
    BasicDeliver(Deliver<'a>),
    /// A content follows.
    BasicReturn(Return<'a>),
    /// The broker has taken messages: this one, or all up to it.
    BasicAck {
        tag: u64,
        multiple: bool,
    },
    /// The broker has not taken messages: this one, or all up to it.
    BasicNack {
        tag: u64,
        multiple: bool,
    },
    ConfirmSelectOk,
}

/// Reads a method.
///
/// # Errors
/// [`Error::Syntax`] when it cannot be read, [`Error::Unexpected`] when no broker sends such a one.
pub(crate) fn read(payload: &[u8]) -> Result<Method<'_>, Error> {
    let mut reader = Reader(payload);
    let id = (reader.u16()?, reader.u16()?);
    let method = match id {
        (60, _) => read_basic(id.1, &mut reader)?,
        (10, _) => read_connection(id.1, &mut reader)?,
        (20, 11) => {
            reader.long()?;
            Method::ChannelOpenOk
        }
        (20, 20) => Method::ChannelFlow(reader.u8()? & 1 != 0),
        (20, 21) => {
            reader.u8()?;
            Method::ChannelFlowOk
        }
        (20, 40) => Method::ChannelClose(read_close(&mut reader)?),
        (20, 41) => Method::ChannelCloseOk,
        (40, 11) => Method::ExchangeDeclareOk,
        (40, 31) => Method::ExchangeBindOk,
        (50, 11) => {
            let queue = reader.short()?;
            reader.take(8)?;
            Method::QueueDeclareOk(queue)
        }
        (50, 21) => Method::QueueBindOk,
        (50, 31) => {
            reader.u32()?;
            Method::QueuePurgeOk
        }
        (50, 41) => {
            reader.u32()?;
            Method::QueueDeleteOk
        }
        (85, 11) => Method::ConfirmSelectOk,
        _ => return Err(Error::Unexpected),
    };
    reader.end()?;
    Ok(method)
}

fn read_connection<'a>(id: u16, reader: &mut Reader<'a>) -> Result<Method<'a>, Error> {
    Ok(match id {
        10 => {
            let version = (reader.u8()?, reader.u8()?);
            let properties = reader.table()?;
            let mechanisms = reader.long()?;
            reader.long()?;
            Method::ConnectionStart(Start {
                version,
                properties,
                mechanisms,
            })
        }
        20 => {
            reader.long()?;
            Method::ConnectionSecure
        }
        30 => Method::ConnectionTune(Tune {
            channel_max: reader.u16()?,
            frame_max: reader.u32()?,
            heartbeat: reader.u16()?,
        }),
        41 => {
            reader.short()?;
            Method::ConnectionOpenOk
        }
        50 => Method::ConnectionClose(read_close(reader)?),
        51 => Method::ConnectionCloseOk,
        60 => Method::ConnectionBlocked(reader.short()?),
        61 => Method::ConnectionUnblocked,
        _ => return Err(Error::Unexpected),
    })
}

fn read_close<'a>(reader: &mut Reader<'a>) -> Result<Closed<'a>, Error> {
    let (code, text) = (reader.u16()?, reader.short()?);
    // The method that has caused it.
    reader.take(4)?;
    Ok(Closed { code, text })
}

fn read_basic<'a>(id: u16, reader: &mut Reader<'a>) -> Result<Method<'a>, Error> {
    Ok(match id {
        11 => Method::BasicQosOk,
        21 => Method::BasicConsumeOk(reader.short()?),
        30 => {
            let consumer = reader.short()?;
            reader.u8()?;
            Method::BasicCancel(consumer)
        }
        31 => Method::BasicCancelOk(reader.short()?),
        50 => Method::BasicReturn(read_return(reader)?),
        60 => Method::BasicDeliver(read_deliver(reader)?),
        80 => Method::BasicAck {
            tag: reader.u64()?,
            multiple: reader.u8()? & 1 != 0,
        },
        120 => Method::BasicNack {
            tag: reader.u64()?,
            multiple: reader.u8()? & 1 != 0,
        },
        _ => return Err(Error::Unexpected),
    })
}

pub(crate) fn read_deliver<'a>(reader: &mut Reader<'a>) -> Result<Deliver<'a>, Error> {
    Ok(Deliver {
        consumer: reader.short()?,
        tag: reader.u64()?,
        redelivered: reader.u8()? & 1 != 0,
        exchange: reader.short()?,
        key: reader.short()?,
    })
}

pub(crate) fn read_return<'a>(reader: &mut Reader<'a>) -> Result<Return<'a>, Error> {
    Ok(Return {
        code: reader.u16()?,
        text: reader.short()?,
        exchange: reader.short()?,
        key: reader.short()?,
    })
}
