//! A session against a client of two buffers.

use std::rc::Rc;

use net::websocket::{Event, Kind, Writer};

use super::super::testing::{FakeClient, FakeServices, Wire, poll};
use super::*;

const WRITER: Writer = Writer {
    role: Role::Server,
    deflate: None,
};

fn session(wire: &Rc<Wire>) -> Session {
    let options = Options {
        message_max: 1000,
        deflate: None,
        ping: Duration::from_secs(30),
    };
    Session::new(FakeClient::of(wire), options)
}

/// The next message, in a turn of its own.
fn next(session: &mut Session) -> Poll<Option<(Kind, Bytes)>> {
    session.begin_turn();
    poll(|context| session.poll_message(context))
}

/// Runs to the end as far as it goes by itself.
fn end(session: &mut Session, services: &FakeServices) -> bool {
    let mut end = Box::pin(session.end(services));
    poll(|context| end.as_mut().poll(context)).is_ready()
}

fn watch(session: &mut Session, services: &FakeServices, seconds: u64) -> bool {
    services.pass(seconds);
    assert_eq!(next(session), Poll::Pending);
    let over = poll(|context| session.poll_watch(context, services, false)).is_ready();
    let _ = poll(|context| session.poll_flush(context));
    over
}

fn close_code(events: &[Event]) -> Option<u16> {
    match events.last()? {
        Event::Close(why) => why.as_ref().map(|(code, _)| code.0),
        _ => None,
    }
}

#[test]
fn messages_are_read_and_pings_answered() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    assert_eq!(next(&mut session), Poll::Pending);
    wire.send(|writer, out| writer.ping(b"1", out));
    wire.text("a");
    wire.text("b");
    for text in ["a", "b"] {
        let message = (Kind::Text, Bytes::from(text));
        assert_eq!(next(&mut session), Poll::Ready(Some(message)));
    }
    assert_eq!(next(&mut session), Poll::Pending);
    session.send(Kind::Binary, b"c");
    assert!(poll(|context| session.poll_flush(context)).is_ready());
    let answer = Event::Message(Kind::Binary, "c".into());
    assert_eq!(wire.events(), [Event::Pong("1".into()), answer]);
    wire.send(|writer, out| writer.close(Some(CloseCode(4321)), "bye", out));
    assert_eq!(next(&mut session), Poll::Ready(None));
    assert!(!session.is_over());
    assert!(end(&mut session, &services));
    assert_eq!(close_code(&wire.events()), Some(4321));
    assert!(wire.is_finished.get());
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_left() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    wire.text(&"x".repeat(1001));
    assert_eq!(next(&mut session), Poll::Ready(None));
    assert!(session.is_over());
    assert!(end(&mut session, &services));
    assert_eq!(close_code(&wire.events()), Some(1009));
    let wire = Wire::new();
    let mut session = self::session(&wire);
    wire.is_gone.set(true);
    assert_eq!(next(&mut session), Poll::Ready(None));
    assert!(session.is_over() && end(&mut session, &services));
    assert!(wire.events().is_empty() && !wire.is_finished.get());
}

#[test]
fn a_silent_client_is_asked_and_then_left() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    assert!(!watch(&mut session, &services, 0));
    assert!(!watch(&mut session, &services, 29));
    assert!(wire.events().is_empty());
    assert!(!watch(&mut session, &services, 1));
    assert_eq!(wire.events(), [Event::Ping("".into())]);
    wire.send(|writer, out| writer.pong(b"", out));
    assert!(!watch(&mut session, &services, 30));
    assert_eq!(wire.events(), [Event::Ping("".into())]);
    services.pass(30);
    assert!(poll(|context| session.poll_watch(context, &services, false)).is_ready());
    assert!(session.is_over());
    assert!(end(&mut session, &services));
    assert_eq!(close_code(&wire.events()), Some(1011));
}

#[test]
fn a_client_that_is_held_back_is_not_asked() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    wire.text("a");
    assert!(next(&mut session).is_ready());
    for _ in 0..10 {
        let over = poll(|context| session.poll_watch(context, &services, false));
        assert!(over.is_pending());
        services.pass(30);
    }
    assert!(!session.is_over() && session.waiting() == 0);
}

#[test]
fn a_client_that_takes_nothing_is_left() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    wire.takes.set(2);
    session.send(Kind::Text, b"hello");
    assert!(poll(|context| session.poll_flush(context)).is_pending());
    wire.takes.set(0);
    let mut seconds = 0;
    loop {
        // It talks, but takes nothing.
        wire.send(|writer, out| writer.pong(b"", out));
        assert_eq!(next(&mut session), Poll::Pending);
        if poll(|context| session.poll_watch(context, &services, false)).is_ready() {
            break;
        }
        services.pass(10);
        seconds += 10;
        assert!(seconds <= 150, "it is never left");
    }
    assert!(seconds >= 60, "{seconds}");
}

