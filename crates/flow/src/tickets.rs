//! `tickets` of a flow: browsers that can send no credential get past its `auth`.

use std::sync::Arc;

use component::access::{Door, TicketHandler, TicketTarget};
use component::plan::RouteTarget;
use component::trigger::{HttpTrigger, Methods, Segment};
use config::{Node, Report, Span, Value};
use message::Method;

use crate::codes::NO_EFFECT;
use crate::trigger::Trigger;

/// The address at which tickets for a flow are given: `POST PATH/ticket`.
pub(crate) struct TicketRoute {
    pub http: HttpTrigger,
    pub target: RouteTarget,
}

/// What `tickets` of a flow's document says.
#[derive(Clone, Copy)]
pub(crate) struct Tickets(Option<Span>);

impl Tickets {
    /// Reads it. What has another type has been reported with the document's shape.
    pub fn read(document: &Node, trigger: Option<&Trigger>, report: &mut Report) -> Self {
        let entry = document.entry("tickets");
        let entry = entry.filter(|it| matches!(it.value.value, Value::Bool(true)));
        let Some(entry) = entry else {
            return Self(None);
        };
        let mut refuse = |message: &str, hint: &str| {
            report.error(NO_EFFECT, entry.key_span, message).hint(hint);
            Self(None)
        };
        match trigger.map(Trigger::start) {
            // Reported already.
            None => Self(None),
            // `auth` is reported, for the same reason.
            Some(None) => Self(None),
            Some(Some(start)) if !takes_get(&start.http.methods) => {
                let message = "`tickets` has no effect: browsers open streams by GET";
                refuse(message, "leave it out, or let the flow take GET")
            }
            Some(Some(start)) if start.http.path.rest => {
                let message = "`tickets` needs a path that does not end with `*`";
                refuse(
                    message,
                    "tickets are given at the flow's path followed by `/ticket`",
                )
            }
            Some(Some(_)) => Self(Some(entry.key_span)),
        }
    }

    /// What tickets of the flow's door open, if it takes any.
    pub fn target(self) -> Option<TicketTarget> {
        self.0.map(|_| TicketTarget::Path)
    }

    /// The address that gives them, of a flow with this door: its own or that of its listener.
    /// `is_open` is whether neither says who may call it.
    pub fn route(
        self,
        (door, is_open): (Option<&Arc<dyn Door>>, bool),
        trigger: Option<&Trigger>,
        report: &mut Report,
    ) -> Option<TicketRoute> {
        let (span, start) = (self.0?, trigger?.start()?);
        if is_open {
            let message = "`tickets` has no effect: everybody may call the flow";
            report
                .error(NO_EFFECT, span, message)
                .hint("add `auth`, or leave it out");
        }
        let door = door?;
        if let Some(way) = door.passing_way() {
            let message = format!("`{way}` passes its credential on, which no ticket can");
            report
                .error(NO_EFFECT, span, message)
                .hint("leave `pass` out of the way, or `tickets` out of the flow");
            return None;
        }
        if !door.gives_tickets() {
            let message = "no way of this `auth` has a credential that a ticket can stand for";
            report.error(NO_EFFECT, span, message).hint(
                "signatures and proofs of possession are good once; certificates and cookies \
                     of logins come by themselves, and `ask` takes every request: leave `tickets` \
                     out",
            );
            return None;
        }
        let mut http = start.http.clone();
        http.methods = Methods::Only(vec![Method::Post]);
        http.path.segments.push(Segment::Literal("ticket".into()));
        let handler = TicketHandler {
            door: Arc::clone(door),
            hides: false,
        };
        Some(TicketRoute {
            target: RouteTarget::Handle {
                handler: Arc::new(handler),
                body_max: http.body_max,
            },
            http,
        })
    }
}

fn takes_get(methods: &Methods) -> bool {
    match methods {
        Methods::Any => true,
        Methods::Only(methods) => methods.contains(&Method::Get),
    }
}
