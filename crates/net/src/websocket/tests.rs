//! Examples of the RFCs, what breaks the protocol, and limits.

use fastrand::Rng;
use message::{Body, Field, Headers, Method, Request};

use super::*;

const BIG: usize = 1 << 24;

fn server() -> Reader {
    Reader::new(Role::Server, Limits::of_message(BIG), None)
}

fn client() -> Reader {
    Reader::new(Role::Client, Limits::of_message(BIG), None)
}

const DEFLATE: Deflate = Deflate {
    window_bits: 15,
    peer_keeps_context: false,
};

fn compressing(role: Role) -> Reader {
    Reader::new(role, Limits::of_message(BIG), Some(DEFLATE))
}

/// All that comes of these bytes, given in pieces of this size.
fn read(mut reader: Reader, bytes: &[u8], piece: usize) -> (Vec<Event>, Option<Violation>) {
    let mut events = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        while !rest.is_empty() {
            match reader.read(rest) {
                Err(violation) => return (events, Some(violation)),
                Ok((used, event)) => {
                    rest = &rest[used..];
                    assert!(used > 0, "bytes were left");
                    events.extend(event);
                }
            }
        }
    }
    (events, None)
}

/// The same whatever the pieces are. What is wrong in two ways with a compressed message is told by
/// what is seen first.
fn read_all(reader: impl Fn() -> Reader, bytes: &[u8]) -> (Vec<Event>, Option<Violation>) {
    let whole = read(reader(), bytes, bytes.len().max(1));
    for piece in [1, 2, 3, 7, 64] {
        let (events, violation) = read(reader(), bytes, piece);
        assert_eq!(events, whole.0, "in pieces of {piece}");
        assert_eq!(
            violation.is_some(),
            whole.1.is_some(),
            "in pieces of {piece}"
        );
    }
    whole
}

fn text(text: &str) -> Event {
    Event::Message(Kind::Text, text.to_owned().into())
}

fn code(result: &(Vec<Event>, Option<Violation>)) -> u16 {
    result.1.expect("it is a violation").code.0
}

#[test]
fn the_examples_of_rfc_6455_are_read() {
    let unmasked = b"\x81\x05Hello";
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(read_all(client, unmasked), (vec![text("Hello")], None));
    assert_eq!(read_all(server, masked), (vec![text("Hello")], None));
    let fragments = b"\x01\x03Hel\x80\x02lo";
    assert_eq!(read_all(client, fragments), (vec![text("Hello")], None));
    let ping = b"\x89\x05Hello";
    let pong = b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(read_all(client, ping).0, [Event::Ping("Hello".into())]);
    assert_eq!(read_all(server, pong).0, [Event::Pong("Hello".into())]);
    let mut long = b"\x82\x7e\x01\x00".to_vec();
    long.extend([7; 256]);
    let whole = Event::Message(Kind::Binary, vec![7; 256].into());
    assert_eq!(read_all(client, &long), (vec![whole], None));
    let mut longer = b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00".to_vec();
    longer.extend([7; 65536]);
    let whole = Event::Message(Kind::Binary, vec![7; 65536].into());
    assert_eq!(read_all(client, &longer), (vec![whole], None));
}

#[test]
fn the_examples_of_rfc_7692_are_read() {
    let reader = || compressing(Role::Client);
    let hello = [text("Hello")];
    let one = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00";
    assert_eq!(read_all(reader, one).0, hello);
    let fragments = b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00";
    assert_eq!(read_all(reader, fragments).0, hello);
    let stored = b"\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00";
    assert_eq!(read_all(reader, stored).0, hello);
    let last_block = b"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00";
    assert_eq!(read_all(reader, last_block).0, hello);
    let two_blocks = b"\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00";
    assert_eq!(read_all(reader, two_blocks).0, hello);
    // The second refers to the first.
    let both = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00";
    let keeps = Deflate {
        peer_keeps_context: true,
        ..DEFLATE
    };
    let reader = || Reader::new(Role::Client, Limits::of_message(BIG), Some(keeps));
    assert_eq!(read_all(reader, both).0, [text("Hello"), text("Hello")]);
    let forgets = read_all(|| compressing(Role::Client), both);
    assert_eq!(code(&forgets), 1007);
}

#[test]
fn control_frames_may_come_between_fragments() {
    let bytes = b"\x01\x03Hel\x89\x01!\x80\x02lo\x88\x05\x03\xe8bye";
    let close = Event::Close(Some((CloseCode::NORMAL, "bye".into())));
    let events = vec![Event::Ping("!".into()), text("Hello"), close];
    assert_eq!(read_all(client, bytes), (events, None));
    assert_eq!(read_all(client, b"\x88\x00").0, [Event::Close(None)]);
}

