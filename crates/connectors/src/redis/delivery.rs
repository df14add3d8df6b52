//! What streams and channels share: the message that starts a flow, and what is counted.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use component::content::Format;
use component::source::SourceContext;
use component::state::{Measure, State, StateKey};
use message::{Body, Headers, Request};

/// What is counted.
#[derive(Default)]
pub(super) struct Counts {
    pub done: AtomicU64,
    pub failed: AtomicU64,
    pub dropped: AtomicU64,
    pub dead: AtomicU64,
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
                "redis_done_total",
                "Messages of Redis whose flow has succeeded.",
                &self.done,
            ),
            Measure::count(
                "redis_failed_total",
                "Messages of Redis whose flow has failed or replied with a status from 400 on.",
                &self.failed,
            ),
            Measure::count(
                "redis_dropped_total",
                "Messages of Redis channels that were lost because too many were waiting.",
                &self.dropped,
            ),
            Measure::count(
                "redis_dead_letters_total",
                "Entries of Redis streams that were moved away after too many tries.",
                &self.dead,
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
