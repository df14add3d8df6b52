//! Replies that end before the request does (RFC 9112, section 9.3; RFC 9113, section 8.1).

use std::time::Duration;

use testkit::http1::Framing;
use tokio::time::sleep;

use super::super::client::Sending;
use super::super::column::Target;
use super::super::row::{Row, broken, either, status, whole};

/// What the back end does about the rest of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It reads no more before the client has the reply.
    Stops,
    /// It reads on, slowly.
    Drains,
    /// It closes the connection.
    Closes,
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let sizes = [
        (100, "100 B"),
        (100_000, "100 KB"),
        (3_000_000, "3 MB"),
        (9_000_000, "9 MB"),
    ];
    for (number, (size, name)) in sizes.into_iter().enumerate() {
        for then in [Then::Stops, Then::Drains, Then::Closes] {
            let code = [401, 413][number % 2];
            let name = format!("early {code} to {name}, back end {then:?}").to_lowercase();
            rows.push(early(Row::new(name), code, then).posts(Sending::Length(size)));
        }
    }
    let chunks = Row::new("early 401 to 3 MB in chunks, back end stops");
    rows.push(early(chunks, 401, Then::Stops).posts(Sending::Chunks(3_000_000, 10_000)));
    for (size, name) in [(20_000, "20 KB"), (60_000, "60 KB"), (3_000_000, "3 MB")] {
        for then in [Then::Stops, Then::Closes] {
            let name = format!("early 401 to a stalled write of {name}, back end {then:?}");
            let row = early(Row::new(name.to_lowercase()), 401, then);
            let row = row.target(Target::Tight).asks(move |ask| {
                let mut ask = ask.sending(Sending::Length(size));
                ask.is_at_once = true;
                ask
            });
            // Closing may take away what the back end's kernel has not sent of the reply yet.
            let lost = either(whole(401, 200), status(&[502]));
            rows.push(match then {
                Then::Closes => row.expect(lost),
                _ => row,
            });
        }
    }
    rows.push(
        Row::new("early 200 that breaks off")
            .posts(Sending::Length(3_000_000))
            .backend(|it| {
                Box::pin(async move {
                    it.head(200, &[], Framing::Length(5000)).await;
                    let content = it.content(1000);
                    it.body(&content).await;
                    it.reset().await;
                })
            })
            // The engine may see the reset before it has read the head.
            .expect(either(broken(200, &[502]), status(&[502]))),
    );
    rows
}

fn early(row: Row, code: u16, then: Then) -> Row {
    row.backend(move |it| {
        Box::pin(async move {
            it.reply(code, 200).await;
            it.flush().await;
            match then {
                Then::Stops => it.until_released().await,
                Then::Drains => {
                    while it.read(256 * 1024).await.is_some() {
                        sleep(Duration::from_millis(1)).await;
                    }
                }
                Then::Closes => it.close().await,
            }
        })
    })
    .expect(whole(code, 200))
}
