//! Webhooks that callers make by REST, and to which nothing is sent: what they take of memory, and
//! how long a start takes with all of them. In the end each gets one event.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::case::Case;
use super::flow;
use crate::bench::ask::{Connection, metric, side_by_side};
use crate::stamp;

/// So many connections make webhooks at a time.
const CALLERS: usize = 32;
/// How long a start may take until all webhooks are known.
const START_MAX: Duration = Duration::from_secs(120);
/// How often the metrics are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// Makes a webhook for each endpoint, with a token.
///
/// # Errors
/// When one is refused.
pub(super) fn make(
    case: &Case,
    engine: SocketAddr,
    sink: SocketAddr,
    token: &str,
) -> anyhow::Result<()> {
    side_by_side(CALLERS, 0..case.endpoints, |_, own| {
        make_some(case, engine, sink, token, own)
    })
}

fn make_some(
    case: &Case,
    engine: SocketAddr,
    sink: SocketAddr,
    token: &str,
    own: impl Iterator<Item = usize>,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(engine, None)?;
    let path = format!("{}/webhooks", flow::topic_path(1));
    let fields = format!("Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n");
    for endpoint in own {
        let url = flow::url(case, sink, endpoint);
        let body = serde_json::json!({ "url": url }).to_string();
        let made = connection.post(&path, &fields, &body)?.body_of(201);
        made.with_context(|| format!("webhook {endpoint}"))?;
    }
    Ok(())
}

/// Waits until the engine knows so many webhooks. Its admin port may not be there yet.
///
/// # Errors
/// When it does not.
pub(super) fn wait_known(admin: SocketAddr, count: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let known = known(admin).unwrap_or(0.0);
        if known >= count as f64 {
            return Ok(());
        }
        anyhow::ensure!(
            begun.elapsed() < START_MAX,
            "{known} of {count} webhooks are known two minutes after the start"
        );
        thread::sleep(LOOK);
    }
}

/// How many webhooks are active, by the metrics.
fn known(admin: SocketAddr) -> anyhow::Result<f64> {
    let answer = Connection::open(admin, None)?.get("/metrics")?;
    let text = String::from_utf8(answer.body_of(200)?)?;
    let count = metric(&text, "intertie_webhook_subscriptions_active");
    count.context("the metrics do not say how many webhooks there are")
}

/// Publishes one event.
///
/// # Errors
/// When it is refused.
pub(super) fn publish(case: &Case, engine: SocketAddr) -> anyhow::Result<()> {
    let mut body = Vec::new();
    stamp::write(1, stamp::now(), case.bytes, &mut body);
    let fields = "Content-Type: application/json\r\n";
    let mut connection = Connection::open(engine, None)?;
    let answer = connection.post(&flow::topic_path(1), fields, &String::from_utf8(body)?)?;
    answer.body_of(200).map(drop)
}
