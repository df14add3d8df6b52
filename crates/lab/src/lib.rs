//! The laboratory: stub back ends, and what they share with the load generators.
//!
//! [`stub`] is `intertie stub`. The binary of this crate, `intertie-bench`, starts the product as a
//! child process beside other proxies and measures it as users see it, so nothing here uses a crate
//! of the product; how to repeat a measurement is in the README beside this crate.

pub mod document;
pub mod pki;
pub mod stamp;
pub mod stub;
pub mod units;
pub mod websocket;
pub mod wire;
