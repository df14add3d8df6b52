//! What is met, by itself and in random schedules with crashes.

use std::collections::HashSet;

use fastrand::Rng;

use super::*;

fn action(id: &str, progress: Progress) -> Action {
    Action {
        id: id.to_owned(),
        screen: "buy".to_owned(),
        progress,
        session: String::new(),
        repeats: 0,
        failures: 0,
        told: None,
    }
}

#[test]
fn what_is_met_depends_on_what_is_noted_and_runs() {
    use Meeting::*;
    let begun = action("a", Progress::Begun);
    let done = action("a", Progress::Done);
    let unsure = action("a", Progress::Unsure);
    let (dial, buy, other) = (At::Elsewhere, At::Screen("buy"), At::Screen("sell"));
    for (noted, runs, heard, at, wanted) in [
        (None, false, None, dial, Nothing),
        (None, false, None, buy, Begin),
        (Some(&begun), true, None, dial, Wait),
        (Some(&begun), true, None, buy, Wait),
        (Some(&begun), true, None, other, Wait),
        (Some(&begun), false, None, dial, Unsure),
        (Some(&begun), false, None, buy, Unsure),
        // What was heard of an earlier attempt says nothing about this one.
        (Some(&begun), false, Some("a"), buy, Unsure),
        (Some(&done), false, None, dial, Show),
        (Some(&done), false, None, buy, Show),
        (Some(&done), false, Some("a"), other, Show),
        (Some(&unsure), false, None, dial, Unsure),
        (Some(&unsure), false, Some("b"), buy, Unsure),
        (Some(&unsure), false, Some("a"), dial, Nothing),
        (Some(&unsure), false, Some("a"), buy, Repeat),
        (Some(&unsure), false, Some("a"), other, Begin),
        (Some(&unsure), false, Some("a"), At::OtherChoices, Begin),
        (Some(&unsure), false, None, At::OtherChoices, Unsure),
        (Some(&begun), true, None, At::OtherChoices, Wait),
        (Some(&done), false, None, At::OtherChoices, Show),
        (None, false, None, At::OtherChoices, Begin),
        // The end of one that ran is just being noted.
        (None, true, None, buy, Wait),
        (None, true, None, dial, Nothing),
        (Some(&unsure), true, Some("a"), buy, Wait),
        (Some(&unsure), true, Some("a"), other, Wait),
    ] {
        let heard = heard.map(attempt);
        let met = meet(noted, (runs, false), heard.as_ref(), at);
        assert_eq!(met, wanted, "{noted:?} {runs} {heard:?} {at:?}");
    }
    // What was heard of the attempt before says nothing of this one.
    let mut again = action("a", Progress::Unsure);
    again.repeats = 1;
    let heard = attempt("a");
    assert_eq!(
        meet(Some(&again), (false, false), Some(&heard), buy),
        Unsure
    );
    let heard = again.attempt();
    let met = meet(Some(&again), (false, false), Some(&heard), buy);
    assert_eq!(met, Repeat);
    // Whoever has waited for one begins no other one when its result was told elsewhere.
    assert_eq!(meet(None, (false, true), None, buy), Gone);
    assert_eq!(meet(None, (true, true), None, buy), Wait);
    assert_eq!(meet(None, (false, true), None, dial), Nothing);
    assert_eq!(meet(Some(&done), (false, true), None, buy), Show);
}

fn attempt(id: &str) -> Attempt {
    Attempt {
        id: id.to_owned(),
        repeats: 0,
    }
}

#[test]
fn only_the_attempt_that_is_meant_is_over() {
    let first = attempt("a");
    let (begun, done) = (action("a", Progress::Begun), action("a", Progress::Done));
    let unsure = action("a", Progress::Unsure);
    assert!(!begun.is_over(Some(&first), Some(&first)), "it runs");
    assert!(done.is_over(Some(&first), None) && !done.is_over(None, Some(&first)));
    assert!(unsure.is_over(None, Some(&first)) && !unsure.is_over(Some(&first), None));
    let mut again = unsure;
    again.repeats = 1;
    assert!(
        !again.is_over(Some(&first), Some(&first)),
        "it was begun again"
    );
    assert!(!again.is_over(None, Some(&attempt("b"))));
}

