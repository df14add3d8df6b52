//! Request heads: what is taken, and what is refused because others could read it differently.

use super::*;

const LIMITS: HeadLimits = HeadLimits {
    bytes: 4096,
    fields: 20,
};

fn parse(bytes: &[u8]) -> Result<Option<RequestHead>, HeadError> {
    let mut head = RequestHead::default();
    let done = head.parse(bytes, LIMITS)?;
    Ok(done.then_some(head))
}

fn taken(text: &str) -> RequestHead {
    match parse(text.as_bytes()) {
        Ok(Some(head)) => head,
        other => panic!("{text:?} gives {other:?}"),
    }
}

/// A head with these lines behind a good start.
fn with(lines: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[test]
fn a_head_is_read_with_its_places() {
    let text = "POST /orders/7?full=1 HTTP/1.1\r\nHost: shop.example\r\n\
                Content-Type:  text/plain \r\nContent-Length: 12\r\n\r\nbody";
    let head = taken(text);
    let bytes = text.as_bytes();
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.path(bytes), b"/orders/7");
    assert_eq!(head.query(bytes), Some(&b"full=1"[..]));
    assert_eq!(head.framing, Framing::Length(12));
    assert_eq!(&bytes[head.length..], b"body");
    assert_eq!(
        head.headers(bytes).get("content-type"),
        Some(&b"text/plain"[..])
    );
    assert!(head.keeps_alive());
}

#[test]
fn every_prefix_of_a_head_needs_more() {
    let text = "GET /a?b HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\nAccept: */*\r\n\r\n";
    for end in 0..text.len() {
        assert!(parse(&text.as_bytes()[..end]).unwrap().is_none(), "{end}");
    }
    assert!(!taken(text).keeps_alive());
}

#[test]
fn a_later_minor_version_is_understood_as_the_one_that_we_know() {
    let text = "\r\n\r\nPOST /a?b HTTP/1.2\r\nHost: a\r\nX: y\r\nContent-Length: 2\r\n\r\nhiGET";
    let whole = text.len() - 5;
    for end in 0..whole {
        assert!(parse(&text.as_bytes()[..end]).unwrap().is_none(), "{end}");
    }
    let (head, bytes) = (taken(text), text.as_bytes());
    assert_eq!((head.version, head.length), (Version::Http11, whole));
    assert_eq!(head.path(bytes), b"/a");
    assert_eq!(head.query(bytes), Some(&b"b"[..]));
    assert_eq!(head.headers(bytes).get("x"), Some(&b"y"[..]));
    assert_eq!(head.framing, Framing::Length(2));
    assert!(head.keeps_alive());
    let large = format!("GET / HTTP/1.9\r\nHost: a\r\nX: {}", "a".repeat(5000));
    assert_eq!(parse(large.as_bytes()).unwrap_err().status, 431);
}

#[test]
fn framing_that_could_be_read_in_two_ways_is_refused() {
    let lines = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 5\u{b}\r\n",
        "Content-Length: 9999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        "X: a\r\n Content-Length: 5\r\n",
        "X: a\r\n\tTransfer-Encoding: chunked\r\n",
        "X: a\nContent-Length: 5\r\n",
        "X: a\rContent-Length: 5\r\n",
        "X: a\0\r\n",
        ": a\r\n",
        "X\r\n",
        "X Y: a\r\n",
        "X\u{e4}: a\r\n",
        "Connection: Content-Length\r\nContent-Length: 5\r\n",
        "Connection: close, Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
        "Connection: host\r\n",
        "Host: b\r\n",
        "Expect: 200-ok\r\n",
    ];
    for line in lines {
        assert!(parse(with(line).as_bytes()).is_err(), "{line:?}");
    }
    assert_eq!(
        taken(&with("Transfer-Encoding: Chunked\r\n")).framing,
        Framing::Chunked
    );
}

