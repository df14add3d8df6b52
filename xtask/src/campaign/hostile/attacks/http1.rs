//! HTTP/1.1: slow and huge heads and bodies, idle connections, chunking, smuggling, pipelining,
//! replies that nobody reads.

use std::io::{self, Write};

use super::{Attack, attack};
use crate::campaign::hostile::attacker::{Attacker, Flood};

pub const ATTACKS: &[Attack] = &[
    attack(
        "slow-heads",
        "h1",
        "a byte of a head each 100 ms",
        1,
        6,
        slow_heads,
    ),
    attack(
        "slow-bodies",
        "h1",
        "a byte of a body each 100 ms",
        1,
        8,
        slow_bodies,
    ),
    attack(
        "idle-connections",
        "h1",
        "3000 connections, silent",
        1,
        6,
        idle_connections,
    ),
    attack("half-heads", "h1", "2000 halves of heads", 1, 6, half_heads),
    attack(
        "huge-heads",
        "h1",
        "heads of 31 kB to 4 MB",
        4,
        3,
        huge_heads,
    ),
    attack(
        "many-fields",
        "h1",
        "90 to 10,000 fields",
        4,
        3,
        many_fields,
    ),
    attack(
        "bad-chunking",
        "h1",
        "chunks as they must not be",
        4,
        3,
        bad_chunking,
    ),
    attack(
        "small-chunks",
        "h1",
        "bodies in chunks of a byte",
        4,
        3,
        small_chunks,
    ),
    attack(
        "smuggling",
        "h1",
        "lengths and codings in conflict",
        4,
        3,
        smuggling,
    ),
    attack(
        "odd-requests",
        "h1",
        "odd targets, methods, versions",
        4,
        3,
        odd_requests,
    ),
    attack(
        "pipelining",
        "h1",
        "requests without a pause",
        1,
        3,
        pipelining,
    ),
    attack(
        "pipelining-not-read",
        "h1",
        "the same, no reply read",
        1,
        6,
        pipelining_not_read,
    ),
    attack(
        "replies-not-read",
        "h1",
        "replies of 512 KiB, not read",
        1,
        8,
        replies_not_read,
    ),
    attack(
        "forwarded-not-read",
        "h1",
        "the same from a back end",
        1,
        8,
        forwarded_not_read,
    ),
    attack(
        "expect-continue",
        "h1",
        "100-continue, and no body",
        2,
        6,
        expect_continue,
    ),
    attack(
        "connection-storm",
        "h1",
        "a connection for each request",
        4,
        3,
        connection_storm,
    ),
    attack(
        "broken-requests",
        "h1",
        "half a request, then a close",
        4,
        3,
        broken_requests,
    ),
];

fn slow_heads(attacker: &mut Attacker) -> io::Result<()> {
    let count = attacker.random.u64(100..400);
    let opening = b"GET /hello HTTP/1.1\r\nHost: a\r\nX-Slow: ";
    let flood = Flood::new(attacker.ports.http, count, opening).slow(100);
    attacker.flood(flood.seconds(8), |_, _| b"a".to_vec())
}

fn slow_bodies(attacker: &mut Attacker) -> io::Result<()> {
    let count = attacker.random.u64(100..300);
    let opening = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let flood = Flood::new(attacker.ports.http, count, opening).slow(100);
    attacker.flood(flood.seconds(12), |_, _| b"a".to_vec())
}

fn idle_connections(attacker: &mut Attacker) -> io::Result<()> {
    let flood = Flood::new(attacker.ports.http, 3000, b"").slow(50);
    attacker.flood(flood.seconds(8), |_, _| Vec::new())
}

