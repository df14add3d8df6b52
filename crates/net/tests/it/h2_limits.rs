//! What a hostile peer does is bounded, and what is wrong is answered as RFC 9113 says.

use std::time::{Duration, Instant};

use crate::common::*;
use net::http2::{Code, ConnectionError, Engine, Event, Limits};

fn limits() -> Limits {
    Limits {
        streams: 4,
        header_list: 1000,
        fields: 10,
        resets: 5,
        control_frames: 20,
        continuations: 3,
        output: 200,
        ..Limits::default()
    }
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)
}

/// Repeats until the connection fails; the answer is after how often.
fn until_failure(
    engine: &mut Engine,
    mut bytes: impl FnMut(u32) -> Vec<u8>,
) -> (u32, ConnectionError) {
    for number in 0..100_000 {
        if let Err(error) = give(engine, &bytes(number)) {
            let last = sent(engine).pop().unwrap();
            assert_eq!(
                (last.0, &last.3[4..8]),
                (GOAWAY, &error.code.0.to_be_bytes()[..])
            );
            return (number, error);
        }
        sent(engine);
    }
    panic!("never failed");
}

fn calms(bytes: impl FnMut(u32) -> Vec<u8>) -> u32 {
    let mut engine = server(limits());
    give(&mut engine, &frame(HEADERS, END_HEADERS, 1, GET)).unwrap();
    let (count, error) = until_failure(&mut engine, bytes);
    assert_eq!(error.code, Code::CALM);
    count
}

#[test]
fn control_frames_are_bounded() {
    assert!(calms(|_| frame(PING, 0, 0, &[0; 8])) <= 20);
    assert!(calms(|_| frame(PING, 1, 0, &[0; 8])) <= 20);
    assert!(calms(|_| frame(SETTINGS, 0, 0, b"")) <= 20);
    assert!(calms(|_| frame(SETTINGS, 1, 0, b"")) <= 20);
    assert!(calms(|_| frame(PRIORITY, 0, 1, &[0; 5])) <= 20);
    assert!(calms(|_| frame(DATA, 0, 1, b"")) <= 20);
    assert!(calms(|_| frame(DATA, 8, 1, b"\0")) <= 20);
    assert!(calms(|_| frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])) <= 20);
    assert!(calms(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])) <= 20);
    assert!(calms(|_| frame(77, 0, 9, b"what")) <= 20);
    assert!(calms(|_| frame(GOAWAY, 0, 0, &[0; 8])) <= 20);
    assert!(calms(|n| [get(3 + n * 2), frame(RST_STREAM, 0, 3, &[0; 4])].concat()) <= 20);
}

#[test]
fn control_frames_are_counted_by_period() {
    let mut engine = server(limits());
    let now = Instant::now();
    for second in 0..100 {
        for _ in 0..20 {
            let later = now + Duration::from_secs(11 * (second + 1));
            let ping = frame(PING, 0, 0, &[0; 8]);
            assert_eq!(engine.receive(&ping, later), Ok(ping.len()));
            sent(&mut engine);
        }
    }
}

#[test]
fn replies_that_are_not_read_are_bounded() {
    let mut engine = server(Limits {
        control_frames: 1_000_000,
        ..limits()
    });
    let mut count = 0;
    while give(&mut engine, &frame(PING, 0, 0, &[0; 8])).is_ok() {
        count += 1;
    }
    assert!((10..=12).contains(&count), "{count}");
    assert!(engine.pending().len() < 300);
}

#[test]
fn rapid_resets_are_bounded() {
    // Whether the caller has seen the stream or not.
    for is_seen in [false, true] {
        let mut engine = server(limits());
        let (count, error) = loop_resets(&mut engine, is_seen);
        assert_eq!((count, error.code), (5, Code::CALM));
    }
}

fn loop_resets(engine: &mut Engine, is_seen: bool) -> (u32, ConnectionError) {
    let mut number = 0;
    loop {
        let stream = 1 + number * 2;
        give(engine, &get(stream)).unwrap();
        if is_seen {
            assert_eq!(events(engine), [Event::Head { stream, end: true }]);
        }
        if let Err(error) = give(engine, &frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])) {
            return (number, error);
        }
        let code = Code::CANCEL;
        let wanted = if is_seen {
            vec![Event::Reset { stream, code }]
        } else {
            vec![]
        };
        assert_eq!(events(engine), wanted);
        engine.release(stream);
        assert!(engine.is_idle());
        number += 1;
    }
}

#[test]
fn resets_of_answered_streams_are_not_counted() {
    let mut engine = server(limits());
    for number in 0..1000 {
        let stream = 1 + number * 2;
        give(&mut engine, &get(stream)).unwrap();
        events(&mut engine);
        engine.respond(stream, 200, [], false).unwrap();
        give(&mut engine, &frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).unwrap();
        engine.release(stream);
        sent(&mut engine);
    }
}

