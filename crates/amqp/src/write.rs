//! The bytes of what a client says. Each function puts whole frames behind what is there, or
//! nothing at all when a text is too long.

use crate::error::TooLong;
use crate::frame::{self, BODY, END, HEADER, HEARTBEAT, METHOD, OVERHEAD};
use crate::wire::{put_long, put_short};
use crate::{SHORT_MAX, Table, Tune};

/// A queue, as it is declared.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it outlives the broker.
    pub durable: bool,
    /// Whether it is this connection's alone.
    pub exclusive: bool,
    /// Whether it is deleted with its last consumer.
    pub auto_delete: bool,
    /// What RabbitMQ wants to know beside.
    pub arguments: &'a Table,
}

/// An exchange, as it is declared.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// Its name.
    pub name: &'a str,
    /// `direct`, `fanout`, `topic`, `headers`, or one of a plugin.
    pub kind: &'a str,
    /// Whether it outlives the broker.
    pub durable: bool,
    /// Whether it goes with its last binding.
    pub auto_delete: bool,
    /// Whether only other exchanges can publish to it.
    pub internal: bool,
    /// What RabbitMQ wants to know beside.
    pub arguments: &'a Table,
}

/// A binding: which messages of an exchange go to a queue or to another exchange.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// Where from.
    pub exchange: &'a str,
    /// The queue or exchange.
    pub to: &'a str,
    /// The routing key.
    pub key: &'a str,
    /// What the exchange wants to know beside.
    pub arguments: &'a Table,
}

/// A consumer, as it is started.
#[derive(Clone, Copy, Debug)]
pub struct Consumer<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The consumer's name.
    pub name: &'a str,
    /// Whether the broker forgets a message as soon as it has sent it.
    pub no_ack: bool,
    /// Whether nobody else may consume.
    pub exclusive: bool,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The exchange.
    pub exchange: &'a str,
    /// The routing key.
    pub key: &'a str,
    /// Whether it comes back when nobody wants it.
    pub mandatory: bool,
}

type Written = Result<(), TooLong>;

