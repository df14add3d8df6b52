//! Protocols from outside: two HTTP/2 engines that talk to each other, the `h2` crate as the other
//! side, limits, bytes that no peer should send, and bodies in small pieces.
#![allow(clippy::unwrap_used)]

mod budget;
mod common;
mod h2_fuzz;
mod h2_interop;
mod h2_limits;
mod h2_link;
mod h2_pair;
mod h2_peers;
mod h2_stall;
mod h2_windows;
mod link;
