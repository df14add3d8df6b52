//! What has to work, whatever the framing of either side.

use testkit::http1::Framing;
use tokio::time::sleep;

use super::super::backend::is_identity;
use super::super::client::{Client, Connection, End, Seen, Sending};
use super::super::column::SHORT;
use super::super::row::{Row, uploaded, whole};

pub fn rows() -> Vec<Row> {
    let mut rows = uploads();
    rows.extend(downloads());
    rows.extend(streams());
    rows.extend(segments());
    rows
}

fn uploads() -> Vec<Row> {
    let post = |name: &str, sending: Sending, length: usize| {
        Row::new(name).posts(sending).and(uploaded(length))
    };
    vec![
        Row::new("GET"),
        post("POST with length", Sending::Length(100_000), 100_000),
        post("POST of nothing with length", Sending::Length(0), 0),
        post("POST in chunks", Sending::Chunks(100_000, 7000), 100_000),
        post("POST of no chunk", Sending::Chunks(0, 1), 0),
        post("POST in pieces of one byte", Sending::Chunks(500, 1), 500),
        post("POST of 3 MB", Sending::Length(3_000_000), 3_000_000),
        Row::new("POST with chunk extensions or padding")
            .asks(|ask| {
                let mut ask = ask.sending(Sending::Chunks(5000, 700));
                ask.extension = ";a=b;c=\"d e\"";
                ask
            })
            .and(uploaded(5000)),
        // Removed from heads and trailers, however it is spelt; the back end looks for it in heads.
        Row::new("POST with a forged identity")
            .asks(|ask| {
                let mut ask = ask.sending(Sending::Chunks(5000, 700));
                ask.trailers = vec![("x-who-calls", "root"), ("x-sum", "17"), FORGED];
                ask.with("X-Who-Calls", "root")
                    .with("x_WHO-calls", "root")
                    .with("Trailer", "x-sum")
            })
            .and(uploaded(5000))
            .and(|outcome| {
                let mut came = outcome.arrivals.iter().flat_map(|it| &it.trailers);
                match came.find(|(name, _)| is_identity(name)) {
                    None => Ok(()),
                    Some(forged) => Err(format!("{forged:?} came through")),
                }
            }),
        Row::new("POST with trailers that are a forged identity alone")
            .asks(|ask| {
                let mut ask = ask.sending(Sending::Chunks(5000, 700));
                ask.trailers = vec![FORGED];
                ask
            })
            .and(uploaded(5000))
            .and(|outcome| {
                let came = outcome.arrivals.iter().map(|it| it.trailers.len());
                match came.sum::<usize>() {
                    0 => Ok(()),
                    count => Err(format!("{count} trailers came through")),
                }
            }),
        Row::new("POST with trailers")
            .asks(|ask| {
                let mut ask = ask.sending(Sending::Chunks(50_000, 7000));
                ask.trailers = vec![("x-sum", "17"), ("authorization", "Basic eA==")];
                ask.trailers.extend(OF_HEAD);
                ask.trailers.push(("x-other", "a b"));
                ask.with("Trailer", "x-sum, x-other")
            })
            .and(uploaded(50_000))
            .and(|outcome| {
                let last = outcome.arrivals.last();
                let came = last.map(|it| it.trailers.as_slice()).unwrap_or_default();
                let expected = [("x-sum", "17"), ("x-other", "a b")];
                let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
                // A body in memory has none: they may be discarded (RFC 9110, section 6.5.1).
                match came == expected || (came.is_empty() && outcome.column.collects_request()) {
                    true => Ok(()),
                    false => Err(format!("trailers at the back end are {came:?}")),
                }
            }),
    ]
}

/// A trailer that a client may not send.
const FORGED: (&str, &str) = ("x_who_calls", "root");