#[test]
fn what_breaks_the_protocol_is_told() {
    let cases: &[(&[u8], u16)] = &[
        (b"\x91\x00", 1002),
        (b"\xa1\x00", 1002),
        (b"\xc1\x00", 1002),
        (b"\x83\x00", 1002),
        (b"\x8b\x00", 1002),
        (b"\x09\x00", 1002),
        (b"\x89\x7e\x00\x80", 1002),
        (b"\x80\x00", 1002),
        (b"\x01\x00\x81\x00", 1002),
        (b"\x81\x80\x00\x00\x00\x00", 1002),
        (b"\x81\x7e\x00\x7d", 1002),
        (b"\x81\x7f\x00\x00\x00\x00\x00\x00\xff\xff", 1002),
        (b"\x81\x7f\x80\x00\x00\x00\x00\x00\x00\x00", 1002),
        (b"\x88\x01\x03", 1002),
        (b"\x88\x02\x03\xec", 1002),
        (b"\x88\x02\x03\xed", 1002),
        (b"\x88\x02\x03\xee", 1002),
        (b"\x88\x02\x00\x00", 1002),
        (b"\x88\x02\x0b\xb7", 1002),
        (b"\x88\x02\x13\x88", 1002),
        (b"\x88\x03\x03\xe8\xff", 1007),
        (b"\x81\x01\xff", 1007),
        (b"\x81\x01\xe2", 1007),
        (b"\x01\x01\xe2\x80\x01A", 1007),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(code(&read_all(client, bytes)), *wanted, "{bytes:x?}");
    }
    assert_eq!(code(&read_all(server, b"\x81\x00")), 1002);
    let reader = || compressing(Role::Client);
    assert_eq!(code(&read_all(reader, b"\xc9\x00")), 1002);
    assert_eq!(code(&read_all(reader, b"\x01\x00\xc0\x00")), 1002);
    assert_eq!(code(&read_all(reader, b"\xc1\x02\xff\xff")), 1007);
}

/// However many frames of a message lie in what has come, whoever reads can do something else
/// between them.
#[test]
fn a_message_in_many_frames_is_read_frame_by_frame() {
    let mut reader = client();
    let bytes = [b"\x01\x00".as_slice(), b"\x00\x01a".repeat(3).as_slice()].concat();
    assert_eq!(reader.read(&bytes), Ok((2, None)));
    assert_eq!(reader.read(&bytes[2..]), Ok((3, None)));
    assert_eq!(reader.read(&bytes[5..6]), Ok((1, None)));
    assert_eq!(reader.read(&bytes[6..]), Ok((2, None)));
    let last = reader.read(b"\x80\x00\x89\x00").unwrap();
    assert_eq!(last.0, 2);
    assert!(matches!(last.1, Some(Event::Message(Kind::Text, text)) if &text[..] == b"aa"));
}

#[test]
fn a_text_fails_as_soon_as_it_cannot_be_one() {
    let mut reader = client();
    assert_eq!(reader.read(b"\x01\x04\xf4"), Ok((3, None)));
    assert!(reader.is_amid());
    assert_eq!(reader.read(b"\x90").unwrap_err().code.0, 1007);
    let characters = "\u{10ffff}κό\u{fffe}".as_bytes();
    let mut bytes = vec![0x81, characters.len() as u8];
    bytes.extend(characters);
    assert_eq!(read_all(client, &bytes).1, None);
}

#[test]
fn limits_hold_before_the_bytes_are_there() {
    let limited = |message| {
        let limits = Limits {
            fragments: 3,
            ..Limits::of_message(message)
        };
        Reader::new(Role::Client, limits, Some(DEFLATE))
    };
    let announced = b"\x82\x7e\x10\x01";
    assert_eq!(code(&read_all(|| limited(0x1000), announced)), 1009);
    let together = b"\x02\x01a\x80\x04";
    assert_eq!(code(&read_all(|| limited(4), together)), 1009);
    assert_eq!(read_all(|| limited(5), together).1, None);
    let many = b"\x02\x00\x00\x00\x00\x00\x00\x00";
    assert_eq!(code(&read_all(|| limited(9), many)), 1008);
}

#[test]
fn a_small_frame_does_not_become_a_large_message() {
    let writer = Writer {
        role: Role::Server,
        deflate: Some(DEFLATE),
    };
    let mut frame = Vec::new();
    writer.message(Kind::Binary, &vec![0; 1_000_000], &mut frame);
    assert!(frame.len() < 5000, "{}", frame.len());
    let limited = |message| Reader::new(Role::Client, Limits::of_message(message), Some(DEFLATE));
    assert_eq!(code(&read_all(|| limited(999_999), &frame)), 1009);
    assert_eq!(read_all(|| limited(1_000_000), &frame).1, None);
}

