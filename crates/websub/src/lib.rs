//! WebSub (W3C Recommendation of 23 January 2018) without input, output or clock.
//!
//! [`request`] reads what is asked of a hub, [`hub`] is what a hub knows of its subscriptions and
//! whom it asks to confirm them. [`discovery`] finds the hubs of a topic, [`subscriber`] is the
//! other side: a subscription that is asked for, confirmed and renewed, and [`deliveries`] tells
//! events from their repetitions. [`signature`] is what both say about a body. Callers send the
//! requests, keep what must outlive the process, and say what time it is.

pub mod deliveries;
pub mod discovery;
pub mod form;
pub mod hub;
pub mod link;
pub mod random;
pub mod request;
pub mod signature;
pub mod subscriber;
pub mod url;
