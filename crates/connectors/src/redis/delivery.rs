//! What streams and channels share: the message that starts a flow, what becomes of it, and what is
//! counted.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use component::content::Format;
use component::intake::{Intake, IntakeCounts, IntakePlan, IntakePolicy};
use component::source::{SourceContext, Started};
use component::state::{Measure, State, StateKey};
use message::{Body, Headers, Request};

/// What becomes of messages, for all workers.
pub(super) struct Rules {
    usual: Arc<IntakePlan>,
    /// The same without retries.
    once: Arc<IntakePlan>,
}

impl Rules {
    /// `key` tells the source from others of its flow's past.
    pub fn new(policy: IntakePolicy, key: &impl Debug, context: &SourceContext<'_>) -> Self {
        let usual = IntakePlan::new(policy, IntakeCounts::of("redis", key, context));
        let once = usual.with_retries(0);
        Self { usual, once }
    }
}

/// What runs the flow on messages, on one worker.
pub(super) struct Intakes {
    /// Retries as the file says.
    pub usual: Intake,
    /// Retries nothing: for messages that no retry helps, and those that cannot wait for one.
    pub once: Intake,
}

impl Intakes {
    pub fn new(flow: &Arc<dyn Started>, rules: &Rules) -> Self {
        Self {
            usual: Intake::new(flow, &rules.usual),
            once: Intake::new(flow, &rules.once),
        }
    }

    /// Has no further run of the flow begin.
    pub fn stop(&self) {
        self.usual.stop();
        self.once.stop();
    }

    /// Whether no further run of the flow begins: the source has to end, or `dead_letter: stop`
    /// has been met.
    pub fn is_over(&self) -> bool {
        self.usual.is_over() || self.once.is_over()
    }

    /// Whether a dead letter cannot be kept at the moment.
    pub fn is_blocked(&self) -> bool {
        self.usual.is_blocked() || self.once.is_blocked()
    }
}

/// What is counted besides what becomes of messages.
#[derive(Default)]
pub(super) struct Counts {
    pub dropped: AtomicU64,
    pub errors: AtomicU64,
}

/// The counts of a source, which outlive a reload that changes nothing of it.
pub(super) fn state(settings: &impl Debug, context: &SourceContext<'_>) -> Arc<Counts> {
    let key = StateKey {
        flow: Arc::clone(context.flow),
        step: "redis".into(),
        kind: "redis",
        settings: format!("{settings:?}"),
    };
    context.surroundings.states.get(key, Counts::default)
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl State for Counts {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count(
                "redis_dropped_total",
                "Messages of Redis channels that were lost: too many were waiting, or the source \
                 has ended.",
                &self.dropped,
            ),
            Measure::count(
                "redis_errors_total",
                "Times that Redis could not be read or told.",
                &self.errors,
            ),
        ]
    }
}

/// The message that starts a flow. `name` is the stream or channel.
pub(super) fn request(
    name: &str,
    body: impl Into<Body>,
    decode: Format,
    parameters: &[(&str, &str)],
) -> Request {
    let mut headers = Headers::new();
    headers.append("Content-Type", media_type(decode));
    let parameters = parameters
        .iter()
        .map(|(name, value)| ((*name).into(), encoded(value)));
    Request {
        path: format!("/{}", encoded(name)),
        parameters: parameters.collect(),
        ..Request::of_source("REDIS", headers, body)
    }
}

/// A text as a segment of a path (RFC 3986, section 2.3).
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn media_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Xml => "application/xml",
        Format::Form => "application/x-www-form-urlencoded",
        Format::Csv => "text/csv",
        Format::Text => "text/plain; charset=utf-8",
        Format::Bytes => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_segment_of_the_path() {
        let request = request("a/b?c", Vec::new(), Format::Json, &[("id", "1-0 å")]);
        assert_eq!(request.path, "/a%2Fb%3Fc");
        assert_eq!(&*request.parameters[0].1, "1-0%20%C3%A5");
    }
}
