//! WSDL 1.1: which operations a service has, what their messages hold and how they travel.

mod known;
mod operation;
mod port;
mod read;
#[cfg(test)]
mod tests;

pub use operation::{FaultShape, HeaderShape, MessageShape, Operation};
pub use port::{Port, Version};
pub use read::Wsdl;
