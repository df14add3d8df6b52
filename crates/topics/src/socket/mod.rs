//! Topics over WebSocket: subscribe, acknowledge and publish on one connection.

mod connection;
mod handler;
mod message;
mod subscription;

pub(crate) use handler::{Of, WebSocketHandler};
