//! Sockets, TLS, HTTP/1.1, HTTP/2 and WebSocket: the only home of their libraries.
//!
//! Reading order: [`listen`] makes listening sockets, [`connection`] is a socket with its buffer,
//! [`transport`] what protocols need of one, [`proxy_protocol`] says for whom it is passed on,
//! [`tls`] encrypts it, [`deadline`] bounds every wait, [`budget`] how much is done for one
//! connection before others are served, [`http1`] reads and frames messages, [`websocket`] does
//! the same behind an upgrade, [`endpoint`] makes connections to other systems, past the guard of
//! [`egress`] where there is one, [`pool`] says which request gets them.
//! Everything here belongs to one worker thread and never crosses to another. What to do with a
//! message is decided elsewhere.

pub mod budget;
mod buffer;
pub mod connection;
pub mod deadline;
pub mod descriptors;
pub mod egress;
pub mod endpoint;
pub mod http1;
pub mod http2;
pub mod listen;
pub mod pool;
pub mod proxy_protocol;
mod race;
pub mod resolve;
pub mod spares;
pub mod stream_observer;
pub mod tls;
pub mod transport;
pub mod tunnel;
pub mod websocket;
pub mod wire;

pub use buffer::{Buffer, trim_buffers};
pub use connection::Connection;
pub use transport::{Output, Transport};
pub use wire::Wire;
