//! Reads what stands under `subscribe.webhooks.manage`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use access::sealing_keys::SealingKeys;
use component::document::DocumentContext;
use component::egress::Origins;
use component::tls::UpstreamTls;
use config::{Report, Span, Spanned};
use steps::store::StoreWriter;

use super::config::{KeysConfig, ManageConfig};
use super::{ExpressionBounds, Managed, Operators, Pace};
use crate::bounds;
use crate::codes::BAD_WEBHOOK;
use crate::hub::Hub;
use crate::settings::Durability;
use crate::source::Start;
use crate::topic::Topic;
use crate::view::Mode;
use crate::webhooks::attempts::Attempts;
use crate::webhooks::machine::{Order, Policy};
use crate::webhooks::plan::{EndpointPlan, Terms};
use crate::webhooks::read::{ROOM, USER_DEAD_LETTERS, disable_after, timeout};
use crate::webhooks::subscriptions::Subscriptions;

/// What subscribers may wish, as the topic's `subscribe` says it.
pub(crate) struct Wishes {
    pub expressions: Option<ExpressionBounds>,
    /// The modes, the default one first.
    pub modes: Vec<Mode>,
}

fn check_durability(topic: &Topic, span: Span, report: &mut Report) {
    if topic.settings().durability != Durability::Disk {
        let message = "webhooks that are managed by REST outlive a restart: the topic has to be \
                       on the disk";
        report
            .error(BAD_WEBHOOK, span, message)
            .hint("write `durability: disk`, or leave `manage` out");
    }
}

/// Reads how webhooks of a topic are managed by REST. Every problem is reported.
pub(in crate::webhooks) fn read(
    config: &Spanned<ManageConfig>,
    (topic, wishes): (&Arc<Topic>, Wishes),
    files: &[Arc<EndpointPlan>],
    context: &mut DocumentContext<'_>,
) -> Option<Managed> {
    let (span, config) = (config.span, &config.value);
    let before = context.report.errors();
    check_durability(topic, span, context.report);
    let keys = keys(&config.secrets_key, context);
    let operators = config.operators.as_ref();
    let operators = operators.map(|text| Operators::read(text, context));
    let states = context.surroundings.states;
    let report = &mut *context.report;
    let count = |name, value: &Option<Spanned<u64>>, usual, report: &mut _| {
        let counted = bounds::count(name, value.as_ref(), 1..=1_000_000, report);
        counted.map_or(usual, |it| it as usize)
    };
    let retry = config.retry.policy(BAD_WEBHOOK, report);
    let policy = Policy {
        order: Order::All,
        concurrent: 1,
        batch: None,
        throttle: None,
        backoff: retry.backoff,
        times: retry.times,
        disable_after: disable_after(config.disable_after.as_ref(), report),
        drops: false,
    };
    let (concurrent_max, batch_max) = delivery_bounds(config, report);
    let dead_letters = match &config.dead_letters {
        Some(store) => StoreWriter::read(store, ROOM, (states, report)),
        None => Some(StoreWriter::of(USER_DEAD_LETTERS, ROOM, states)),
    };
    let terms = Terms {
        timeout: timeout(config.timeout.as_ref(), report),
        dead_letters,
        attempts: Some(Attempts::of(states)),
        start: Start::Latest,
    };
    let managed = Managed {
        subscriptions: Subscriptions::of((topic.name(), topic.slot()), states),
        topic: Arc::clone(topic),
        hub: Hub::of(states),
        keys: Arc::new(keys?),
        origins: Origins::new(UpstreamTls::default(), None),
        policy: Arc::new(policy),
        terms: Arc::new(terms),
        attempts: Attempts::of(states),
        pace: Pace::of(states),
        operators: operators.map_or(Some(None), |read| read.map(Some))?,
        per_caller: count("per_caller", &config.per_caller, 20, report),
        total: count("total", &config.total, 100_000, report),
        concurrent_max,
        batch_max,
        challenges: config.challenge.unwrap_or(true),
        expressions: wishes.expressions,
        modes: wishes.modes,
        files: files.to_vec(),
        views: Mutex::new(HashMap::new()),
        policies: Mutex::new(HashMap::new()),
    };
    (context.report.errors() == before).then_some(managed)
}

/// How many requests of a webhook may be in progress, and how many bytes its batches may have then.
fn delivery_bounds(config: &ManageConfig, report: &mut Report) -> (usize, usize) {
    let concurrent = config.concurrent_max.as_ref();
    let concurrent = bounds::count("concurrent_max", concurrent, 1..=100, report);
    let batch = config.batch_max.as_ref();
    let batch = bounds::size("batch_max", batch, 1 << 20..=1 << 30, report);
    (
        concurrent.map_or(10, |it| it as usize),
        batch.map_or(4 << 20, |it| it as usize),
    )
}

fn keys(config: &Spanned<KeysConfig>, context: &mut DocumentContext<'_>) -> Option<SealingKeys> {
    let texts: Vec<&str> = match &config.value {
        KeysConfig::One(key) => vec![key],
        KeysConfig::Several(keys) => keys.iter().map(String::as_str).collect(),
    };
    match SealingKeys::read(&texts) {
        Ok(keys) => Some(keys),
        Err(why) => {
            let message = format!("`secrets_key` cannot be used: {why}");
            context
                .report
                .error(BAD_WEBHOOK, config.span, message)
                .hint("`openssl rand -base64 32` makes a key; give it as a secret");
            None
        }
    }
}
