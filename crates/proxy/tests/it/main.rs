//! The data path over real sockets: raw bytes in, raw bytes out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod bodies;
mod failures;
mod heads;
mod lifetimes;
mod matrix;
mod messages;
mod odd;
mod proxied;
mod streams;
mod support;
mod upstreams;
