//! Tickets by random schedules beside a model that looks at all of them.

use std::time::{Duration, Instant};

use access::tickets::{Bounds, Grant, NotTaken, Refusal, Secret, TICKET_LIFETIME, Tickets};
use fastrand::Rng;

fn grant(bytes: usize) -> Grant {
    Grant {
        path: "/topics/prices".to_owned(),
        origin: None,
        carrier: "bearer".to_owned(),
        credential: vec![b'x'; bytes],
        until: 0,
    }
}

fn secret(number: u64) -> Secret {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Secret::of(bytes)
}

/// A ticket as the model knows it.
struct Given {
    number: u64,
    caller: u64,
    end: Instant,
    bytes: usize,
    is_used: bool,
}

#[test]
fn a_ticket_is_taken_once_in_its_time_and_bounds_hold() {
    let (mut taken, mut used, mut full, mut too_many) = (0, 0, 0, 0);
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let bounds = Bounds {
            tickets_max: random.usize(1..=8),
            per_caller_max: random.usize(1..=3),
            bytes_max: grant(0).bytes() * 4,
        };
        let begin = Instant::now();
        let mut now = begin;
        let mut tickets = Tickets::new(bounds);
        let mut model: Vec<Given> = Vec::new();
        let mut numbers = 0;
        for step in 0..60 {
            let context = format!("seed {seed}, step {step}");
            match random.u8(..4) {
                0 | 1 => {
                    numbers += 1;
                    let caller = random.u64(..4);
                    let grant = grant(random.usize(..200));
                    let bytes = grant.bytes();
                    let of_caller: Vec<&Given> =
                        model.iter().filter(|it| it.caller == caller).collect();
                    let unused = model.iter().filter(|it| !it.is_used);
                    let held: usize = unused.map(|it| it.bytes).sum();
                    let expected = if of_caller.len() >= bounds.per_caller_max {
                        too_many += 1;
                        Err(Refusal::Caller(of_caller[0].end - now))
                    } else if model.len() >= bounds.tickets_max || held + bytes > bounds.bytes_max {
                        full += 1;
                        Err(Refusal::Full)
                    } else {
                        Ok(())
                    };
                    let id = caller.to_string();
                    let given = tickets.give(&secret(numbers), ("way", &id), grant, now);
                    assert_eq!(given, expected, "{context}");
                    if given.is_ok() {
                        let end = now + TICKET_LIFETIME;
                        let number = numbers;
                        model.push(Given {
                            number,
                            caller,
                            end,
                            bytes,
                            is_used: false,
                        });
                    }
                }
                2 => {
                    let number = random.u64(..numbers + 2);
                    let known = model.iter_mut().find(|it| it.number == number);
                    let ticket = secret(number).text();
                    let is_unused = known.as_ref().is_some_and(|it| !it.is_used);
                    if random.u8(..4) == 0 {
                        let result = tickets.take(ticket.as_bytes(), "/topics", now);
                        let is_elsewhere = result == Err(NotTaken::Elsewhere);
                        assert!(result.is_err() && is_elsewhere == is_unused, "{context}");
                    }
                    let result = tickets.take(ticket.as_bytes(), "/topics/prices", now);
                    match known {
                        None => assert_eq!(result, Err(NotTaken::Unknown), "{context}"),
                        Some(known) if known.is_used => {
                            used += 1;
                            assert_eq!(result, Err(NotTaken::Used), "{context}");
                        }
                        Some(known) => {
                            taken += 1;
                            known.is_used = true;
                            assert_eq!(result.unwrap().bytes(), known.bytes, "{context}");
                        }
                    }
                }
                _ => {
                    now += Duration::from_millis(random.u64(..20_000));
                    model.retain(|it| it.end > now);
                }
            }
        }
        now += TICKET_LIFETIME;
        assert_eq!(tickets.take(b"none", "/", now), Err(NotTaken::Unknown));
        assert_eq!((tickets.len(), tickets.bytes()), (0, 0), "seed {seed}");
    }
    // The schedules have met everything.
    for count in [taken, used, full, too_many] {
        assert!(count > 1_000, "{taken} {used} {full} {too_many}");
    }
}

#[test]
fn a_caller_is_its_way_and_its_id() {
    let now = Instant::now();
    let mut tickets = Tickets::new(Bounds {
        per_caller_max: 1,
        ..Bounds::default()
    });
    let mut give = |number, caller| tickets.give(&secret(number), caller, grant(1), now);
    assert_eq!(give(1, ("a", "bc")), Ok(()));
    assert_eq!(give(2, ("ab", "c")), Ok(()));
    assert_eq!(give(3, ("a", "bc")), Err(Refusal::Caller(TICKET_LIFETIME)));
}

#[test]
fn tickets_are_43_random_characters() {
    let [one, other] = [(); 2].map(|()| Secret::random().unwrap().text());
    assert_ne!(one, other);
    assert_eq!(one.len(), access::tickets::TICKET_LENGTH);
}
