//! Clients: from an accepted connection to a request that has its route, and back to the bytes of
//! the reply. In the order of a request's life: [`listener`], [`entry`], [`reception`]; over
//! HTTP/1.1 [`session`], over HTTP/2 [`h2_session`] and [`h2_request`]; then [`edge`], [`door`] for
//! who calls, [`gate`] for the limits, and [`forward`] or [`handle`]. [`response_head`] writes the
//! heads of replies, [`linger`] closes connections, and [`rescue`] makes replies of what went
//! wrong.

pub(crate) mod added_fields;
pub(crate) mod addresses;
pub(crate) mod door;
pub(crate) mod edge;
pub(crate) mod entry;
pub(crate) mod forward;
pub(crate) mod gate;
pub(crate) mod h2_request;
mod h2_session;
pub(crate) mod handle;
pub(crate) mod linger;
pub(crate) mod listener;
pub(crate) mod reception;
pub(crate) mod rescue;
pub(crate) mod response_head;
pub(crate) mod session;