#[test]
fn a_result_is_told_again_to_who_dials_at_once() {
    let at = Duration::from_secs(1_000);
    let mut done = action("a", Progress::Done);
    assert!(
        !done.is_seen(("s1", None), true, at),
        "nobody has been told"
    );
    // A session that goes on behind its screen has shown it, whether that was noted or not.
    assert!(done.is_seen(("s1", Some("a")), false, at));
    assert!(!done.is_seen(("s1", Some("b")), false, at));
    let unsure = action("a", Progress::Unsure);
    assert!(!unsure.is_seen(("s1", Some("a")), false, at));
    done.told = Some(Told {
        session: "s1".to_owned(),
        at: at.as_millis() as u64,
    });
    for (session, dials, seconds, is_seen) in [
        ("s1", false, 1, true),
        ("s1", true, 1, true),
        ("s2", true, 1, false),
        ("s2", true, 29, false),
        ("s2", true, 30, true),
        ("s2", false, 1, true),
    ] {
        let now = at + Duration::from_secs(seconds);
        assert_eq!(
            done.is_seen((session, None), dials, now),
            is_seen,
            "{session} {seconds}"
        );
    }
    // The clock has been put back.
    assert!(!done.is_seen(("s2", None), true, Duration::ZERO));
}

/// A subscriber with two phones, one engine at a time, and a shop that counts.
#[derive(Default)]
struct World {
    noted: Option<Action>,
    runs: bool,
    next: u32,
    /// The attempts that have begun.
    begun: HashSet<(String, u32)>,
    /// What each phone's session has heard that nobody knows.
    heard: [Option<Attempt>; 2],
    /// The same as it was kept: a crash may come before what was heard last is.
    kept: [Option<Attempt>; 2],
    shown: Vec<String>,
}

impl World {
    fn come(&mut self, phone: usize, at: At<'_>) {
        let heard = self.heard[phone].clone();
        let before = self.noted.clone();
        match meet(before.as_ref(), (self.runs, false), heard.as_ref(), at) {
            Meeting::Nothing => assert!(at == At::Elsewhere),
            Meeting::Wait => assert!(self.runs),
            Meeting::Gone => panic!("nobody has waited"),
            Meeting::Begin => {
                assert!(!self.runs);
                // Whatever was there before has been told.
                let told =
                    |it: &Action| it.progress == Progress::Unsure && heard == Some(it.attempt());
                assert!(before.as_ref().is_none_or(told));
                self.next += 1;
                self.begin(attempt(&self.next.to_string()));
            }
            Meeting::Repeat => {
                let noted = before.unwrap();
                assert_eq!(heard, Some(noted.attempt()));
                self.begin(Attempt {
                    id: noted.id,
                    repeats: noted.repeats + 1,
                });
            }
            Meeting::Show => {
                let noted = self.noted.take().unwrap();
                assert_eq!(noted.progress, Progress::Done);
                self.heard[phone] = None;
                self.shown.push(noted.id);
            }
            Meeting::Unsure => {
                let noted = self.noted.as_mut().unwrap();
                noted.progress = Progress::Unsure;
                self.heard[phone] = Some(noted.attempt());
            }
        }
    }

    fn begin(&mut self, attempt: Attempt) {
        assert!(!self.runs, "two at a time");
        let mut noted = action(&attempt.id, Progress::Begun);
        noted.repeats = attempt.repeats;
        self.noted = Some(noted);
        self.runs = true;
        let is_new = self.begun.insert((attempt.id, attempt.repeats));
        assert!(is_new, "an attempt is begun twice");
    }

    fn end(&mut self, progress: Progress) {
        if self.runs {
            self.runs = false;
            self.noted.as_mut().unwrap().progress = progress;
        }
    }
}

#[test]
fn no_schedule_begins_an_action_twice_unasked() {
    for seed in 0..2000 {
        let mut random = Rng::with_seed(seed);
        let mut world = World::default();
        for _ in 0..60 {
            let phone = random.usize(..2);
            // What a phone has heard is kept behind its request, mostly.
            if random.u8(..3) == 0 {
                world.kept = world.heard.clone();
            }
            match random.u8(..9) {
                0 | 1 => world.come(phone, At::Screen("buy")),
                2 => world.come(phone, At::Screen("sell")),
                3 => world.come(phone, At::Elsewhere),
                4 => {
                    // A new session knows nothing.
                    world.heard[phone] = None;
                    world.come(phone, At::Elsewhere);
                }
                5 | 6 => world.end(Progress::Done),
                7 => world.end(Progress::Unsure),
                // A crash: nothing runs any more, and what is noted stays.
                _ => {
                    world.runs = false;
                    world.heard = world.kept.clone();
                }
            }
        }
        let mut shown = world.shown.clone();
        shown.dedup();
        assert_eq!(shown.len(), world.shown.len(), "{seed}: told twice");
    }
}
