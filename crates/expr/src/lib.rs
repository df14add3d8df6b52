//! What can be done with the content of messages, without input or output: conversions now,
//! expressions later.

pub mod convert;
