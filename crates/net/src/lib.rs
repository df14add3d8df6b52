//! Sockets and HTTP/1.1: the only home of the HTTP libraries.
//!
//! Reading order: [`listen`] makes listening sockets, [`connection`] is a socket with its buffer,
//! [`deadline`] bounds every wait, [`http1`] reads and frames messages, [`upstream`] keeps
//! connections to other systems. Everything here belongs to one worker thread and never crosses
//! to another. What to do with a message is decided elsewhere.

mod buffer;
pub mod connection;
pub mod deadline;
pub mod http1;
pub mod listen;
pub mod upstream;

pub use buffer::Buffer;
pub use connection::Connection;
