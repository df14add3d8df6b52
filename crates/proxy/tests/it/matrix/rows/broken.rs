//! Replies that break off or stand still.

use testkit::http1::Framing;
use testkit::http2::{frame, kind};

use super::super::client::{End, Sending};
use super::super::row::{Row, broken, came, status, whole};

/// How the back end ends it.
#[derive(Clone, Copy, Debug)]
enum How {
    /// It closes the connection, with TLS without `close_notify`.
    Closes,
    /// RST, or RST_STREAM.
    Resets,
    /// RST, whatever the version.
    Drops,
    /// It does nothing more.
    Stalls,
}

pub fn rows() -> Vec<Row> {
    let mut rows = heads();
    rows.extend(bodies());
    rows.extend(old_clients());
    rows.extend(silence());
    rows
}

async fn end(it: &mut super::super::backend::Exchange, how: How) {
    match how {
        How::Closes => it.close().await,
        How::Resets => it.reset().await,
        How::Drops => it.reset_connection().await,
        How::Stalls => it.until_cancelled().await,
    }
}

fn heads() -> Vec<Row> {
    let before = |how: How| {
        let name = format!("back end {how:?} before the head of a reply to a POST");
        Row::new(name.to_lowercase())
            .posts(Sending::Length(1000))
            .backend(move |it| {
                Box::pin(async move {
                    it.read_all().await;
                    end(it, how).await;
                })
            })
            .expect(status(&[502]))
            .and(came(1))
    };
    let within = |how: How| {
        let name = format!("back end {how:?} within the head");
        Row::new(name.to_lowercase())
            .posts(Sending::Length(1000))
            .backend(move |it| {
                Box::pin(async move {
                    it.read_all().await;
                    let part = match it.stream() {
                        0 => b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(),
                        // HEADERS without END_HEADERS.
                        stream => frame(kind::HEADERS, 0, stream, &[0x88]),
                    };
                    it.raw(&part).await;
                    end(it, how).await;
                })
            })
            .expect(status(&[502, 504]))
            .and(came(1))
    };
    vec![
        before(How::Closes),
        before(How::Resets),
        before(How::Drops),
        within(How::Closes),
        within(How::Drops),
        within(How::Stalls).expect(status(&[504])),
    ]
}

fn bodies() -> Vec<Row> {
    let mut rows = Vec::new();
    let framings = [
        (Framing::Length(200_000), "length"),
        (Framing::Chunked, "chunks"),
    ];
    for (framing, framing_name) in framings {
        for at in [0, 1, 20_000, 150_000] {
            for how in [How::Closes, How::Resets, How::Drops] {
                let name = format!("back end {how:?} behind {at} bytes of a reply with ");
                rows.push(cut(name.to_lowercase() + framing_name, framing, at, how));
            }
        }
        let name = format!("back end stalls behind 20000 bytes of a reply with {framing_name}");
        rows.push(cut(name, framing, 20_000, How::Stalls));
    }
    let until_close = "back end drops behind 20000 bytes of a reply until close";
    rows.push(cut(
        until_close.to_owned(),
        Framing::UntilClose,
        20_000,
        How::Drops,
    ));
    rows.push(
        Row::new("back end closes within a chunk or frame")
            .backend(|it| {
                Box::pin(async move {
                    it.head(200, &[], Framing::Chunked).await;
                    let content = it.content(1000);
                    let mut part = match it.stream() {
                        0 => b"ffff\r\n".to_vec(),
                        stream => frame(kind::DATA, 0, stream, &[0; 10_000])[..9].to_vec(),
                    };
                    part.extend_from_slice(&content);
                    it.raw(&part).await;
                    it.close().await;
                })
            })
            .expect(broken(200, &[502])),
    );
    rows
}

/// A reply that ends behind this many bytes. What has come of it has been seen by then, so that the
/// client must see it too.
fn cut(name: String, framing: Framing, at: usize, how: How) -> Row {
    Row::new(name)
        .backend(move |it| {
            Box::pin(async move {
                it.read_all().await;
                it.head(200, &[], framing).await;
                let content = it.content(at);
                if at > 0 {
                    it.body(&content).await;
                }
                end(it, how).await;
            })
        })
        .expect(match how {
            How::Stalls => broken(200, &[504]),
            _ => broken(200, &[502]),
        })
}

/// Clients of HTTP/1.0 know the end of a reply by the connection's end: one that breaks off must
/// not end as others do (RFC 9112, section 8).
fn old_clients() -> Vec<Row> {
    let old = |name: &str, framing: Framing, how: Option<How>| {
        Row::new(name)
            .only(|column| !column.client_h2)
            .asks(|ask| {
                let mut ask = ask;
                ask.is_http10 = true;
                ask
            })
            .backend(move |it| {
                Box::pin(async move {
                    it.head(200, &[], framing).await;
                    let content = it.content(20_000);
                    it.body(&content).await;
                    match how {
                        Some(how) => end(it, how).await,
                        None if framing == Framing::UntilClose => it.end_by_close().await,
                        None => it.end(&[]).await,
                    }
                })
            })
            .expect(match how {
                Some(_) => broken(200, &[502, 504]),
                None => whole(200, 20_000),
            })
    };
    vec![
        old("HTTP/1.0, reply in chunks", Framing::Chunked, None),
        old("HTTP/1.0, reply until close", Framing::UntilClose, None),
        old("HTTP/1.0, reply with length", Framing::Length(20_000), None),
        old(
            "HTTP/1.0, back end closes within chunks",
            Framing::Chunked,
            Some(How::Closes),
        ),
        old(
            "HTTP/1.0, back end resets within chunks",
            Framing::Chunked,
            Some(How::Resets),
        ),
        old(
            "HTTP/1.0, back end stalls within chunks",
            Framing::Chunked,
            Some(How::Stalls),
        ),
        old(
            "HTTP/1.0, back end drops before close",
            Framing::UntilClose,
            Some(How::Drops),
        ),
        old(
            "HTTP/1.0, back end closes within its length",
            Framing::Length(30_000),
            Some(How::Closes),
        ),
    ]
}

fn silence() -> Vec<Row> {
    vec![
        Row::new("back end says nothing")
            .backend(|it| Box::pin(async move { it.until_cancelled().await }))
            .expect(status(&[504])),
        Row::new("back end says nothing to a POST")
            .posts(Sending::Length(1000))
            .backend(|it| Box::pin(async move { it.until_cancelled().await }))
            .expect(status(&[504]))
            .and(came(1)),
        Row::new("back end replies too late")
            .backend(|it| {
                Box::pin(async move {
                    it.until_released().await;
                    it.reply(200, 4).await;
                    it.flush().await;
                })
            })
            .expect(status(&[504])),
        Row::new("back end reads nothing of 9 MB and says nothing")
            .posts(Sending::Length(9_000_000))
            .backend(|it| {
                Box::pin(async move {
                    it.until_released().await;
                    it.close().await;
                })
            })
            .expect(std::rc::Rc::new(|outcome| {
                let seen = outcome.seen;
                let is_so = seen.status == 504 && seen.end == End::Whole;
                is_so.then_some(()).ok_or_else(|| seen.short())
            })),
    ]
}
