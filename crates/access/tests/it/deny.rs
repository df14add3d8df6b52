//! The deny list.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::deny::{Change, Denied, DenyList, FileEntries, Kind, NotAdded, Source, parse_file};
use fastrand::Rng;

const SKEW: u64 = 30;

fn entry(kind: Kind, name: &str, expires: Option<u64>) -> Denied {
    Denied::new(kind, name, expires, None).unwrap()
}

fn names(list: &DenyList, now: u64) -> Vec<(bool, Kind, String, Option<u64>)> {
    let shown = |(source, it): (Source, &Denied)| {
        let name = it.name.to_string();
        (source == Source::File, it.kind, name, it.expires)
    };
    let mut all: Vec<_> = list.entries(now).map(shown).collect();
    all.sort();
    all
}

/// A token is taken for as long after its end as clocks may differ, and so is its entry.
#[test]
fn a_token_is_denied_for_as_long_as_it_would_be_taken() {
    let mut list = DenyList::new(10, SKEW);
    assert!(list.is_empty());
    list.add(entry(Kind::Token, "a", Some(100)), 0).unwrap();
    list.add(entry(Kind::Subject, "a", Some(100)), 0).unwrap();
    list.add(entry(Kind::Key, "b", None), 0).unwrap();
    for (kind, name, now, is_denied) in [
        (Kind::Token, "a", 129, true),
        (Kind::Token, "a", 130, false),
        (Kind::Subject, "a", 99, true),
        (Kind::Subject, "a", 100, false),
        (Kind::Key, "a", 0, false),
        (Kind::Key, "b", u64::MAX, true),
        (Kind::Subject, "b", 0, false),
    ] {
        let found = list.find(kind, name, now).is_some();
        assert_eq!(found, is_denied, "{kind:?} {name} {now}");
    }
    list.forget(130);
    assert_eq!(list.len(), 1);
    assert_eq!(list.remove(Kind::Key, "b").unwrap().expires, None);
    assert!(list.is_empty() && list.remove(Kind::Key, "b").is_none());
}

#[test]
fn a_full_list_refuses_and_forgets_nothing_that_is_in_force() {
    let mut list = DenyList::new(2, SKEW);
    list.add(entry(Kind::Key, "a", Some(10)), 0).unwrap();
    list.add(entry(Kind::Key, "b", None), 0).unwrap();
    let third = entry(Kind::Key, "c", None);
    assert_eq!(list.add(third.clone(), 9), Err(NotAdded::Full));
    // One that is there may be changed.
    list.add(entry(Kind::Key, "b", Some(20)), 9).unwrap();
    assert_eq!(list.add(third, 10), Ok(()));
    let late = entry(Kind::Key, "d", Some(10));
    assert_eq!(list.add(late, 10), Err(NotAdded::Expired));
}

#[test]
fn logouts_take_no_place_of_operators_and_drop_none_of_their_entries() {
    let mut list = DenyList::new(2, SKEW);
    let logout = |name: &str, end| entry(Kind::Session, name, Some(end));
    let made = |name: &str, end| Denied {
        is_logout: true,
        ..logout(name, end)
    };
    let dropped = |list: &mut DenyList, name: &str, end| {
        let logged_out = list.log_out(logout(name, end), 0).unwrap();
        assert_eq!(logged_out.entry, made(name, end));
        logged_out.dropped
    };
    // An operator's entry ends first of all, and is a session's like those of logouts.
    list.add(logout("own", 50), 0).unwrap();
    assert_eq!(dropped(&mut list, "a", 200), None);
    assert_eq!(dropped(&mut list, "b", 100), None);
    assert_eq!(dropped(&mut list, "a", 200), None, "it is there");
    assert_eq!(dropped(&mut list, "c", 300), Some(made("b", 100)));
    assert_eq!(list.len(), 3);
    // Full of logouts, it has room for operators, but for no more of them than before.
    list.add(entry(Kind::Subject, "eve", None), 0).unwrap();
    let third = entry(Kind::Subject, "bob", None);
    assert_eq!(list.add(third.clone(), 0), Err(NotAdded::Full));
    assert_eq!(list.add(logout("a", 200), 0), Err(NotAdded::Full));
    // A logout of what an operator has denied leaves it the operator's.
    let widened = list.log_out(logout("own", 400), 0).unwrap();
    assert_eq!((widened.entry, widened.dropped), (logout("own", 400), None));
    assert_eq!(dropped(&mut list, "d", 500), Some(made("a", 200)));
    assert_eq!(
        list.log_out(logout("late", 10), 10 + SKEW),
        Err(NotAdded::Expired)
    );
    // All of it is the same after a restart.
    let mut again = DenyList::new(2, SKEW);
    for change in list.changes() {
        let line = change.to_line();
        again.replay(Change::of_line(&line).unwrap(), 0);
    }
    assert_eq!(names(&again, 0), names(&list, 0));
    assert_eq!(dropped(&mut again, "e", 600), Some(made("c", 300)));
    assert_eq!(again.add(third.clone(), 0), Err(NotAdded::Full));
    // What has expired or was removed leaves its place.
    again.forget(500 + SKEW);
    assert!(again.remove(Kind::Subject, "eve").is_some());
    assert_eq!(names(&again, 0).len(), 1);
    again.add(third, 0).unwrap();
    assert_eq!(dropped(&mut again, "f", 700), None);
    assert_eq!(dropped(&mut again, "g", 800), Some(made("e", 600)));
}

