//! The data path: which request goes to which flow, how it gets there, and how its reply comes
//! back.
//!
//! A request's life, folder by folder: [`worker`] accepts a connection; [`client`] agrees on TLS
//! and the protocol, reads requests and has [`router`] find each one's route. Then the *forward
//! path*: [`upstream`] lends a connection and [`relay`] moves the request, and its reply, over it.
//! Or the *message path*: the body is read and a handler runs, whose steps reach other systems by
//! [`call`], over the same relay. A reply that goes on takes the client's connection over
//! ([`stream`]). [`background`] runs what no client waits for, [`panics`] turns what must not
//! happen into faults, and [`observe`] counts.
//!
//! This crate knows no flow, step or connector: it is given a [`component::plan::Plan`].

mod background;
mod blocking;
mod call;
mod client;
mod date;
mod heartbeat;
mod memory;
mod observe;
mod panics;
mod relay;
mod router;
mod stream;
mod upstream;
mod worker;

pub use heartbeat::StuckWorker;
pub use observe::{AccessEntry, AccessLog};
pub use upstream::upstreams::TlsTable;
pub use worker::{Command, Engine, OpenListener, Worker, WorkerSetup};
