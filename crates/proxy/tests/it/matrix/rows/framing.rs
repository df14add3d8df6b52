//! Heads and lengths that are odd or wrong.

use std::time::Duration;

use testkit::http1::Framing;
use testkit::http2::{flag, frame, kind};
use tokio::time::sleep;

use super::super::client::{End, Sending};
use super::super::column::Target;
use super::super::row::{Check, Row, broken, either, never_whole, status, whole};

pub fn rows() -> Vec<Row> {
    let mut rows = without_content();
    rows.extend(large_heads());
    rows.extend(lengths());
    rows.extend(extra_bytes());
    rows.extend(requests());
    rows.extend(framing_trailers());
    rows
}

/// Trailers that say where a message ends or whom it is for: they never come to the other side, and
/// the message is not taken for a whole one (RFC 9110, section 6.5.1).
fn framing_trailers() -> Vec<Row> {
    const FIELDS: [(&str, &str); 3] = [
        ("host", "other.example"),
        ("content-length", "3"),
        ("transfer-encoding", "chunked"),
    ];
    let request = |(name, value): (&'static str, &'static str)| {
        Row::new(format!("POST with `{name}` as a trailer"))
            .asks(move |ask| {
                let mut ask = ask.sending(Sending::Chunks(5000, 700));
                ask.trailers = vec![("x-sum", "17"), (name, value)];
                ask
            })
            .expect(std::rc::Rc::new(|outcome| {
                // A stream error (RFC 9113, section 8.1.1), or a reply that says so.
                let seen = outcome.seen;
                let is_so = matches!(seen.status, 0 | 400);
                is_so.then_some(()).ok_or_else(|| seen.short())
            }))
            .and(never_whole)
    };
    let reply = |(name, value): (&'static str, &'static str)| {
        Row::new(format!("reply with `{name}` as a trailer"))
            .asks(|ask| ask.with("TE", "trailers"))
            .backend(move |it| {
                Box::pin(async move {
                    it.head(200, &[("trailer", "x-sum")], Framing::Chunked)
                        .await;
                    let content = it.content(50_000);
                    it.body(&content).await;
                    it.end(&[("x-sum", "17"), (name, value)]).await;
                })
            })
            .expect(broken(200, &[502]))
            .and(|outcome| match outcome.seen.trailers.as_slice() {
                [] => Ok(()),
                trailers => Err(format!("trailers are {trailers:?}")),
            })
    };
    let replies = FIELDS.into_iter().map(reply);
    FIELDS.into_iter().map(request).chain(replies).collect()
}

fn without_content() -> Vec<Row> {
    let bare = |name: &str, status: u16| {
        Row::new(name)
            .backend(move |it| {
                Box::pin(async move {
                    it.read_all().await;
                    it.head(status, &[("content-length", "5")], Framing::None)
                        .await;
                })
            })
            .expect(whole(status, 0))
    };
    vec![
        bare("204 with length", 204).and(|outcome| {
            // RFC 9110, section 8.6: such a reply has no Content-Length.
            match outcome.seen.header("content-length") {
                None => Ok(()),
                Some(length) => Err(format!("204 with content-length {length}")),
            }
        }),
        bare("304 with length", 304),
        Row::new("200 with a length of 0")
            .backend(|it| {
                Box::pin(async move {
                    it.read_all().await;
                    it.head(200, &[("content-length", "0")], Framing::None)
                        .await;
                })
            })
            .expect(whole(200, 0))
            .and(|outcome| match outcome.seen.header("content-length") {
                Some("0") => Ok(()),
                other => Err(format!("content-length is {other:?}")),
            }),
        bare("HEAD", 200)
            .asks(|ask| ask.method("HEAD"))
            .and(|outcome| {
                // A reply that is made anew has the length of what was collected.
                match outcome.seen.header("content-length") {
                    Some("5") => Ok(()),
                    _ if outcome.column.collects() => Ok(()),
                    other => Err(format!("content-length is {other:?}")),
                }
            }),
        bare("GET forwarded as HEAD", 200).target(Target::AsHead),
        bare("POST forwarded as HEAD", 200)
            .target(Target::AsHead)
            .posts(Sending::Length(1000)),
    ]
}

