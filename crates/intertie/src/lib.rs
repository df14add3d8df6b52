//! The application: puts flows, steps, workers and the admin port together.
//!
//! [`cli`] is the command line. `intertie run` goes through `run` (start, reload, stop), `load`
//! (files to a checked plan), `secrets`, `tls` (certificates and keys), `keys` (files of API keys
//! and users), `crew` (the worker threads), `data` (the data folder), `watch` (changed files),
//! `admin` and `metrics` (the admin port, which `health` asks), `supervisor` (systemd), `logging`.
//! What it tells about itself leaves through `shown`, without secrets.

mod admin;
mod audit;
pub mod cli;
pub mod codes;
mod crew;
mod data;
mod graph;
mod health;
mod keys;
mod load;
mod logging;
mod machine;
mod metrics;
mod named_files;
mod new;
pub mod reference;
mod regular_file;
mod replaced_file;
mod run;
mod secrets;
pub mod shown;
mod signals;
mod supervisor;
mod test;
mod tls;
mod ussd;
mod watch;
