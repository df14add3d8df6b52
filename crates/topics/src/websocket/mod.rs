//! WebSocket connections of clients: what every one of them needs, and flows that they start.

pub mod codes;
pub mod session;
#[cfg(test)]
pub(crate) mod testing;
pub mod trigger;

mod conversation;
