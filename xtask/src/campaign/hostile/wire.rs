//! Bytes that attackers and the good client make by hand.

pub mod deflate;
pub mod http2;
pub mod tls;
pub mod websocket;
