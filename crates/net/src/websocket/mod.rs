//! The WebSocket protocol (RFC 6455) and compression of its messages (RFC 7692): bytes in, messages
//! out, and the other way round. Nothing here reads or writes a socket.
//!
//! Reading order: [`Handshake`] answers a client's request and [`Offer`] makes one; [`Reader`]
//! makes [`Event`]s of the bytes that come, [`Writer`] frames of what is to go. [`Deflate`] is what
//! both sides have agreed on about compression. Without a message under way neither reader nor
//! writer holds a buffer or the state of a compressor.

mod close;
mod deflate;
mod extensions;
mod frame;
mod handshake;
mod mask;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use close::{CloseCode, Violation};
pub use deflate::Deflate;
pub use frame::frames_end;
pub use handshake::{Handshake, Offer, OfferError, Terms};
pub use mask::masking_key;
pub use reader::{Event, Limits, Reader};
pub use writer::Writer;

/// Which side of a connection we are. What clients send is masked (RFC 6455, section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that was asked.
    Server,
    /// The one that asked.
    Client,
}

/// What kind of data a message is (RFC 6455, section 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}
