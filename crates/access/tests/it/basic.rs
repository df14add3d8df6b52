//! Users with passwords: their file, the checks, and which of them run or are remembered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::basic::{
    CheckId, CheckQueue, Entry, Identity, NoHash, User, Users, VerifiedUsers, Waiter,
};
use access::credentials::UserPassword;
use fastrand::Rng;

const KEEP: Duration = VerifiedUsers::KEEP;

/// Whether the password of the one user of a file is this.
fn is_right(hash: &str, password: &str) -> bool {
    let users = Users::parse(&format!("ann:{hash}")).unwrap();
    let candidate = users.candidate(b"ann").unwrap();
    candidate.check(password.as_bytes()).unwrap().is_some()
}

fn presented(user: &str, password: &str) -> UserPassword<'static> {
    UserPassword {
        user: user.to_owned().leak().as_bytes(),
        password: password.to_owned().leak().as_bytes(),
    }
}

/// Hashes that others have made: jBCrypt, libxcrypt, `htpasswd` of Apache 2.4, and the reference
/// implementation of Argon2.
#[test]
fn hashes_of_other_programs_are_those_of_their_passwords() {
    for (hash, password) in [
        (
            "$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s.",
            "",
        ),
        (
            "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe",
            "a",
        ),
        (
            "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i",
            "abc",
        ),
        (
            "$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2",
            "correct horse",
        ),
        (
            "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
            "correct horse",
        ),
        // The last character of the salt has bits that no byte has.
        (
            "$2b$04$abcdefghijklmnopqrstuvjydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
            "correct horse",
        ),
        (
            "$2y$04$bB5grgpj8v6o3FSEQwPh1ucjIJQu4Sk1k5pRefcEiBJaec69vEuq2",
            "pässwörd",
        ),
        (
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$\
             nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "password",
        ),
        (
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$\
             CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
            "password",
        ),
    ] {
        assert!(is_right(hash, password), "{hash}");
        for other in [
            format!("{password} "),
            "x".to_owned(),
            password.to_uppercase(),
        ] {
            assert!(
                other == password || !is_right(hash, &other),
                "{hash} {other}"
            );
        }
    }
}

/// bcrypt ignores what stands behind 72 bytes: another password would be right, too.
#[test]
fn bcrypt_takes_no_password_that_it_does_not_see_whole() {
    let hash = "$2b$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i";
    assert!(is_right(hash, &"x".repeat(72)));
    assert!(!is_right(hash, &"x".repeat(73)));
}

