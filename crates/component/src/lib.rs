//! The parts a flow is made of, as traits and plain data, the plan that `flow` makes of YAML and
//! `proxy` serves, and how steps are run.
//!
//! Reading order: [`trigger`] says what starts a flow; [`exchange`] is a message on its way, with
//! its [`content`]; [`step`] is what happens to it, and [`block`] steps in order with what stands
//! beside their verbs: [`resilience`] and [`failure`]; [`forward`] is where it goes on to,
//! [`upstream`] and [`connection`] what lies there, [`tls`] how it is encrypted, [`egress`] what
//! may lie there when somebody else has set the URL; [`handler`] is a whole flow seen from outside,
//! [`stream`] a client that stays, [`plan`] all flows at once. [`access`] is who may come in,
//! [`identity`] how systems behind a flow are told who that is. [`edge`] is what a client meets
//! before a flow: [`networks`], [`cors`], [`security_headers`], [`cookies`]. [`definition`] and
//! [`scope`] are for building; [`document`] is what stands beside flows, and [`evaluation`] is for
//! the expressions there. [`text`] checks the texts of methods, hosts, ports and paths.
//! [`flow_kind`] is for documents that are flows with other keys than `steps`, [`dialogue`] for
//! what such a flow and a phone tell each other; [`key_value`] is state outside of the process.
//! [`intake`] is what all sources do with their messages. [`failure_lines`] and
//! [`once_per_second`] bound what is logged.
//! Nothing here opens a socket or reads a file.

pub mod access;
pub mod audit;
pub mod block;
pub mod codes;
pub mod connection;
pub mod content;
pub mod cookies;
pub mod cors;
pub mod credentials;
pub mod definition;
pub mod dialogue;
pub mod document;
pub mod edge;
pub mod egress;
pub mod endpoint;
pub mod evaluation;
pub mod exchange;
pub mod failure;
pub mod failure_lines;
pub mod flow_kind;
pub mod forward;
pub mod handler;
pub mod identity;
pub mod intake;
pub mod key_value;
pub mod limits;
pub mod long_work;
pub mod networks;
pub mod observe;
pub mod once_per_second;
pub mod outside;
pub mod plan;
pub mod resilience;
pub mod resources;
pub mod scope;
pub mod security_headers;
pub mod settings;
pub mod source;
pub mod state;
pub mod step;
pub mod steps;
pub mod stream;
pub mod stream_limits;
pub mod testing;
pub mod text;
pub mod tls;
pub mod trigger;
pub mod trusted_proxies;
pub mod upstream;
pub mod value_template;
pub mod variables;
pub mod vital;
