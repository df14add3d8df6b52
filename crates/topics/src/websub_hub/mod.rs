//! `subscribe.websub` of a topic: a WebSub hub (W3C Recommendation of 23 January 2018).
//!
//! `config` is what is written, `plan` what is made of it. `handler` takes requests at `/hub`,
//! `verify` asks callbacks whether they mean them, `state` has the subscriptions of the process and
//! `record` what of them is on the disk. `serve` has the topic's content delivered by the machine
//! of webhooks. `content` is the topic's own URL, `ping` what publishers tell the hub.

mod config;
mod content;
mod handler;
mod ping;
mod plan;
mod record;
mod serve;
mod state;
mod subscriptions;
mod verify;

pub(crate) use self::config::{WebSubHubConfig, complete_schema};
pub(crate) use self::content::ContentHandler;
pub(crate) use self::handler::HubHandler;
pub(crate) use self::plan::{HubTopic, read};
pub(crate) use self::record::{CURSORS, TABLE as SUBSCRIPTIONS};

/// The path of the hub on each listener with a topic that has one.
pub(crate) const PATH: &str = "/hub";
