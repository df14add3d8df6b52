//! What is denied, and whose streams end.

use expr::value::{integer, object, text};

use super::*;
use crate::testing::START;

fn entry(kind: Kind, name: &str) -> Denied {
    Denied::new(kind, name, Some(4_000_000_000), None).unwrap()
}

fn token(revocations: &Arc<Revocations>, claims: &[(&str, &str)]) -> Caller {
    let claims = claims.iter();
    let claims = claims.map(|(name, value)| ((*name).to_owned(), text(*value)));
    let mut caller = Caller::new(&"staff".into(), "ann", object(claims));
    caller.revocable = Some(Arc::new(Tokens(Arc::clone(revocations))));
    caller
}

fn on() -> Arc<Revocations> {
    let revocations = Arc::new(Revocations::default());
    revocations.begin(Vec::new());
    revocations
}

#[test]
fn nothing_is_asked_of_a_credential_while_the_list_is_empty_or_off() {
    let now: &dyn Fn() -> u64 = &|| panic!("no time is needed");
    let revocations = on();
    assert!(!revocations.is_denied(|| panic!("no names are needed"), now));
    revocations.add(entry(Kind::Key, "shop")).unwrap();
    revocations.set_on(false);
    assert!(!revocations.is_denied(|| panic!("no names are needed"), now));
    revocations.set_on(true);
    assert!(revocations.remove(Kind::Key, "shop"));
    assert!(!revocations.is_denied(|| panic!("no names are needed"), now));
}

#[test]
fn a_token_is_denied_by_each_of_its_names_and_a_key_by_its_id() {
    let revocations = on();
    let of_shop = token(&revocations, &[("jti", "t1"), ("sub", "shop")]);
    let plain = token(&revocations, &[]);
    let key = {
        let mut caller = Caller::new(&"partners".into(), "shop", object([]));
        caller.revocable = Some(Arc::new(FileEntry {
            revocations: Arc::clone(&revocations),
            is_known: || true,
        }));
        caller
    };
    let later = {
        let claims = [
            ("iss", text("i")),
            ("sub", text("shop")),
            ("sid", text("s")),
            ("iat", integer(100)),
        ];
        let claims = claims.map(|(name, value)| (name.to_owned(), value));
        let mut caller = Caller::new(&"staff".into(), "eve", object(claims));
        caller.revocable = Some(Arc::new(Tokens(Arc::clone(&revocations))));
        caller
    };
    let until = |time| {
        let entry = entry(Kind::Login, "i shop");
        entry.issued_until(time)
    };
    let no = [false; 4];
    for (entry, denied) in [
        (entry(Kind::Token, "t1"), [true, false, false, false]),
        (entry(Kind::Token, "shop"), no),
        // By the claim and by `$auth.id`, whichever way the caller is known by.
        (entry(Kind::Subject, "shop"), [true, false, true, true]),
        (entry(Kind::Subject, "ann"), [true, true, false, false]),
        (entry(Kind::Key, "shop"), [false, false, true, false]),
        (entry(Kind::Session, "s"), no),
        (entry(Kind::Session, "i s"), [false, false, false, true]),
        (entry(Kind::Session, "j s"), no),
        (entry(Kind::Login, "i shop"), [false, false, false, true]),
        (until(100), [false, false, false, true]),
        (until(99), no),
    ] {
        let (kind, name) = (entry.kind, entry.name.to_string());
        let name = &*name;
        revocations.add(entry).unwrap();
        let callers = [&of_shop, &plain, &key, &later];
        let found = callers.map(|it| it.is_denied(&|| START));
        assert_eq!(found, denied, "{kind:?} {name}");
        assert!(revocations.remove(kind, name));
    }
}

#[test]
fn all_streams_of_a_denied_credential_end_and_no_others() {
    let revocations = on();
    let stolen = token(&revocations, &[("jti", "t1")]);
    let again = token(&revocations, &[("jti", "t1")]);
    let other = token(&revocations, &[("jti", "t2")]);
    let validities = [&stolen, &again, &other].map(|it| it.validity().unwrap());
    assert!(Arc::ptr_eq(&validities[0], &validities[1]), "one for each");
    revocations.add(entry(Kind::Token, "t1")).unwrap();
    let revoked = validities.each_ref().map(|it| it.is_revoked());
    assert_eq!(revoked, [true, true, false]);
    assert!(stolen.validity().unwrap().is_revoked(), "it comes too late");
    assert!(revocations.remove(Kind::Token, "t1"));
    assert!(!stolen.validity().unwrap().is_revoked());
    assert!(validities[0].is_revoked(), "an end is an end");
    drop(validities);
    revocations.sweep();
    assert_eq!(revocations.open().all.len(), 0, "nothing is kept of them");
}

#[test]
fn streams_of_a_file_end_with_their_entry() {
    let revocations = on();
    let is_there = Arc::new(AtomicBool::new(true));
    let caller = || {
        let mut caller = Caller::new(&"partners".into(), "shop", object([]));
        let is_there = Arc::clone(&is_there);
        caller.revocable = Some(Arc::new(FileEntry {
            revocations: Arc::clone(&revocations),
            is_known: move || is_there.load(Ordering::Relaxed),
        }));
        caller
    };
    let validity = caller().validity().unwrap();
    assert!(Arc::ptr_eq(&validity, &caller().validity().unwrap()));
    revocations.sweep();
    assert!(!validity.is_revoked());
    is_there.store(false, Ordering::Relaxed);
    let late = caller().validity().unwrap();
    assert!(late.is_revoked() && !validity.is_revoked());
    revocations.sweep();
    assert!(validity.is_revoked());
}

#[test]
fn entries_are_listed_in_order_and_in_parts() {
    let revocations = on();
    let file: FileEntries = [entry(Kind::Subject, "bob")].into_iter().collect();
    revocations.set_file(Arc::new(file));
    for (kind, name) in [
        (Kind::Key, "shop"),
        (Kind::Token, "t2"),
        (Kind::Token, "t1"),
        (Kind::Subject, "ann"),
    ] {
        revocations.add(entry(kind, name)).unwrap();
    }
    let mut after: Option<(Kind, String)> = None;
    let mut names = Vec::new();
    loop {
        let behind = after.as_ref().map(|(kind, name)| (*kind, &**name));
        let part = revocations.entries(behind, 2);
        let Some((_, last)) = part.last() else { break };
        after = Some((last.kind, last.name.to_string()));
        names.extend(part.into_iter().map(|(_, it)| it.name.to_string()));
    }
    assert_eq!(names, ["t1", "t2", "ann", "bob", "shop"]);
}

#[test]
fn a_logout_makes_no_entry_narrower() {
    let revocations = on();
    let entry = |until, expires| {
        let entry = Denied::new(Kind::Login, "i ann", Some(expires), None);
        entry.unwrap().issued_until(until)
    };
    let made = |until, expires| Denied {
        is_logout: true,
        ..entry(until, expires)
    };
    let log_out = |entry| revocations.log_out(entry, START).unwrap().entry;
    let later = 4_000_000_000;
    let all = Denied::new(Kind::Login, "i ann", Some(later), Some("left")).unwrap();
    assert_eq!(log_out(entry(5, later)), made(5, later));
    let both = log_out(entry(3, later + 1));
    assert_eq!((both.before, both.expires), (Some(5), Some(later + 1)));
    revocations.add(all.clone()).unwrap();
    assert_eq!(log_out(entry(9, later)), all);
    assert_eq!(revocations.entries(None, 10).len(), 1);
}
