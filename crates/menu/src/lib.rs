//! USSD menus: the document kind `menu`, and the trigger `ussd` that starts it.
//!
//! A gateway's request becomes a [`SessionInput`](component::dialogue::SessionInput) (`gateway`),
//! the one step of the menu (`step`) finds its session (`sessions`, `session`), asks the state
//! machine what it means there (`machine`), runs the steps of the screen that follows
//! (`answering`), and shows it (`render`, `text`). Steps that happen once run apart (`once`), as
//! another machine says (`action`), and wait for their `subscriber`. `read` makes the `plan` of a
//! document, `check` looks at it as a whole.

mod action;
mod answering;
mod check;
pub mod codes;
mod dial;
mod gateway;
mod in_use;
mod input;
mod machine;
mod mask;
mod new_sessions;
mod once;
mod outbox;
mod plan;
mod push;
mod pushing;
mod read;
mod render;
mod sending;
mod session;
mod sessions;
mod shape;
mod step;
mod subscriber;
pub mod text;

use component::definition::StepDefinition;
use component::flow_kind::{FlowKind, KindTrigger};

/// The kinds of flows of this crate.
pub const KINDS: &[FlowKind] = &[FlowKind {
    name: "menu",
    summary: "A USSD menu: screens on phones, and what is done between them.",
    documentation: include_str!("menu.md"),
    example: include_str!("menu.yaml"),
    trigger: KindTrigger {
        name: "ussd",
        summary: "Takes the requests of a USSD gateway.",
        schema: shape::ussd,
        danger: "may claim to be any subscriber",
        build: gateway::build,
    },
    schema: shape::menu,
    build: step::build,
}];

/// Where menus have expressions.
pub const EVALUATED: &[&str] = &["screens", "on_end", "from.ussd.gateway", "answers", "push"];

/// The steps of this crate.
pub const STEPS: &[StepDefinition] = &[push::DEFINITION];
