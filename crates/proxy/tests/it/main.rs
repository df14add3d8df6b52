//! The data path over real sockets: raw bytes in, raw bytes out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod bodies;
mod deadlines;
mod failures;
mod h2_bounds;
mod heads;
mod lending;
mod lifetimes;
mod matrix;
mod messages;
mod odd;
mod panics;
mod proxied;
mod reload;
mod slow_clients;
mod streams;
mod support;
mod upstreams;
