//! Heads are read as `httparse` reads them, apart from bare line feeds, which it takes for line
//! ends: compared over the seeds of the fuzzer, requests of public research, and mutations of both.

use fastrand::Rng;
use httparse::{Header, Status};

use super::*;

/// A head, as either of the two has read it: the first line, names and values, and the length.
type Head = (String, Vec<(Vec<u8>, Vec<u8>)>, usize);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Reply,
    Trailers,
}

const KINDS: [Kind; 3] = [Kind::Request, Kind::Reply, Kind::Trailers];

fn part(bytes: &[u8], (start, end): Span) -> String {
    String::from_utf8_lossy(&bytes[start as usize..end as usize]).into_owned()
}

fn ours(bytes: &[u8], kind: Kind) -> Result<Head, Stop> {
    let (first, mut at) = match kind {
        Kind::Request => {
            let line = request_line(bytes, 0)?;
            let (method, target) = (part(bytes, line.method), part(bytes, line.target));
            (format!("{method} {target} {:?}", line.version), line.end)
        }
        Kind::Reply => {
            let line = status_line(bytes)?;
            let reason = part(bytes, line.reason);
            (
                format!("{:?} {} {reason}", line.version, line.status),
                line.end,
            )
        }
        Kind::Trailers => (String::new(), 0),
    };
    let mut lines = Vec::new();
    loop {
        match line(bytes, at)? {
            Line::End(end) => return Ok((first, lines, end)),
            Line::Field(line) => {
                assert_eq!(part(bytes, line.name_span).as_bytes(), line.name);
                let (start, end) = line.value_span;
                assert_eq!(&bytes[start as usize..end as usize], line.value);
                lines.push((line.name.to_vec(), line.value.to_vec()));
                at = line.end;
            }
        }
    }
}

fn version(minor: Option<u8>) -> Version {
    match minor {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    }
}

fn theirs(bytes: &[u8], kind: Kind) -> Result<Head, Stop> {
    let room = &mut [httparse::EMPTY_HEADER; 2048];
    let own = |lines: &[Header<'_>]| -> Vec<_> {
        let own = |line: &Header<'_>| (line.name.as_bytes().to_vec(), line.value.to_vec());
        lines.iter().map(own).collect()
    };
    match kind {
        Kind::Request => {
            let mut head = httparse::Request::new(room);
            let length = complete(head.parse(bytes))?;
            let (method, target) = (head.method.unwrap(), head.path.unwrap());
            let first = format!("{method} {target} {:?}", version(head.version));
            Ok((first, own(head.headers), length))
        }
        Kind::Reply => {
            let mut head = httparse::Response::new(room);
            let length = complete(head.parse(bytes))?;
            let (version, code) = (version(head.version), head.code.unwrap());
            let first = format!("{version:?} {code} {}", head.reason.unwrap());
            Ok((first, own(head.headers), length))
        }
        Kind::Trailers => {
            let (length, lines) = complete(httparse::parse_headers(bytes, room))?;
            Ok((String::new(), own(lines), length))
        }
    }
}

fn complete<T>(result: httparse::Result<T>) -> Result<T, Stop> {
    Err(match result {
        Ok(Status::Complete(read)) => return Ok(read),
        Ok(Status::Partial) => Stop::Incomplete,
        Err(httparse::Error::HeaderName) => BAD_NAME.into(),
        Err(httparse::Error::HeaderValue) => BAD_VALUE.into(),
        Err(httparse::Error::NewLine) => BAD_LINE_END.into(),
        Err(httparse::Error::Status) => BAD_STATUS_LINE.into(),
        Err(httparse::Error::Token) => BAD_REQUEST_LINE.into(),
        Err(httparse::Error::Version) => Stop::Version,
        Err(httparse::Error::TooManyHeaders) => panic!("too many fields for a test"),
    })
}

/// Whether a head that ends here has a line feed without a carriage return before it.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let is_bare = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    (0..head.len()).any(is_bare)
}

