//! Redis: commands as steps; streams and channels as sources; a store of values by key.

#[cfg(feature = "redis")]
mod channel;
pub mod command;
pub mod connection;
#[cfg(feature = "redis")]
mod delivery;
#[cfg(feature = "redis")]
mod failure;
#[cfg(feature = "redis")]
mod key_value;
#[cfg(feature = "redis")]
pub mod link;
pub mod outcome;
#[cfg(feature = "redis")]
mod room;
pub mod source;
pub mod step;
#[cfg(feature = "redis")]
mod stream;

#[cfg(test)]
mod tests;
