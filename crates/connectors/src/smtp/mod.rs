//! Mail: servers that take it, and the step that sends it.

pub mod connection;
#[cfg(feature = "smtp")]
mod failure;
#[cfg(feature = "smtp")]
mod letter;
#[cfg(feature = "smtp")]
mod link;
pub mod mail;
#[cfg(feature = "smtp")]
mod starttls;

#[cfg(test)]
mod tests;
