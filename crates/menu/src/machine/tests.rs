//! The state machine under requests that are repeated, late or foreign.

use fastrand::Rng;

use super::*;

fn typed(text: &str) -> SessionEvent {
    SessionEvent::Typed {
        code: "*123#".to_owned(),
        text: text.to_owned(),
    }
}

fn reply(text: &str, sequence: Option<u64>) -> SessionEvent {
    SessionEvent::Reply {
        text: text.to_owned(),
        sequence,
    }
}

fn screen(text: &str) -> Screen {
    Screen {
        text: text.to_owned(),
        ends: false,
    }
}

/// A session as whoever drives the machine keeps it.
#[derive(Default)]
struct Driven {
    heard: Option<Heard>,
    /// What has been acted on.
    done: Vec<String>,
}

impl Driven {
    fn take(&mut self, event: &SessionEvent, is_secret: bool) -> Received {
        let received = receive(self.heard.as_ref(), event);
        let action = match &received {
            Received::Begins(code) => code.clone(),
            Received::Typed(text) => text.clone(),
            Received::Several(_) => "several".to_owned(),
            _ => return received,
        };
        self.done.push(action);
        let heard = self.heard.get_or_insert_default();
        heard.note(event, is_secret);
        heard.answer = Some(screen(&self.done.len().to_string()));
        received
    }
}

/// However requests are repeated and come late, each input is acted on once and in order, and the
/// request that is repeated gets the answer that it had. Inputs that may be several are told apart
/// from those that follow them, too.
#[test]
fn repeated_and_late_requests_are_not_acted_on_twice() {
    const INPUTS: [&str; 8] = ["1", "50", "*", "1*2", "**", "", "0", "é*"];
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let mut driven = Driven::default();
        let mut texts = vec![String::new()];
        let mut expected = vec!["*123#".to_owned()];
        driven.take(&typed(""), false);
        for _ in 0..12 {
            let input = INPUTS[random.usize(..INPUTS.len())];
            // With nothing typed before, an empty input cannot be told from the first request.
            let before = texts.last().unwrap().clone();
            if input.is_empty() && before.is_empty() {
                continue;
            }
            let text = match before.as_str() {
                "" => input.to_owned(),
                before => format!("{before}*{input}"),
            };
            let is_secret = random.u8(..4) == 0;
            let (received, done) = match input.contains('*') {
                true => (Received::Several(input.to_owned()), "several"),
                false => (Received::Typed(input.to_owned()), input),
            };
            let taken = driven.take(&typed(&text), is_secret);
            assert_eq!(taken, received, "seed {seed}");
            expected.push(done.to_owned());
            texts.push(text);
            let answer = driven.heard.clone().unwrap().answer.unwrap();
            for _ in 0..random.u8(..3) {
                let old = &texts[random.usize(..texts.len())];
                let again = driven.take(&typed(old), false);
                assert_eq!(again, Received::Again(answer.clone()), "seed {seed}: {old}");
            }
        }
        assert_eq!(driven.done, expected, "seed {seed}");
    }
}

/// Whoever has seen the screens between means each of the inputs for one of them.
#[test]
fn inputs_that_were_missed_are_not_taken_as_one() {
    let mut driven = Driven::default();
    driven.take(&typed(""), false);
    let several = Received::Several("Anna*4711".to_owned());
    assert_eq!(driven.take(&typed("Anna*4711"), true), several);
    let again = Received::Again(screen("2"));
    for repeated in ["Anna*4711", "Anna", ""] {
        assert_eq!(driven.take(&typed(repeated), false), again, "{repeated}");
    }
    let anna = Received::Typed("Anna".to_owned());
    assert_eq!(driven.take(&typed("Anna*4711*Anna"), false), anna);
    let typed = driven.heard.unwrap().typed;
    assert!(!typed.contains("4711") && !typed.contains("Anna"));
}

#[test]
fn secrets_are_not_kept_in_what_was_typed() {
    let mut driven = Driven::default();
    driven.take(&typed(""), false);
    driven.take(&typed("1"), false);
    driven.take(&typed("1*4711"), true);
    driven.take(&typed("1*4711*2"), false);
    let heard = driven.heard.unwrap();
    assert!(
        !heard.typed.contains("4711"),
        "{}",
        heard.typed.escape_debug()
    );
    assert!(heard.typed.starts_with('1'));
}

