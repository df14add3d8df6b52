//! What a worker does for a publication before it waits for its turn: checks, compact text, and
//! for snapshots the comparison with the last one, which is repeated only when another one comes
//! in between.

use std::sync::Arc;

use bytes::Bytes;
use message::Fault;

use crate::document::{Change, Document, diff};
use crate::keys::{self, Digest, Key};
use crate::log::Log;
use crate::settings::{Payload, Settings};
use crate::topic::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, KEY_MAX, Publication};

/// A publication that is sound.
#[derive(Debug)]
pub(crate) struct Item {
    pub body: Body,
    pub key: Option<Key>,
}

/// What is published.
#[derive(Debug)]
pub(crate) enum Body {
    /// An event's compact text.
    Event(Bytes),
    /// A snapshot.
    Snapshot(Arc<Document>, Option<Compared>),
}

/// What a snapshot has been compared with, and how it differs.
#[derive(Debug)]
pub(crate) struct Compared {
    pub with: Arc<Document>,
    pub change: Change,
}

impl Item {
    /// How many bytes it holds while it waits.
    pub fn size(&self) -> usize {
        let body = match &self.body {
            Body::Event(text) => text.len(),
            Body::Snapshot(document, _) => 2 * document.text().len(),
        };
        body + self.key.as_ref().map_or(0, |key| key.name.len()) + 128
    }
}

/// Checks publications, whose keys are those of this caller.
pub(crate) fn all(
    log: &Log,
    settings: &Settings,
    (publications, caller): (Vec<Publication>, Option<&Digest>),
) -> Result<Vec<Item>, Fault> {
    if publications.len() > BATCH_EVENTS_MAX {
        let detail = format!("more than {BATCH_EVENTS_MAX} events at once");
        return Err(Fault::invalid(detail).with_status(413));
    }
    let size: usize = publications.iter().map(|it| it.body.len()).sum();
    if size > BATCH_BYTES_MAX.max(settings.body_max) {
        let detail = "the events are too large to be published at once";
        return Err(Fault::invalid(detail).with_status(413));
    }
    let is_alone = publications.len() == 1;
    let mut last = (settings.payload == Payload::Snapshot)
        .then(|| log.document())
        .flatten();
    let mut items = Vec::with_capacity(publications.len());
    for (number, publication) in publications.into_iter().enumerate() {
        let item = one(settings, (publication, caller), &mut last);
        items.push(item.map_err(|fault| match is_alone {
            true => fault,
            false => numbered(fault, number + 1),
        })?);
    }
    Ok(items)
}

/// Says which event of several a failure is of.
pub(crate) fn numbered(mut fault: Fault, number: usize) -> Fault {
    fault.detail = format!("event {number}: {}", fault.detail).into();
    fault
}

fn one(
    settings: &Settings,
    (publication, caller): (Publication, Option<&Digest>),
    last: &mut Option<Arc<Document>>,
) -> Result<Item, Fault> {
    let Publication { body, key } = publication;
    if key
        .as_ref()
        .is_some_and(|key| key.is_empty() || key.len() > KEY_MAX)
    {
        let detail = format!("an idempotency key has 1 to {KEY_MAX} bytes");
        return Err(Fault::invalid(detail));
    }
    if body.len() > settings.body_max {
        let limit = config::ByteSize(settings.body_max as u64);
        let detail = format!("an event of this topic has at most {limit}");
        return Err(Fault::invalid(detail).with_status(413));
    }
    let document = Document::parse(&body)
        .map_err(|error| Fault::invalid(format!("the event is not JSON: {error}")))?;
    let key = key.map(|given| Key::of(keys::scoped(given, caller), document.text()));
    let body = match settings.payload {
        Payload::Event => Body::Event(document.text().clone()),
        Payload::Snapshot => {
            let document = Arc::new(document);
            let compared = last.take().map(|with| Compared {
                change: diff(&with, &document),
                with,
            });
            *last = Some(match &compared {
                Some(same) if same.change == Change::Nothing => Arc::clone(&same.with),
                _ => Arc::clone(&document),
            });
            Body::Snapshot(document, compared)
        }
    };
    Ok(Item { body, key })
}