#[test]
fn a_new_user_is_read_again_and_has_its_password() {
    let mut ann = User::new("ann", b"correct horse").unwrap();
    let mut eve = User::new("{eve", "pässwörd".as_bytes()).unwrap();
    assert!(
        ann.to_line()
            .starts_with("ann:$argon2id$v=19$m=19456,t=2,p=1$")
    );
    assert!(
        eve.to_line()
            .starts_with(r#"{"id":"{eve","hash":"$argon2id$"#)
    );
    eve.scopes = vec!["orders.read".to_owned()];
    eve.plan = Some("gold".to_owned());
    let file = format!("# people\n\n{}\r\n {} \n", ann.to_line(), eve.to_line());
    let users = Users::parse(&file).unwrap();
    assert_eq!(users.entries().collect::<Vec<_>>(), [&ann, &eve]);
    assert_eq!(users.memory_max(), 19 * 1024 * 1024);
    let check = |user: &str, password: &str| {
        let candidate = users.candidate(user.as_bytes()).unwrap();
        candidate.check(password.as_bytes()).unwrap()
    };
    assert_eq!(check("ann", "correct horse").as_deref(), Some(&ann));
    assert_eq!(check("{eve", "pässwörd").as_deref(), Some(&eve));
    for (user, password) in [("ann", "pässwörd"), ("Ann", "correct horse"), ("", "")] {
        assert_eq!(check(user, password), None, "{user} {password}");
    }
    ann.scopes = vec!["a".to_owned()];
    assert_eq!(
        Users::parse(&ann.to_line()).unwrap().entries().next(),
        Some(&ann)
    );
    let text = format!("{ann:?} {users:?} {:?}", users.candidate(b"ann"));
    assert!(!text.contains("$argon2"), "{text}");
    for (user, password, problem) in [
        ("a:b", "correct horse", NoHash::Id),
        ("", "correct horse", NoHash::Id),
        ("ann", "ümläutß", NoHash::Short),
        ("ann", "correct\thorse", NoHash::Control),
        ("ann", &"x".repeat(1197), NoHash::Long),
    ] {
        let refused = User::new(user, password.as_bytes()).unwrap_err();
        assert_eq!(refused, problem, "{password}");
    }
}

/// Nobody is told by the time of an answer who is there: of a thousand unknown names each has the
/// costs of some user, and always of the same one.
#[test]
fn unknown_names_cost_what_known_ones_cost() {
    let cheap = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";
    let dear = "$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2";
    let file = format!("a:{cheap}\nb:{cheap}\nc:{cheap}\nd:{dear}\n");
    let users = Users::parse(&file).unwrap();
    let again = Users::parse(&file).unwrap();
    assert!(users.generation() < again.generation());
    let shown = |users: &Users, name: &str| {
        let candidate = users.candidate(name.as_bytes()).unwrap();
        format!("{candidate:?}")
    };
    let mut of_dear = 0;
    for number in 0..1000 {
        let name = format!("nobody{number}");
        let entry = shown(&users, &name);
        assert_eq!(entry, shown(&again, &name));
        of_dear += u32::from(entry.contains("id: \"d\""));
    }
    assert!((150..350).contains(&of_dear), "{of_dear}");
    // The password of the user whose hash it is lets nobody else in.
    for name in [&b"nobody"[..], b"\xff", b"a\0", b"A"] {
        let candidate = users.candidate(name).unwrap();
        assert_eq!(candidate.check(b"correct horse"), Ok(None));
    }
    assert!(
        Users::parse("# nobody\n")
            .unwrap()
            .candidate(b"a")
            .is_none()
    );
}

#[test]
fn other_hashes_are_refused_with_their_line_and_without_themselves() {
    let salt = "c29tZXNhbHQ";
    let hash = "nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
    let argon = |costs: &str| format!("ann:$argon2id$v=19${costs}${salt}${hash}");
    let bcrypt = "abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";
    for (line, part) in [
        // As htpasswd writes with -m, -s, -d, -p, -2 and -5.
        (
            "ann:$apr1$SqDtxKVa$W1mRVsM4rcKmNqP4bqQiS/".to_owned(),
            "MD5",
        ),
        ("ann:{SHA}2Yp0ZzEGKwLEMHbaGzPDnZ3eBn4=".to_owned(), "SHA-1"),
        ("ann:rqXexS6ZhobKA".to_owned(), "crypt"),
        ("ann:correct horse".to_owned(), "the password itself"),
        ("ann:$5$abc$def".to_owned(), "no hash is taken"),
        ("ann:$6$abc$def".to_owned(), "no hash is taken"),
        // A line of htdigest.
        (
            "ann:realm:d41d8cd98f00b204e9800998ecf8427e".to_owned(),
            "MD5",
        ),
        ("ann:".to_owned(), "the password itself"),
        ("ann".to_owned(), "`user:hash`"),
        (format!(":$2b$04${bcrypt}"), "the user must"),
        (format!("a b:$2b$04${bcrypt}"), "the user must"),
        (format!("ann:$2x$04${bcrypt}"), "no hash is taken"),
        (format!("ann:$2b$03${bcrypt}"), "4 to 14"),
        (format!("ann:$2b$15${bcrypt}"), "4 to 14"),
        (format!("ann:$2b$4${bcrypt}"), "bcrypt hash"),
        (format!("ann:$2b$+4${bcrypt}"), "bcrypt hash"),
        (format!("ann:$2b$04${bcrypt}:x"), "bcrypt hash"),
        (format!("ann:$2b$04${}", &bcrypt[1..]), "bcrypt hash"),
        (format!("ann:$2b$04$ä{}", &bcrypt[2..]), "bcrypt hash"),
        (argon("m=262145,t=1,p=1"), "256 MiB"),
        (argon("m=256,t=11,p=1"), "t=10"),
        (argon("m=256,t=0,p=1"), "t=10"),
        (argon("m=256,t=1,p=17"), "p=16"),
        (argon("m=7,t=1,p=1"), "8 KiB"),
        (argon("t=1,m=256,p=1"), "Argon2id hash"),
        (argon("m=256,t=1,p=1,keyid=a"), "Argon2id hash"),
        (argon("m=+256,t=1,p=1"), "Argon2id hash"),
        (argon("m=99999999999,t=1,p=1"), "Argon2id hash"),
        (
            argon("m=256,t=1,p=1").replace("v=19", "v=16"),
            "Argon2id hash",
        ),
        (argon("m=256,t=1,p=1").replace("2id", "2i"), "only Argon2id"),
        (argon("m=256,t=1,p=1") + "$", "Argon2id hash"),
        (argon("m=256,t=1,p=1") + "=", "Argon2id hash"),
        (argon("m=256,t=1,p=1").replace(salt, "c29t"), "8 to 64"),
        (argon("m=256,t=1,p=1").replace(hash, "nf65"), "16 to 64"),
        ("{\"id\":\"a\"".to_owned(), "JSON object"),
        (
            r#"{"id":"a","hash":"x","created":1}"#.to_owned(),
            "are known",
        ),
        (r#"{"id":"a"}"#.to_owned(), "`hash`"),
        (r#"{"id":"a:b","hash":"x"}"#.to_owned(), "the user must"),
        (
            format!(r#"{{"id":"a","hash":"$2b$04${bcrypt}","plan":1}}"#),
            "`plan`",
        ),
    ] {
        let problem = Users::parse(&format!("# one\n\n{line}\n")).unwrap_err();
        assert_eq!(problem.line, 3, "{line}");
        assert!(problem.message.contains(part), "{line}: {problem}");
        for secret in [
            bcrypt, hash, "SqDtxKVa", "2Yp0", "rqXex", "correct", "d41d8",
        ] {
            assert!(!problem.message.contains(secret), "{problem}");
        }
    }
    let twice = format!("a:$2b$04${bcrypt}\nb:$2b$04${bcrypt}\n#\na:$2b$04${bcrypt}");
    let problem = Users::parse(&twice).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "line 4: line 1 has the user \"a\" already"
    );
}

fn identities(count: usize) -> (VerifiedUsers, Vec<Identity>) {
    let verified = VerifiedUsers::new(3, KEEP).unwrap();
    let identity = |number: usize| verified.identity(presented("ann", &number.to_string()));
    let all = (0..count).map(identity).collect();
    (verified, all)
}

#[test]
fn users_and_passwords_have_identities_of_their_own() {
    let (verified, all) = identities(3);
    let again = verified.identity(presented("ann", "1"));
    assert!(all[1] == again && all[1] != all[2]);
    let one = verified.identity(presented("a", "bc"));
    assert!(one != verified.identity(presented("ab", "c")));
    let other = VerifiedUsers::new(3, KEEP).unwrap();
    assert!(one != other.identity(presented("a", "bc")), "another key");
    assert_eq!(
        format!("{one:?} {verified:?}")
            .matches(char::is_numeric)
            .count(),
        1
    );
}

/// Whatever is checked, forgotten and changed: what is remembered is what a list of the last checks
/// says.
#[test]
fn what_is_remembered_is_right_in_five_thousand_schedules() {
    let line = "ann:$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";
    let begin = Instant::now();
    for seed in 0..5_000 {
        let mut random = Rng::with_seed(seed);
        let (mut verified, all) = identities(6);
        let mut users = Users::parse(line).unwrap();
        let user = Arc::new(users.entries().next().unwrap().clone());
        // The identities that were checked, each with its time, in the order of their last check.
        let mut model: Vec<(usize, Instant)> = Vec::new();
        let mut now = begin;
        for step in 0..60 {
            let context = format!("seed {seed}, step {step}");
            match random.u8(..8) {
                0..4 => {
                    let number = random.usize(..6);
                    verified.put(all[number], &user, users.generation(), now);
                    model.retain(|(_, time)| *time + KEEP > now);
                    if model.contains(&(number, now)) {
                        continue;
                    }
                    model.retain(|(it, _)| *it != number);
                    if model.len() >= 3 {
                        model.remove(0);
                    }
                    model.push((number, now));
                }
                4 if random.u8(..5) == 0 => {
                    let before = users.generation();
                    users = Users::parse(line).unwrap();
                    // One that was begun before the file was changed comes late.
                    assert!(verified.get(&all[0], &users, now).is_none());
                    verified.put(all[0], &user, before, now);
                    model.clear();
                }
                _ => now += Duration::from_secs(random.u64(..100)),
            }
            for (number, identity) in all.iter().enumerate() {
                let found = verified.get(identity, &users, now).is_some();
                let is_fresh = |(it, time): &(usize, Instant)| *it == number && now < *time + KEEP;
                assert_eq!(found, model.iter().any(is_fresh), "{context}, {number}");
            }
            assert!(verified.len() <= 3, "{context}");
        }
    }
}

/// What a queue should be, written down in the plainest way: checks by their number, each with what
/// it is for, whether it runs, and who waits.
#[derive(Default)]
struct Model {
    checks: BTreeMap<CheckId, (usize, bool, BTreeSet<Waiter>)>,
    order: VecDeque<CheckId>,
}

impl Model {
    fn running(&self) -> usize {
        self.checks.values().filter(|it| it.1).count()
    }

    fn waiting(&self) -> usize {
        self.checks.values().map(|it| it.2.len()).sum()
    }

    fn of(&self, identity: usize) -> Option<CheckId> {
        let mut all = self.checks.iter();
        all.find(|(_, it)| it.0 == identity).map(|(id, _)| *id)
    }
}

/// Whoever comes, leaves and ends, in whichever order: never more checks than allowed, none of one
/// user and password twice, no place is lost, and the first that waits is the next to begin.
#[test]
fn the_queue_does_as_its_model_in_ten_thousand_schedules() {
    let (_, identities) = identities(6);
    for seed in 0..10_000 {
        let mut random = Rng::with_seed(seed);
        let running_max = random.usize(1..=3);
        let waiting_max = random.usize(..4);
        let mut queue = CheckQueue::new(running_max, waiting_max);
        let mut model = Model::default();
        for step in 0..80 {
            let context = format!("seed {seed}, step {step}");
            match random.u8(..5) {
                0..3 => {
                    let number = random.usize(..6);
                    let known = model.of(number);
                    let is_full = model.waiting() >= running_max + waiting_max;
                    match queue.enter(identities[number], 1, number) {
                        Entry::Refuse(job) => {
                            let could_start = known.is_none() && model.running() < running_max;
                            assert!(is_full && !could_start && job == number, "{context}");
                        }
                        Entry::Start(waiter, job) => {
                            assert!(known.is_none() && job == number, "{context}");
                            assert!(model.running() < running_max, "{context}");
                            let waiters = BTreeSet::from([waiter]);
                            model.checks.insert(waiter.check(), (number, true, waiters));
                        }
                        Entry::Wait(waiter) => {
                            assert!(!is_full, "{context}");
                            let id = waiter.check();
                            if let Some(known) = known {
                                assert_eq!(known, id, "{context}");
                                assert!(model.checks.get_mut(&id).unwrap().2.insert(waiter));
                            } else {
                                assert_eq!(model.running(), running_max, "{context}");
                                let waiters = BTreeSet::from([waiter]);
                                model.checks.insert(id, (number, false, waiters));
                                model.order.push_back(id);
                            }
                        }
                    }
                }
                3 => {
                    let mut all = model.checks.values().flat_map(|it| it.2.iter().copied());
                    let Some(waiter) = all.nth(random.usize(..4)) else {
                        continue;
                    };
                    let check = model.checks.get_mut(&waiter.check()).unwrap();
                    check.2.remove(&waiter);
                    let is_dropped = !check.1 && check.2.is_empty();
                    let job = is_dropped.then_some(check.0);
                    if is_dropped {
                        model.checks.remove(&waiter.check());
                        model.order.retain(|it| *it != waiter.check());
                    }
                    assert_eq!(queue.leave(waiter), job, "{context}");
                    assert_eq!(queue.leave(waiter), None, "{context}, twice");
                }
                _ => {
                    let running = model.checks.iter().find(|(_, it)| it.1);
                    let Some((&id, _)) = running else { continue };
                    let (_, _, waiters) = model.checks.remove(&id).unwrap();
                    let finished = queue.finish(id);
                    assert_eq!(finished.waiters, Vec::from_iter(waiters), "{context}");
                    let next = model.order.pop_front().map(|id| {
                        let check = model.checks.get_mut(&id).unwrap();
                        check.1 = true;
                        (id, check.0)
                    });
                    assert_eq!(finished.next, next, "{context}");
                    assert_eq!(queue.finish(id).next, None, "{context}, twice");
                }
            }
            assert_eq!(queue.running(), model.running(), "{context}");
            assert_eq!(queue.waiting(), model.waiting(), "{context}");
        }
    }
}
