//! The stub on real sockets: HTTP/1.1, TLS and HTTP/2.
#![cfg(test)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::testing::{start, start_kind};
use crate::pki::{self, Identity};

fn identity() -> (PathBuf, Identity) {
    let name = format!(
        "lab-stub-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let identity = Identity::make(&folder).unwrap();
    (folder, identity)
}

const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

/// Replies with a `Date` in each.
fn dated(replies: &str) -> String {
    replies.replace("200 OK\r\n", &format!("200 OK\r\n{DATE}"))
}

/// Compares replies, whatever their dates.
fn assert_same(replies: &str, wanted: &str) {
    let dates = wanted.match_indices(DATE);
    let mut bytes = replies.as_bytes().to_vec();
    for (at, _) in dates {
        assert!(replies[at..].starts_with("Date: "), "{replies}");
        bytes[at..at + DATE.len()].copy_from_slice(DATE.as_bytes());
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), wanted);
}

async fn exchange<S>(stream: &mut S, request: &str, reply: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(request.as_bytes()).await.unwrap();
    let reply = dated(reply);
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_same(&String::from_utf8(bytes).unwrap(), &reply);
}

const POST: &str =
    "POST /x HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nab";
const REPLY: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nab";

#[tokio::test(flavor = "current_thread")]
async fn bodies_come_back() {
    let address = start(&["--size", "3"]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    exchange(&mut stream, POST, REPLY).await;
    // The same head again, and another body; two at once.
    exchange(
        &mut stream,
        &POST.replace("\nab", "\ncd"),
        &REPLY.replace("\nab", "\ncd"),
    )
    .await;
    exchange(
        &mut stream,
        &[POST, POST].concat(),
        &[REPLY, REPLY].concat(),
    )
    .await;
    let chunked =
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    exchange(
        &mut stream,
        chunked,
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    )
    .await;
    let last = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
    stream.write_all(last.as_bytes()).await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    let wanted = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nxxx";
    assert_same(&rest, &dated(wanted));
}

#[tokio::test(flavor = "current_thread")]
async fn clients_that_ask_are_told_to_go_on() {
    let address = start(&[]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        let head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        exchange(&mut stream, head, "HTTP/1.1 100 Continue\r\n\r\n").await;
        exchange(
            &mut stream,
            "a",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        )
        .await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn tls_takes_what_both_offer() {
    let (folder, identity) = identity();
    let [cert, key] = [&identity.cert, &identity.key].map(|path| path.to_str().unwrap());
    let address = start(&["--cert", cert, "--key", key, "--protocols", "http/1.1"]);
    let offers = ["h2", "http/1.1"].map(str::to_owned);
    let config = pki::client_config(&identity.ca, &offers).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    exchange(&mut stream, POST, REPLY).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn http2_goes_over_tls_and_in_clear_text() {
    let (folder, identity) = identity();
    let [cert, key] = [&identity.cert, &identity.key].map(|path| path.to_str().unwrap());
    let address = start(&["--cert", cert, "--key", key]);
    let config = pki::client_config(&identity.ca, &["h2".to_owned()]).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    echo_over_h2(stream).await;
    let clear = start(&["--protocols", "h2"]);
    echo_over_h2(TcpStream::connect(clear).await.unwrap()).await;
    std::fs::remove_dir_all(folder).unwrap();
}

async fn echo_over_h2<S>(stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("https://localhost/").header("content-type", "text/x");
    let (reply, mut body) = client
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    body.send_data(Bytes::from_static(b"ab"), false).unwrap();
    body.send_data(Bytes::from_static(b"cd"), true).unwrap();
    let reply = reply.await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["content-type"], "text/x");
    assert_eq!(reply.headers()["content-length"], "4");
    let data = reply.into_body().data().await.unwrap().unwrap();
    assert_eq!(data, "abcd");
}

#[tokio::test(flavor = "current_thread")]
async fn delays_hold_replies_back() {
    let address = start(&["--delay", "30ms", "--delay-jitter", "5ms"]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let start = Instant::now();
    exchange(&mut stream, POST, REPLY).await;
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[tokio::test(flavor = "current_thread")]
async fn envelopes_are_answered_over_both_versions() {
    let body = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>\
        <Echo xmlns='urn:lab:stock'><text>hello</text></Echo></e:Body></e:Envelope>";
    let address = start_kind("soap", &["--delay", "1ms"]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = |body: &str| {
        let length = body.len();
        format!("POST /stock HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let wanted = "<soap:Envelope xmlns:soap=\"http://schemas.xmlsoap.org/soap/envelope/\">\
        <soap:Body><EchoResponse xmlns=\"urn:lab:stock\"><text>hello</text></EchoResponse>\
        </soap:Body></soap:Envelope>";
    let reply = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {}\r\n\r\n{wanted}",
        wanted.len()
    );
    exchange(&mut stream, &request(body), &reply).await;
    exchange(
        &mut stream,
        &request("no envelope"),
        "HTTP/1.1 500 Internal Server Error\r\n",
    )
    .await;
    let clear = start_kind("soap", &["--protocols", "h2"]);
    let stream = TcpStream::connect(clear).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://localhost:7/stock?wsdl")
        .body(())
        .unwrap();
    let (reply, _) = client.send_request(request, true).unwrap();
    let reply = reply.await.unwrap();
    assert_eq!(reply.headers()["content-type"], "text/xml; charset=utf-8");
    let data = reply.into_body().data().await.unwrap().unwrap();
    assert!(memchr::memmem::find(&data, b"<?xml").is_some());
}
