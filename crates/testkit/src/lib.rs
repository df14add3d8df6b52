//! What tests need: temporary folders, free ports, raw HTTP clients, a strict and a scripted back
//! end, child processes, real servers. Uses no product crate, so that a mistake in the product
//! cannot hide itself here. Sockets block, but for [`wire`], [`http1`] and [`http2`]: what a test
//! wants to do on both sides of a proxy at the same time.
//!
//! Everything panics when it fails: a test is all there is to tell.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod certificates;
mod client;
mod dropped;
mod egress;
pub mod http1;
pub mod http2;
mod markdown;
pub mod odd_requests;
mod process;
mod response;
mod scripted;
pub mod servers;
mod strict;
pub mod tds;
mod tokens;
pub mod websocket;
pub mod wire;

pub use certificates::{Authority, ClientNames, Issued};
pub use client::RawClient;
pub use dropped::{drop_at_every_await, poll_and_drop};
pub use egress::{EgressSpelling, egress_spellings};
pub use markdown::{MarkdownBlock, markdown_blocks};
pub use process::{Process, TempDir, free_port, wait_until};
pub use response::Response;
pub use scripted::{Action, ScriptedBackend};
pub use strict::{Received, StrictBackend};
pub use tokens::{hs256_token, sha256_hex};
pub use websocket::WebSocket;