#[test]
fn start_lines_that_are_none_are_refused() {
    let lines = [
        "GET /a HTTP/1.10",
        "GET /a HTTP/1.1.2",
        "GET /a HTTP/1.x",
        "GET /a HTTP/2.0",
        "GET /a HTTP/0.9",
        "GET /a",
        "GET  /a HTTP/1.1",
        "GET /a  HTTP/1.1",
        "GET\t/a HTTP/1.1",
        " GET /a HTTP/1.1",
        "GET /a HTTP/1.1 ",
        "GET /a http/1.1",
        "G(T /a HTTP/1.1",
        "GET a HTTP/1.1",
        "GET  HTTP/1.1",
        "GET * HTTP/1.1",
        "CONNECT a:80 HTTP/1.1",
        "GET a:80 HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /../a HTTP/1.1",
        "GET /%2e%2e/a HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /%00 HTTP/1.1",
        "GET /%zz HTTP/1.1",
        "GET /\u{e4} HTTP/1.1",
        "GET /a\u{7f} HTTP/1.1",
        "GET ftp://a/ HTTP/1.1",
        "GET http://b/ HTTP/1.1",
        "GET http:/a HTTP/1.1",
        "GET http://u@a/ HTTP/1.1",
        "GET https://a/ HTTP/1.1",
        "PRI * HTTP/2.0",
    ];
    for line in lines {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        assert!(parse(text.as_bytes()).is_err(), "{line:?}");
    }
}

#[test]
fn hosts_are_needed_once_and_must_match_the_target() {
    let refused = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\n\r\n",
    ];
    for text in refused {
        assert!(parse(text.as_bytes()).is_err(), "{text:?}");
    }
    for text in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET http://A/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        taken(text);
    }
    let text = "GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = taken(text);
    assert_eq!(head.path(text.as_bytes()), b"/");
    assert_eq!(head.query(text.as_bytes()), Some(&b"b"[..]));
}

#[test]
fn only_one_empty_line_may_come_before() {
    for text in [
        "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text:?}");
    }
    assert!(parse(b"\r").unwrap().is_none());
    assert!(parse(b"\r\n").unwrap().is_none());
}

#[test]
fn limits_hold_before_a_head_is_complete() {
    let long_target = format!("GET /{}", "a".repeat(5000));
    assert_eq!(parse(long_target.as_bytes()).unwrap_err().status, 414);
    let long_field = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(5000));
    assert_eq!(parse(long_field.as_bytes()).unwrap_err().status, 431);
    let many = with(&"A: b\r\n".repeat(30));
    assert_eq!(parse(many.as_bytes()).unwrap_err().status, 431);
}

#[test]
fn what_a_request_asks_of_its_connection_is_seen() {
    let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    let text = format!("GET /a HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n");
    assert!(taken(&text).upgrades_to_websocket);
    assert!(
        !taken(&with(upgrade)).upgrades_to_websocket,
        "only GET upgrades"
    );
    let h2c = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    assert!(!taken(h2c).upgrades_to_websocket);
    let expects = with("Expect: 100-Continue\r\nContent-Length: 3\r\n");
    assert!(taken(&expects).expects_continue);
    let listed = with("Connection: X-Private, close\r\nX-Private: 1\r\n");
    let head = taken(&listed);
    assert!(head.connection.lists(listed.as_bytes(), b"x-private"));
    assert!(!head.keeps_alive());
    let old = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    assert!(taken(old).keeps_alive());
    assert!(!taken("GET / HTTP/1.0\r\n\r\n").keeps_alive());
}

#[test]
fn targets_are_judged_alike_whatever_is_in_them() {
    let pieces = [
        "", "/", "a", ".", "?", "%2e", "%41", "%", "#", "*", "\\", "..", "%00", "\u{7e}",
    ];
    let all = |targets: Vec<String>| -> Vec<String> {
        let longer = |target: String| pieces.map(|piece| format!("{target}{piece}"));
        targets.into_iter().flat_map(longer).collect()
    };
    for target in all(all(all(vec!["/".to_owned()]))) {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target.as_str(), None),
        };
        let fits = is_path(path.as_bytes()) && query.is_none_or(|it| is_target(it.as_bytes()));
        let head = parse(text.as_bytes()).ok().flatten();
        assert_eq!(head.is_some(), fits, "{target:?}");
        if let Some(head) = head {
            assert_eq!(head.path(text.as_bytes()), path.as_bytes());
            assert_eq!(head.query(text.as_bytes()), query.map(str::as_bytes));
        }
    }
}