/// Writes a method: what `write` puts there is its arguments.
fn method(
    out: &mut Vec<u8>,
    channel: u16,
    (class, id): (u16, u16),
    write: impl FnOnce(&mut Vec<u8>) -> Written,
) -> Written {
    let start = out.len();
    frame::begin(out, METHOD, channel, 0);
    let [a, b] = class.to_be_bytes();
    let [c, d] = id.to_be_bytes();
    out.extend_from_slice(&[a, b, c, d]);
    let written = write(out).and_then(|()| {
        let length = u32::try_from(out.len() - start - 7).map_err(|_| TooLong)?;
        if let Some(place) = out.get_mut(start + 3..start + 7) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        out.push(END);
        Ok(())
    });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Writes a method whose arguments are these bytes.
fn fixed(out: &mut Vec<u8>, channel: u16, (class, id): (u16, u16), arguments: &[u8]) {
    frame::begin(out, METHOD, channel, arguments.len() as u32 + 4);
    let [a, b] = class.to_be_bytes();
    let [c, d] = id.to_be_bytes();
    out.extend_from_slice(&[a, b, c, d]);
    out.extend_from_slice(arguments);
    out.push(END);
}

/// A sign of life.
pub fn heartbeat(out: &mut Vec<u8>) {
    frame::begin(out, HEARTBEAT, 0, 0);
    out.push(END);
}

/// Who asks and how.
pub(crate) fn connection_start_ok(
    out: &mut Vec<u8>,
    properties: &Table,
    mechanism: &str,
    response: &[u8],
) -> Written {
    method(out, 0, (10, 11), |out| {
        properties.write(out)?;
        put_short(out, mechanism.as_bytes())?;
        put_long(out, response)?;
        put_short(out, b"en_US")
    })
}

pub(crate) fn connection_tune_ok(out: &mut Vec<u8>, tune: Tune) {
    let [a, b] = tune.channel_max.to_be_bytes();
    let [c, d, e, f] = tune.frame_max.to_be_bytes();
    let [g, h] = tune.heartbeat.to_be_bytes();
    fixed(out, 0, (10, 31), &[a, b, c, d, e, f, g, h]);
}

pub(crate) fn connection_open(out: &mut Vec<u8>, vhost: &str) -> Written {
    method(out, 0, (10, 40), |out| {
        put_short(out, vhost.as_bytes())?;
        out.extend_from_slice(&[0, 0]);
        Ok(())
    })
}

/// Says good-bye for this reason: 200 for none.
pub fn connection_close(out: &mut Vec<u8>, code: u16) {
    let [a, b] = code.to_be_bytes();
    fixed(out, 0, (10, 50), &[a, b, 0, 0, 0, 0, 0]);
}

/// Answers a good-bye.
pub fn connection_close_ok(out: &mut Vec<u8>) {
    fixed(out, 0, (10, 51), &[]);
}

/// Opens a channel.
pub fn channel_open(out: &mut Vec<u8>, channel: u16) {
    fixed(out, channel, (20, 10), &[0]);
}

/// Answers whether messages may be sent.
pub fn channel_flow_ok(out: &mut Vec<u8>, channel: u16, active: bool) {
    fixed(out, channel, (20, 21), &[active.into()]);
}

/// Closes a channel.
pub fn channel_close(out: &mut Vec<u8>, channel: u16) {
    fixed(out, channel, (20, 40), &[0, 200, 0, 0, 0, 0, 0]);
}

/// Answers that a channel is over.
pub fn channel_close_ok(out: &mut Vec<u8>, channel: u16) {
    fixed(out, channel, (20, 41), &[]);
}

/// Wants to be told which messages have been taken.
pub fn confirm_select(out: &mut Vec<u8>, channel: u16) {
    fixed(out, channel, (85, 10), &[0]);
}

fn bits<const N: usize>(values: [bool; N]) -> u8 {
    let set = values.iter().enumerate();
    set.fold(0, |bits, (at, &value)| bits | (u8::from(value) << at))
}

/// Declares an exchange.
///
/// # Errors
/// When a text is too long.
pub fn exchange_declare(out: &mut Vec<u8>, channel: u16, it: &Exchange<'_>) -> Written {
    method(out, channel, (40, 10), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, it.name.as_bytes())?;
        put_short(out, it.kind.as_bytes())?;
        out.push(bits([false, it.durable, it.auto_delete, it.internal]));
        it.arguments.write(out)
    })
}

/// Binds an exchange to another one.
///
/// # Errors
/// When a text is too long.
pub fn exchange_bind(out: &mut Vec<u8>, channel: u16, it: &Binding<'_>) -> Written {
    method(out, channel, (40, 30), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, it.to.as_bytes())?;
        put_short(out, it.exchange.as_bytes())?;
        put_short(out, it.key.as_bytes())?;
        out.push(0);
        it.arguments.write(out)
    })
}

/// Declares a queue.
///
/// # Errors
/// When a text is too long.
pub fn queue_declare(out: &mut Vec<u8>, channel: u16, it: &Queue<'_>) -> Written {
    method(out, channel, (50, 10), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, it.name.as_bytes())?;
        out.push(bits([false, it.durable, it.exclusive, it.auto_delete]));
        it.arguments.write(out)
    })
}

/// Binds a queue to an exchange.
///
/// # Errors
/// When a text is too long.
pub fn queue_bind(out: &mut Vec<u8>, channel: u16, it: &Binding<'_>) -> Written {
    method(out, channel, (50, 20), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, it.to.as_bytes())?;
        put_short(out, it.exchange.as_bytes())?;
        put_short(out, it.key.as_bytes())?;
        out.push(0);
        it.arguments.write(out)
    })
}

/// Empties a queue.
///
/// # Errors
/// When the name is too long.
pub fn queue_purge(out: &mut Vec<u8>, channel: u16, queue: &str) -> Written {
    method(out, channel, (50, 30), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, queue.as_bytes())?;
        out.push(0);
        Ok(())
    })
}

