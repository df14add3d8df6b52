//! The journal on a disk that fails in every way.

mod attacks;
mod crash;
mod faults;
mod folders;
mod keyed;
mod keyed_log;
mod missing;
mod order;
mod restored;
pub(crate) mod sim;
mod speed;
mod streams;
mod waiting;