#[test]
fn streams_that_the_peer_makes_us_reset_are_bounded() {
    let count = calms(|n| frame(HEADERS, 5, 3 + n * 2, b"\x82\x86\x84\x84"));
    assert_eq!(count, 5);
    let mut engine = server(limits());
    let (count, error) = until_failure(&mut engine, |n| {
        let stream = 1 + n * 2;
        [get(stream), frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
    });
    assert_eq!((count, error.code), (5, Code::CALM));
}

#[test]
fn continuations_are_bounded() {
    let mut engine = server(limits());
    give(&mut engine, &frame(HEADERS, 0, 1, GET)).unwrap();
    let (count, error) = until_failure(&mut engine, |_| frame(CONTINUATION, 0, 1, b""));
    assert_eq!((count, error.code), (3, Code::CALM));
    let mut engine = server(limits());
    give(&mut engine, &frame(HEADERS, 0, 1, GET)).unwrap();
    let (count, error) = until_failure(&mut engine, |_| frame(CONTINUATION, 0, 1, &[0x82; 3000]));
    assert_eq!((count, error.code), (1, Code::CALM));
}

#[test]
fn streams_above_the_limit_are_refused() {
    let mut engine = server(limits());
    for stream in [1, 3, 5, 7] {
        give(&mut engine, &get(stream)).unwrap();
    }
    give(&mut engine, &get(9)).unwrap();
    assert_eq!(sent(&mut engine), [(RST_STREAM, 0, 9, vec![0, 0, 0, 7])]);
    // Streams that the peer reset but the caller still works for are bounded, too.
    let mut engine = server(Limits {
        resets: 1000,
        control_frames: 1000,
        ..limits()
    });
    for number in 0..20 {
        let stream = 1 + number * 2;
        give(&mut engine, &get(stream)).unwrap();
        events(&mut engine);
        give(&mut engine, &frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).unwrap();
    }
    let heads = (0..20).filter(|number| engine.take_head(1 + number * 2).is_some());
    assert_eq!(heads.count(), 8);
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0, name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
    out
}

#[test]
fn large_heads_are_told_and_keep_the_table() {
    for lines in [
        vec![literal("x", &"v".repeat(100)); 9],
        vec![literal("x", "v"); 11],
    ] {
        let mut engine = server(limits());
        // The last line goes into the table: the next block refers to it.
        let block = [GET, &lines.concat(), b"\x40\x01a\x01b"].concat();
        give(&mut engine, &frame(HEADERS, 5, 1, &block)).unwrap();
        assert_eq!(
            events(&mut engine),
            [Event::Head {
                stream: 1,
                end: true
            }]
        );
        assert!(engine.take_head(1).unwrap().is_too_large());
        engine.respond(1, 431, [], true).unwrap();
        engine.release(1);
        give(&mut engine, &frame(HEADERS, 5, 3, b"\x82\x86\x84\xbe")).unwrap();
        let head = engine.take_head(3).unwrap();
        assert_eq!(head.fields.view().get("a"), Some(&b"b"[..]));
    }
}

#[test]
fn bombs_of_indexed_lines_end_the_connection() {
    let mut engine = server(limits());
    // One line of 900 bytes in the table, then asked for again and again.
    let long = [b"\x40\x01a\x7f\x85\x06".as_slice(), &[b'v'; 900]].concat();
    let bomb = [GET, &long, &vec![0xbe; 10_000]].concat();
    let error = give(&mut engine, &frame(HEADERS, 5, 1, &bomb)).unwrap_err();
    assert_eq!(error.code, Code::CALM);
}

#[test]
fn windows_bound_what_is_held() {
    let windows = Limits {
        stream_window: 100,
        connection_window: 65_535,
        ..limits()
    };
    let mut engine = server(windows);
    give(&mut engine, &frame(HEADERS, 4, 1, GET)).unwrap();
    events(&mut engine);
    give(&mut engine, &frame(DATA, 0, 1, &[0; 100])).unwrap();
    assert_eq!(engine.readable(1), (&[0; 100][..], false));
    give(&mut engine, &frame(DATA, 0, 1, &[0; 1])).unwrap();
    assert_eq!(sent(&mut engine), [(RST_STREAM, 0, 1, vec![0, 0, 0, 3])]);
    assert_eq!(
        events(&mut engine).pop(),
        Some(Event::Reset {
            stream: 1,
            code: Code(3)
        })
    );
    // Data for streams that are gone is given back to the connection.
    for _ in 0..100 {
        give(&mut engine, &frame(DATA, 0, 1, &[0; 10_000])).unwrap_or_default();
    }
    // The window of the connection holds once too much is unread.
    let mut engine = server(Limits {
        stream_window: 1 << 26,
        ..windows
    });
    give(&mut engine, &frame(HEADERS, 4, 1, GET)).unwrap();
    let (count, error) = until_failure(&mut engine, |_| frame(DATA, 0, 1, &[0; 10_000]));
    let held = count as usize * 10_000;
    assert_eq!(error.code, Code::FLOW_CONTROL);
    assert!((32 << 20..(32 << 20) + 65_535).contains(&held), "{held}");
}

#[test]
fn the_window_of_a_released_stream_comes_back() {
    let windows = Limits {
        connection_window: 65_535,
        streams: 4,
        ..Limits::default()
    };
    let mut engine = server(windows);
    for number in 0..100 {
        let stream = 1 + number * 2;
        give(&mut engine, &frame(HEADERS, 4, stream, GET)).unwrap();
        give(&mut engine, &frame(DATA, 0, stream, &[0; 16_000])).unwrap();
        give(&mut engine, &frame(DATA, 8, stream, &[255; 1000])).unwrap();
        events(&mut engine);
        engine.release(stream);
        sent(&mut engine);
    }
}

#[test]
fn the_backlog_bounds_unsent_data() {
    let mut engine = server(Limits {
        backlog: 1000,
        ..Limits::default()
    });
    give(&mut engine, &get(1)).unwrap();
    events(&mut engine);
    engine.respond(1, 200, [], false).unwrap();
    let count = engine.send_data(1, &[0; 5000], true).unwrap();
    assert!((900..1000).contains(&count) && engine.capacity(1) == 0);
    assert_eq!(events(&mut engine), []);
    engine.written(100);
    assert_eq!(events(&mut engine), []);
    engine.written(700);
    assert_eq!(events(&mut engine), [Event::Writable { stream: 1 }]);
    assert!(engine.capacity(1) > 700);
}

#[test]
fn interim_responses_are_bounded() {
    let mut engine = client(Limits::default());
    engine.open(b"GET", b"http", b"a", b"/", [], true).unwrap();
    let mut count = 0;
    loop {
        give(&mut engine, &frame(HEADERS, 4, 1, b"\x08\x03103")).unwrap();
        if !matches!(events(&mut engine)[..], [Event::Head { .. }]) {
            break;
        }
        count += 1;
    }
    assert_eq!(count, 16);
}

#[test]
fn goaway_of_the_server_refuses_what_it_will_not_answer() {
    let mut engine = client(Limits::default());
    for _ in 0..3 {
        engine.open(b"GET", b"http", b"a", b"/", [], true).unwrap();
    }
    give(&mut engine, &frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0])).unwrap();
    let wanted = [
        Event::GoAway {
            last: 3,
            code: Code::NONE,
        },
        Event::Reset {
            stream: 5,
            code: Code::REFUSED,
        },
    ];
    assert_eq!(events(&mut engine), wanted);
}

