//! `/webhooks` on the admin port: how the endpoints of topics are (GET) and what they have answered
//! lately (`GET /webhooks/TOPIC/NAME/attempts`), and what has them pause and go on (`POST
//! /webhooks/TOPIC/NAME/pause` and `/resume`) and get events again (`/replay`).

use std::sync::Arc;

use component::access::Caller;
use component::audit::{Audit, Event, EventKind};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::state::States;
use message::{Fault, Method, Reply, Request};
use serde_json::{Value, json};
use topics::webhooks::{self, Command, Listed, Refused};

use super::browsers::Hosts;

/// What the audit stream calls the page.
const TARGET: &str = "admin webhooks";

/// The most bytes of a body.
pub(super) const BODY_MAX: u64 = 8 * 1024;

/// The page of webhooks.
pub(super) struct WebhooksPage {
    states: Arc<States>,
    hosts: Arc<Hosts>,
}

impl WebhooksPage {
    pub fn new(states: &Arc<States>, hosts: &Arc<Hosts>) -> Self {
        Self {
            states: Arc::clone(states),
            hosts: Arc::clone(hosts),
        }
    }

    async fn answer(&self, request: &Request) -> Result<Reply, Fault> {
        super::refuse_pages(&self.hosts, request, &Audit::of(&self.states), TARGET)?;
        let parameter = |name: &str| {
            let mut found = request.parameters.iter().filter(|it| &*it.0 == name);
            found.next().map_or("", |it| it.1.as_str())
        };
        let of = (parameter("topic"), parameter("endpoint"));
        let (topic, name) = of;
        if request.method != Method::Post {
            let names_one = !request.parameters.is_empty();
            return self.show(names_one.then_some(of));
        }
        let operate = |command| webhooks::operate(&self.states, of, command);
        let (kind, done) = match parameter("action") {
            "pause" => (EventKind::WebhookPaused, operate(Command::Pause).await),
            "resume" => (EventKind::WebhookResumed, operate(Command::Resume).await),
            "replay" => {
                let body = request.body.as_bytes();
                let done = webhooks::replay(&self.states, of, body).await;
                self.audit(EventKind::WebhookReplayed, request, of, &done);
                return Ok(json_reply(&shown(&done?)));
            }
            _ => {
                let detail = "write `/pause`, `/resume` or `/replay`";
                return Err(Fault::invalid(detail).with_status(404));
            }
        };
        let done = done.map_err(Refused::fault);
        self.audit(kind, request, (topic, name), &done);
        Ok(json_reply(&shown(&done?)))
    }

    /// How all endpoints are, or the last attempts of one.
    fn show(&self, one: Option<(&str, &str)>) -> Result<Reply, Fault> {
        let Some(of) = one else {
            let all = webhooks::list(&self.states);
            let all: Vec<Value> = all.iter().map(shown).collect();
            return Ok(json_reply(&json!({ "webhooks": all })));
        };
        let attempts = webhooks::attempts(&self.states, of).map_err(Refused::fault)?;
        Ok(json_reply(&json!({ "attempts": attempts })))
    }

    fn audit(
        &self,
        kind: EventKind,
        request: &Request,
        (topic, name): (&str, &str),
        done: &Result<Listed, Fault>,
    ) {
        Audit::of(&self.states).record(|| {
            let event = match done {
                Ok(_) => Event::success(kind),
                Err(fault) => Event::failure(kind, &fault.detail),
            };
            let entry = json!({ "topic": topic, "endpoint": name });
            event
                .of_request(request)
                .with_target("webhook")
                .with("entry", entry)
        });
        let by = Caller::of(request).map(|it| &*it.id);
        let (peer, kind) = (request.peer, kind.name());
        tracing::info!(%peer, by, topic, name, kind, "asked by the admin port");
    }
}

fn shown(webhook: &Listed) -> Value {
    json!({
        "topic": &*webhook.topic,
        "endpoint": &*webhook.name,
        "state": webhook.health.name(),
        "reason": webhook.why,
        "cursor": webhook.cursor,
        "lag_events": webhook.lag,
        "lag_seconds": webhook.lag_seconds,
    })
}

fn json_reply(value: &Value) -> Reply {
    Reply::with_content(200, "application/json", value.to_string().into_bytes())
}

impl Handler for WebhooksPage {
    fn reads_body(&self) -> bool {
        true
    }

    /// The audit stream is told, also when the client has left.
    fn detaches(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move { self.answer(&request).await.map(Outcome::Reply) })
    }
}
