//! Subscribers of a WebSub hub: all of them ask, and the sink confirms.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::case::Case;
use super::flow;
use super::sink::Sink;
use crate::bench::ask::{Connection, form, metric, side_by_side};

/// So many subscribers ask before their confirmations are waited for: fewer than may wait with a
/// hub at once.
const PORTION: usize = 2000;
/// So many connections ask at a time, each a caller of its own.
const CALLERS: usize = 16;
/// How long the last of a portion may take to be counted, once it is confirmed.
const COUNTED_MAX: Duration = Duration::from_secs(10);

/// Subscribes all subscribers of a case, and returns how long it took until all were confirmed.
///
/// # Errors
/// When the hub refuses one, or does not ask or count it.
pub(super) fn subscribe(
    case: &Case,
    hub: SocketAddr,
    admin: SocketAddr,
    sink: &mut Sink,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let to = sink.address;
    let mut done = 0;
    while done < case.endpoints {
        let end = (done + PORTION).min(case.endpoints);
        side_by_side(CALLERS, done..end, |caller, own| {
            ask(case, hub, to, caller, own)
        })?;
        sink.wait_verified(end as u64)?;
        done = end;
    }
    let mut metrics = Connection::open(admin, None)?;
    let confirmed = Instant::now();
    loop {
        let text = String::from_utf8(metrics.get("/metrics")?.body_of(200)?)?;
        let count = metric(&text, "intertie_websub_hub_subscriptions").unwrap_or(0.0);
        if count >= case.endpoints as f64 {
            return Ok(begun.elapsed());
        }
        anyhow::ensure!(
            confirmed.elapsed() < COUNTED_MAX,
            "the hub has {count} of {} subscriptions",
            case.endpoints
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn ask(
    case: &Case,
    hub: SocketAddr,
    sink: SocketAddr,
    caller: usize,
    own: impl Iterator<Item = usize>,
) -> anyhow::Result<()> {
    let mut connection = Connection::open_from(caller, hub)?;
    let topic = format!("http://{hub}{}", flow::topic_path(1));
    for endpoint in own {
        let callback = flow::url(case, sink, endpoint);
        let secret = flow::secret(case.kind, &flow::segment(endpoint));
        let body = form(&[
            ("hub.mode", "subscribe"),
            ("hub.topic", &topic),
            ("hub.callback", &callback),
            ("hub.secret", &secret),
        ]);
        let fields = "Content-Type: application/x-www-form-urlencoded\r\n";
        let answer = connection.post("/hub", fields, &body)?;
        let asked = answer.body_of(202);
        asked.with_context(|| format!("subscriber {endpoint}"))?;
    }
    Ok(())
}
