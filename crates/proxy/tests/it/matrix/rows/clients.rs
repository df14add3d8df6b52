//! Clients that leave, stand still, or take their time.

use std::time::Duration;

use testkit::http1::Framing;
use tokio::time::timeout;

use super::super::backend::Script;
use super::super::client::{Client, End, Seen, Sending};
use super::super::row::{Check, Row, never_whole, status, whole};

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// It closes the connection.
    HangsUp,
    /// RST, or RST_STREAM.
    Resets,
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for leaving in [Leaving::HangsUp, Leaving::Resets] {
        let name = |what: &str| format!("client {leaving:?} {what}").to_lowercase();
        rows.push(before_head(Row::new(name("before the head")), leaving));
        rows.push(within_reply(Row::new(name("within the reply")), leaving));
        let row = Row::new(name("within its request"));
        rows.push(within_request(row, leaving, Sending::Length(100_000)));
    }
    rows.push(half_close());
    rows.push(slow_reader());
    rows.push(stalls());
    rows
}

/// The client has gone: the back end must have been told.
fn cancelled() -> Check {
    std::rc::Rc::new(|outcome| match outcome.arrivals {
        [arrival] if arrival.cancelled => Ok(()),
        other => Err(format!("the back end was not told: {other:?}")),
    })
}

async fn leave(call: &mut super::super::client::Call, leaving: Leaving) {
    match leaving {
        Leaving::HangsUp => call.hang_up().await,
        Leaving::Resets => call.reset().await,
    }
}

/// Waits until the back end knows that nobody waits any more.
async fn until_known(client: &Client, id: &str) -> Seen {
    let known = client
        .backend
        .wait(|it| it.arrivals(id).iter().any(|it| it.cancelled));
    let mut seen = Seen::default();
    if timeout(Duration::from_secs(3), known).await.is_err() {
        seen.problem = Some("the back end was not told that the client has left".to_owned());
    }
    seen
}

fn before_head(row: Row, leaving: Leaving) -> Row {
    row.backend(|it| Box::pin(async move { it.until_cancelled().await }))
        .client(move |client, script| {
            let ask = client.ask(&script);
            Box::pin(async move {
                let id = ask.id.clone();
                let mut call = client.begin(ask).await;
                client.backend.arrived(&id, 1).await;
                leave(&mut call, leaving).await;
                until_known(&client, &id).await
            })
        })
        .expect(cancelled())
}

fn within_reply(row: Row, leaving: Leaving) -> Row {
    row.backend(|it| {
        Box::pin(async move {
            it.read_all().await;
            it.head(200, &[], Framing::Length(20_000)).await;
            let content = it.content(10_000);
            it.body(&content).await;
            it.until_cancelled().await;
        })
    })
    .client(move |client, script| {
        let ask = client.ask(&script);
        Box::pin(async move {
            let id = ask.id.clone();
            let mut call = client.begin(ask).await;
            if client.column.collects() {
                // Nothing of the reply comes before all of it is there.
                client.backend.arrived(&id, 1).await;
            } else {
                call.content(5000).await;
            }
            leave(&mut call, leaving).await;
            until_known(&client, &id).await
        })
    })
    .expect(cancelled())
}

fn within_request(row: Row, leaving: Leaving, sending: Sending) -> Row {
    row.backend(|it| Box::pin(async move { it.until_cancelled().await }))
        .client(move |client, script| {
            let ask = client.ask(&script).sending(sending);
            Box::pin(async move {
                let id = ask.id.clone();
                let mut call = client.begin(ask).await;
                call.send_part(0, 50_000).await;
                if client.column.collects_request() {
                    // The back end learns of the request when it is whole.
                    leave(&mut call, leaving).await;
                    return Seen::default();
                }
                client.backend.arrived(&id, 1).await;
                leave(&mut call, leaving).await;
                until_known(&client, &id).await
            })
        })
        .expect(std::rc::Rc::new(never_whole))
}

/// A FIN behind a whole request is a client that has left (decision 0025): the back end is told,
/// and nothing comes back.
fn half_close() -> Row {
    Row::new("client half-closes behind its request")
        .only(|column| !column.client_h2)
        .backend(|it| Box::pin(async move { it.until_cancelled().await }))
        .client(|client, script| {
            let ask = client.ask(&script).sending(Sending::Length(1000));
            Box::pin(async move {
                let id = ask.id.clone();
                let mut call = client.begin(ask).await;
                call.send_part(0, 1000).await;
                // One that has not arrived yet may or may not come to the back end.
                client.backend.arrived(&id, 1).await;
                call.half_close().await;
                let problem = until_known(&client, &id).await.problem;
                let mut seen = call.finish().await;
                seen.problem = seen.problem.or(problem);
                seen.connection = None;
                seen
            })
        })
        .expect(cancelled())
        .and(|outcome| match outcome.seen.status {
            0 => Ok(()),
            _ => Err(outcome.seen.short()),
        })
}

fn slow_reader() -> Row {
    const LENGTH: usize = 6_000_000;
    Row::new("client reads 6 MB slowly while others go on")
        .backend(|it| Box::pin(async move { it.reply(200, LENGTH).await }))
        .client(|client, script: Script| {
            let ask = client.ask(&script);
            Box::pin(async move {
                let mut call = client.begin(ask).await;
                call.content(1000).await;
                let mut problem = None;
                for round in 1..=5 {
                    problem = problem.or(client.mark_anew().await.err());
                    call.content(round * 10_000).await;
                }
                let mut seen = call.finish().await;
                seen.problem = seen.problem.or(problem);
                seen
            })
        })
        .expect(whole(200, LENGTH))
}

fn stalls() -> Row {
    Row::new("client stalls within its request")
        .backend(|it| Box::pin(async move { it.until_cancelled().await }))
        .client(|client, script| {
            let ask = client.ask(&script).sending(Sending::Length(100_000));
            Box::pin(async move {
                let mut call = client.begin(ask).await;
                call.send_part(0, 50_000).await;
                let is_h2 = client.column.client_h2;
                let mut seen = call.finish().await;
                if !is_h2 || seen.end != End::Whole {
                    seen.connection = None;
                }
                seen
            })
        })
        .expect(status(&[408]))
        .and(never_whole)
}
