//! Reads what stands under `subscribe.webhooks`.

use std::sync::Arc;
use std::time::Duration;

use access::webhook_signer::WebhookSigner;
use component::definition::compile_expression;
use component::document::DocumentContext;
use component::scope::Scope;
use config::{Node, Report, Span, Spanned};
use expr::Expression;
use journal::Room;
use steps::store::StoreWriter;
use steps::{CallTarget, CallTargetConfig, push_encoded};

use super::attempts::Attempts;
use super::config::{EndpointConfig, Signature, WebhooksConfig};
use super::delivery::{DAY, Delivery, SECOND};
use super::machine::{Order, Policy};
use super::plan::{Destination, EndpointPlan, Terms};
use super::post;
use super::state::EndpointState;
use super::subscriptions::record::is_subscription_id;
use super::view::ViewPlan;
use crate::bounds;
use crate::codes::BAD_WEBHOOK;
use crate::settings::{Durability, Payload};
use crate::topic::Topic;
use crate::view::Mode;

/// Where dead letters of topics on the disk go when nothing is said.
pub(super) const DEAD_LETTERS: &str = "webhook-dead-letters";
/// The same for those of webhooks that users have made: they must not take the room of others.
pub(super) const USER_DEAD_LETTERS: &str = "webhook-user-dead-letters";
/// How much a store of dead letters may have.
pub(super) const ROOM: Room = Room {
    count: 1_000_000,
    bytes: 1 << 30,
};
/// The most bytes of an endpoint's name.
const NAME_MAX: usize = 100;

/// Reads the endpoints of a topic. Every problem is reported.
pub(super) fn read(
    config: &WebhooksConfig,
    node: &Node,
    topic: &Arc<Topic>,
    context: &mut DocumentContext<'_>,
) -> Vec<Arc<EndpointPlan>> {
    let nodes = node.get("endpoints").and_then(Node::as_mapping);
    let mut plans = Vec::new();
    for entry in nodes.unwrap_or_default() {
        let Some(endpoint) = config.endpoints.get(&entry.key) else {
            continue;
        };
        check_name(&entry.key, entry.key_span, context.report);
        let reading = Reading {
            config: endpoint,
            node: &entry.value,
            span: entry.key_span,
            topic,
        };
        let before = context.report.errors();
        let plan = reading.plan(&entry.key, context);
        plans.extend(
            plan.filter(|_| context.report.errors() == before)
                .map(Arc::new),
        );
    }
    plans
}

fn check_name(name: &str, span: Span, report: &mut Report) {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_letter) {
        let message = format!("`{}` is no name of an endpoint", name.escape_debug());
        report
            .error(BAD_WEBHOOK, span, message)
            .hint("a name has letters, digits, `-`, `_` and `.`, and at most 100 of them");
    }
    // The cursors of endpoints and of webhooks that callers have made are in one table, by name and
    // id. Each start removes those of deleted webhooks, and would remove the cursor of an endpoint
    // with such a name.
    if is_subscription_id(name.as_bytes()) {
        let message = format!("`{name}` has the form of an id, and is no name of an endpoint");
        report
            .error(BAD_WEBHOOK, span, message)
            .hint("webhooks that callers have made have such ids: choose another name");
    }
}

/// One endpoint that is read.
struct Reading<'a> {
    config: &'a EndpointConfig,
    node: &'a Node,
    /// Where its name stands.
    span: Span,
    topic: &'a Arc<Topic>,
}

