//! The message that a file becomes, and what is written beside a file whose flow has failed.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use component::content::Format;
use component::intake::Incoming;
use component::source::has_succeeded;
use jiff::Timestamp;
use message::{Fault, Headers, Reply, Request};
use serde_json::{Value as Json, json};

use super::naming::media_type;
use crate::url_template::push_encoded;

/// The most letters of a reply that are written beside a failed file.
const SHOWN_MAX: usize = 1000;

/// A file as a message.
pub(super) struct FileMessage<'a> {
    pub name: &'a OsStr,
    pub body: Bytes,
    pub modified: SystemTime,
    pub decode: Option<Format>,
    /// How the last run of the flow has failed.
    failure: Option<Json>,
}

impl<'a> FileMessage<'a> {
    pub fn new(name: &'a OsStr, body: Bytes, modified: SystemTime, decode: Option<Format>) -> Self {
        Self {
            name,
            body,
            modified,
            decode,
            failure: None,
        }
    }

    /// What is written beside the file after so many failures.
    pub fn failure(&self, failed: u32) -> String {
        let mut failure = self.failure.clone().unwrap_or_else(|| json!({}));
        if let Some(members) = failure.as_object_mut() {
            members.insert("attempts".to_owned(), failed.into());
        }
        // The text leaves the process.
        let text = format!("{failure:#}\n");
        message::secret::redact(&text).into_owned()
    }
}

impl Incoming for FileMessage<'_> {
    fn id(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    fn request(&mut self, _: u32) -> Result<Request, Fault> {
        let mut headers = Headers::new();
        headers.append("Content-Type", media_type(self.name, self.decode));
        let mut encoded = String::new();
        push_encoded(&self.name.to_string_lossy(), &mut encoded);
        let modified = Timestamp::try_from(self.modified).unwrap_or(Timestamp::UNIX_EPOCH);
        let size = self.body.len().to_string();
        Ok(Request {
            path: format!("/{encoded}"),
            parameters: vec![
                ("name".into(), encoded),
                ("size".into(), size),
                ("modified".into(), modified.to_string()),
            ],
            ..Request::of_source("FILE", headers, self.body.clone())
        })
    }

    fn flow_ended(&mut self, result: &Result<Reply, Fault>) {
        self.failure = match result {
            _ if has_succeeded(result) => None,
            Ok(reply) => Some(json!({
                "kind": if reply.status < 500 { "4xx" } else { "5xx" },
                "status": reply.status,
                "step": null,
                "message": format!("the flow replied with status {}", reply.status),
                "cause": shown(reply.body.as_bytes()),
            })),
            Err(fault) => Some(json!({
                "kind": fault.name(),
                "status": fault.seen_status(),
                "step": fault.step.as_deref(),
                "message": fault.detail,
                "cause": fault.cause,
            })),
        };
    }
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
