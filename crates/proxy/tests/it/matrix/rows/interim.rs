//! Interim replies and expectations (RFC 9110, sections 10.1.1 and 15.2), and 101.

use std::time::Duration;

use tokio::time::timeout;

use super::super::client::{End, Sending};
use super::super::row::{Row, never_whole, status, uploaded, whole};

const LENGTH: usize = 20_000;

pub fn rows() -> Vec<Row> {
    let mut rows = expectations();
    rows.extend(interims());
    rows
}

/// A client that waits for 100 this long before it sends its body all the same.
fn expecting(name: &str, patience: u64) -> Row {
    Row::new(name).client(move |client, script| {
        let ask = client.ask(&script).sending(Sending::Length(LENGTH));
        let ask = ask.with("Expect", "100-continue");
        Box::pin(async move {
            let mut call = client.begin(ask).await;
            let wait = timeout(Duration::from_millis(patience), call.next_head());
            let _ = wait.await;
            if call.seen.status == 0 && call.seen.end == End::Open {
                call.upload();
            }
            let sends_nothing = call.seen.status != 0;
            let mut seen = call.finish().await;
            if sends_nothing && !client.column.client_h2 {
                // The body that was announced has not been sent.
                seen.connection = None;
            }
            seen
        })
    })
}

fn expectations() -> Vec<Row> {
    vec![
        expecting("Expect honoured", 3000)
            .backend(|it| {
                Box::pin(async move {
                    it.interim(100, &[]).await;
                    it.read_all().await;
                    it.reply(200, 50).await;
                })
            })
            .and(uploaded(LENGTH))
            .and(|outcome| match outcome.seen.interims.as_slice() {
                [100] => Ok(()),
                // Its own, for it reads the body, and the back end's (RFC 9110, section 15.2).
                [100, 100] if outcome.column.collects_request() && outcome.column.client_h2 => {
                    Ok(())
                }
                other => Err(format!("interim replies {other:?}")),
            }),
        // As Caddy does in front of a back end that says it too.
        expecting("Expect honoured twice", 3000)
            .backend(|it| {
                Box::pin(async move {
                    it.interim(100, &[]).await;
                    it.interim(100, &[]).await;
                    it.read_all().await;
                    it.reply(200, 50).await;
                })
            })
            .and(uploaded(LENGTH))
            .and(|outcome| match outcome.seen.interims.as_slice() {
                [100] => Ok(()),
                // Clients of HTTP/1.1 take a second one for the reply.
                [100, 100, ..] if outcome.column.client_h2 => Ok(()),
                other => Err(format!("interim replies {other:?}")),
            }),
        expecting("Expect refused by 417", 3000)
            .backend(|it| {
                Box::pin(async move {
                    it.reply(417, 50).await;
                    it.flush().await;
                })
            })
            .expect(whole(417, 50))
            .and(|outcome| match outcome.column.collects_request() {
                // What reads the body itself says that it is to be sent.
                true => Ok(()),
                false => never_whole(outcome),
            }),
        expecting("Expect ignored", 100)
            .backend(|it| {
                Box::pin(async move {
                    it.read_all().await;
                    it.reply(200, 50).await;
                })
            })
            .and(uploaded(LENGTH)),
    ]
}

fn interims() -> Vec<Row> {
    let replies = |name: &str, statuses: &'static [u16], times: usize| {
        Row::new(name).backend(move |it| {
            Box::pin(async move {
                it.read_all().await;
                for _ in 0..times {
                    for status in statuses {
                        it.interim(*status, &[("link", "</a>; rel=preload")]).await;
                    }
                }
                it.reply(200, 50).await;
            })
        })
    };
    let unasked = |name: &str, then_speaks: bool| {
        Row::new(name).backend(move |it| {
            Box::pin(async move {
                it.read_all().await;
                it.interim(101, &[]).await;
                if then_speaks {
                    it.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
                        .await;
                }
                it.until_cancelled().await;
            })
        })
    };
    vec![
        replies("103 and 200", &[103], 1),
        replies("103 and 200 to a POST", &[103], 1)
            .posts(Sending::Length(LENGTH))
            .and(uploaded(LENGTH)),
        replies("several interim replies and 200", &[100, 102, 103], 1),
        replies("too many interim replies", &[103], 40).expect(status(&[502])),
        // One that has asked for no upgrade cannot take it (RFC 9110, section 15.2.2); HTTP/2 has
        // no such status at all (RFC 9113, section 8.6).
        unasked("101 unasked", false).expect(status(&[502])),
        unasked("101 unasked with bytes behind it", true)
            .only(|column| !column.backend_h2)
            .expect(status(&[502])),
    ]
}