#[test]
fn the_file_and_the_changes_are_both_in_force() {
    let mut list = DenyList::new(10, SKEW);
    let text = "# ours\n\n{\"key\":\"a\"}\n{\"sub\":\"b\",\"exp\":10,\"reason\":\"left\"}\n";
    list.set_file(Arc::new(parse_file(text).unwrap()));
    list.add(entry(Kind::Key, "a", Some(5)), 0).unwrap();
    assert_eq!(
        list.find(Kind::Subject, "b", 0).unwrap().reason.as_deref(),
        Some("left")
    );
    assert_eq!(names(&list, 0).len(), 3);
    // The shorter entry ends, and the file's is still there; what the file has only it removes.
    assert!(list.find(Kind::Key, "a", 6).is_some());
    list.remove(Kind::Key, "a");
    assert!(list.find(Kind::Key, "a", 6).is_some());
    list.set_file(Arc::default());
    assert!(list.find(Kind::Key, "a", 6).is_none() && list.is_empty());
}

#[test]
fn lines_are_read_as_they_are_written() {
    let full = Denied::new(Kind::Token, "a \"b\" ü", Some(5), Some("lost")).unwrap();
    let line = Change::Add(full.clone()).to_line();
    assert_eq!(
        line,
        r#"{"op":"add","jti":"a \"b\" ü","exp":5,"reason":"lost"}"#
    );
    assert_eq!(Change::of_line(&line), Ok(Change::Add(full)));
    let remove = Change::Remove(Kind::Key, "x".into());
    assert_eq!(remove.to_line(), r#"{"op":"remove","key":"x"}"#);
    assert_eq!(Change::of_line(&remove.to_line()), Ok(remove));
    let long = "x".repeat(513);
    for (line, part) in [
        ("", "JSON object"),
        (r#"{"op":"add","key":"a","key":"b"}"#, "different names"),
        (r#"{"key":"a"}"#, "`op`"),
        (r#"{"op":"drop","key":"a"}"#, "`op`"),
        (r#"{"op":"add","key":"a","sub":"b"}"#, "exactly one"),
        (r#"{"op":"add","key":1}"#, "exactly one"),
        (r#"{"op":"add"}"#, "exactly one"),
        (r#"{"op":"add","jti":"a"}"#, "`exp`"),
        (r#"{"op":"logout","sid":"a"}"#, "`exp`"),
        (r#"{"op":"logout","sub":"a","exp":1}"#, "`sid` or a `login`"),
        (r#"{"op":"add","key":""}"#, "1 to 512"),
        (r#"{"op":"add","key":"a\n"}"#, "1 to 512"),
        (r#"{"op":"add","key":"a","exp":-1}"#, "seconds since 1970"),
        (r#"{"op":"add","key":"a","reason":1}"#, "`reason`"),
        (r#"{"op":"add","key":"a","why":"b"}"#, "are known"),
        (r#"{"op":"remove","key":"a","exp":1}"#, "only one"),
        (&format!(r#"{{"op":"add","key":"{long}"}}"#), "1 to 512"),
    ] {
        let problem = Change::of_line(line).unwrap_err();
        assert!(problem.contains(part), "{line}: {problem}");
    }
    for (text, line, part) in [
        ("{\"op\":\"add\",\"key\":\"a\"}", 1, "journal"),
        ("#\n{\"key\":\"a\",\"before\":1}", 2, "of a `login`"),
        ("{\"jti\":\"a\"}", 1, "`exp`"),
    ] {
        let problem = parse_file(text).unwrap_err();
        assert!(
            problem.line == line && problem.message.contains(part),
            "{problem}"
        );
    }
}

/// The plainest list: what each name was last denied until.
#[derive(Default)]
struct Model {
    changed: BTreeMap<(Kind, String), Option<u64>>,
    file: BTreeMap<(Kind, String), Option<u64>>,
}

fn holds(kind: Kind, expires: Option<u64>, now: u64) -> bool {
    let has_end = !matches!(kind, Kind::Subject | Kind::Key);
    let late = if has_end { SKEW } else { 0 };
    expires.is_none_or(|it| now < it + late)
}

/// Whatever is added, removed and read, at whatever time: the list denies what its model denies,
/// and so do a replay of its journal and a list made of its own changes.
#[test]
fn it_and_its_replay_do_as_the_model_in_two_thousand_schedules() {
    for seed in 0..2_000 {
        let mut random = Rng::with_seed(seed);
        let mut list = DenyList::new(3, SKEW);
        let (mut model, mut journal) = (Model::default(), Vec::new());
        let mut now = 1000;
        for step in 0..60 {
            let context = format!("seed {seed}, step {step}");
            let kind = Kind::ALL[random.usize(..5)];
            let name = random.u8(..3).to_string();
            let expires = match random.u8(..4) {
                0 if matches!(kind, Kind::Subject | Kind::Key) => None,
                _ => Some(now - 40 + random.u64(..100)),
            };
            match random.u8(..8) {
                0..4 => {
                    let entry = entry(kind, &name, expires);
                    model.changed.retain(|(kind, _), it| holds(*kind, *it, now));
                    let key = (kind, name);
                    let expected = if !holds(kind, expires, now) {
                        Err(NotAdded::Expired)
                    } else if model.changed.len() >= 3 && !model.changed.contains_key(&key) {
                        Err(NotAdded::Full)
                    } else {
                        model.changed.insert(key, expires);
                        journal.push(Change::Add(entry.clone()).to_line());
                        Ok(())
                    };
                    assert_eq!(list.add(entry, now), expected, "{context}");
                }
                4 => {
                    journal.push(Change::Remove(kind, name.as_str().into()).to_line());
                    list.remove(kind, &name);
                    model.changed.remove(&(kind, name));
                }
                5 => {
                    let file: FileEntries = [entry(kind, &name, expires)].into_iter().collect();
                    list.set_file(Arc::new(file));
                    model.file = BTreeMap::from([((kind, name), expires)]);
                }
                _ => now += random.u64(..30),
            }
            let all = [(true, &model.file), (false, &model.changed)].into_iter();
            let mut expected: Vec<_> = all
                .flat_map(|(of_file, it)| it.iter().map(move |it| (of_file, it)))
                .filter(|(_, ((kind, _), expires))| holds(*kind, **expires, now))
                .map(|(of_file, ((kind, name), end))| (of_file, *kind, name.clone(), *end))
                .collect();
            expected.sort();
            assert_eq!(names(&list, now), expected, "{context}");
            for kind in Kind::ALL {
                for name in ["0", "1", "2"] {
                    let is_denied = expected.iter().any(|it| it.1 == kind && it.2 == name);
                    let found = list.find(kind, name, now).is_some();
                    assert_eq!(found, is_denied, "{context}");
                }
            }
            assert!(list.len() <= 3, "{context}");
        }
        let expected: Vec<_> = names(&list, now).into_iter().filter(|it| !it.0).collect();
        let (mut replayed, mut copied) = (DenyList::new(3, SKEW), DenyList::new(3, SKEW));
        for line in &journal {
            replayed.replay(Change::of_line(line).unwrap(), now);
        }
        list.changes().for_each(|it| copied.replay(it, now));
        assert_eq!(names(&replayed, now), expected, "seed {seed}");
        assert_eq!(names(&copied, now), expected, "seed {seed}");
    }
}

#[test]
fn lines_of_a_file_that_name_the_same_all_hold() {
    for (text, expires) in [
        (
            "{\"sub\":\"a\",\"exp\":10}\n{\"sub\":\"a\",\"exp\":20}",
            Some(20),
        ),
        (
            "{\"sub\":\"a\",\"exp\":20}\n{\"sub\":\"a\",\"exp\":10}",
            Some(20),
        ),
        ("{\"sub\":\"a\",\"exp\":20}\n{\"sub\":\"a\"}", None),
        (
            "{\"sub\":\"a\"}\n{\"sub\":\"a\",\"exp\":20}\n{\"sub\":\"a\"}",
            None,
        ),
    ] {
        let entries = parse_file(text).unwrap();
        assert_eq!(entries.len(), 1);
        let mut list = DenyList::new(1, SKEW);
        list.set_file(Arc::new(entries));
        let found = list.find(Kind::Subject, "a", 0).unwrap();
        assert_eq!(found.expires, expires, "{text}");
    }
    let both = "{\"login\":\"i a\",\"exp\":9,\"before\":5}\n{\"login\":\"i a\",\"exp\":8}";
    let mut list = DenyList::new(1, SKEW);
    list.set_file(Arc::new(parse_file(both).unwrap()));
    let found = list.find(Kind::Login, "i a", 0).unwrap();
    assert_eq!((found.expires, found.before), (Some(9), None));
}

#[test]
fn an_entry_of_a_login_means_what_was_issued_before() {
    let line = r#"{"op":"add","login":"https://id.example ann","before":100,"exp":900}"#;
    let Change::Add(entry) = Change::of_line(line).unwrap() else {
        panic!("{line}");
    };
    let made = Denied::new(Kind::Login, "https://id.example ann", Some(900), None);
    assert_eq!(entry, made.unwrap().issued_until(100));
    assert_eq!(Change::Add(entry.clone()).to_line(), line);
    for (issued, is_meant) in [
        (None, true),
        (Some(99), true),
        (Some(100), true),
        (Some(101), false),
    ] {
        assert_eq!(entry.means(issued), is_meant, "{issued:?}");
    }
    let all = Denied::new(Kind::Login, "a b", Some(900), None).unwrap();
    assert!(all.means(Some(u64::MAX)));
    assert!(Denied::new(Kind::Session, "a b", None, None).is_err());
}