impl Reading<'_> {
    fn plan(&self, name: &str, context: &mut DocumentContext<'_>) -> Option<EndpointPlan> {
        let config = self.config;
        let states = context.surroundings.states;
        let connections = context.connections;
        let report = &mut *context.report;
        let mode = self.mode(report);
        let policy = self.policy(mode, report);
        let view = self.view(mode, report);
        let signer = self.signer(report);
        let timeout = timeout(config.timeout.as_ref(), report);
        let target = CallTargetConfig {
            url: &config.url,
            tls: config.tls.as_ref(),
            headers: self.node.get("headers"),
            reserved: post::RESERVED,
        };
        let target = CallTarget::read(target, (connections, report));
        let dead_letters = match &config.dead_letters {
            Some(store) => Some(StoreWriter::read(store, ROOM, (states, report))?),
            None => {
                let is_on_disk = self.topic.settings().durability == Durability::Disk;
                is_on_disk.then(|| StoreWriter::of(DEAD_LETTERS, ROOM, states))
            }
        };
        let of = (self.topic.name(), self.topic.slot());
        Some(EndpointPlan {
            view: Arc::new(view?),
            policy: Arc::new(policy),
            destination: Destination::File {
                target: Box::new(target?),
                signer: signer?.map(Arc::new),
                terms: Arc::new(Terms {
                    timeout,
                    dead_letters,
                    attempts: Some(Attempts::of(states)),
                    start: config.start,
                }),
            },
            state: EndpointState::of(of, name, states),
        })
    }

    fn mode(&self, report: &mut Report) -> Mode {
        let payload = self.topic.settings().payload;
        let usual = match payload {
            Payload::Event => Mode::Event,
            Payload::Snapshot => Mode::Snapshot,
        };
        let Some(mode) = &self.config.mode else {
            return usual;
        };
        if (mode.value == Mode::Event) != (usual == Mode::Event) {
            let message = format!(
                "a topic of payload `{}` does not come as `{}`",
                payload.name(),
                mode.value.name()
            );
            report
                .error(BAD_WEBHOOK, mode.span, message)
                .hint(match payload {
                    Payload::Event => "leave it out: the endpoint gets each event",
                    Payload::Snapshot => "write `snapshot` or `patch`",
                });
        }
        mode.value
    }

    fn view(&self, mode: Mode, report: &mut Report) -> Option<ViewPlan> {
        let config = self.config;
        let filter = expression(config.filter.as_ref(), report);
        let select = expression(config.select.as_ref(), report);
        let key = expression(config.key.as_ref(), report);
        let mut source = "/topics/".to_owned();
        push_encoded(self.topic.name(), &mut source);
        Some(ViewPlan {
            mode,
            filter: filter?,
            select: select?,
            key: key?,
            cloudevents: config.cloudevents.as_ref().map(|it| it.value),
            source: source.into(),
            result_max: self.topic.settings().body_max,
            is_text: false,
        })
    }

    fn policy(&self, mode: Mode, report: &mut Report) -> Policy {
        let config = self.config;
        let retry = config.retry.policy(BAD_WEBHOOK, report);
        let own = Policy {
            order: Order::All,
            concurrent: 1,
            batch: None,
            throttle: None,
            backoff: retry.backoff,
            times: retry.times,
            disable_after: disable_after(config.disable_after.as_ref(), report),
            drops: false,
        };
        Delivery::read(config, (mode, self.span), report).policy(&own)
    }

    /// What signs requests, if anything does; `None` when there was a problem.
    fn signer(&self, report: &mut Report) -> Option<Option<WebhookSigner>> {
        let config = self.config;
        let mut secrets: Vec<&Spanned<String>> = config.secret.iter().collect();
        if let Some(several) = &config.secrets {
            if let Some(one) = &config.secret {
                let message = "there are `secret` and `secrets`";
                report
                    .error(BAD_WEBHOOK, one.span, message)
                    .hint("leave one of them out");
            }
            secrets.extend(&several.value);
        }
        let place = secrets.first().map_or(self.span, |it| it.span);
        let texts: Vec<&str> = secrets.iter().map(|it| it.value.as_str()).collect();
        let made = match (config.signature, texts.as_slice()) {
            (Signature::None, []) => return Some(None),
            (Signature::None, _) => Err("it has no effect with `signature: none`"),
            (_, []) => {
                let message = "requests are signed, and there is no secret";
                report
                    .error(BAD_WEBHOOK, self.span, message)
                    .hint("add `secret`, or write `signature: none`");
                return None;
            }
            (Signature::Standard, texts) => WebhookSigner::standard(texts),
            (Signature::GitHub, [secret]) => WebhookSigner::github(secret),
            (Signature::GitHub, _) => Err("GitHub's signature has one secret"),
        };
        match made {
            Ok(signer) => Some(Some(signer)),
            Err(why) => {
                let message = format!("the secret cannot be used: {why}");
                report.error(BAD_WEBHOOK, place, message);
                None
            }
        }
    }
}

/// Compiles an expression, if there is one; `None` when there was a problem.
fn expression(text: Option<&Spanned<String>>, report: &mut Report) -> Option<Option<Expression>> {
    let Some(text) = text else {
        return Some(None);
    };
    let compiled = compile_expression(&text.value, text.span, &Scope::default(), report)?;
    if !compiled.variables().is_empty() {
        let message = "expressions of a webhook see the event, nothing else";
        report.error(BAD_WEBHOOK, text.span, message);
        return None;
    }
    Some(Some(compiled))
}

/// How long a request may take.
pub(super) fn timeout(
    timeout: Option<&Spanned<config::Duration>>,
    report: &mut Report,
) -> Duration {
    timeout.map_or(20 * SECOND, |timeout| {
        let range = Duration::from_millis(100)..=300 * SECOND;
        bounds::time("timeout", timeout, range, report)
    })
}

/// After how many milliseconds of being down an endpoint is disabled.
pub(super) fn disable_after(time: Option<&Spanned<config::Duration>>, report: &mut Report) -> u64 {
    let time = time.map_or(5 * DAY, |time| {
        bounds::time("disable_after", time, SECOND..=366 * DAY, report)
    });
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use config::Sources;

    use super::*;

    #[test]
    fn names_of_endpoints_are_refused_that_are_ids_of_callers_webhooks() {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let source = sources.add("test.yaml", b"", &mut report).unwrap();
        let (start, end) = (0, 0);
        let span = Span { source, start, end };
        for name in ["shop", "wh_", "wh_shop", "wh_0123456789abcdef"] {
            check_name(name, span, &mut report);
            assert_eq!(report.errors(), 0, "{name}");
        }
        check_name("wh_0123456789abcdef0123456789abcdef", span, &mut report);
        assert_eq!(report.errors(), 1);
    }
}