/// Deletes a queue.
///
/// # Errors
/// When the name is too long.
pub fn queue_delete(out: &mut Vec<u8>, channel: u16, queue: &str) -> Written {
    method(out, channel, (50, 40), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, queue.as_bytes())?;
        out.push(0);
        Ok(())
    })
}

/// Says how many messages may be under way to each consumer of the channel; 0 is no limit.
pub fn basic_qos(out: &mut Vec<u8>, channel: u16, count: u16) {
    let [a, b] = count.to_be_bytes();
    fixed(out, channel, (60, 10), &[0, 0, 0, 0, a, b, 0]);
}

/// Starts a consumer.
///
/// # Errors
/// When a text is too long.
pub fn basic_consume(out: &mut Vec<u8>, channel: u16, it: &Consumer<'_>) -> Written {
    method(out, channel, (60, 20), |out| {
        out.extend_from_slice(&[0, 0]);
        put_short(out, it.queue.as_bytes())?;
        put_short(out, it.name.as_bytes())?;
        out.push(bits([false, it.no_ack, it.exclusive]));
        Table::default().write(out)
    })
}

/// Ends a consumer.
///
/// # Errors
/// When the name is too long.
pub fn basic_cancel(out: &mut Vec<u8>, channel: u16, consumer: &str) -> Written {
    method(out, channel, (60, 30), |out| {
        put_short(out, consumer.as_bytes())?;
        out.push(0);
        Ok(())
    })
}

/// A message has been dealt with: this one, or all up to it.
pub fn basic_ack(out: &mut Vec<u8>, channel: u16, tag: u64, multiple: bool) {
    let [a, b, c, d, e, f, g, h] = tag.to_be_bytes();
    let arguments = [a, b, c, d, e, f, g, h, multiple.into()];
    fixed(out, channel, (60, 80), &arguments);
}

/// A message could not be dealt with.
pub fn basic_reject(out: &mut Vec<u8>, channel: u16, tag: u64, requeue: bool) {
    let [a, b, c, d, e, f, g, h] = tag.to_be_bytes();
    let arguments = [a, b, c, d, e, f, g, h, requeue.into()];
    fixed(out, channel, (60, 90), &arguments);
}

/// Hands a message over: a method, a header with these properties as
/// [`Properties::write`](crate::Properties::write) has written them, and the body in as many
/// frames as it takes.
///
/// # Errors
/// When a text is too long, or the properties are longer than a frame.
pub fn basic_publish(
    out: &mut Vec<u8>,
    (channel, frame_max): (u16, u32),
    target: &Target<'_>,
    properties: &[u8],
    body: &[u8],
) -> Written {
    let room = (frame_max as usize).saturating_sub(OVERHEAD).max(1);
    let (exchange, key) = (target.exchange.as_bytes(), target.key.as_bytes());
    let is_long = exchange.len() > SHORT_MAX || key.len() > SHORT_MAX;
    if is_long || properties.len() + 12 > room {
        return Err(TooLong);
    }
    let length = 4 + 2 + 1 + exchange.len() + 1 + key.len() + 1;
    let frames = body.len().div_ceil(room);
    out.reserve(length + properties.len() + 12 + body.len() + (frames + 2) * OVERHEAD);
    frame::begin(out, METHOD, channel, length as u32);
    out.extend_from_slice(&[0, 60, 0, 40, 0, 0]);
    put_short(out, exchange)?;
    put_short(out, key)?;
    out.extend_from_slice(&[target.mandatory.into(), END]);
    frame::begin(out, HEADER, channel, properties.len() as u32 + 12);
    out.extend_from_slice(&[0, 60, 0, 0]);
    out.extend_from_slice(&(body.len() as u64).to_be_bytes());
    out.extend_from_slice(properties);
    out.push(END);
    for part in body.chunks(room) {
        frame::begin(out, BODY, channel, part.len() as u32);
        out.extend_from_slice(part);
        out.push(END);
    }
    Ok(())
}
