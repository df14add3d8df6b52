//! The laboratory: stub back ends, a load generator and the report of a benchmark.
//!
//! It measures the binary as users see it, as a child process beside other proxies, and so uses no
//! crate of the product. [`stub`] is `intertie stub`, [`bench`] is `intertie bench`; how to repeat
//! a measurement is in the README beside this crate.

pub mod bench;
mod document;
mod pki;
mod stamp;
pub mod stub;
mod units;
mod websocket;
mod wire;
