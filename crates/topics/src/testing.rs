//! What tests of topics share.

use std::sync::Arc;

use bytes::Bytes;
use component::state::States;

use crate::hub::Hub;
use crate::settings::{Durability, Payload, Settings};
use crate::topic::{Publication, Topic};

/// A topic in memory that is open.
pub(crate) async fn memory(payload: Payload) -> Arc<Topic> {
    with(Settings {
        payload,
        durability: Durability::Memory,
        ..Settings::default()
    })
    .await
}

/// A topic of these settings that is open.
pub(crate) async fn with(settings: Settings) -> Arc<Topic> {
    let states = States::default();
    let hub = Hub::of(&states);
    let topic = hub.declare("test", settings, &states);
    hub.open().await.unwrap();
    topic
}

/// What is published, without a key.
pub(crate) fn publication(body: &str) -> Publication {
    Publication {
        body: Bytes::copy_from_slice(body.as_bytes()),
        key: None,
    }
}