#[test]
fn a_client_that_takes_records_of_tls_is_not_left() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    session.send(Kind::Text, b"hello");
    wire.takes.set(0);
    for records in 0..30 {
        // No byte more is accepted while the socket takes what was accepted before, slowly.
        wire.records.set(records * 100);
        wire.send(|writer, out| writer.pong(b"", out));
        assert_eq!(next(&mut session), Poll::Pending);
        let watch = poll(|context| session.poll_watch(context, &services, false));
        assert!(watch.is_pending(), "left after {records} looks");
        services.pass(10);
    }
}

#[test]
fn a_client_whose_frames_never_end_has_its_turn_like_others() {
    let wire = Wire::new();
    let mut session = session(&wire);
    for _ in 0..1000 {
        wire.text("a");
    }
    let mut turns = 0;
    let mut messages = 0;
    while messages < 1000 {
        session.begin_turn();
        let before = messages;
        while poll(|context| session.poll_message(context)).is_ready() {
            messages += 1;
        }
        assert!((1..=10).contains(&(messages - before)));
        turns += 1;
    }
    assert!(turns >= 100);
}

/// Frames of a message that never ends are frames, too, although nothing comes of them.
#[test]
fn a_client_whose_message_never_ends_has_its_turn_like_others() {
    let wire = Wire::new();
    let mut session = session(&wire);
    // A text's first frame, then continuations, each of two bytes' head, four bytes' mask and none.
    let begin = [0x01, 0x80, 0, 0, 0, 0];
    let more = [0x00, 0x80, 0, 0, 0, 0];
    let frames = [begin.as_slice(), &more.repeat(999)].concat();
    wire.sent.borrow_mut().extend(frames);
    let mut turns = 0;
    while !session.watch.is_reading {
        session.begin_turn();
        assert!(poll(|context| session.poll_message(context)).is_pending());
        turns += 1;
    }
    assert_eq!(turns, 1000_usize.div_ceil(TURN));
}

#[test]
fn reading_stops_while_too_many_answers_wait() {
    let wire = Wire::new();
    let mut session = session(&wire);
    wire.takes.set(0);
    let ping = [7; 125];
    for _ in 0..2000 {
        wire.send(|writer, out| writer.ping(&ping, out));
    }
    assert_eq!(next(&mut session), Poll::Pending);
    assert!(session.waiting() <= WAITING_MAX + 200);
    wire.takes.set(usize::MAX);
    let mut pongs = 0;
    while pongs < 2000 {
        assert!(poll(|context| session.poll_flush(context)).is_ready());
        let events = wire.events();
        assert!(!events.is_empty());
        pongs += events.len();
        assert_eq!(next(&mut session), Poll::Pending);
    }
}

#[test]
fn nothing_comes_into_the_middle_of_a_shared_frame() {
    let mut frames = Vec::new();
    for number in 0..50_u8 {
        WRITER.message(
            Kind::Text,
            &vec![b'a' + number % 26; usize::from(number) * 7],
            &mut frames,
        );
    }
    for step in 1..40 {
        let wire = Wire::new();
        let mut session = session(&wire);
        let (mut written, mut round) = (0, 0);
        while written < frames.len() {
            // Now and then: answers go first, and must not be all that goes.
            if round % 9 == 0 {
                wire.send(|writer, out| writer.ping(b"p", out));
            }
            round += 1;
            assert_eq!(next(&mut session), Poll::Pending);
            wire.takes.set(step);
            let _ = poll(|context| session.poll_flush(context));
            // As in a ring: what is there grows by whole frames.
            let end = frames_end(&frames, written + 1).max(frames_end(&frames, written + 90));
            let part = &frames[written..end.min(frames.len())];
            if let Poll::Ready(count) = poll(|context| session.poll_write_shared(context, part)) {
                written += count;
            }
        }
        wire.takes.set(usize::MAX);
        assert!(poll(|context| session.poll_flush(context)).is_ready());
        let events = wire.events();
        let messages = events.iter().filter(|it| matches!(it, Event::Message(..)));
        assert_eq!(messages.count(), 50);
        assert!(events.iter().any(|it| matches!(it, Event::Pong(_))));
    }
}

#[test]
fn the_farewell_is_bounded() {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let mut session = session(&wire);
    session.close(CloseCode::GOING_AWAY, "bye");
    let mut end = Box::pin(session.end(&services));
    assert!(poll(|context| end.as_mut().poll(context)).is_pending());
    assert_eq!(close_code(&wire.events()), Some(1001));
    wire.text("too late");
    assert!(poll(|context| end.as_mut().poll(context)).is_pending());
    services.pass(5);
    assert!(poll(|context| end.as_mut().poll(context)).is_ready());
    drop(end);
    let wire = Wire::new();
    let mut session = self::session(&wire);
    session.close(CloseCode::GOING_AWAY, "bye");
    wire.send(|writer, out| writer.close(Some(CloseCode::GOING_AWAY), "", out));
    assert!(self::end(&mut session, &services));
    assert!(wire.is_finished.get());
}
