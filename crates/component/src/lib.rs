//! The parts a flow is made of, as traits and plain data, and the plan that `flow` makes of YAML
//! and `proxy` serves.
//!
//! Reading order: [`trigger`] says what starts a flow, [`step`] what happens in it, [`forward`]
//! where it goes on to, [`upstream`] and [`connection`] what lies there, [`tls`] how it is
//! encrypted, [`handler`] is a whole flow seen from outside, [`plan`] is all flows at
//! once. [`text`] checks the texts of methods, hosts, ports and paths. Nothing here opens a
//! socket or reads YAML files.

pub mod connection;
pub mod definition;
pub mod forward;
pub mod handler;
pub mod observe;
pub mod plan;
pub mod settings;
pub mod step;
pub mod text;
pub mod tls;
pub mod trigger;
pub mod upstream;
