//! Honest peers are not cut off by limits meant for hostile ones: back ends (client role) in
//! particular, and peers that open windows in small steps.

use crate::common::*;
use net::http2::{Code, Engine, Event, Limits};

fn limits() -> Limits {
    Limits {
        header_list: 1000,
        fields: 10,
        resets: 5,
        control_frames: 20,
        ..Limits::default()
    }
}

fn open(engine: &mut Engine) -> u32 {
    engine.open(b"GET", b"http", b"a", b"/", [], true).unwrap()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0, name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
    out
}

/// Header sections above `fields`, and above `header_list`.
fn large() -> [Vec<u8>; 2] {
    [
        literal("x", "y").repeat(11),
        literal("x", &"v".repeat(100)).repeat(9),
    ]
}

#[test]
fn response_heads_above_the_limits_end_the_stream_only() {
    let mut engine = client(limits());
    for fields in large() {
        for status in [b"\x88".as_slice(), b"\x08\x03103"] {
            // More often than a hostile client may make the engine reset a stream.
            for _ in 0..50 {
                let stream = open(&mut engine);
                let block = [status, &fields].concat();
                give(&mut engine, &frame(HEADERS, END_HEADERS, stream, &block)).unwrap();
                assert_eq!(events(&mut engine), [Event::TooLarge { stream }]);
                assert!(engine.take_head(stream).is_none());
                let reset = sent(&mut engine).pop().unwrap();
                assert_eq!((reset.0, reset.2), (RST_STREAM, stream));
                engine.release(stream);
            }
        }
    }
    assert!(engine.is_idle() && engine.may_open().is_ok());
}

#[test]
fn trailers_above_the_limits_end_the_stream() {
    for fields in large() {
        let mut engine = client(limits());
        let stream = open(&mut engine);
        give(&mut engine, &frame(HEADERS, END_HEADERS, stream, b"\x88")).unwrap();
        give(&mut engine, &frame(HEADERS, 5, stream, &fields)).unwrap();
        assert_eq!(
            events(&mut engine).pop(),
            Some(Event::TooLarge { stream }),
            "of a response"
        );
        assert!(engine.take_trailers(stream).is_none());
        assert!(!engine.readable(stream).1);
        let mut engine = server(limits());
        give(&mut engine, &frame(HEADERS, END_HEADERS, 1, GET)).unwrap();
        events(&mut engine);
        give(&mut engine, &frame(HEADERS, 5, 1, &fields)).unwrap();
        assert_eq!(
            events(&mut engine),
            [Event::TooLarge { stream: 1 }],
            "of a request"
        );
        assert!(!engine.readable(1).1);
    }
}

#[test]
fn a_huge_response_head_leaves_the_other_streams_alone() {
    let mut engine = client(limits());
    let (first, second) = (open(&mut engine), open(&mut engine));
    // 60 KB, in more CONTINUATION frames than a client may send; the table stays in step.
    let part = literal("x", &"v".repeat(100)).repeat(30);
    give(&mut engine, &frame(HEADERS, 0, first, b"\x88")).unwrap();
    for _ in 0..20 {
        give(&mut engine, &frame(CONTINUATION, 0, first, &part)).unwrap();
    }
    let last = frame(CONTINUATION, END_HEADERS, first, b"\x40\x01a\x01b");
    give(&mut engine, &last).unwrap();
    assert_eq!(events(&mut engine), [Event::TooLarge { stream: first }]);
    give(&mut engine, &frame(HEADERS, 5, second, b"\x88\xbe")).unwrap();
    let head = engine.take_head(second).unwrap();
    assert_eq!(head.fields.view().get("a"), Some(&b"b"[..]));
    // What it costs to read them is bounded all the same.
    let long = [b"\x40\x01a\x7f\x85\x06".as_slice(), &[b'v'; 900]].concat();
    let bomb = [b"\x88", &long[..], &vec![0xbe; 15_000]].concat();
    let third = open(&mut engine);
    give(&mut engine, &frame(HEADERS, 0, third, &bomb)).unwrap();
    let more = frame(CONTINUATION, 0, third, &vec![0xbe; 16_000]);
    let last = frame(CONTINUATION, END_HEADERS, third, &vec![0xbe; 16_000]);
    let result = give(&mut engine, &[more, last].concat());
    assert_eq!(result.unwrap_err().code, Code::CALM);
}

#[test]
fn switching_protocols_is_malformed() {
    let mut engine = client(limits());
    let stream = open(&mut engine);
    let head = frame(HEADERS, END_HEADERS, stream, b"\x08\x03101");
    give(&mut engine, &head).unwrap();
    let code = Code::PROTOCOL;
    assert_eq!(events(&mut engine), [Event::Reset { stream, code }]);
    assert!(engine.take_head(stream).is_none());
}

#[test]
fn late_frames_of_a_back_end_are_no_offence() {
    let mut engine = client(limits());
    let cancelled: Vec<u32> = (0..600)
        .map(|_| {
            let stream = open(&mut engine);
            if stream % 4 == 1 {
                give(&mut engine, &frame(HEADERS, 4, stream, b"\x88")).unwrap();
            }
            events(&mut engine);
            engine.release(stream);
            sent(&mut engine);
            stream
        })
        .collect();
    // All of them were under way when the back end had not yet seen the resets.
    for stream in cancelled {
        for _ in 0..10 {
            give(&mut engine, &frame(DATA, 0, stream, &[0; 1000])).unwrap();
            give(
                &mut engine,
                &frame(WINDOW_UPDATE, 0, stream, &[0, 0, 16, 0]),
            )
            .unwrap();
        }
        give(&mut engine, &frame(HEADERS, 5, stream, b"\x00\x01a\x01b")).unwrap();
        give(&mut engine, &frame(RST_STREAM, 0, stream, &[0; 4])).unwrap();
        give(&mut engine, &frame(PING, 0, 0, &[0; 8])).unwrap();
        sent(&mut engine);
    }
    assert_eq!(events(&mut engine), []);
    assert!(engine.may_open().is_ok());
}