#[test]
fn what_a_writer_writes_a_reader_reads() {
    let texts: Vec<String> = [0, 1, 125, 126, 127, 128, 4000, 65535, 65536, 200_000]
        .into_iter()
        .map(|length| {
            (0..length)
                .map(|at| char::from(b'a' + (at % 7) as u8))
                .collect()
        })
        .collect();
    for role in [Role::Server, Role::Client] {
        for window_bits in [0, 8, 9, 12, 15] {
            let deflate = (window_bits > 0).then_some(Deflate {
                window_bits,
                ..DEFLATE
            });
            let writer = Writer { role, deflate };
            let mut bytes = Vec::new();
            for text in &texts {
                writer.message(Kind::Text, text.as_bytes(), &mut bytes);
            }
            writer.ping(b"are you there", &mut bytes);
            writer.close(Some(CloseCode(4000)), &"é".repeat(100), &mut bytes);
            let other = match role {
                Role::Server => Role::Client,
                Role::Client => Role::Server,
            };
            let reader = Reader::new(other, Limits::of_message(BIG), deflate);
            let (events, violation) = read(reader, &bytes, 1500);
            assert_eq!(violation, None);
            let found = events.iter().take(texts.len());
            assert!(found.eq(texts.iter().map(|it| text(it)).collect::<Vec<_>>().iter()));
            assert_eq!(events[texts.len()], Event::Ping("are you there".into()));
            let reason = "é".repeat(61);
            let close = Event::Close(Some((CloseCode(4000), reason)));
            assert_eq!(events[texts.len() + 1], close);
        }
    }
}

#[test]
fn what_cannot_be_compressed_hardly_grows() {
    let writer = Writer {
        role: Role::Server,
        deflate: Some(DEFLATE),
    };
    let mut random = Rng::with_seed(1);
    let noise: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
    let mut frame = Vec::new();
    writer.message(Kind::Binary, &noise, &mut frame);
    assert_eq!(frame[0], 0xc2);
    assert!(frame.len() < noise.len() + 32, "{}", frame.len());
    let (events, _) = read(compressing(Role::Client), &frame, 999);
    assert_eq!(events, [Event::Message(Kind::Binary, noise.into())]);
    let mut empty = Vec::new();
    writer.message(Kind::Text, b"", &mut empty);
    assert_eq!(empty, b"\xc1\x01\x00");
}

/// Frames of all kinds, sound and broken.
fn random_frames(random: &mut Rng, role: Role, deflate: Option<Deflate>) -> Vec<u8> {
    let writer = Writer { role, deflate };
    let mut bytes = Vec::new();
    for _ in 0..random.u8(1..=6) {
        let payload = vec![random.u8(b'a'..=b'z'); random.usize(..300)];
        match random.u8(..6) {
            0 => writer.ping(&payload, &mut bytes),
            1 => writer.close(Some(CloseCode(random.u16(..5000))), "é", &mut bytes),
            2 => writer.message(Kind::Binary, &payload, &mut bytes),
            _ => writer.message(Kind::Text, &payload, &mut bytes),
        }
    }
    for _ in 0..random.u8(..4) {
        let at = random.usize(..bytes.len());
        bytes[at] = match random.bool() {
            true => bytes[at] ^ 1 << random.u8(..8),
            false => random.u8(..),
        };
    }
    bytes
}

#[test]
fn whatever_comes_gives_the_same_whatever_its_pieces_are() {
    let mut random = Rng::with_seed(7);
    let (mut messages, mut violations) = (0, 0);
    for round in 0..3000 {
        let (role, other) = match round % 2 {
            0 => (Role::Server, Role::Client),
            _ => (Role::Client, Role::Server),
        };
        let deflate = (round % 3 == 0).then_some(DEFLATE);
        let bytes = random_frames(&mut random, role, deflate);
        let reader = || Reader::new(other, Limits::of_message(200), deflate);
        let (events, violation) = read_all(reader, &bytes);
        messages += events.len();
        violations += usize::from(violation.is_some());
        let sizes = events.iter().filter_map(|event| match event {
            Event::Message(_, payload) => Some(payload.len()),
            _ => None,
        });
        assert!(sizes.max().unwrap_or_default() <= 200);
        assert!(violation.is_none_or(|it| it.code.may_be_sent()));
    }
    assert!(
        messages > 1000 && violations > 500,
        "{messages} {violations}"
    );
}

#[test]
fn the_end_of_a_shared_frame_is_found() {
    let writer = Writer {
        role: Role::Server,
        deflate: None,
    };
    let mut frames = Vec::new();
    let mut ends = Vec::new();
    for length in [0, 5, 126, 70_000, 3] {
        writer.message(Kind::Binary, &vec![1; length], &mut frames);
        ends.push(frames.len());
    }
    for count in 1..=frames.len() {
        let end = *ends.iter().find(|end| **end >= count).unwrap();
        assert_eq!(frames_end(&frames, count), end);
    }
    assert_eq!(frames_end(&frames, 0), 0);
}

