//! `ussd`: begins a session of a menu that the subscriber has not dialled for.

use std::sync::Arc;

use component::definition::{BuildContext, FlowCall, FlowEntry, StepDefinition};
use component::dialogue::{MEDIA_TYPE, Push, SessionEvent, SessionInput};
use component::exchange::Exchange;
use component::flow_kind::callee_name;
use component::handler::{CallerContext, Outbound, Services};
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Spanned};
use message::{Fault, Headers, Kind, Origin, Reply, Request};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::step::internal;

/// The kind of flow that the step enters.
const KIND: &str = "menu";
/// The most bytes of a variable.
const VALUE_MAX: usize = 64 * 1024;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "ussd",
    summary: "Begins a session of a menu on a subscriber's phone.",
    documentation: include_str!("ussd.md"),
    example: include_str!("ussd.yaml"),
    schema: config::schema_for::<UssdConfig>,
    build,
};

/// The keys of the step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UssdStep")]
struct UssdConfig {
    /// The name of the menu, which has `push`.
    menu: Spanned<String>,
    /// The screen that is shown first: one of `push.screens` of the menu.
    screen: Spanned<String>,
    /// The number of the subscriber, with `${ }`.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    to: AnyValue,
    /// Values of the variables that `push.screens` of the menu has for the screen, with `${ }` in
    /// their strings.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    set: Option<std::collections::BTreeMap<String, AnyValue>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: UssdConfig = config::decode(node, context.report)?;
    let to = context.value(node.get("to")?);
    let given = node.get("set").and_then(Node::as_mapping);
    let given = given.unwrap_or_default();
    let variables = given.iter().map(|entry| Spanned {
        value: entry.key.clone(),
        span: entry.key_span,
    });
    let variables = variables.collect();
    let set: Vec<_> = given
        .iter()
        .map(|entry| Some((entry.key.clone(), context.value(&entry.value)?)))
        .collect();
    context.calls.push(FlowCall {
        flow: config.menu.clone(),
        entry: Some(FlowEntry {
            kind: KIND,
            name: config.screen.clone(),
            variables,
            offered_by: "push.screens",
        }),
    });
    Some(Box::new(BeginSession {
        callee: callee_name(KIND, &config.menu.value),
        menu: config.menu.value,
        screen: config.screen.value,
        to: to?,
        set: set.into_iter().collect::<Option<_>>()?,
    }))
}

/// The step.
struct BeginSession {
    /// By what name the menu is found.
    callee: String,
    menu: String,
    screen: String,
    to: ValueTemplate,
    set: Vec<(String, ValueTemplate)>,
}

impl BeginSession {
    async fn begin(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let input = self.input(exchange, services).await?;
        let reply = self.ask(&input, exchange, services).await?;
        if reply.status >= 300 {
            return Err(Fault::of_status(reply.status));
        }
        exchange.take_over(reply);
        Ok(Next::Continue)
    }

    /// What the menu is told.
    async fn input(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<SessionInput, Fault> {
        let to = exchange.preemptible(services, |it| self.to.make(it, services));
        let to = to.await?;
        let msisdn = expr::value::scalar_text(&to);
        let msisdn =
            msisdn.ok_or_else(|| Fault::invalid("the number of the subscriber is none"))?;
        let mut variables = Vec::with_capacity(self.set.len());
        for (name, template) in &self.set {
            let value = exchange.preemptible(services, |it| template.make(it, services));
            let mut json = Vec::new();
            expr::json::write(&value.await?, VALUE_MAX, &mut json).map_err(|error| {
                let fault = Fault::invalid("a variable of a session cannot be kept");
                fault.with_cause(format_args!("${name}: {error}"))
            })?;
            let json = String::from_utf8(json).map_err(|_| internal("JSON that is no text"))?;
            variables.push((name.clone(), json));
        }
        Ok(SessionInput {
            session: String::new(),
            msisdn: msisdn.into_owned(),
            event: SessionEvent::Push(Push {
                screen: self.screen.clone(),
                variables,
            }),
        })
    }

    async fn ask(
        &self,
        input: &SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let step = Arc::clone(&exchange.at);
        let outbound = Outbound {
            verb: DEFINITION.name,
            step: &step,
            connection: &self.menu,
        };
        if let Some(reply) = services.stand_in(outbound, exchange) {
            return reply.await;
        }
        let Some(menu) = services.flow(&self.callee) else {
            let detail = "the menu is not there any more";
            let fault = Fault::new(Kind::Internal, Origin::Engine, detail);
            return Err(fault.with_cause(&self.menu));
        };
        let mut headers = Headers::default();
        headers.set("Content-Type", MEDIA_TYPE);
        let request = Request::of_source("push", headers, input.to_bytes());
        let caller = CallerContext {
            depth: exchange.depth + 1,
            deadline: exchange.deadline,
        };
        menu.call(request, caller, services).await
    }
}

impl Step for BeginSession {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.begin(exchange, services)))
    }

    fn waits(&self) -> bool {
        true
    }
}
