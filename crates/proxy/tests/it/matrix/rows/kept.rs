//! Kept connections that end, and requests that are refused unread: what is sent again, and what is
//! not (RFC 9110, section 9.2.2; RFC 9112, section 9.3.1; RFC 9113, sections 6.8 and 8.7).

use std::time::Duration;

use testkit::http2::code;
use tokio::time::sleep;

use super::super::client::Sending;
use super::super::column::Target;
use super::super::row::{Outcome, Row, came, either, status, uploaded, whole};

pub fn rows() -> Vec<Row> {
    let mut rows = closed();
    rows.extend(refused());
    rows
}

/// The client's request comes when a connection is kept.
fn warm(row: Row, sending: Sending) -> Row {
    row.client(move |client, script| {
        let mut ask = client.ask(&script);
        if sending != Sending::Nothing {
            ask = ask.sending(sending);
        }
        Box::pin(async move {
            let first = client.ask(&super::super::backend::marker());
            let mut seen = client.exchange(first).await;
            match seen.connection.take() {
                Some(connection) if seen.status == 200 => client.exchange_on(connection, ask).await,
                _ => seen,
            }
        })
    })
}

fn closed() -> Vec<Row> {
    let closing = |name: &str, sending: Sending, reads: usize, resets: bool| {
        let row = Row::new(name).backend(move |it| {
            Box::pin(async move {
                if it.attempt == 0 {
                    it.read_exactly(reads).await;
                    match resets {
                        true => it.reset_connection().await,
                        false => it.close().await,
                    }
                }
                it.read_all().await;
                it.reply(200, 50).await;
            })
        });
        warm(row, sending)
    };
    let tight = |name: &str, length: usize| {
        closing(name, Sending::Length(length), 1, true)
            .target(Target::Tight)
            .expect(status(&[502]))
            .and(came(1))
    };
    let not_twice = |row: Row| row.expect(status(&[502])).and(came(1));
    vec![
        closing(
            "kept connection closed under a GET",
            Sending::Nothing,
            0,
            false,
        )
        .and(came(2)),
        closing(
            "kept connection reset under a GET",
            Sending::Nothing,
            0,
            true,
        )
        .and(came(2)),
        not_twice(closing(
            "kept connection closed under a POST",
            Sending::Length(1000),
            1000,
            false,
        )),
        not_twice(closing(
            "kept connection reset under a POST of 3 MB",
            Sending::Length(3_000_000),
            100_000,
            true,
        )),
        tight(
            "kept connection reset under a stalled POST of 20 KB",
            20_000,
        ),
        tight(
            "kept connection reset under a stalled POST of 200 KB",
            200_000,
        ),
        Row::new("kept connection closed before a POST")
            .posts(Sending::Length(1000))
            .client(|client, script| {
                let ask = client.ask(&script).sending(Sending::Length(1000));
                Box::pin(async move {
                    let closes = super::super::backend::script(|it| {
                        Box::pin(async move {
                            it.reply(200, 50).await;
                            it.flush().await;
                            it.close().await;
                        })
                    });
                    let first = client.ask(&closes);
                    let mut seen = client.exchange(first).await;
                    // The end of the connection is with the engine's kernel by then.
                    sleep(Duration::from_millis(20)).await;
                    match seen.connection.take() {
                        Some(connection) => client.exchange_on(connection, ask).await,
                        None => seen,
                    }
                })
            })
            .and(uploaded(1000))
            .and(came(1)),
    ]
}

/// How a back end says that it has not looked at a request.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// RST_STREAM with REFUSED_STREAM.
    Stream,
    /// GOAWAY with a last stream below the request's.
    GoAway,
    /// The same, and the connection ends.
    GoAwayAndClose,
}

fn refused() -> Vec<Row> {
    let mut rows = Vec::new();
    for refusal in [Refusal::Stream, Refusal::GoAway, Refusal::GoAwayAndClose] {
        let name = |what: &str| format!("{what} refused by {refusal:?}");
        let row = |what: &str| refusing(Row::new(name(what)), refusal);
        rows.push(row("GET").and(came(2)));
        for (name, sending) in [
            ("POST with length", Sending::Length(2000)),
            ("POST in chunks", Sending::Chunks(2000, 300)),
        ] {
            // All of it comes with the head: it is at hand, and has to be sent again.
            let row = row(name).asks(move |ask| {
                let mut ask = ask.sending(sending);
                ask.is_at_once = true;
                if matches!(sending, Sending::Chunks(..)) {
                    ask.trailers = vec![("x-sum", "17")];
                }
                ask
            });
            rows.push(row.and(uploaded(2000)).and(came(2)).and(trailers_or_none));
        }
        for (name, sending) in [
            ("POST of 20 KB with length", Sending::Length(20_000)),
            ("POST of 20 KB in chunks", Sending::Chunks(20_000, 3000)),
        ] {
            // It may come in pieces: it is sent again whole, or not at all.
            let row = row(name).asks(move |ask| {
                let mut ask = ask.sending(sending);
                if matches!(sending, Sending::Chunks(..)) {
                    ask.trailers = vec![("x-sum", "17")];
                }
                ask
            });
            let row = row.expect(either(whole(200, 50), status(&[502, 503])));
            rows.push(row.and(|outcome| match outcome.seen.status {
                200 => uploaded(20_000)(outcome).and_then(|()| trailers_or_none(outcome)),
                _ => came(1)(outcome),
            }));
        }
        // More than is kept at hand: sent again whole, or not at all.
        rows.push(
            row("POST of 3 MB")
                .posts(Sending::Length(3_000_000))
                .expect(either(whole(200, 50), status(&[502, 503]))),
        );
    }
    rows
}

/// What was sent in chunks has its trailer, too, but for a body that was collected.
fn trailers_or_none(outcome: &Outcome<'_>) -> Result<(), String> {
    let last = outcome.arrivals.last();
    let has_one = last.is_some_and(|it| it.trailers.len() == 1);
    match has_one || outcome.column.collects_request() || !outcome.seen.sent_trailers {
        true => Ok(()),
        false => Err("the trailer is lost".to_owned()),
    }
}

fn refusing(row: Row, refusal: Refusal) -> Row {
    let row = row.only(|column| column.backend_h2);
    row.backend(move |it| {
        Box::pin(async move {
            if it.attempt > 0 {
                it.read_all().await;
                return it.reply(200, 50).await;
            }
            let stream = it.stream();
            let Some(connection) = it.h2().cloned() else {
                return;
            };
            // All of it has come, in case it is small.
            it.read_exactly(20_000).await;
            match refusal {
                Refusal::Stream => connection.reset(stream, code::REFUSED_STREAM),
                _ => connection.go_away(stream.saturating_sub(2), code::NO_ERROR),
            }
            connection.flush().await;
            if matches!(refusal, Refusal::GoAwayAndClose) {
                return it.close().await;
            }
            it.forget();
        })
    })
}