#[test]
fn resets_and_control_frames_of_a_back_end_are_not_counted() {
    let mut engine = client(limits());
    for _ in 0..1000 {
        let stream = open(&mut engine);
        give(&mut engine, &frame(RST_STREAM, 0, stream, &[0, 0, 0, 2])).unwrap();
        give(&mut engine, &frame(SETTINGS, 0, 0, b"")).unwrap();
        give(&mut engine, &frame(PRIORITY, 0, stream, &[0; 5])).unwrap();
        give(&mut engine, &frame(77, 0, 9, b"what")).unwrap();
        // Malformed responses end their streams only.
        engine.release(stream);
        let stream = open(&mut engine);
        give(&mut engine, &frame(HEADERS, 5, stream, b"\x88\x88")).unwrap();
        engine.release(stream);
        events(&mut engine);
        sent(&mut engine);
    }
    // What is not read is bounded all the same.
    let mut count = 0;
    while give(&mut engine, &frame(PING, 0, 0, &[0; 8])).is_ok() {
        count += 1;
        assert!(count < 10_000);
    }
}

/// Has the engine send so much on a stream to a peer that gives window back in steps of 4 KiB, for
/// stream and connection each.
fn send_in_steps(engine: &mut Engine, stream: u32, total: usize) {
    let piece = vec![7; 64 * 1024];
    let (mut taken, mut received, mut granted) = (0, 0, 0);
    while received < total {
        taken += engine.send_data(stream, &piece, false).unwrap();
        for (kind, _, _, payload) in sent(engine) {
            if kind == DATA {
                received += payload.len();
            }
        }
        assert_eq!(taken, received);
        while granted + 4096 <= received {
            granted += 4096;
            for id in [0, stream] {
                give(engine, &frame(WINDOW_UPDATE, 0, id, &[0, 0, 16, 0])).unwrap();
            }
        }
        events(engine);
    }
}

#[test]
fn small_window_updates_of_a_busy_peer_are_paid_for_by_bytes() {
    const TOTAL: usize = 200 * 1000 * 1000;
    // The size of a DATA frame is the peer's choice; Go allows 1 MiB.
    let settings = frame(SETTINGS, 0, 0, &[0, 5, 0, 16, 0, 0, 0, 4, 0, 16, 0, 0]);
    let mut engine = server(Limits::default());
    give(&mut engine, &settings).unwrap();
    give(&mut engine, &frame(HEADERS, 5, 1, GET)).unwrap();
    engine.respond(1, 200, [], false).unwrap();
    send_in_steps(&mut engine, 1, TOTAL);
    let mut engine = client(Limits::default());
    give(&mut engine, &settings).unwrap();
    let opened = engine.open(b"POST", b"http", b"a", b"/", [], false);
    send_in_steps(&mut engine, opened.unwrap(), TOTAL);
}

#[test]
fn small_messages_may_be_answered_one_by_one() {
    let mut engine = server(Limits::default());
    give(&mut engine, &frame(HEADERS, 5, 1, GET)).unwrap();
    engine.respond(1, 200, [], false).unwrap();
    for _ in 0..20_000 {
        assert_eq!(engine.send_data(1, &[0; 50], false), Ok(50));
        for id in [0, 1] {
            give(&mut engine, &frame(WINDOW_UPDATE, 0, id, &[0, 0, 0, 50])).unwrap();
        }
        give(&mut engine, &frame(PING, 0, 0, &[0; 8])).unwrap();
        sent(&mut engine);
    }
}

#[test]
fn a_window_that_is_opened_byte_by_byte_is_cut() {
    let mut engine = server(limits());
    give(&mut engine, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    give(&mut engine, &frame(HEADERS, 5, 1, GET)).unwrap();
    engine.respond(1, 200, [], false).unwrap();
    let piece = vec![0; 64 * 1024];
    let mut count = 0;
    loop {
        engine.send_data(1, &piece, false).unwrap();
        let update = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
        if let Err(error) = give(&mut engine, &update) {
            assert_eq!(error.code, Code::CALM);
            break;
        }
        sent(&mut engine);
        count += 1;
        assert!(count < 100);
    }
}

#[test]
fn resets_behind_whole_answers_are_no_offence() {
    let mut engine = server(limits());
    for number in 0..1000 {
        let stream = 1 + number * 2;
        give(&mut engine, &frame(HEADERS, 4, stream, GET)).unwrap();
        engine.respond(stream, 200, [], true).unwrap();
        engine.release(stream);
        give(&mut engine, &frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).unwrap();
        sent(&mut engine);
    }
}

#[test]
fn data_that_was_under_way_to_a_refused_upload_is_no_offence() {
    let windows = Limits {
        stream_window: 1 << 20,
        connection_window: 1 << 20,
        ..limits()
    };
    let mut engine = server(windows);
    for number in 0..20 {
        let stream = 1 + number * 2;
        give(&mut engine, &frame(HEADERS, 4, stream, GET)).unwrap();
        engine.respond(stream, 413, [], true).unwrap();
        engine.release(stream);
        for _ in 0..1000 {
            give(&mut engine, &frame(DATA, 0, stream, &[0; 1000])).unwrap();
            sent(&mut engine);
        }
    }
    // Beyond the window that it had, it is.
    let late = frame(DATA, 0, 1, &[0; 10_000]);
    assert!((0..1000).any(|_| give(&mut engine, &late).is_err()));
}
