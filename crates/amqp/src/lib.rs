//! AMQP 0-9-1, the client's side, without input and output: bytes in, bytes out.
//!
//! [`Receiver`] makes events of what a broker sends, [`write`] makes the bytes of what a client
//! says, [`Handshake`] agrees on a connection, [`Confirms`] and [`Acks`] keep the books of a
//! channel. Who reads and writes sockets, and what to do about a loss, is somebody else's matter.
//!
//! Sections are those of the specification, version 0-9-1 of 2008, and of RabbitMQ's extensions.

mod acks;
mod confirms;
mod error;
mod frame;
mod handshake;
mod method;
mod properties;
mod receive;
mod table;
mod wire;
pub mod write;

pub use acks::{Acks, Settled};
pub use confirms::Confirms;
pub use error::{Error, TooLong};
pub use frame::{FRAME_MIN, OVERHEAD, PROTOCOL_HEADER};
pub use handshake::{Handshake, Login, Progress, Tuned};
pub use method::{Closed, Deliver, Method, Return, Start, Tune};
pub use properties::Properties;
pub use receive::{Event, Hold, Message, Received, Receiver, Room};
pub use table::{Table, Value};

/// The most bytes of a short text (section 4.2.5.3).
pub const SHORT_MAX: usize = 255;

#[cfg(test)]
mod tests;
