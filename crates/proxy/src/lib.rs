//! The data path over HTTP/1.1: which request goes to which flow, and how it is relayed.
//!
//! A request's life, in the order of the files: [`worker`] accepts a connection, [`reception`]
//! agrees on TLS and the protocol, [`session`] reads heads off it one by one, [`router`] finds the
//! route. Then the *forward path* ([`forward`]): [`request_head`] rewrites the head, [`upstream`]
//! lends a connection, [`exchange`] sends the head and waits for the reply's, [`response_head`]
//! rewrites that, [`pipe`] relays bodies. Or the *message path* ([`handle`]): the body is read, a
//! handler runs, its reply is written. A reply that goes on takes the connection over ([`stream`]).
//! [`background`] runs what no client waits for, and [`panics`] turns what must not happen into
//! faults.
//! What goes wrong becomes a reply in [`rescue`], and [`observe`] counts it.
//!
//! This crate knows no flow, step or connector: it is given a [`component::plan::Plan`].

mod background;
mod call;
mod date;
mod direction;
mod event_scanner;
mod events;
mod forward;
mod frames;
mod gate;
mod h1_client;
mod h2_client;
mod h2_driver;
mod h2_request;
mod h2_session;
mod handle;
mod health;
mod heartbeat;
mod listener;
mod observe;
mod panics;
mod reception;
mod relay;
mod request_head;
mod rescue;
mod response_head;
mod router;
mod session;
mod stream;
mod tunnel;
mod upstream;
mod upstreams;
mod worker;

pub use heartbeat::StuckWorker;
pub use observe::{AccessEntry, AccessLog};
pub use upstreams::TlsTable;
pub use worker::{Command, Engine, OpenListener, Worker, WorkerSetup};
