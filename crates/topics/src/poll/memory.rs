//! What a poller remembers from one poll to the next, over a reload, and, where there is a disk for
//! it, over a restart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::state::{Measure, State};
use expr::Value;
use expr::value::{integer, object, text};
use message::{Headers, Reply};
use serde::{Deserialize, Serialize};

use crate::keys;

/// By what a request asks whether anything has changed (RFC 9110, section 8.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Validators {
    /// What tells the path and query that they belong to from others.
    pub target: String,
    etag: Option<String>,
    modified: Option<String>,
}

impl Validators {
    /// Those of a reply, when it has any.
    pub fn of(reply: &Reply, target: String) -> Option<Self> {
        let field = |name| {
            let value = reply.headers.get(name)?;
            let text = std::str::from_utf8(value).ok()?;
            Some(text.to_owned()).filter(|it| !it.is_empty() && it.len() <= 1024)
        };
        let (etag, modified) = (field("ETag"), field("Last-Modified"));
        let is_any = etag.is_some() || modified.is_some();
        is_any.then_some(Self {
            target,
            etag,
            modified,
        })
    }

    /// Makes a request one for what has changed (RFC 9110, sections 13.1.2 and 13.1.3). False when
    /// the request says itself what it wants.
    pub fn put(&self, headers: &mut Headers) -> bool {
        let own = ["If-None-Match", "If-Modified-Since"];
        if own.iter().any(|name| headers.get(name).is_some()) {
            return false;
        }
        match (&self.etag, &self.modified) {
            (Some(etag), _) => headers.set("If-None-Match", etag),
            (None, Some(modified)) => headers.set("If-Modified-Since", modified),
            (None, None) => return false,
        }
        true
    }
}

/// What is known of the last poll that has succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Last {
    /// When it began, in milliseconds since 1970 (UTC).
    pub success_ms: Option<u64>,
    pub validators: Option<Validators>,
    /// What `keep` gave, as JSON.
    pub kept: Option<String>,
    /// What tells the last document from others, where the poller itself has to know.
    pub digest: Option<String>,
    /// The place of a log that the last document is at, as the sink writes it.
    pub place: Option<String>,
}

impl Last {
    /// Whether nothing but the time differs.
    pub fn is_but_for_time(&self, other: &Self) -> bool {
        let other = Self {
            success_ms: self.success_ms,
            ..other.clone()
        };
        *self == other
    }

    /// What `$last` is.
    pub fn value(&self) -> Value {
        let time = self.success_ms;
        let kept = self.kept.as_ref().and_then(|kept| {
            let kept = Bytes::copy_from_slice(kept.as_bytes());
            expr::json::parse(&kept, 256).ok()
        });
        let validators = self.validators.as_ref();
        let etag = validators.and_then(|it| it.etag.clone());
        let or_null = |value: Option<Value>| value.unwrap_or(Value::Null);
        object([
            (
                "success".to_owned(),
                or_null(time.map(|it| time_text(Duration::from_millis(it)))),
            ),
            (
                "success_ms".to_owned(),
                or_null(time.map(|it| integer(i64::try_from(it).unwrap_or(i64::MAX)))),
            ),
            ("etag".to_owned(), or_null(etag.map(text))),
            ("kept".to_owned(), or_null(kept)),
        ])
    }
}

/// A time since 1970 as a text of RFC 3339 in UTC, with milliseconds.
pub(super) fn time_text(since: Duration) -> Value {
    let milliseconds = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(milliseconds) {
        Ok(time) => text(format!("{time:.3}")),
        Err(_) => Value::Null,
    }
}

/// What tells documents apart, as text.
pub(super) fn digest(document: &[u8]) -> String {
    format!("{:032x}", u128::from_be_bytes(keys::digest(document)))
}

/// What a poller remembers. It outlives a reload that leaves the settings as they are.
#[derive(Default)]
pub(super) struct Memory {
    inner: Mutex<Inner>,
    pub counts: Counts,
}

#[derive(Default)]
pub(super) struct Inner {
    pub last: Last,
    /// Whether what is on the disk has been read.
    pub is_read: bool,
    /// What has been written to the disk, and when.
    pub written: Option<(Last, Instant)>,
    /// When the next request is due.
    pub next: Option<Instant>,
    /// When the last poll began.
    pub began: Option<Instant>,
    /// When the last one has succeeded.
    pub succeeded: Option<Instant>,
    /// How the last poll has failed, when it has.
    pub failing: Option<String>,
}

