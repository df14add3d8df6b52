//! Topics over WebSocket: subscribe, acknowledge and publish on one connection.

mod connection;
mod handler;
mod order;
mod subscription;

pub(crate) use handler::WebSocketHandler;