fn large_heads() -> Vec<Row> {
    let with = |name: &str, count: usize, size: usize| {
        Row::new(name)
            .backend(move |it| {
                Box::pin(async move {
                    let names: Vec<String> = (0..count).map(|at| format!("x-{at}")).collect();
                    let value = "v".repeat(size);
                    let fields: Vec<(&str, &str)> =
                        names.iter().map(|name| (&**name, &*value)).collect();
                    it.read_all().await;
                    it.head(200, &fields, Framing::Length(50)).await;
                    let content = it.content(50);
                    it.body(&content).await;
                    it.end(&[]).await;
                    it.flush().await;
                })
            })
            .expect(status(&[502]))
    };
    vec![
        with("reply with 131 fields", 131, 10),
        with("reply head of 64 KB", 8, 8000),
        with("reply with 90 fields", 90, 10).expect(whole(200, 50)),
    ]
}

/// A reply that cannot be taken for a whole one with these bytes.
fn refused() -> Check {
    either(status(&[502]), broken(200, &[502]))
}

fn lengths() -> Vec<Row> {
    let fields = |name: &str, fields: &'static [(&'static str, &'static str)]| {
        Row::new(name)
            .backend(move |it| {
                Box::pin(async move {
                    it.read_all().await;
                    // No framing of its own, but over HTTP/2 a frame with content.
                    it.head(200, fields, Framing::UntilClose).await;
                    let content = it.content(5);
                    it.body(&content).await;
                    it.end(&[]).await;
                    it.flush().await;
                    it.until_released().await;
                    it.close().await;
                })
            })
            .expect(refused())
    };
    vec![
        fields(
            "reply with the same length twice",
            &[("content-length", "5"), ("content-length", "5")],
        )
        // They may be taken for one (RFC 9110, section 8.6).
        .expect(either(refused(), whole(200, 5))),
        fields(
            "reply with two lengths",
            &[("content-length", "5"), ("content-length", "6")],
        ),
        fields(
            "reply with length and Transfer-Encoding",
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
        ),
        fields(
            "reply with a length that is no number",
            &[("content-length", "5x")],
        ),
        fields("reply shorter than its length", &[("content-length", "6")])
            .only(|column| column.backend_h2),
        fields("reply longer than its length", &[("content-length", "4")])
            .only(|column| column.backend_h2),
        fields(
            "reply with a field of connections",
            &[("connection", "close")],
        )
        .only(|column| column.backend_h2),
        Row::new("reply with a bare CR in a field")
            .backend(|it| {
                Box::pin(async move {
                    it.read_all().await;
                    it.head(200, &[("x-a", "a\rb")], Framing::Length(5)).await;
                    it.body(b"hello").await;
                    it.end(&[]).await;
                    it.flush().await;
                })
            })
            .expect(status(&[502])),
        Row::new("reply with a chunk size that is none")
            .only(|column| !column.backend_h2)
            .backend(|it| {
                Box::pin(async move {
                    it.head(200, &[], Framing::Chunked).await;
                    let content = it.content(5);
                    it.body(&content).await;
                    it.raw(b"5x\r\nhello\r\n0\r\n\r\n").await;
                    it.until_cancelled().await;
                })
            })
            .expect(refused()),
        Row::new("reply with chunk extensions")
            .only(|column| !column.backend_h2)
            .backend(|it| {
                Box::pin(async move {
                    it.head(200, &[], Framing::Chunked).await;
                    let content = it.content(10);
                    it.raw(b"0a;a=b; c=\"d;\"\r\n").await;
                    it.raw(&content).await;
                    it.raw(b"\r\n00;last\r\n\r\n").await;
                    it.end_raw();
                })
            })
            .expect(whole(200, 10)),
    ]
}

