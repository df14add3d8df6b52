//! What is met, by itself and in random schedules with crashes.

use std::collections::HashMap;

use super::*;

fn action(id: &str, progress: Progress) -> Action {
    Action {
        id: id.to_owned(),
        screen: "buy".to_owned(),
        progress,
        session: String::new(),
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
    ] {
        let met = meet(noted, runs, heard, at);
        assert_eq!(met, wanted, "{noted:?} {runs} {heard:?} {at:?}");
    }
}

#[test]
fn a_result_is_told_again_to_who_dials_at_once() {
    let at = Duration::from_secs(1_000);
    let mut done = action("a", Progress::Done);
    assert!(!done.is_seen("s1", true, at), "nobody has been told");
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
            done.is_seen(session, dials, now),
            is_seen,
            "{session} {seconds}"
        );
    }
    // The clock has been put back.
    assert!(!done.is_seen("s2", true, Duration::ZERO));
}

/// A subscriber with two phones, one engine at a time, and a shop that counts.
#[derive(Default)]
struct World {
    noted: Option<Action>,
    runs: bool,
    next: u32,
    /// How often the steps of an action have begun, and how often that was asked for.
    begun: HashMap<String, (u32, u32)>,
    /// What each phone's session has heard that nobody knows.
    heard: [Option<String>; 2],
    shown: Vec<String>,
}

impl World {
    fn come(&mut self, phone: usize, at: At<'_>) {
        let heard = self.heard[phone].clone();
        let before = self.noted.clone();
        match meet(before.as_ref(), self.runs, heard.as_deref(), at) {
            Meeting::Nothing => assert!(at == At::Elsewhere),
            Meeting::Wait => assert!(self.runs),
            Meeting::Begin => {
                assert!(!self.runs);
                // Whatever was there before has been told.
                let told =
                    |it: &Action| it.progress == Progress::Unsure && heard == Some(it.id.clone());
                assert!(before.as_ref().is_none_or(told));
                self.next += 1;
                self.begin(format!("{}", self.next));
            }
            Meeting::Repeat => {
                let noted = before.unwrap();
                assert_eq!(heard, Some(noted.id.clone()));
                self.begin(noted.id);
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
                self.heard[phone] = Some(noted.id.clone());
            }
        }
    }

    fn begin(&mut self, id: String) {
        assert!(!self.runs, "two at a time");
        self.noted = Some(action(&id, Progress::Begun));
        self.runs = true;
        let (times, asked) = self.begun.entry(id).or_default();
        (*times, *asked) = (*times + 1, *asked + 1);
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
    for seed in 0..2000_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut world = World::default();
        for _ in 0..60 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let phone = (random >> 8) as usize % 2;
            match random % 9 {
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
                _ => world.runs = false,
            }
        }
        let mut shown = world.shown.clone();
        shown.dedup();
        assert_eq!(shown.len(), world.shown.len(), "{seed}: told twice");
        for (id, (times, asked)) in world.begun {
            assert_eq!(times, asked, "{seed} {id}");
        }
    }
}
