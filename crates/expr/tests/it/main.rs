//! Conversions seen from outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod cases;
mod corpus;
mod differential;
mod docs;
mod fast;
mod fidelity;
mod hostile;
mod jq_hostile;
mod members;
mod mistakes;
mod random;
mod stopped;
mod suites;
mod support;
