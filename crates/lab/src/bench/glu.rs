//! What `bench glu` measures beside HTTP: flows between HTTP, a broker, a database and SOAP, with
//! real servers behind them, and every acknowledged message looked for where it must be.

pub(super) mod amqp;
mod bodies;
mod drain;
pub(super) mod facts;
mod ledger;
pub(super) mod parts;
mod sample;
mod setup;

#[cfg(test)]
mod tests;

pub(super) use bodies::ORDER_BYTES;
pub(super) use ledger::{Delivered, Ledger};
pub(super) use parts::Parts;
