//! What becomes of requests for subscriptions, and of those that were written to the disk.

use std::sync::Arc;

use crate::url::Url;

/// What has become of a subscription that was written to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It is active again.
    Active,
    /// It is active already.
    Known,
    /// Its lease is over, or its callback is none.
    Over,
}

/// What has become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is a subscription now.
    Subscribed,
    /// There is none any more.
    Unsubscribed,
    /// The callback has not confirmed it.
    Failed,
    /// It has, but there are too many subscriptions: it is to be told.
    Denied(Denial),
    /// It does not count any more: the answer came too late, or the subscription was ended.
    Over,
}

/// A subscriber that is to be told by `GET`, once, that it gets nothing (any more).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The topic.
    pub topic: Arc<str>,
    /// The callback.
    pub callback: Url,
    /// The query of the request.
    pub query: String,
}

impl Denial {
    pub(super) fn new(topic: &Arc<str>, callback: &Url, reason: Option<&str>) -> Self {
        let mut parameters = vec![("hub.mode", "denied"), ("hub.topic", &**topic)];
        parameters.extend(reason.map(|it| ("hub.reason", it)));
        Self {
            topic: Arc::clone(topic),
            query: callback.query_with(parameters),
            callback: callback.clone(),
        }
    }
}
