//! WebSocket: any bytes of a peer, in any pieces, give messages within the limits or a violation,
//! never a panic, and the same whatever the pieces are; what is read is written and read again the
//! same. Any fields of a handshake are answered.

#![no_main]

use libfuzzer_sys::fuzz_target;
use message::{Body, Headers, Method, Request};
use net::websocket::{
    Deflate, Event, Handshake, Limits, Reader, Role, Terms, Violation, Writer, frames_end,
};

const MESSAGE_MAX: usize = 4096;

type Outcome = (Vec<Event>, Option<Violation>);

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, input)) = bytes.split_first() else {
        return;
    };
    if first & 7 == 7 {
        return handshake(input);
    }
    let role = match first & 1 {
        0 => Role::Server,
        _ => Role::Client,
    };
    let deflate = (first & 2 != 0).then_some(Deflate {
        window_bits: 15,
        peer_keeps_context: first & 4 != 0,
    });
    let reader = || {
        let limits = Limits {
            fragments: 64,
            ..Limits::of_message(MESSAGE_MAX)
        };
        Reader::new(role, limits, deflate)
    };
    let whole = read(reader(), input, input.len().max(1));
    let pieces = read(reader(), input, usize::from(first >> 3) + 1);
    assert_eq!(whole.0, pieces.0);
    // What is wrong in two ways with a compressed message is told by what is seen first.
    match deflate {
        None => assert_eq!(whole.1, pieces.1),
        Some(_) => assert_eq!(whole.1.is_some(), pieces.1.is_some()),
    }
    for event in &whole.0 {
        write(event, role, deflate);
    }
    let _ = frames_end(input, input.len() / 2);
});

fn read(mut reader: Reader, input: &[u8], size: usize) -> Outcome {
    let mut events = Vec::new();
    for piece in input.chunks(size) {
        let mut rest = piece;
        loop {
            match reader.read(rest) {
                Err(violation) => {
                    assert!(violation.code.may_be_sent());
                    return (events, Some(violation));
                }
                Ok((used, None)) => {
                    assert!(used > 0 || rest.is_empty());
                    rest = &rest[used..];
                    if rest.is_empty() {
                        break;
                    }
                }
                Ok((used, Some(event))) => {
                    rest = &rest[used..];
                    let is_last = matches!(event, Event::Close(_));
                    if let Event::Message(_, payload) = &event {
                        assert!(payload.len() <= MESSAGE_MAX);
                    }
                    events.push(event);
                    if is_last {
                        return (events, None);
                    }
                }
            }
        }
    }
    (events, None)
}

/// What the other side would send is read as it was written.
fn write(event: &Event, role: Role, deflate: Option<Deflate>) {
    let other = match role {
        Role::Server => Role::Client,
        Role::Client => Role::Server,
    };
    let writer = Writer {
        role: other,
        deflate,
    };
    let mut frame = Vec::new();
    match event {
        Event::Message(kind, payload) => writer.message(*kind, payload, &mut frame),
        Event::Ping(payload) => writer.ping(payload, &mut frame),
        Event::Pong(payload) => writer.pong(payload, &mut frame),
        Event::Close(why) => match why {
            Some((code, reason)) => writer.close(Some(*code), reason, &mut frame),
            None => writer.close(None, "", &mut frame),
        },
    }
    if other == Role::Server {
        assert_eq!(frames_end(&frame, 1), frame.len());
    }
    let mut reader = Reader::new(role, Limits::of_message(MESSAGE_MAX), deflate);
    let (used, again) = reader.read(&frame).unwrap();
    assert_eq!((used, again.as_ref()), (frame.len(), Some(event)));
}

/// Fields, each a name and a value, with bytes of zero between.
fn handshake(input: &[u8]) {
    let mut headers = Headers::new();
    let mut parts = input.split(|&byte| byte == 0);
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        if let Ok(name) = std::str::from_utf8(name)
            && Headers::is_name(name)
            && Headers::is_value(value)
        {
            headers.append(name, value);
        }
    }
    let request = Request {
        method: Method::Get,
        path: "/".into(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: Body::Empty,
        peer: std::net::Ipv4Addr::LOCALHOST.into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    let subprotocols = ["a".to_owned(), "b".to_owned()];
    let terms = Terms {
        subprotocols: &subprotocols,
        compresses: true,
    };
    match Handshake::accept(&request, terms) {
        Ok(handshake) => assert_eq!(handshake.reply.status, 101),
        Err(reply) => assert!(matches!(reply.status, 400 | 426)),
    }
}
