//! A stream of events from its first byte to its last.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::access::Validity;
use component::handler::{LocalFuture, Services};
use component::stream::{Client, Feed, StopReason};

use crate::branch::{Branch, TICK};
use crate::caller_limits::{STREAM_TIME, Subscriber};
use crate::channel::{ChannelKey, Pace, StreamEnd};
use crate::counts::Place;
use crate::frame::{self, IdForm, Wire};
use crate::gzip;
use crate::join::{Joining, Start};
use crate::reader::Reader;
use crate::stream;
use crate::view::View;

/// A stream of events that is about to begin.
pub(super) struct SseFeed {
    pub branches: Vec<Rc<Branch>>,
    pub views: Vec<View>,
    pub starts: Vec<Start>,
    pub ids: IdForm,
    pub gzip: bool,
    pub pace: Pace,
    pub retry: Duration,
    pub max_time: Option<Duration>,
    /// Whether that is the time that the caller's plan allows.
    pub ends_by_plan: bool,
    /// How long the client's credential lets it go on.
    pub validity: Option<Arc<Validity>>,
    pub places: Vec<Place>,
}

impl SseFeed {
    /// Holds what the caller has been given, and for no longer than its plan allows.
    pub fn limit(&mut self, subscriber: Subscriber) {
        if let Some(time) = subscriber.stream_time
            && self.max_time.is_none_or(|most| time < most)
        {
            (self.max_time, self.ends_by_plan) = (Some(time), true);
        }
        if let Some(first) = self.places.first_mut() {
            first.hold(subscriber.into_held());
        }
    }

    /// Whether it is compressed.
    pub fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// Opens the stream: the subscriber is in the ring then, unless the stream has to end already.
    async fn begin(
        self,
        client: &mut dyn Client,
        random: f64,
    ) -> Option<(Reader, Vec<Place>, Option<StreamEnd>)> {
        for branch in &self.branches {
            // The head has been sent: what fails now ends the stream, and the client comes again.
            if let Err(fault) = branch.ready().await {
                tracing::warn!(target: "topics", topic = branch.name(), %fault, "subscribe");
                return None;
            }
        }
        let chunked = client.is_chunked();
        let key = ChannelKey {
            wire: Wire::Sse {
                chunked,
                gzip: self.gzip,
            },
            ids: self.ids,
            views: self.views,
        };
        let channel = Branch::channel(&self.branches, key, self.pace)?;
        let ticks = self.max_time.map(|time| in_ticks(time, random));
        let mut reader = Reader::new(&channel, ticks);
        reader.hold_to(self.validity);
        if self.gzip {
            let mut head = gzip::HEAD.to_vec();
            if chunked {
                frame::enclose_chunk(0, &mut head);
            }
            if let Some(end) = stream::write_own(&mut reader, client, Bytes::from(head))
                .await
                .ok()?
            {
                return Some((reader, self.places, Some(end)));
            }
        }
        let opening = format!("retry: {}\n", self.retry.as_millis());
        let mut opening = opening.into_bytes();
        if self.ids == IdForm::Axway {
            opening.clear();
        }
        let joining = Joining::new(&channel, self.starts, opening);
        let end = stream::join(&mut reader, client, joining).await.ok()?;
        Some((reader, self.places, end))
    }
}

/// A time as ticks, randomly somewhat shorter so that not all who came together go together.
pub(crate) fn in_ticks(time: Duration, random: f64) -> u32 {
    let shorter = time.mul_f64(1.0 - random.clamp(0.0, 1.0) / 10.0);
    let ticks = shorter.as_millis() / TICK.as_millis();
    u32::try_from(ticks).unwrap_or(u32::MAX / 2).max(1)
}

impl Feed for SseFeed {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        let (retry, ends_by_plan) = (self.retry, self.ends_by_plan);
        Box::pin(async move {
            let mut client = client;
            // What is needed only at the beginning is not kept for as long as the stream lasts.
            let begun = Box::pin(self.begin(&mut *client, services.random())).await;
            let Some((mut reader, places, end)) = begun else {
                return;
            };
            let end = match end {
                Some(end) => Some(end),
                None => stream::deliver(&mut reader, &mut *client).await,
            };
            if let Some(end) = end {
                let mut words = Vec::new();
                match end {
                    StreamEnd::Expired | StreamEnd::Revoked => {
                        let reason = end.credential().unwrap_or(StopReason::Expired);
                        reader.channel().write_invalid(reason, &mut words);
                    }
                    StreamEnd::Time if ends_by_plan => {
                        words = format!("event: limit\ndata: {STREAM_TIME}\n\n").into_bytes();
                        words.extend(last_words(retry, services.random()));
                    }
                    _ => words = last_words(retry, services.random()),
                }
                Box::pin(stream::finish(&reader, &mut *client, end, words)).await;
            }
            drop(places);
        })
    }
}

/// Tells a client when to come again: not all at once.
fn last_words(retry: Duration, random: f64) -> Vec<u8> {
    let time = retry.mul_f64(0.5 + random.clamp(0.0, 1.0));
    format!("retry: {}\n\n", time.as_millis()).into_bytes()
}