fn half_heads(attacker: &mut Attacker) -> io::Result<()> {
    let opening = format!("POST /echo HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(4000));
    let flood = Flood::new(attacker.ports.http, 2000, opening.as_bytes()).slow(50);
    attacker.flood(flood.seconds(8), |_, _| Vec::new())
}

fn huge_heads(attacker: &mut Attacker) -> io::Result<()> {
    let size = [31_000, 33_000, 1 << 20, 4 << 20];
    let value = "a".repeat(size[attacker.random.usize(..4)]);
    let head = match attacker.random.u8(..2) {
        0 => format!("GET /hello HTTP/1.1\r\nHost: a\r\nX-Long: {value}\r\n\r\n"),
        _ => format!("GET /{value} HTTP/1.1\r\nHost: a\r\n\r\n"),
    };
    let answer = attacker.try_once(attacker.ports.http, head.as_bytes())?;
    closed_if(answer.is_empty())
}

fn many_fields(attacker: &mut Attacker) -> io::Result<()> {
    let count = [90, 99, 101, 1000, 10_000][attacker.random.usize(..5)];
    let fields: String = (0..count).map(|it| format!("X-{it}: {it}\r\n")).collect();
    let head = format!("GET /hello HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let answer = attacker.try_once(attacker.ports.http, head.as_bytes())?;
    closed_if(answer.is_empty())
}

/// An end of the connection without an answer counts as one.
fn closed_if(is_closed: bool) -> io::Result<()> {
    match is_closed {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(()),
    }
}

fn bad_chunking(attacker: &mut Attacker) -> io::Result<()> {
    let body = attacker.any(&[
        "zz\r\nab\r\n0\r\n\r\n",
        "+2\r\nab\r\n0\r\n\r\n",
        "0x2\r\nab\r\n0\r\n\r\n",
        "10000000000000002\r\nab\r\n0\r\n\r\n",
        "-2\r\nab\r\n0\r\n\r\n",
        "2\nab\n0\n\n",
        "2\r\nabc\r\n0\r\n\r\n",
        "2\rab\r\n0\r\n\r\n",
        "2;a=\nb\r\nab\r\n0\r\n\r\n",
        "\r\nab\r\n0\r\n\r\n",
        "2 2\r\nab\r\n0\r\n\r\n",
        "2\r\nab\r\n0\r\nContent-Length: 5\r\nHost: b\r\n\r\n",
        "2\r\nab\r\n0\r\nno trailer\r\n\r\n",
        "7fffffffffffffff\r\nab\r\n",
        "2\r\nab",
    ]);
    let path = attacker.any(&["/echo", "/forward/echo"]);
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    attacker
        .try_once(attacker.ports.http, request.as_bytes())
        .map(drop)
}

fn small_chunks(attacker: &mut Attacker) -> io::Result<()> {
    let chunk = attacker.any(&[
        "1\r\na\r\n",
        "1;a=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\na\r\n",
    ]);
    if attacker.random.u8(..20) == 0 {
        let path = attacker.any(&["/echo", "/forward/echo"]);
        let opening =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunks = chunk.repeat(1000).into_bytes();
        let flood = Flood::new(attacker.ports.http, 8, opening.as_bytes());
        return attacker.flood(flood, |_, _| chunks.clone());
    }
    let body = chunk.repeat(attacker.random.usize(1000..21_000));
    let request = format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"
    );
    attacker
        .try_once(attacker.ports.http, request.as_bytes())
        .map(drop)
}

fn smuggling(attacker: &mut Attacker) -> io::Result<()> {
    let fields = attacker.any(&[
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 5 5",
        "Content-Length: 18446744073709551621",
        "Content-Length: -1",
        "Content-Length : 5",
        " Content-Length: 5",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\n chunked",
        "Transfer-Encoding:\x0bchunked",
        "Transfer_Encoding: chunked\r\nContent-Length: 5",
        "X: a\nTransfer-Encoding: chunked",
        "X: a\rTransfer-Encoding: chunked",
        "X\0: a\r\nContent-Length: 5",
        "Connection: Content-Length\r\nContent-Length: 5",
        "Host: b\r\nContent-Length: 5",
    ]);
    let path = attacker.any(&["/echo", "/forward/echo"]);
    let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\n{GET}");
    attacker
        .try_once(attacker.ports.http, request.as_bytes())
        .map(drop)
}

fn odd_requests(attacker: &mut Attacker) -> io::Result<()> {
    let first = attacker.any(&[
        "GET http://b/hello HTTP/1.1",
        "GET https://a/hello HTTP/1.1",
        "GET http://a:b@a/hello HTTP/1.1",
        "CONNECT a:80 HTTP/1.1",
        "GET * HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "TRACE /forward/hello HTTP/1.1",
        "get /hello HTTP/1.1",
        "GET  /hello HTTP/1.1",
        "GET /hello HTTP/9.9",
        "GET /hello",
        "GET /a/../hello HTTP/1.1",
        "GET /forward/%2e%2e/hello HTTP/1.1",
        "GET /hel\0lo HTTP/1.1",
        "GET /hello?%zz#a HTTP/1.1",
        "\u{1F4A3} /hello HTTP/1.1",
        "PRI * HTTP/2.0",
    ]);
    let request = format!("{first}\r\nHost: a\r\n\r\n");
    attacker
        .try_once(attacker.ports.http, request.as_bytes())
        .map(drop)
}

const GET: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

fn pipelining(attacker: &mut Attacker) -> io::Result<()> {
    let requests = GET.repeat(200).into_bytes();
    let flood = Flood::new(attacker.ports.http, attacker.random.u64(1..=8), b"");
    attacker.flood(flood, |_, _| requests.clone())
}

fn pipelining_not_read(attacker: &mut Attacker) -> io::Result<()> {
    let requests = GET.repeat(200).into_bytes();
    let flood = Flood::new(attacker.ports.http, attacker.random.u64(30..70), b"");
    attacker.flood(flood.unread().seconds(8), |_, _| requests.clone())
}

fn replies_not_read(attacker: &mut Attacker) -> io::Result<()> {
    let opening = b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
    let count = attacker.random.u64(50..150);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood.unread().seconds(9), |_, _| Vec::new())
}

fn forwarded_not_read(attacker: &mut Attacker) -> io::Result<()> {
    let opening = b"GET /forward/big HTTP/1.1\r\nHost: a\r\n\r\n";
    let count = attacker.random.u64(30..80);
    let flood = Flood::new(attacker.ports.http, count, opening);
    attacker.flood(flood.unread().seconds(9), |_, _| Vec::new())
}

fn expect_continue(attacker: &mut Attacker) -> io::Result<()> {
    let opening = b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\
                    Content-Length: 9\r\n\r\n";
    let flood = Flood::new(attacker.ports.http, 100, opening).slow(100);
    attacker.flood(flood.seconds(8), |_, _| Vec::new())
}

fn connection_storm(attacker: &mut Attacker) -> io::Result<()> {
    attacker
        .try_once(attacker.ports.http, GET.as_bytes())
        .map(drop)
}

fn broken_requests(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/echo", "/forward/echo", "/json"]);
    let mut stream = attacker.connect(attacker.ports.http)?;
    attacker.sent += 1;
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n[1,");
    // A close with an answer that was not read is a reset.
    if attacker.random.bool() {
        stream.write_all(GET.as_bytes())?;
    }
    stream.write_all(head.as_bytes())
}
