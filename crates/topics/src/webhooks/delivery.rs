//! How events are sent to an endpoint: in which order, how many at a time and in a request, how
//! often. Files and callers of the REST interface say it with the same keys, which are read here.

use std::time::Duration;

use config::{Report, Span, Spanned};
use serde::{Deserialize, Serialize};

use super::config::{BatchConfig, ByKey, EndpointConfig, Ordered, ThrottleConfig};
use super::envelope::CloudEvents;
use super::machine::{Batch, Order, Policy, Throttle};
use crate::bounds;
use crate::codes::BAD_WEBHOOK;
use crate::view::Mode;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The most bytes that a file may let a batch have.
pub(super) const BATCH_BYTES_MAX: u64 = 16 << 20;

/// How many requests are in progress at a time where order allows several and nothing is said.
const CONCURRENT: usize = 8;

/// How events are sent to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub order: Order,
    /// How many requests may be in progress at a time; 1 where all events are in order.
    pub concurrent: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            order: Order::All,
            concurrent: 1,
            batch: None,
            throttle: None,
        }
    }
}

impl Delivery {
    /// Reads it for an endpoint of this mode that stands there. Every problem is reported.
    pub fn read(config: &EndpointConfig, (mode, span): (Mode, Span), report: &mut Report) -> Self {
        let order = match config.ordered.as_ref().map(|it| it.value) {
            None | Some(Ordered::All(true)) => Order::All,
            Some(Ordered::All(false)) => Order::None,
            Some(Ordered::By(ByKey::ByKey)) => Order::ByKey,
        };
        check_order(config, (order, span), report);
        check_form(config, (order, mode, span), report);
        let concurrent = config.concurrent.as_ref();
        let concurrent = bounds::count("concurrent", concurrent, 1..=100, report);
        Self {
            order,
            concurrent: match order {
                Order::All => 1,
                Order::ByKey | Order::None => concurrent.map_or(CONCURRENT, |it| it as usize),
            },
            batch: config.batch.as_ref().map(|it| batch(&it.value, report)),
            throttle: config.throttle.as_ref().map(|it| throttle(it, report)),
        }
    }

    /// An endpoint's policy with the rest of this one.
    pub fn policy(self, of: &Policy) -> Policy {
        let Self {
            order,
            concurrent,
            batch,
            throttle,
        } = self;
        Policy {
            order,
            concurrent,
            batch,
            throttle,
            ..of.clone()
        }
    }
}

/// Refuses what `ordered` leaves no meaning for.
fn check_order(config: &EndpointConfig, (order, place): (Order, Span), report: &mut Report) {
    let mut refuse = |span: Span, message: &str, hint: &str| {
        report.error(BAD_WEBHOOK, span, message).hint(hint);
    };
    match (&config.key, order) {
        (Some(key), Order::All | Order::None) => {
            let message = "`key` has no effect without `ordered: by-key`";
            refuse(key.span, message, "add that, or leave `key` out");
        }
        (None, Order::ByKey) => {
            let message = "`ordered: by-key` needs a `key`";
            refuse(place, message, "such as `key: .customer`");
        }
        _ => {}
    }
    if let (Some(batch), Order::ByKey) = (&config.batch, order) {
        let message = "a batch has events of several keys, which would wait for each other";
        refuse(batch.span, message, "leave out `batch` or `ordered`");
    }
    if let (Some(concurrent), Order::All) = (&config.concurrent, order)
        && concurrent.value != 1
    {
        let message = "in order there is one request at a time";
        let hint = "leave `concurrent` out, or write `ordered: by-key` or `ordered: false`";
        refuse(concurrent.span, message, hint);
    }
}

/// Refuses what cannot be sent so.
fn check_form(
    config: &EndpointConfig,
    (order, mode, place): (Order, Mode, Span),
    report: &mut Report,
) {
    if mode == Mode::Patch && (order != Order::All || config.batch.is_some()) {
        let message = "patches apply to the document before them: they are sent one by one, in \
                       order";
        let span = config.mode.as_ref().map_or(place, |it| it.span);
        report
            .error(BAD_WEBHOOK, span, message)
            .hint("leave out `ordered` and `batch`, or write `mode: snapshot`");
    }
    if let (Some(said), Some(batch)) = (&config.cloudevents, &config.batch)
        && said.value == CloudEvents::Binary
    {
        let message = "events of a batch have no headers of their own";
        report
            .error(BAD_WEBHOOK, batch.span, message)
            .hint("write `cloudevents: structured`");
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A time in microseconds, from 1 ms to `most`.
pub(super) fn time_or(
    name: &'static str,
    value: Option<&Spanned<config::Duration>>,
    (usual, most): (Duration, Duration),
    report: &mut Report,
) -> u64 {
    let range = || Duration::from_millis(1)..=most;
    let time = value.map(|value| bounds::time(name, value, range(), report));
    micros(time.unwrap_or(usual))
}

fn batch(config: &BatchConfig, report: &mut Report) -> Batch {
    let count = bounds::count("count", config.count.as_ref(), 1..=1000, report);
    let range = 1 << 10..=BATCH_BYTES_MAX;
    let bytes = bounds::size("bytes", config.bytes.as_ref(), range, report);
    Batch {
        count: count.unwrap_or(100) as usize,
        bytes: bytes.unwrap_or(256 << 10) as usize,
        time: time_or(
            "time",
            config.time.as_ref(),
            (SECOND, 3600 * SECOND),
            report,
        ),
    }
}

fn throttle(config: &ThrottleConfig, report: &mut Report) -> Throttle {
    let requests = bounds::count("requests", Some(&config.requests), 1..=1_000_000, report);
    let requests = requests.unwrap_or(1).max(1);
    let burst = bounds::count("burst", config.burst.as_ref(), 1..=requests, report);
    Throttle {
        requests,
        per: time_or("per", config.per.as_ref(), (SECOND, DAY), report),
        burst: burst.unwrap_or(1).max(1),
    }
}
