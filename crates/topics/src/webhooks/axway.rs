//! The headers of requests to subscriptions that were made in the manner of Axway Streams, beside
//! those that all webhooks get.

use message::Headers;

use super::subscriptions::record::Subscription;
use crate::event::EventId;
use crate::frame::{self, IdForm, Kind};

/// What bodies are, patches too: receivers made for Axway Streams know no other media type.
pub(super) const MEDIA_TYPE: &str = "application/json";

/// Says to which subscription a request is sent and of which topic, if the subscription was made in
/// that manner. `epoch` is that of the topic's log.
pub(super) fn name_subscription(
    subscription: &Subscription,
    (topic, epoch): (&str, Option<u64>),
    headers: &mut Headers,
) {
    if !subscription.is_of_axway() {
        return;
    }
    headers.append("X-Axway-Streams-Subscription-Id", subscription.uuid());
    if let Some(epoch) = epoch {
        let id = frame::topic_uuid(topic, epoch);
        headers.append("X-Axway-Streams-Topic-Id", id);
    }
}

/// Says which event a request has, where it has one, as streams of server-sent events do.
pub(super) fn name_event(topic: &str, event: Option<(EventId, Kind)>, headers: &mut Headers) {
    if let Some((id, kind)) = event {
        headers.append("X-Axway-Streams-Event-Id", event_id(topic, id));
        headers.append("X-Axway-Streams-Event-Type", kind.name());
    }
}

/// The id of an event as streams of server-sent events write it.
pub(super) fn event_id(topic: &str, id: EventId) -> String {
    let mut text = String::new();
    frame::write_id(IdForm::Axway, std::iter::once((topic, id)), &mut text);
    text
}
