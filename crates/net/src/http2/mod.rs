//! HTTP/2 (RFC 9113): an [`Engine`] without input or output takes the bytes that came from a
//! socket, tells what they mean, and holds the bytes that are to be written; a [`Link`] runs it
//! over a connection, for streams that live in tasks of their own.

mod driver;
mod engine;
mod error;
mod flow;
mod frame;
mod head;
mod hpack;
mod kind;
mod limits;
mod link;
mod settings;
mod stream;

pub use driver::Driver;
pub use engine::{Engine, Event, Role};
pub use error::{Code, ConnectionError, NotOpen, OpenError};
pub use head::{Fields, Head};
pub use limits::Limits;
pub use link::{Batches, Link, RequestLine, Stream, StreamError, Suspicion};
pub use settings::PeerSettings;
pub use stream::StreamId;
