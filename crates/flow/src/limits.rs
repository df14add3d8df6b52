//! The `limits:` of a flow: what it may take.

use std::sync::Arc;
use std::time::Duration;

use component::definition::Surroundings;
use component::resilience::{Bulkhead, BulkheadSettings, Throttle, ThrottleSettings};
use component::state::{State, StateKey};
use config::{Node, Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::bounds::{Bounds, WAIT};
use crate::modifiers::ThrottleConfig;
use crate::running::FlowLimits;

/// What a flow may take.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitsConfig {
    /// The longest that a message may be under way: one deadline for all steps. When it is over,
    /// what is under way is given up and the flow fails with `timeout`, which is status 504. Of a
    /// reply that is streamed, the head counts.
    time: Option<Spanned<config::Duration>>,
    /// How many messages may be under way at a time, from 1 to 1000000; further ones fail with
    /// `unavailable`, which is status 503.
    concurrent: Option<Spanned<u64>>,
    /// How often the flow may be started; what is too much waits or fails with `limited`, which is
    /// status 429.
    throttle: Option<ThrottleConfig>,
}

impl FlowLimits {
    /// Whether there is no limit but perhaps that of time.
    pub fn is_only_time(&self) -> bool {
        self.concurrent.is_none() && self.throttle.is_none()
    }
}

/// The schema of the value under `limits`.
pub(crate) fn schema() -> serde_json::Value {
    config::schema_for::<LimitsConfig>()
}

/// Reads the limits of a flow. Every problem goes into the report; `None` when there was one.
pub(crate) fn read(
    document: &Node,
    flow: &Arc<str>,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<FlowLimits> {
    let Some(node) = document.get("limits") else {
        return Some(FlowLimits::default());
    };
    let config: LimitsConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    let time = config.time.as_ref();
    let time = time.and_then(|time| WAIT.check_time("time", time, report));
    let bounds = Bounds {
        least: 1,
        greatest: 1_000_000,
    };
    let count = config.concurrent.as_ref();
    let count = count.and_then(|count| bounds.check_count("concurrent", count, report));
    let throttle = config.throttle.as_ref().map(|it| it.settings(report));
    if report.diagnostics().len() > before {
        return None;
    }
    let keep = Keep { flow, surroundings };
    Some(FlowLimits {
        time,
        concurrent: count.map(|count| {
            let settings = BulkheadSettings {
                concurrent: count as usize,
                queue: 0,
                wait: Duration::ZERO,
            };
            keep.state("bulkhead", settings, || Bulkhead::new(settings))
        }),
        throttle: throttle.map(|settings: ThrottleSettings| {
            keep.state("throttle", settings, || Throttle::new(settings))
        }),
    })
}

/// Keeps what a flow remembers.
struct Keep<'a> {
    flow: &'a Arc<str>,
    surroundings: &'a Surroundings<'a>,
}

impl Keep<'_> {
    fn state<T: State>(
        &self,
        kind: &'static str,
        settings: impl std::fmt::Debug,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = StateKey {
            flow: Arc::clone(self.flow),
            step: "limits".into(),
            kind,
            settings: format!("{settings:?}"),
        };
        self.surroundings.states.get(key, make)
    }
}