fn downloads() -> Vec<Row> {
    let download = |name: &str, length: usize, framing: Framing, piece: usize| {
        Row::new(name)
            .backend(move |it| {
                Box::pin(async move {
                    it.read_all().await;
                    it.head(200, &[], framing).await;
                    for part in it.content(length).chunks(piece) {
                        it.body(part).await;
                    }
                    match framing {
                        Framing::UntilClose => it.end_by_close().await,
                        _ => it.end(&[]).await,
                    }
                })
            })
            .expect(whole(200, length))
    };
    let mega = 1_000_000;
    vec![
        download(
            "reply of 3 MB",
            3 * mega,
            Framing::Length(3 * mega),
            3 * mega,
        ),
        download("reply in chunks", mega, Framing::Chunked, 30_000),
        download("reply in chunks of one byte", 500, Framing::Chunked, 1),
        download("reply of no chunk", 0, Framing::Chunked, 1),
        download("reply of nothing with length", 0, Framing::Length(0), 1),
        download("reply of 1 MB until close", mega, Framing::UntilClose, mega),
        download("reply of nothing until close", 0, Framing::UntilClose, 1),
        Row::new("reply with padding")
            .only(|column| column.backend_h2)
            .backend(|it| {
                Box::pin(async move {
                    it.padding = 200;
                    it.reply(200, 200_000).await;
                })
            })
            .expect(whole(200, 200_000)),
        trailers("reply with trailers", Framing::Chunked),
        // As Go answers over HTTP/2 when the reply is short.
        trailers("reply with trailers and a length", Framing::Length(50_000))
            .only(|column| column.backend_h2),
    ]
}

/// Fields that belong to the head: as trailers they are dropped, whatever the protocols.
const OF_HEAD: [(&str, &str); 5] = [
    ("cookie", "a=b"),
    ("set-cookie", "a=b"),
    ("x-forwarded-for", "10.0.0.1"),
    ("content-type", "text/html"),
    ("if-match", "*"),
];

fn trailers(name: &str, framing: Framing) -> Row {
    Row::new(name)
        .asks(|ask| ask.with("TE", "trailers"))
        .backend(move |it| {
            Box::pin(async move {
                it.head(200, &[("trailer", "x-sum")], framing).await;
                let content = it.content(50_000);
                it.body(&content).await;
                let trailers: Vec<_> = [("x-sum", "17")].into_iter().chain(OF_HEAD).collect();
                it.end(&trailers).await;
            })
        })
        .expect(whole(200, 50_000))
        .and(|outcome| {
            let has = outcome.seen.trailers == [("x-sum".to_owned(), "17".to_owned())];
            // A reply that is collected has none (RFC 9110, section 6.5.1).
            match has || outcome.column.collects() {
                true => Ok(()),
                false => Err(format!("trailers are {:?}", outcome.seen.trailers)),
            }
        })
}