fn extra_bytes() -> Vec<Row> {
    let extra = |name: &str, fields: &'static [(&'static str, &'static str)], waits: bool| {
        Row::new(name)
            .backend(move |it| {
                Box::pin(async move {
                    it.read_all().await;
                    it.head(200, fields, Framing::Length(50)).await;
                    let content = it.content(50);
                    it.body(&content).await;
                    it.end(&[]).await;
                    if waits {
                        it.flush().await;
                        it.until_released().await;
                    }
                    let evil = match it.stream() {
                        0 => b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil".to_vec(),
                        stream => frame(kind::DATA, flag::END_STREAM, stream, b"evil"),
                    };
                    it.raw(&evil).await;
                    it.flush().await;
                    if fields.is_empty() {
                        return;
                    }
                    it.close().await;
                })
            })
            // Content behind the end of a stream ends the connection (RFC 9113, section 5.1): the
            // reply may be lost with it, but it is not another one.
            .expect(either(
                whole(200, 50),
                either(broken(200, &[502]), status(&[502])),
            ))
            .and(|outcome| {
                let is_h1_whole = outcome.seen.status == 200 && outcome.seen.end == End::Whole;
                match outcome.column.backend_h2 || is_h1_whole {
                    true => Ok(()),
                    false => Err("the reply was whole".to_owned()),
                }
            })
    };
    vec![
        extra("extra bytes behind a reply", &[], false),
        // It has come before the next request is sent.
        extra("a reply unasked on an idle connection", &[], true).client(|client, script| {
            let ask = client.ask(&script);
            Box::pin(async move {
                let seen = client.exchange(ask).await;
                client.backend.release(true);
                sleep(Duration::from_millis(30)).await;
                seen
            })
        }),
        extra(
            "Connection: close with bytes behind the reply",
            &[("connection", "close")],
            false,
        )
        .only(|column| !column.backend_h2),
    ]
}

/// Requests that are wrong: nothing of them may look whole to the back end.
fn requests() -> Vec<Row> {
    let scheme = |name: &str, scheme: &'static str| {
        Row::new(name).asks(move |mut ask| {
            ask.scheme = Some(scheme);
            ask
        })
    };
    vec![
        scheme("request with the scheme `file`", "file")
            .only(|column| column.client_h2)
            .expect(status(&[400])),
        // So say proxies that add TLS, or take it off.
        scheme("request with the scheme `http` over TLS", "http")
            .only(|column| column.client_h2 && column.tls),
        scheme("request with the scheme `https` in clear text", "https")
            .only(|column| column.client_h2 && !column.tls),
        Row::new("request with a chunk size that is none")
            .only(|column| !column.client_h2)
            .client(|client, script| {
                let ask = client.ask(&script).sending(Sending::Chunks(0, 1));
                Box::pin(async move {
                    let mut call = client.begin(ask).await;
                    call.raw(b"5x\r\nhello\r\n0\r\n\r\n").await;
                    let mut seen = call.finish().await;
                    seen.connection = None;
                    seen
                })
            })
            .expect(status(&[400]))
            .and(never_whole),
        Row::new("request with length and Transfer-Encoding")
            .only(|column| !column.client_h2)
            .asks(|ask| {
                ask.sending(Sending::Chunks(50, 50))
                    .with("Content-Length", "5")
            })
            .expect(status(&[400]))
            .and(never_whole),
        Row::new("request shorter than its length")
            .only(|column| column.client_h2)
            .asks(|ask| {
                ask.sending(Sending::Chunks(50, 50))
                    .with("content-length", "60")
            })
            .expect(std::rc::Rc::new(|outcome| {
                // A stream error (RFC 9113, section 8.1.1), or a reply that says so.
                let seen = outcome.seen;
                let is_so = matches!(seen.status, 0 | 400);
                is_so.then_some(()).ok_or_else(|| seen.short())
            }))
            .and(never_whole),
        Row::new("request with 131 fields")
            .asks(|ask| {
                let mut ask = ask;
                ask.fields = vec![("x-a", "b"); 131];
                ask
            })
            .expect(status(&[431]))
            .and(never_whole),
    ]
}
