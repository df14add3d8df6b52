//! Bytes of the specification, what a broker may send, and what nobody may.

use bytes::Bytes;
use fastrand::Rng;

use super::*;
use crate::write::{Consumer, Target};

fn receiver() -> Receiver {
    Receiver::new(131_072, 1 << 20)
}

/// A method frame.
fn frame(channel: u16, class: u16, id: u16, arguments: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend_from_slice(&channel.to_be_bytes());
    bytes.extend_from_slice(&(arguments.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(&class.to_be_bytes());
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(arguments);
    bytes.push(0xce);
    bytes
}

fn short(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

fn delivery(tag: u64, key: &str, properties: &[u8], body: &[&[u8]]) -> Vec<u8> {
    let tag = tag.to_be_bytes();
    let parts = [&short("c")[..], &tag, &[1], &short("x"), &short(key)];
    let mut bytes = frame(3, 60, 60, &parts.concat());
    let size: usize = body.iter().map(|part| part.len()).sum();
    let size = (size as u64).to_be_bytes();
    let header = [&[0, 60, 0, 0][..], &size, properties].concat();
    for (kind, payload) in std::iter::once((2, &header[..])).chain(body.iter().map(|it| (3, *it))) {
        bytes.extend_from_slice(&[kind, 0, 3]);
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes.push(0xce);
    }
    bytes
}

/// All events of bytes, as texts.
fn events(receiver: &mut Receiver, mut bytes: &[u8]) -> Result<Vec<String>, Error> {
    let mut events = Vec::new();
    while let Some((event, count)) = receiver.next(bytes)? {
        events.push(match event {
            Event::Message(channel, message) => format!(
                "{channel} {:?} {}",
                message.received()?,
                String::from_utf8_lossy(&message.body)
            ),
            event => format!("{event:?}"),
        });
        bytes = &bytes[count..];
    }
    Ok(events)
}

#[test]
fn a_message_is_published_in_frames_of_the_agreed_length() {
    let mut properties = Vec::new();
    let own = Properties {
        content_type: Some(b"a/b"),
        delivery_mode: Some(2),
        ..Properties::default()
    };
    own.write(&mut properties).unwrap();
    assert_eq!(properties, b"\x90\x00\x03a/b\x02");
    let target = Target {
        exchange: "x",
        key: "k",
        mandatory: true,
    };
    let mut out = Vec::new();
    let room = vec![b'y'; 4088];
    let body = [&room[..], b"z"].concat();
    write::basic_publish(&mut out, (1, 4096), &target, &properties, &body).unwrap();
    let method = b"\x01\0\x01\0\0\0\x0b\0\x3c\0\x28\0\0\x01x\x01k\x01\xce";
    let header = b"\x02\0\x01\0\0\0\x13\0\x3c\0\0\0\0\0\0\0\0\x0f\xf9\x90\0\x03a/b\x02\xce";
    let first = [&b"\x03\0\x01\0\0\x0f\xf8"[..], &room, b"\xce"].concat();
    let last = b"\x03\0\x01\0\0\0\x01z\xce";
    let expected = [&method[..], header, &first, last].concat();
    assert!(out == expected);
    assert!(first.len() == 4096);
}

#[test]
fn an_empty_body_has_no_frame_and_what_is_too_long_writes_nothing() {
    let target = |key| Target {
        exchange: "",
        key,
        mandatory: false,
    };
    let mut out = Vec::new();
    write::basic_publish(&mut out, (1, 4096), &target("k"), b"\0\0", b"").unwrap();
    assert_eq!(out.iter().filter(|it| **it == 0xce).count(), 2);
    out.clear();
    let long = "k".repeat(256);
    let error = write::basic_publish(&mut out, (1, 4096), &target(&long), b"\0\0", b"");
    assert_eq!(error, Err(TooLong));
    let consumer = Consumer {
        queue: "q",
        name: &long,
        no_ack: false,
        exclusive: false,
    };
    assert_eq!(write::basic_consume(&mut out, 1, &consumer), Err(TooLong));
    let properties = vec![0; 5000];
    let error = write::basic_publish(&mut out, (1, 4096), &target("k"), &properties, b"");
    assert_eq!(error, Err(TooLong));
    assert!(out.is_empty());
}

#[test]
fn a_message_comes_in_any_pieces() {
    let bytes = delivery(7, "k", b"\0\0", &[b"hel", b"lo"]);
    let expected = "3 Delivered(Deliver { consumer: [99], tag: 7, redelivered: true, \
                    exchange: [120], key: [107] }) hello";
    let found = events(&mut receiver(), &bytes).unwrap();
    assert_eq!(found, ["Part", "Part", "Part", expected]);
    // Byte by byte: nothing is taken before it is all there.
    let (mut receiver, mut waiting, mut found) = (receiver(), Vec::new(), Vec::new());
    for byte in bytes {
        waiting.push(byte);
        if let Some((event, count)) = receiver.next(&waiting).unwrap() {
            if let Event::Message(_, message) = event {
                found.push(message.body);
            }
            assert_eq!(count, waiting.len());
            waiting.clear();
        }
    }
    assert_eq!(found, [Bytes::from_static(b"hello")]);
}

#[test]
fn a_body_that_is_too_large_is_not_kept() {
    let mut receiver = Receiver::new(131_072, 4);
    let bytes = delivery(1, "k", b"\0\0", &[b"hel", b"lo"]);
    let mut rest = &bytes[..];
    while let Some((event, count)) = receiver.next(rest).unwrap() {
        if let Event::Message(_, message) = event {
            assert!(message.is_without_body() && message.body.is_empty());
            assert_eq!(message.size, 5);
        }
        rest = &rest[count..];
    }
    assert!(rest.is_empty());
}

#[test]
fn a_body_waits_for_room_and_its_bytes_keep_what_was_reserved() {
    let mut receiver = receiver();
    let bytes = delivery(1, "k", b"\0\0", &[b"hel", b"lo"]);
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    let (mut waits, mut asked) = (3, Vec::new());
    while !rest.is_empty() {
        let event = receiver.next_within(rest, &mut |channel, size| {
            asked.push((channel, size));
            waits -= 1;
            match waits {
                0 => Room::KeepBy(Box::new(|bytes| {
                    Bytes::from_owner([&bytes[..], b"!"].concat())
                })),
                _ => Room::Wait,
            }
        });
        let Some((event, count)) = event.unwrap() else {
            continue;
        };
        if let Event::Message(_, message) = event {
            found.push((message.body.clone(), message.is_without_body()));
        }
        rest = &rest[count..];
    }
    assert_eq!(found, [(Bytes::from_static(b"hello!"), true)]);
    assert_eq!(asked, [(3, 5); 3]);
    let discarded = |_: u16, _: u64| Room::Discard;
    let mut rest = &bytes[..];
    while let Some((event, count)) = receiver.next_within(rest, &mut { discarded }).unwrap() {
        if let Event::Message(_, message) = event {
            assert_eq!((message.body.len(), message.size), (0, 5));
        }
        rest = &rest[count..];
    }
    assert!(rest.is_empty());
}

#[test]
fn what_is_no_amqp_is_refused() {
    let heartbeat = b"\x08\0\0\0\0\0\0\xce";
    let ok = events(&mut receiver(), heartbeat).unwrap();
    assert_eq!(ok, ["Heartbeat"]);
    let no_body = delivery(1, "k", b"\0\0", &[]);
    let method_end = no_body.len() - 8 - 14;
    let twice = [&no_body[..method_end], &no_body[..method_end]].concat();
    let header_alone = no_body[method_end..].to_vec();
    let cases: [(&[u8], Error); 11] = [
        (b"HTTP/1.1 400", Error::Frame),
        (b"\x08\0\0\0\0\0\0\0", Error::Frame),
        (b"\x08\0\x01\0\0\0\0\xce", Error::Frame),
        (b"\x01\0\0\xff\xff\xff\xff", Error::FrameSize),
        (b"AMQP\0\0\x09\x02", Error::Version),
        (&frame(1, 60, 80, &[0; 8]), Error::Syntax),
        (&frame(1, 60, 80, &[0; 10]), Error::Syntax),
        (&frame(1, 60, 40, &[0; 10]), Error::Unexpected),
        (&frame(1, 99, 1, &[]), Error::Unexpected),
        (&twice, Error::Content),
        (&header_alone, Error::Content),
    ];
    for (bytes, expected) in cases {
        assert_eq!(events(&mut receiver(), bytes), Err(expected), "{bytes:?}");
    }
    let unknown_flag = delivery(1, "k", b"\0\x01", &[]);
    assert_eq!(events(&mut receiver(), &unknown_flag), Err(Error::Syntax));
    let more = delivery(1, "k", b"\0\0", &[b"a"]);
    let more = [&more[..], b"\x03\0\x03\0\0\0\x01b\xce"].concat();
    assert_eq!(events(&mut receiver(), &more), Err(Error::Content));
}

#[test]
fn the_end_of_a_channel_may_come_within_a_message() {
    let bytes = delivery(1, "k", b"\0\0", &[b"hel", b"lo"]);
    let cut = bytes.len() - 10;
    let close = [&404_u16.to_be_bytes()[..], &short("no"), &[0; 4]].concat();
    let both = [&bytes[..cut], &frame(3, 20, 40, &close)].concat();
    let found = events(&mut receiver(), &both).unwrap();
    let expected = "Method(3, ChannelClose(Closed { code: 404, text: [110, 111] }))";
    assert_eq!(found.last().map(String::as_str), Some(expected));
}

#[test]
fn tables_come_back_as_they_were_written() {
    let mut inner = Table::default();
    inner.set("deep", Value::Array(vec![Value::Void, Value::Bool(true)]));
    let mut table = Table::default();
    for (name, value) in [
        ("i", Value::Integer(i64::MIN)),
        ("f", Value::Float(1.5)),
        ("D", Value::Decimal(2, -314)),
        ("S", Value::from("text")),
        ("x", Value::Bytes(vec![0, 255])),
        ("T", Value::Timestamp(u64::MAX)),
        ("F", Value::Table(inner)),
    ] {
        table.set(name, value);
    }
    let mut bytes = Vec::new();
    table.write(&mut bytes).unwrap();
    assert_eq!(Table::read(&bytes[4..]).unwrap(), table);
    for cut in 5..bytes.len() {
        let found = Table::read(&bytes[4..cut]);
        assert!(found.is_err() || found.unwrap().0.len() < table.0.len());
    }
}

#[test]
fn numbers_of_all_types_are_read() {
    let bytes = b"\x01ab\xff\x01bB\xff\x01cs\xff\xff\x01du\xff\xff\x01eI\xff\xff\xff\xff\
                  \x01fi\xff\xff\xff\xff\x01gf\x3f\x80\0\0";
    let table = Table::read(bytes).unwrap();
    let values: Vec<_> = table.0.iter().map(|(_, value)| value.clone()).collect();
    let mut expected: Vec<_> = [-1, 255, -1, 65_535, -1, 4_294_967_295]
        .map(Value::Integer)
        .into();
    expected.push(Value::Float(1.0));
    assert_eq!(values, expected);
    assert_eq!(Table::read(b"\x01a?"), Err(Error::Syntax));
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let nested = |depth: usize| {
        let mut value = Value::Void;
        for _ in 0..depth {
            value = Value::Array(vec![value]);
        }
        let mut table = Table::default();
        table.set("a", value);
        let mut bytes = Vec::new();
        table.write(&mut bytes).unwrap();
        Table::read(&bytes[4..])
    };
    assert!(nested(16).is_ok());
    assert_eq!(nested(17), Err(Error::Syntax));
    let many = |count: usize| Table::read(&b"\x01aV".repeat(count));
    assert!(many(4096).is_ok());
    assert_eq!(many(4097), Err(Error::Syntax));
}

#[test]
fn properties_come_back_as_they_were_written() {
    let all = Properties {
        content_type: Some(b"t"),
        content_encoding: Some(b"e"),
        headers: Some(b"\x01aV"),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: Some(b"c"),
        reply_to: Some(b"r"),
        expiration: Some(b"60"),
        message_id: Some(b"m"),
        timestamp: Some(7),
        kind: Some(b"k"),
        user_id: Some(b"u"),
        app_id: Some(b""),
    };
    let mut bytes = Vec::new();
    all.write(&mut bytes).unwrap();
    assert_eq!(Properties::read(&bytes).unwrap(), all);
    for cut in 0..bytes.len() {
        assert_eq!(Properties::read(&bytes[..cut]), Err(Error::Syntax), "{cut}");
    }
}

fn login(user: Option<(&str, &str)>) -> Login {
    Login {
        user: user.map(|(name, password)| (name.to_owned(), password.to_owned())),
        vhost: "/".to_owned(),
        name: "n".to_owned(),
        product: ("p", "1"),
        heartbeat: 30,
        frame_max: 131_072,
    }
}

fn start(mechanisms: &'static [u8], version: (u8, u8)) -> Method<'static> {
    Method::ConnectionStart(Start {
        version,
        properties: Table::default(),
        mechanisms,
    })
}

#[test]
fn a_connection_is_agreed_on() {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(login(Some(("u", "p"))), &mut out);
    assert_eq!(out, b"AMQP\0\0\x09\x01");
    out.clear();
    let started = handshake.take(&start(b"AMQPLAIN PLAIN", (0, 9)), &mut out);
    assert_eq!(started, Ok(Progress::Waits));
    let said = String::from_utf8_lossy(&out).into_owned();
    assert!(said.contains("\0u\0p") && said.contains("connection.blocked"));
    out.clear();
    let tune = Tune {
        channel_max: 2047,
        frame_max: 8192,
        heartbeat: 60,
    };
    let tuned = handshake.take(&Method::ConnectionTune(tune), &mut out);
    assert_eq!(tuned, Ok(Progress::Waits));
    let answer = [&[0x07, 0xff, 0, 0, 0x20, 0, 0, 30][..]].concat();
    let open = [&short("/")[..], &[0, 0]].concat();
    let expected = [frame(0, 10, 31, &answer), frame(0, 10, 40, &open)].concat();
    assert_eq!(out, expected);
    let expected = Tuned {
        channel_max: 2047,
        frame_max: 8192,
        heartbeat: 30,
    };
    let opened = handshake.take(&Method::ConnectionOpenOk, &mut out);
    assert_eq!(opened, Ok(Progress::Open(expected)));
}

#[test]
fn a_connection_that_is_refused_is_told() {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(login(None), &mut out);
    let progress = handshake.take(&start(b"PLAIN", (0, 9)), &mut out);
    assert_eq!(progress, Ok(Progress::NoMechanism));
    let mut handshake = Handshake::new(login(None), &mut out);
    let version = handshake.take(&start(b"EXTERNAL", (1, 0)), &mut out);
    assert_eq!(version, Err(Error::Version));
    let mut handshake = Handshake::new(login(None), &mut out);
    assert!(
        handshake
            .take(&start(b"EXTERNAL", (0, 9)), &mut out)
            .is_ok()
    );
    let closed = Method::ConnectionClose(Closed {
        code: 403,
        text: b"no",
    });
    let refused = handshake.take(&closed, &mut out);
    assert_eq!(refused, Ok(Progress::Refused(403, "no".to_owned())));
    let mut handshake = Handshake::new(login(None), &mut out);
    let early = handshake.take(&Method::ConnectionOpenOk, &mut out);
    assert_eq!(early, Err(Error::Unexpected));
}

#[test]
fn confirmations_come_in_any_order_once() {
    let mut confirms = Confirms::default();
    (1..=6).for_each(|it| confirms.push(it));
    let settle = |confirms: &mut Confirms<u32>, tag, multiple| {
        let mut settled = Vec::new();
        let known = confirms.settle(tag, multiple, |it| settled.push(it));
        (known, settled)
    };
    assert_eq!(settle(&mut confirms, 2, false), (true, vec![2]));
    assert_eq!(settle(&mut confirms, 2, false), (true, vec![]));
    assert_eq!(settle(&mut confirms, 4, true), (true, vec![1, 3, 4]));
    assert_eq!(settle(&mut confirms, 3, true), (true, vec![]));
    assert_eq!(settle(&mut confirms, 1, false), (false, vec![]));
    assert_eq!(settle(&mut confirms, 7, false), (false, vec![]));
    assert_eq!(settle(&mut confirms, u64::MAX, true), (false, vec![]));
    assert_eq!(confirms.iter().copied().collect::<Vec<_>>(), [5, 6]);
    confirms.push(7);
    assert_eq!(settle(&mut confirms, 0, true), (true, vec![5, 6, 7]));
    assert!(confirms.is_empty());
    confirms.push(8);
    assert_eq!(settle(&mut confirms, 8, false), (true, vec![8]));
}

/// The acknowledgements in what was written: tag and whether all up to it are meant.
fn told(bytes: &[u8]) -> Vec<(u64, bool)> {
    let told = bytes.chunks(21).map(|it| {
        assert_eq!(it[7..11], [0, 60, 0, 80]);
        let tag = it[11..19].try_into().unwrap();
        (u64::from_be_bytes(tag), it[19] == 1)
    });
    told.collect()
}

#[test]
fn acknowledgements_are_put_together() {
    let (mut acks, mut out) = (Acks::default(), Vec::new());
    assert!((1..=8).all(|tag| acks.push(tag)));
    assert!(!acks.push(10));
    for tag in [1, 2, 3, 5] {
        assert!(acks.settle(tag, Settled::Ack, 1, &mut out));
    }
    assert!(out.is_empty());
    acks.flush(1, &mut out);
    assert_eq!(told(&out), [(3, true), (5, false)]);
    out.clear();
    assert!(!acks.settle(5, Settled::Ack, 1, &mut out));
    assert!(!acks.settle(1, Settled::Ack, 1, &mut out));
    assert!(!acks.settle(99, Settled::Ack, 1, &mut out));
    // A rejected one at the end is not told again, nor is 5.
    assert!(acks.settle(6, Settled::Reject, 1, &mut out));
    assert_eq!(out[7..11], [0, 60, 0, 90]);
    out.clear();
    acks.settle(4, Settled::Ack, 1, &mut out);
    acks.flush(1, &mut out);
    assert_eq!(told(&out), [(4, true)]);
    assert_eq!(acks.open(), 2);
    out.clear();
    acks.settle(8, Settled::Requeue, 1, &mut out);
    acks.settle(7, Settled::Reject, 1, &mut out);
    out.clear();
    acks.flush(1, &mut out);
    assert!(out.is_empty());
    assert_eq!(acks.open(), 0);
}

/// Whatever is settled in whatever order: each message is told of exactly once.
#[test]
fn every_message_is_told_of_once() {
    let mut random = Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for _ in 0..200 {
        let (mut acks, mut out) = (Acks::default(), Vec::new());
        let mut open: Vec<u64> = Vec::new();
        let mut at_broker = std::collections::BTreeSet::new();
        for tag in 1..=random.u64(1..=60) {
            assert!(acks.push(tag));
            open.push(tag);
            at_broker.insert(tag);
        }
        while !open.is_empty() {
            let at = random.usize(..open.len());
            let tag = open.swap_remove(at);
            let how = [Settled::Ack, Settled::Ack, Settled::Reject][random.usize(..3)];
            assert!(acks.settle(tag, how, 1, &mut out));
            if random.u8(..4) == 0 || open.is_empty() {
                acks.flush(1, &mut out);
                for it in out.chunks(21) {
                    let tag = u64::from_be_bytes(it[11..19].try_into().unwrap());
                    assert!(
                        at_broker.contains(&tag),
                        "an unknown tag closes the channel"
                    );
                    if it[10] == 80 && it[19] == 1 {
                        at_broker.retain(|other| *other > tag);
                    } else {
                        at_broker.remove(&tag);
                    }
                    assert!(open.iter().all(|it| at_broker.contains(it)));
                }
                out.clear();
            }
        }
        assert!(at_broker.is_empty());
    }
}

/// Bytes of a broker with one byte changed: an error or other events, never a panic, never more
/// memory than there are bytes.
#[test]
fn changed_bytes_do_no_harm() {
    let close = [&404_u16.to_be_bytes()[..], &short("no"), &[0; 4]].concat();
    let sound = [
        frame(1, 60, 80, &[0, 0, 0, 0, 0, 0, 0, 1, 1]),
        delivery(1, "k", b"\x20\x00\0\0\0\x03\x01aV", &[b"hello"]),
        frame(1, 20, 40, &close),
    ]
    .concat();
    assert!(events(&mut receiver(), &sound).is_ok());
    for at in 0..sound.len() {
        for value in [0, 1, 2, 3, 8, 60, 127, 128, 206, 255] {
            let mut changed = sound.clone();
            changed[at] = value;
            let _ = events(&mut receiver(), &changed);
        }
        let _ = events(&mut receiver(), &sound[..at]);
    }
}