/// Several inputs came at once, and were refused since one may have been a PIN: the next one was
/// kept as it is.
#[test]
fn what_follows_something_that_may_be_secret_is_not_kept_either() {
    let mut driven = Driven::default();
    driven.take(&typed(""), false);
    driven.take(&typed("1*60"), true);
    let received = driven.take(&typed("1*60*59371846"), false);
    assert_eq!(received, Received::Typed("59371846".to_owned()));
    let heard = driven.heard.unwrap();
    assert!(!heard.typed.contains("59371846"), "{:?}", heard.typed);
    assert_eq!(
        receive(Some(&heard), &typed("1*60*59371846")),
        Received::Again(screen("3"))
    );
    assert_eq!(
        receive(Some(&heard), &typed("1*60*59371846*7")),
        Received::Typed("7".to_owned())
    );
}

#[test]
fn numbered_requests_are_told_apart_by_their_numbers() {
    let mut driven = Driven::default();
    let dial = SessionEvent::Dial("*713#".to_owned());
    assert_eq!(
        driven.take(&dial, false),
        Received::Begins("*713#".to_owned())
    );
    assert_eq!(driven.take(&dial, false), Received::Again(screen("1")));
    let one = reply("1", Some(2));
    assert_eq!(driven.take(&one, false), Received::Typed("1".to_owned()));
    assert_eq!(driven.take(&one, false), Received::Again(screen("2")));
    assert_eq!(
        driven.take(&reply("1", Some(3)), false),
        Received::Typed("1".to_owned())
    );
    assert_eq!(driven.take(&one, false), Received::Again(screen("3")));
    // A dial that comes late is the one of before: the phone keeps its screen.
    assert_eq!(driven.take(&dial, false), Received::Again(screen("3")));
    let over = Heard {
        is_over: true,
        ..driven.heard.unwrap()
    };
    assert_eq!(receive(Some(&over), &dial), Received::Unknown);
}

/// The first key of a session was taken for a request of before where they count from 0.
#[test]
fn gateways_count_from_where_they_like() {
    for first in [0, 1, 2, 7] {
        let mut driven = Driven::default();
        driven.take(&SessionEvent::Dial("*713#".to_owned()), false);
        let one = reply("1", Some(first + 1));
        assert_eq!(driven.take(&one, false), Received::Typed("1".to_owned()));
        assert_eq!(driven.take(&one, false), Received::Again(screen("2")));
    }
}

#[test]
fn without_numbers_a_repeated_request_is_a_key() {
    let mut driven = Driven::default();
    driven.take(&SessionEvent::Dial("*713#".to_owned()), false);
    for _ in 0..2 {
        let received = driven.take(&reply("1", None), false);
        assert_eq!(received, Received::Typed("1".to_owned()));
    }
}

#[test]
fn sessions_that_are_not_known_or_over_do_not_go_on() {
    assert_eq!(receive(None, &reply("1", Some(2))), Received::Unknown);
    let begins = Received::Begins("*123*1*2#".to_owned());
    assert_eq!(receive(None, &typed("1*2")), begins);
    assert_eq!(receive(None, &SessionEvent::End), Received::Over);
    let over = Heard {
        typed: "1".to_owned(),
        answer: Some(screen("bye")),
        is_over: true,
        ..Heard::default()
    };
    assert_eq!(
        receive(Some(&over), &typed("1")),
        Received::Again(screen("bye"))
    );
    assert_eq!(receive(Some(&over), &typed("1*2")), Received::Unknown);
    assert_eq!(
        receive(Some(&over), &typed("2*1*1")),
        Received::Again(screen("bye"))
    );
}

#[test]
fn keys_of_the_menu_do_what_the_screen_shows() {
    let mut position = Position::start(3);
    assert_eq!(position.turn(MenuKey::Back), None);
    assert_eq!(position.turn(MenuKey::Home), None);
    position.go(4);
    position.pages = 3;
    assert_eq!(position.turn(MenuKey::PageBack), None);
    assert_eq!(position.turn(MenuKey::More), Some(Turned::Page));
    assert_eq!(position.turn(MenuKey::More), Some(Turned::Page));
    assert_eq!(position.turn(MenuKey::More), None);
    assert_eq!(position.turn(MenuKey::PageBack), Some(Turned::Page));
    assert_eq!((position.page, position.screen), (1, 4));
    assert_eq!(position.turn(MenuKey::Back), Some(Turned::Page));
    assert_eq!(position.turn(MenuKey::Back), Some(Turned::Entered));
    assert_eq!((position.page, position.screen), (0, 3));
    position.go(4);
    position.go(5);
    assert_eq!(position.turn(MenuKey::Home), Some(Turned::Entered));
    assert_eq!((position.screen, position.history.len()), (3, 0));
    assert_eq!(position.turn(MenuKey::Exit), Some(Turned::Exit));
}

#[test]
fn the_way_back_is_bounded() {
    let mut position = Position::start(0);
    for screen in 1..1000 {
        position.go(screen);
    }
    assert_eq!(position.history.len(), HISTORY_MAX);
    assert_eq!(position.history.last(), Some(&998));
}