#[test]
fn bodies_that_belie_their_length_are_reset() {
    let head = |status: &[u8], length: &str| {
        let mut block = status.to_vec();
        block.extend(literal("content-length", length));
        frame(HEADERS, 4, 1, &block)
    };
    let cases: [(&[u8], bool); 3] = [(b"abc", true), (b"abcde", false), (b"abcd", true)];
    for (body, is_end) in cases {
        let mut engine = client(Limits::default());
        engine.open(b"GET", b"http", b"a", b"/", [], true).unwrap();
        give(&mut engine, &head(b"\x88", "4")).unwrap();
        give(&mut engine, &frame(DATA, u8::from(is_end), 1, body)).unwrap();
        let found = events(&mut engine);
        let is_reset = found
            .iter()
            .any(|event| matches!(event, Event::Reset { .. }));
        assert_eq!(is_reset, body.len() != 4);
        assert_eq!(engine.readable(1).1, body.len() == 4);
    }
    // The answer to HEAD tells a length and has no body.
    let mut engine = client(Limits::default());
    engine.open(b"HEAD", b"http", b"a", b"/", [], true).unwrap();
    give(&mut engine, &head(b"\x88", "4")).unwrap();
    give(&mut engine, &frame(DATA, 1, 1, b"")).unwrap();
    assert_eq!(engine.readable(1), (&b""[..], true));
}

#[test]
fn a_smaller_initial_window_may_make_windows_negative() {
    let mut engine = server(Limits::default());
    give(&mut engine, &get(1)).unwrap();
    events(&mut engine);
    engine.respond(1, 200, [], false).unwrap();
    assert_eq!(engine.send_data(1, &[0; 1000], false), Ok(1000));
    give(&mut engine, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10])).unwrap();
    assert_eq!(engine.send_data(1, b"x", true), Ok(0));
    give(&mut engine, &frame(WINDOW_UPDATE, 0, 1, &[0, 0, 3, 0xde])).unwrap();
    assert_eq!(events(&mut engine), [Event::Settings]);
    give(&mut engine, &frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).unwrap();
    assert_eq!(events(&mut engine), [Event::Writable { stream: 1 }]);
    assert_eq!(engine.send_data(1, b"x", true), Ok(1));
}
