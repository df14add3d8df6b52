//! The binary as users see it: started with files, spoken to over sockets, stopped by signals.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod audit;
mod auth;
mod body_memory;
mod caller_limits;
mod certificates;
mod check;
mod design;
mod docs;
mod doors;
mod edge;
mod egress;
mod examples;
mod failed_disk;
mod failures;
mod flow_tests;
mod flows;
mod graph;
mod guides;
mod idempotent;
mod identity;
mod keys;
mod life;
mod limits;
mod login;
mod mail;
mod menus;
mod outage;
mod outbound;
mod paths;
mod peers;
mod polling;
mod possession;
mod rabbitmq;
mod redis;
mod secrets;
mod secure;
mod soap;
mod sources;
mod sql;
mod sql_conformance;
mod sql_servers;
mod sql_sqlite;
mod store;
mod streams;
mod subscribe;
mod support;
mod topics;
mod ways;
mod webhooks;
mod websocket;
mod websub;
mod websub_hub;
mod withdrawn;
