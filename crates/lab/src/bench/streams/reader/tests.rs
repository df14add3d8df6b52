//! Losses, duplicates, disorder and corruption are seen, however the bytes come.
#![cfg(test)]

use super::*;
use crate::stamp;
use crate::websocket::{self, TEXT};

#[derive(Default)]
struct Log(Vec<(u64, bool)>);

impl Arrivals for Log {
    fn received(&mut self) {}

    fn arrived(&mut self, _topic: usize, at: u64, is_last: bool) {
        self.0.push((at, is_last));
    }
}

/// What a subscriber does not have when the last event has this number.
fn missing(progress: &Progress, last: u64) -> u64 {
    progress.lost() + progress.behind(last)
}

fn event(number: u64) -> Vec<u8> {
    let mut text = format!("id: e-{number}\ndata: ").into_bytes();
    stamp::write(number, 1000 + number, 90, &mut text);
    text.extend_from_slice(b"\n\n");
    text
}

fn chunked(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// What a subscriber makes of a stream that comes in pieces of this size.
fn read(
    stream: &[u8],
    piece: usize,
    topic: &mut Topic,
    next: u64,
) -> (Tally, Progress, Log, io::Result<()>) {
    let mut state = State::Head { status: 200 };
    let (mut raw, mut carry) = (Vec::new(), Vec::new());
    let (mut tally, mut log) = (Tally::default(), Log::default());
    let mut progress = Progress {
        next,
        ..Progress::default()
    };
    for bytes in stream.chunks(piece) {
        let mut books = Books {
            topic,
            tally: &mut tally,
            arrivals: &mut log,
            subscribers: 2,
            topic_index: 0,
            progress: &mut progress,
        };
        raw.extend_from_slice(bytes);
        match take(&mut state, &mut carry, &raw, &mut books) {
            Ok(taken) => drain(&mut raw, taken),
            Err(error) => return (tally, progress, log, Err(error)),
        }
    }
    (tally, progress, log, Ok(()))
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn events_arrive_in_whatever_pieces() {
    let events: Vec<u8> = (1..=5).flat_map(event).collect();
    let streams = [
        [
            CHUNKED.to_vec(),
            chunked(b": hi\n\n"),
            (1..=5).flat_map(|it| chunked(&event(it))).collect(),
        ]
        .concat(),
        // Chunks that know nothing of events.
        [
            CHUNKED.to_vec(),
            events.chunks(37).flat_map(chunked).collect(),
        ]
        .concat(),
        [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), events].concat(),
    ];
    for stream in streams {
        for piece in [1, 7, 64, 100_000] {
            let mut topic = Topic::stamped(true);
            let first = read(&stream, piece, &mut topic, 1);
            let second = read(&stream, piece, &mut topic, 1);
            for (tally, progress, log, end) in [&first, &second] {
                end.as_ref().unwrap();
                assert_eq!(
                    (tally.delivered, tally.corrupt, tally.duplicates),
                    (5, 0, 0)
                );
                assert_eq!((progress.next, missing(progress, 5)), (6, 0));
                let times: Vec<u64> = log.0.iter().map(|(at, _)| *at).collect();
                assert_eq!(times, [1001, 1002, 1003, 1004, 1005]);
            }
            // The second subscriber is the last to have each.
            assert!(first.2.0.iter().all(|(_, is_last)| !is_last));
            assert!(second.2.0.iter().all(|(_, is_last)| *is_last));
        }
    }
}

fn of(numbers: &[u64]) -> Vec<u8> {
    let chunks = numbers.iter().flat_map(|number| chunked(&event(*number)));
    [CHUNKED.to_vec(), chunks.collect()].concat()
}

#[test]
fn what_is_missing_or_doubled_is_counted() {
    let cases: [(&[u64], u64, [u64; 3]); 6] = [
        // Lost, duplicates, disordered.
        (&[1, 2, 3], 0, [0, 0, 0]),
        (&[1, 3], 1, [1, 0, 0]),
        (&[1, 2], 2, [1, 0, 0]),
        (&[1, 2, 2, 3], 0, [0, 1, 0]),
        (&[1, 3, 2], 0, [0, 0, 1]),
        (&[2, 3, 1, 1], 0, [0, 1, 1]),
    ];
    for (numbers, _, wanted) in cases {
        let (tally, progress, _, end) = read(&of(numbers), 50, &mut Topic::stamped(false), 1);
        end.unwrap();
        let seen = [missing(&progress, 3), tally.duplicates, tally.disordered];
        assert_eq!(seen, wanted, "{numbers:?}");
    }
    let (_, progress, _, _) = read(&of(&[1, 3]), 50, &mut Topic::stamped(false), 1);
    assert_eq!((progress.lost(), progress.behind(5)), (1, 2));
    let (_, progress, _, _) = read(CHUNKED, 50, &mut Topic::stamped(false), 1);
    assert_eq!(missing(&progress, 3), 3);
}

#[test]
fn corrupt_events_are_no_deliveries() {
    let mut topic = Topic::stamped(false);
    read(&of(&[1, 2, 3]), 1000, &mut topic, 1).3.unwrap();
    let mut bad = of(&[1, 2, 3]);
    let at = memchr::memmem::find(&bad, b"\"n\":2").unwrap() + 70;
    bad[at] ^= 1;
    let (tally, progress, _, _) = read(&bad, 1000, &mut topic, 1);
    assert_eq!((tally.delivered, tally.corrupt), (2, 1));
    assert_eq!(missing(&progress, 3), 1);
    assert!(tally.first_error.unwrap().contains("hash"));
}

#[test]
fn gaps_that_are_told_are_no_losses() {
    let gap = chunked(b"event: gap\ndata: {}\n\n");
    let stream = [of(&[1]), gap, chunked(&event(4))].concat();
    let (tally, progress, _, _) = read(&stream, 1000, &mut Topic::stamped(false), 1);
    assert_eq!(
        (tally.gaps, tally.skipped, missing(&progress, 4)),
        (1, 2, 0)
    );
}

#[test]
fn documents_bridge_gaps_and_begin_streams() {
    use crate::document::Shape;
    let shape = Shape::new(400, 20);
    let whole = |tick: u64| {
        let text = shape.text(1, tick, 1000 + tick);
        chunked(&[b"event: snapshot\ndata: ", text.as_slice(), b"\n\n"].concat())
    };
    let mut topic = Topic::of_document(shape, 1, false);
    let stream = [CHUNKED.to_vec(), whole(3), whole(4), whole(7), whole(7)].concat();
    let (tally, progress, log, _) = read(&stream, 90, &mut topic, 0);
    assert_eq!((tally.initial, tally.delivered), (1, 2));
    assert_eq!((tally.gaps, tally.skipped, tally.duplicates), (1, 2, 1));
    assert_eq!(
        (progress.next, missing(&progress, 7), log.0.len()),
        (8, 0, 2)
    );
}

#[test]
fn ends_and_wrong_replies_are_errors() {
    let mut topic = Topic::stamped(false);
    let end = [of(&[1]), b"0\r\n\r\n".to_vec()].concat();
    for stream in [
        end.as_slice(),
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ] {
        let (_, _, _, end) = read(stream, 1000, &mut topic, 1);
        assert!(end.is_err(), "{}", String::from_utf8_lossy(stream));
    }
}

#[test]
fn messages_arrive_as_events_do() {
    let message = |number: u64| {
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        stamp::write(number, 1000 + number, 200, &mut payload);
        websocket::write_head(TEXT, payload.len(), None, &mut frame);
        [frame, payload].concat()
    };
    let ping = [0x89, 0].to_vec();
    let stream = [message(1), ping, message(2)].concat();
    let mut topic = Topic::stamped(false);
    for piece in [1, 1000] {
        let mut state = State::Frames;
        let (mut raw, mut tally, mut log) = (Vec::new(), Tally::default(), Log::default());
        let mut progress = Progress {
            next: 1,
            ..Progress::default()
        };
        for bytes in stream.chunks(piece) {
            let mut books = Books {
                topic: &mut topic,
                tally: &mut tally,
                arrivals: &mut log,
                subscribers: 1,
                topic_index: 0,
                progress: &mut progress,
            };
            raw.extend_from_slice(bytes);
            let taken = take(&mut state, &mut Vec::new(), &raw, &mut books).unwrap();
            drain(&mut raw, taken);
        }
        assert_eq!((tally.delivered, missing(&progress, 2)), (2, 0));
    }
}
