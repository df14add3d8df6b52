//! The message that a file becomes, and what its flow's result means for the file.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use component::content::Format;
use component::source::has_succeeded;
use jiff::Timestamp;
use message::{Fault, Headers, Reply, Request};

use super::disk::Verdict;
use super::naming::media_type;
use crate::url_template::push_encoded;

/// The most letters of a reply that are written beside a failed file.
const SHOWN_MAX: usize = 1000;

/// The message.
pub(super) fn request(
    name: &OsStr,
    body: Bytes,
    modified: SystemTime,
    decode: Option<Format>,
) -> Request {
    let mut headers = Headers::new();
    headers.append("Content-Type", media_type(name, decode));
    let mut encoded = String::new();
    push_encoded(&name.to_string_lossy(), &mut encoded);
    let modified = Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH);
    let size = body.len().to_string();
    Request {
        path: format!("/{encoded}"),
        parameters: vec![
            ("name".into(), encoded),
            ("size".into(), size),
            ("modified".into(), modified.to_string()),
        ],
        ..Request::of_source("FILE", headers, body)
    }
}

/// What a flow's result means for its file.
pub(super) fn verdict(result: &Result<Reply, Fault>) -> Verdict {
    let why = match result {
        _ if has_succeeded(result) => return Verdict::Done,
        Ok(reply) => serde_json::json!({
            "kind": if reply.status < 500 { "4xx" } else { "5xx" },
            "status": reply.status,
            "step": null,
            "message": format!("the flow replied with status {}", reply.status),
            "cause": shown(reply.body.as_bytes()),
        }),
        Err(fault) => serde_json::json!({
            "kind": fault.name(),
            "status": fault.seen_status(),
            "step": fault.step.as_deref(),
            "message": fault.detail,
            "cause": fault.cause,
        }),
    };
    // The text leaves the process.
    let why = format!("{why:#}\n");
    Verdict::Failed(message::secret::redact(&why).into_owned())
}

/// The beginning of a reply's text.
fn shown(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?.trim_end();
    (!text.is_empty()).then(|| text.chars().take(SHOWN_MAX).collect())
}

/// A time of day as it stands in names of files.
pub(super) fn stamp(wall: Duration) -> String {
    let seconds = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}