/// How often what has happened.
#[derive(Default)]
pub(super) struct Counts {
    pub polls: AtomicU64,
    pub changes: AtomicU64,
    pub unchanged: AtomicU64,
    pub not_modified: AtomicU64,
    pub failures: AtomicU64,
    pub skipped: AtomicU64,
}

impl Counts {
    /// Counts one.
    pub fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Memory {
    /// All that is remembered.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is on the disk.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The digest of the settings: what was learnt with others is of no use.
    settings: String,
    last: Last,
}

/// What is remembered, as it is written to the disk.
pub(super) fn to_record(settings: &str, last: &Last) -> Bytes {
    let record = Record {
        settings: settings.to_owned(),
        last: last.clone(),
    };
    serde_json::to_vec(&record).unwrap_or_default().into()
}

/// What was written to the disk with these settings.
pub(super) fn of_record(settings: &str, record: &[u8]) -> Option<Last> {
    let record: Record = serde_json::from_slice(record).ok()?;
    (record.settings == settings).then_some(record.last)
}

impl State for Memory {
    fn measures(&self, now: Instant) -> Vec<Measure> {
        let counts = &self.counts;
        let measure = |name, help, value| Measure { name, help, value };
        let count = |name, help, count: &AtomicU64| {
            measure(name, help, count.load(Ordering::Relaxed) as f64)
        };
        let mut measures = vec![
            count("poll_polls_total", "Polls.", &counts.polls),
            count(
                "poll_changes_total",
                "Polls that brought a document that differs from the last one.",
                &counts.changes,
            ),
            count(
                "poll_unchanged_total",
                "Polls that brought the last document again, or none.",
                &counts.unchanged,
            ),
            count(
                "poll_not_modified_total",
                "Polls that were answered 304.",
                &counts.not_modified,
            ),
            count(
                "poll_failures_total",
                "Polls that failed.",
                &counts.failures,
            ),
            count(
                "poll_skipped_total",
                "Polls left out since the one before took too long.",
                &counts.skipped,
            ),
        ];
        let inner = self.lock();
        let failing = f64::from(u8::from(inner.failing.is_some()));
        measures.push(measure(
            "poll_failing",
            "Whether the last poll failed.",
            failing,
        ));
        if let Some(succeeded) = inner.succeeded {
            let age = now.saturating_duration_since(succeeded).as_secs_f64();
            let help = "How long ago the last poll succeeded.";
            measures.push(measure("poll_last_success_seconds", help, age));
        }
        measures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_is_what_expressions_see() {
        let mut last = Last::default();
        let nothing = r#"{"success":null,"success_ms":null,"etag":null,"kept":null}"#;
        assert_eq!(expr::value::shown(&last.value()), nothing);
        let mut reply = Reply::new(200);
        reply.headers.append("ETag", "\"a\"");
        last = Last {
            success_ms: Some(1_700_000_000_120),
            validators: Validators::of(&reply, "/".to_owned()),
            kept: Some("[1]".to_owned()),
            ..Last::default()
        };
        let all = r#"{"success":"2023-11-14T22:13:20.120Z","success_ms":1700000000120,"#;
        let all = format!(r#"{all}"etag":"\"a\"","kept":[1]}}"#);
        assert_eq!(expr::value::shown(&last.value()), all);
    }

    #[test]
    fn what_was_written_with_other_settings_is_forgotten() {
        let last = Last {
            success_ms: Some(7),
            ..Last::default()
        };
        let record = to_record("a", &last);
        assert_eq!(of_record("a", &record), Some(last));
        assert_eq!(of_record("b", &record), None);
        assert_eq!(of_record("a", b"{"), None);
    }

    #[test]
    fn an_etag_comes_before_a_time_and_a_header_of_the_flow_before_both() {
        let mut reply = Reply::new(200);
        assert_eq!(Validators::of(&reply, String::new()), None);
        reply
            .headers
            .append("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        let time = Validators::of(&reply, String::new()).unwrap();
        reply.headers.append("ETag", "W/\"1\"");
        let both = Validators::of(&reply, String::new()).unwrap();
        let mut headers = Headers::new();
        assert!(both.put(&mut headers));
        assert_eq!(headers.get("If-None-Match"), Some(&b"W/\"1\""[..]));
        assert!(!time.put(&mut headers) && headers.get("If-Modified-Since").is_none());
        let mut headers = Headers::new();
        assert!(time.put(&mut headers) && headers.get("If-Modified-Since").is_some());
    }

    #[test]
    fn digests_are_texts_of_one_length() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(digest(b"").len(), 32);
    }
}