fn streams() -> Vec<Row> {
    let echo = |name: &str, length: usize, framing: Framing| {
        Row::new(name)
            .posts(Sending::Length(length))
            .backend(move |it| {
                Box::pin(async move {
                    // As `io.Copy(w, r.Body)` does: it reads no more while nobody takes its reply.
                    it.head(200, &[], framing).await;
                    let content = it.content(length);
                    let mut at = 0;
                    while let Some(part) = it.read(32 * 1024).await {
                        it.body(&content[at..at + part.len()]).await;
                        at += part.len();
                    }
                    it.end(&[]).await;
                })
            })
            .expect(whole(200, length))
            .and(uploaded(length))
    };
    let nine = 9_000_000;
    let events = [("content-type", "text/event-stream")];
    vec![
        echo("echo of 9 MB with length", nine, Framing::Length(nine)),
        // It takes longer than a body may stand still, but it never does. The kernel's buffers hold
        // some of it, so the last third is read at once: the engine takes it for sent.
        Row::new("POST of 12 MB to a slow back end")
            .posts(Sending::Length(12_000_000))
            .backend(move |it| {
                Box::pin(async move {
                    for _ in 0..16 {
                        it.read_exactly(500_000).await;
                        sleep(SHORT / 10).await;
                    }
                    it.read_all().await;
                    it.reply(200, 50).await;
                })
            })
            .and(uploaded(12_000_000)),
        echo("echo of 1 MB in chunks", 1_000_000, Framing::Chunked),
        Row::new("reply head before the request's end, content behind it")
            .posts(Sending::Length(3_000_000))
            .backend(|it| {
                Box::pin(async move {
                    it.head(200, &[], Framing::Length(100_000)).await;
                    it.read_all().await;
                    let content = it.content(100_000);
                    it.body(&content).await;
                    it.end(&[]).await;
                })
            })
            .expect(whole(200, 100_000))
            .and(uploaded(3_000_000)),
        Row::new("event stream begun before the request's end")
            .posts(Sending::Length(3_000_000))
            .backend(move |it| {
                Box::pin(async move {
                    it.head(200, &events, Framing::Chunked).await;
                    let content = it.content(2000);
                    it.body(&content[..1000]).await;
                    it.read_all().await;
                    it.body(&content[1000..]).await;
                    it.end(&[]).await;
                })
            })
            .expect(whole(200, 2000))
            .and(uploaded(3_000_000)),
        Row::new("event stream")
            .backend(move |it| {
                Box::pin(async move {
                    it.head(200, &events, Framing::Chunked).await;
                    for part in it.content(2000).chunks(100) {
                        it.body(part).await;
                    }
                    it.end(&[]).await;
                })
            })
            .expect(whole(200, 2000)),
    ]
}

fn segments() -> Vec<Row> {
    let two = |name: &str, first: Sending| {
        Row::new(name).client(move |client, script| {
            let (one, other) = (client.ask(&script).sending(first), client.ask(&script));
            let one = match first {
                Sending::Nothing => one.method("GET"),
                _ => one,
            };
            Box::pin(async move {
                match client.connect().await.unwrap() {
                    Connection::Http1(reader, wire) => {
                        let bytes = [one.http1_head(), one.http1_body(), other.http1_head()];
                        let skip = if first == Sending::Nothing { 1 } else { 3 };
                        let bytes = match skip {
                            1 => [bytes[0].clone(), bytes[2].clone()].concat(),
                            _ => bytes.concat(),
                        };
                        wire.write(&bytes).await.unwrap();
                        pipelined(client, Connection::Http1(reader, wire), [one, other]).await
                    }
                    connection => {
                        let mut call = client.begin_on(connection, one).await;
                        call.upload();
                        let other = client.begin_on(call.connection().unwrap(), other).await;
                        let mut seen = call.finish().await;
                        note(&mut seen, &other.finish().await);
                        seen
                    }
                }
            })
        })
    };
    vec![
        two("two requests in one segment", Sending::Nothing),
        two("a POST and a GET in one segment", Sending::Length(5000)),
        two(
            "a POST in chunks and a GET in one segment",
            Sending::Chunks(5000, 700),
        ),
    ]
}

async fn pipelined(
    client: std::rc::Rc<Client>,
    connection: Connection,
    asks: [super::super::client::Ask; 2],
) -> Seen {
    let [one, other] = asks;
    let first = client.read_on(connection, one);
    let mut first = first.pipelined().await;
    let Some(connection) = first.connection.take() else {
        return first;
    };
    let mut second = client.read_on(connection, other).finish().await;
    first.connection = second.connection.take();
    note(&mut first, &second);
    first
}

/// Notes what is wrong with a reply that must be as the first one is.
fn note(first: &mut Seen, second: &Seen) {
    let own = second.header("x-re").unwrap_or_default().to_owned();
    let content = super::super::content::reply_content(&own, super::super::MARKER_LENGTH);
    let same = first.header("x-re") == Some(&own);
    if second.status != 200 || second.end != End::Whole || second.body != content || same {
        first.problem = Some(format!("the second reply: {}", second.short()));
    }
}