fn compare(bytes: &[u8], kind: Kind) {
    let (ours, theirs) = (ours(bytes, kind), theirs(bytes, kind));
    let text = || format!("{kind:?} {:?}", String::from_utf8_lossy(bytes));
    match (&ours, &theirs) {
        (Err(Stop::Refused(error)), theirs) if *error == BARE_LINE_FEED => {
            let length = theirs.as_ref().map_or(bytes.len(), |head| head.2);
            assert!(has_bare_line_feed(&bytes[..length]), "{}", text());
        }
        // Callers refuse what else `httparse` takes: empty lines, targets in UTF-8.
        (Err(Stop::Refused(error)), _)
            if matches!(kind, Kind::Request)
                && (matches!(bytes.first(), Some(b'\r' | b'\n')) || !bytes.is_ascii())
                && *error == BAD_REQUEST_LINE => {}
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours, theirs, "{}", text());
            assert!(!has_bare_line_feed(&bytes[..ours.2]), "{}", text());
        }
        _ => assert_eq!(ours, theirs, "{}", text()),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/http_head");
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let odd = testkit::odd_requests::all();
    let own = [
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 50\r\n\r\n",
        "HTTP/1.0 404 Not Found\r\nA:\r\nB: \t \r\nC:d \t\r\n\r\n",
        "HTTP/1.1 200\r\nX-Long-Name-With-More-Than-Sixteen: a\tb\u{e4} with text of many words\r\n\r\n",
        "HTTP/1.1 500 F\u{e4}hler\r\nx: y\r\n\r\n",
        "Digest: a\r\nX-Checksum-Of-All: 0123456789abcdef\r\n\r\n",
        "PROPFIND /a/b.c?d=%20 HTTP/1.1\r\nHost: [::1]:80\r\nA-_.!#$%&'*+^`|~09: x\r\n\r\n",
    ];
    let own = own.iter().map(|text| text.as_bytes().to_vec());
    files
        .chain(odd.into_iter().map(|it| it.bytes))
        .chain(own)
        .collect()
}

#[test]
fn seeds_are_read_as_httparse_reads_them() {
    for seed in seeds() {
        for kind in KINDS {
            compare(&seed, kind);
        }
    }
}

#[test]
fn every_prefix_is_read_as_httparse_reads_it() {
    for seed in seeds().iter().filter(|seed| seed.len() < 600) {
        for end in 0..seed.len() {
            KINDS
                .into_iter()
                .for_each(|kind| compare(&seed[..end], kind));
        }
    }
}

#[test]
fn every_byte_is_read_as_httparse_reads_it_wherever_it_stands() {
    let texts = [
        (
            "GET /abc HTTP/1.1\r\nHost: a\r\nLong-Name: 12 34\r\n\r\n",
            Kind::Request,
        ),
        (
            "HTTP/1.1 200 OK\r\nHost: a\r\nLong-Name: 12345678 9\r\n\r\n",
            Kind::Reply,
        ),
        ("A: b\r\n\r\n", Kind::Trailers),
    ];
    for (text, kind) in texts {
        for at in 0..text.len() {
            for byte in 0..=255 {
                let mut replaced = text.as_bytes().to_vec();
                replaced[at] = byte;
                compare(&replaced, kind);
                let mut inserted = text.as_bytes().to_vec();
                inserted.insert(at, byte);
                compare(&inserted, kind);
            }
        }
    }
}

#[test]
fn mutations_are_read_as_httparse_reads_them() {
    const TOKENS: [&[u8]; 18] = [
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"\x7f",
        b"\xff",
        b"?",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"HTTP/1.2",
        b"200",
        b"/",
        b"Content-Length: 5",
        b"\r\n\r\n",
        b"x",
    ];
    let seeds: Vec<_> = seeds().into_iter().filter(|it| it.len() < 600).collect();
    let mut random = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    for _ in 0..60_000 {
        let mut bytes = seeds[random.usize(..seeds.len())].clone();
        for _ in 0..random.u8(1..=4) {
            let at = random.usize(..bytes.len().max(1));
            match random.u8(..4) {
                0 if !bytes.is_empty() => bytes[at] = random.u8(..),
                1 => bytes.truncate(at),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                _ => {
                    let token = TOKENS[random.usize(..TOKENS.len())];
                    bytes.splice(at..at, token.iter().copied());
                }
            }
        }
        KINDS.into_iter().for_each(|kind| compare(&bytes, kind));
    }
}

#[test]
fn the_first_control_character_of_a_word_is_found() {
    for at in 0..8 {
        for byte in 0..=255_u8 {
            for other in [b' ', b'a', 0x80, 0xff, 0x7e] {
                let mut word = [other; 8];
                word[at] = byte;
                let is_control = byte < b' ' || byte == 0x7f;
                let expected = if is_control { at } else { 8 };
                assert_eq!(
                    first_control(u64::from_le_bytes(word)),
                    expected,
                    "{word:?}"
                );
            }
        }
    }
}

#[test]
fn a_value_ends_at_the_first_control_character_wherever_that_stands() {
    for length in 0..=4 * CHUNK + 9 {
        let mut text = vec![b'x'; length];
        assert_eq!(text_length(&text), length);
        for at in 0..length {
            for (byte, is_end) in [
                (b'\r', true),
                (0, true),
                (0x7f, true),
                (b'\t', false),
                (0xe4, false),
            ] {
                text[at] = byte;
                let end = if is_end { at } else { length };
                assert_eq!(text_length(&text), end, "{byte:#x} at {at} of {length}");
            }
            text[at] = b'x';
        }
    }
}