fn request(fields: &[(&str, &str)]) -> Request {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.append(name, value);
    }
    Request {
        method: Method::Get,
        path: "/chat".into(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: Body::Empty,
        peer: std::net::Ipv4Addr::LOCALHOST.into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

const ASKS: [(&str, &str); 4] = [
    ("Upgrade", "WebSocket"),
    ("Connection", "keep-alive, Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

#[test]
fn the_handshake_of_rfc_6455_is_answered() {
    let mut fields = ASKS.to_vec();
    fields.push(("Sec-WebSocket-Protocol", "chat, superchat"));
    fields.push(("Sec-WebSocket-Extensions", "permessage-deflate"));
    let known = ["superchat".to_owned(), "chat".to_owned()];
    let terms = Terms {
        subprotocols: &known,
        compresses: true,
    };
    let handshake = Handshake::accept(&request(&fields), terms).unwrap();
    assert_eq!(handshake.reply.status, 101);
    let headers = handshake.reply.headers;
    let accept = headers.get("Sec-WebSocket-Accept").unwrap();
    assert_eq!(accept, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(
        headers.view().first(Field::Upgrade),
        Some(&b"websocket"[..])
    );
    assert_eq!(headers.get("Sec-WebSocket-Protocol"), Some(&b"chat"[..]));
    assert_eq!(handshake.subprotocol.as_deref(), Some("chat"));
    assert_eq!(handshake.deflate, Some(DEFLATE));
    let plain = Handshake::accept(&request(&fields), Terms::default()).unwrap();
    assert!(plain.deflate.is_none() && plain.subprotocol.is_none());
    assert!(
        plain
            .reply
            .headers
            .get("Sec-WebSocket-Extensions")
            .is_none()
    );
}

#[test]
fn requests_that_are_none_are_refused() {
    let without = |name: &str| {
        let fields: Vec<_> = ASKS.into_iter().filter(|(it, _)| *it != name).collect();
        request(&fields)
    };
    let with = |name: &str, value: &str| {
        let mut fields: Vec<_> = ASKS.into_iter().filter(|(it, _)| *it != name).collect();
        fields.push((name, value));
        request(&fields)
    };
    let twice = |name: &str, value: &str| {
        let mut fields = ASKS.to_vec();
        fields.push((name, value));
        request(&fields)
    };
    let mut post = request(&ASKS);
    post.method = Method::Post;
    let cases = [
        (post, 426),
        (without("Upgrade"), 426),
        (without("Connection"), 426),
        (with("Upgrade", "h2c"), 426),
        (with("Connection", "close"), 426),
        (without("Sec-WebSocket-Version"), 426),
        (with("Sec-WebSocket-Version", "8"), 426),
        (without("Sec-WebSocket-Key"), 400),
        (with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25j"), 400),
        (with("Sec-WebSocket-Key", "no base64 at all!!!!!!!="), 400),
        (twice("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), 400),
        (with("Sec-WebSocket-Extensions", "a; "), 400),
    ];
    for (request, status) in cases {
        let refused = Handshake::accept(&request, Terms::default()).unwrap_err();
        assert_eq!(refused.status, status, "{request:?}");
        let version = refused.headers.get("Sec-WebSocket-Version");
        assert_eq!(version.is_some(), status == 426);
    }
}

#[test]
fn a_client_and_a_server_agree() {
    let names = ["b".to_owned(), "a".to_owned()];
    let offer = Offer::new(&names, true);
    let mut asks = request(&[]);
    offer.put(&mut asks.headers);
    let terms = Terms {
        subprotocols: &names[1..],
        compresses: true,
    };
    let mut answer = Handshake::accept(&asks, terms).unwrap().reply.headers;
    answer.append("Connection", "Upgrade");
    let agreed = offer.check(101, answer.view()).unwrap();
    assert_eq!(agreed, (Some("a".to_owned()), Some(DEFLATE)));
    let mut wrong = vec![(200, answer.clone())];
    for (name, value) in [
        ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("Sec-WebSocket-Protocol", "c"),
        ("Sec-WebSocket-Extensions", "other"),
        ("Upgrade", "h2c"),
        ("Connection", "close"),
    ] {
        let mut headers = answer.clone();
        headers.set(name, value);
        wrong.push((101, headers));
    }
    for (status, headers) in wrong {
        assert!(offer.check(status, headers.view()).is_err(), "{headers:?}");
    }
    let plain = Offer::new(&[], false);
    assert!(plain.check(101, answer.view()).is_err());
}
