//! Engines that are killed while events are on their way. `INTERTIE_CRASHES` says how often.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;

use super::*;

/// How many kills there are when nobody says.
const CRASHES: u64 = 8;

/// An endpoint is noted to have an event at the latest so long after it has it: what it got earlier
/// before a kill does not come again.
const NOTED_WITHIN: Duration = Duration::from_millis(100);
/// The same where the disk stands still for a moment, or the machine is busy with something else.
/// Two lives are twice as long, so that one in which nothing is noted is found out.
const NOTED_AT_MOST: Duration = Duration::from_secs(1);

/// An endpoint of the test.
struct Judged {
    name: &'static str,
    /// What its line has beside.
    more: &'static str,
    /// How many requests are under way for it at a time.
    concurrent: usize,
    is_ordered: bool,
}

/// Some requests to the last one take longer than it takes to note what is done: they are under way
/// when the engine is killed, and come again however old they are.
const JUDGED: [Judged; 3] = [
    Judged {
        name: "one",
        more: "",
        concurrent: 1,
        is_ordered: true,
    },
    Judged {
        name: "two",
        more: "",
        concurrent: 1,
        is_ordered: true,
    },
    Judged {
        name: "any",
        more: ", ordered: false, concurrent: 8",
        concurrent: 8,
        is_ordered: false,
    },
];

impl Judged {
    fn target(&self) -> String {
        format!("/hook/{}", self.name)
    }
}

/// What an endpoint has got, and when.
struct Arrival {
    target: String,
    id: String,
    at: Instant,
}

/// One engine after the other, each from its start until it was dead.
type Lives = [(Instant, Instant)];

/// For each kill behind which something came again: how long before it that had been delivered, the
/// longest first. Within a life nothing may come twice.
fn repeats(target: &str, arrivals: &[Arrival], lives: &Lives) -> Vec<Vec<Duration>> {
    let life = |at: Instant| lives.iter().rposition(|(start, _)| *start <= at).unwrap();
    let mut last: HashMap<&str, Instant> = HashMap::new();
    let mut ages: HashMap<usize, Vec<Duration>> = HashMap::new();
    for arrival in arrivals.iter().filter(|it| it.target == target) {
        let Some(before) = last.insert(&arrival.id, arrival.at) else {
            continue;
        };
        let ended = life(before);
        assert_ne!(
            ended,
            life(arrival.at),
            "{} came twice without a kill",
            arrival.id
        );
        let age = lives[ended].1.saturating_duration_since(before);
        ages.entry(ended).or_default().push(age);
    }
    let mut ages: Vec<Vec<Duration>> = ages.into_values().collect();
    for ages in &mut ages {
        ages.sort_unstable_by(|a, b| b.cmp(a));
    }
    ages
}

/// Judges what came again: no more than what was under way and what had come just before a kill.
/// How long before one that was: in most cases, and at most.
fn check_repeats(judged: &Judged, arrivals: &[Arrival], lives: &Lives) -> (Duration, Duration) {
    let repeats = repeats(&judged.target(), arrivals, lives);
    // In order, what is under way is the last that has come.
    let under_way = match judged.is_ordered {
        true => 0,
        false => judged.concurrent,
    };
    let oldest = repeats.iter().map(|it| it.get(under_way).copied());
    let mut oldest: Vec<Duration> = oldest.map(Option::unwrap_or_default).collect();
    oldest.sort_unstable();
    let age = |index: usize| oldest.get(index).copied().unwrap_or_default();
    let (median, most) = (age(oldest.len() / 2), age(oldest.len().saturating_sub(1)));
    let name = judged.name;
    assert!(median <= NOTED_WITHIN, "{name}: {oldest:?}");
    assert!(most <= NOTED_AT_MOST, "{name}: {oldest:?}");
    (median, most)
}

/// Judges what has come: all that was acknowledged, with its body, in its order. How many requests
/// that were, and how many of them repeated others.
fn check_deliveries(
    judged: &Judged,
    accepted: &[Received],
    acknowledged: &[(String, String)],
) -> (usize, usize) {
    let target = judged.target();
    let taken = accepted.iter().filter(|it| it.target == target);
    let mut bodies: HashMap<String, String> = HashMap::new();
    let (mut firsts, mut repeated) = (Vec::new(), 0);
    for received in taken {
        match bodies.insert(id(received), text(received)) {
            Some(known) => {
                repeated += 1;
                assert_eq!(known, text(received), "the same id with another body");
            }
            None => firsts.push(id(received)),
        }
    }
    for (id, body) in acknowledged {
        assert_eq!(bodies.get(id), Some(body), "{id} was acknowledged");
    }
    let number = |id: &String| id.split_once('-').unwrap().1.parse::<u64>().unwrap();
    let numbers: Vec<u64> = firsts.iter().map(number).collect();
    assert!(!judged.is_ordered || numbers.is_sorted(), "out of order");
    let distinct: HashSet<&u64> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len());
    (firsts.len() + repeated, repeated)
}

/// Publishes numbers until something fails; those that were acknowledged, with their ids.
fn publish_until_it_fails(port: u16, next: &Mutex<u64>) -> Vec<(String, String)> {
    use std::io::{Read as _, Write as _};
    let mut acknowledged = Vec::new();
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
        return acknowledged;
    };
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).unwrap();
    let mut next = next.lock().unwrap();
    loop {
        *next += 1;
        let body = next.to_string();
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(request.as_bytes()).is_err() {
            return acknowledged;
        }
        let (mut reply, mut part) = (Vec::new(), [0; 1024]);
        while !reply.ends_with(b"}\n") {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => return acknowledged,
                Ok(count) => reply.extend_from_slice(&part[..count]),
            }
        }
        let reply = String::from_utf8(reply).unwrap();
        let id = reply.split("\"id\":\"").nth(1).unwrap();
        acknowledged.push((id.split('"').next().unwrap().to_owned(), body));
    }
}

/// A receiver that notes when requests came. Where the order is free, three of them are slow at any
/// time.
fn noting(arrivals: &Arc<Mutex<Vec<Arrival>>>) -> Sink {
    let (log, last_slow) = (Arc::clone(arrivals), Mutex::new(Instant::now()));
    let is_slow = move |target: &str| {
        let is_free = |it: &Judged| !it.is_ordered && it.target() == target;
        let mut last = last_slow.lock().unwrap();
        let is_slow = JUDGED.iter().any(is_free) && last.elapsed() >= NOTED_WITHIN;
        if is_slow {
            *last = Instant::now();
        }
        is_slow
    };
    Sink::answering(move |_, received| {
        log.lock().unwrap().push(Arrival {
            target: received.target.clone(),
            id: id(received),
            at: Instant::now(),
        });
        if is_slow(&received.target) {
            thread::sleep(3 * NOTED_WITHIN);
        }
        (200, String::new())
    })
}

#[test]
fn what_was_acknowledged_is_delivered_whenever_the_engine_is_killed() {
    let crashes = std::env::var("INTERTIE_CRASHES").ok();
    let crashes = crashes.map_or(CRASHES, |it| it.parse().unwrap());
    let arrivals: Arc<Mutex<Vec<Arrival>>> = Arc::default();
    let sink = noting(&arrivals);
    let endpoints = JUDGED.iter().map(|Judged { name, more, .. }| {
        endpoint(
            name,
            &format!("{}/{name}", sink.url()),
            &format!("{QUICK}{more}"),
        )
    });
    let keep = "payload: event\nkeep: { events: 1000000, bytes: 1GiB }";
    let place = Place::with(keep, &endpoints.collect::<String>());
    let next = Arc::new(Mutex::new(0));
    let mut acknowledged = Vec::new();
    let mut random = Rng::with_seed(u64::from(std::process::id()));
    let mut lives = Vec::new();
    for crash in 0..crashes {
        let start = Instant::now();
        let engine = place.run();
        let (port, numbers) = (place.port, Arc::clone(&next));
        let client = thread::spawn(move || publish_until_it_fails(port, &numbers));
        thread::sleep(match crash {
            // Before anything may have been noted.
            0 => Duration::from_millis(5),
            3 | 6 => 2 * NOTED_AT_MOST,
            _ => Duration::from_millis(random.u64(50..450)),
        });
        kill(engine);
        lives.push((start, Instant::now()));
        acknowledged.extend(client.join().unwrap());
        // What the dead one had sent is taken before the next one begins.
        thread::sleep(Duration::from_millis(20));
    }
    let start = Instant::now();
    let engine = place.run();
    acknowledged.push((place.publish("0"), "0".to_owned()));
    let has_all = |judged: &Judged| {
        let (target, arrivals) = (judged.target(), arrivals.lock().unwrap());
        let own = arrivals.iter().filter(|it| it.target == target);
        let own: HashSet<&str> = own.map(|it| &*it.id).collect();
        acknowledged.iter().all(|(id, _)| own.contains(&**id))
    };
    wait_long("all is delivered", || JUDGED.iter().all(has_all));
    engine.stop();
    lives.push((start, Instant::now()));
    let (arrivals, accepted) = (arrivals.lock().unwrap(), sink.accepted());
    for judged in &JUDGED {
        let (median, most) = check_repeats(judged, &arrivals, &lives);
        let (taken, repeated) = check_deliveries(judged, &accepted, &acknowledged);
        println!(
            "{}: {} acknowledged, 0 lost, {taken} delivered, {repeated} of them again after \
             {crashes} kills, which had come {} ms before one (median), {} ms at most",
            judged.name,
            acknowledged.len(),
            median.as_millis(),
            most.as_millis(),
        );
    }
}

#[test]
fn a_batch_has_the_same_id_bounds_and_body_after_a_kill() {
    let (sink, is_open) = Sink::closed();
    let batch = format!("batch: {{ count: 7, time: 100ms }}, {QUICK}");
    let place = Place::new(&endpoint("shop", &sink.url(), &batch));
    let engine = place.run();
    let ids = place.publish_all(0..5);
    wait_long("the batch has been tried", || !sink.all().is_empty());
    kill(engine);
    let before = sink.all();
    let engine = place.run();
    let more = place.publish_all(5..20);
    wait_long("it is tried again", || sink.all().len() > before.len());
    is_open.store(true, Ordering::Relaxed);
    let taken = sink.wait_for(3);
    let (first, _) = &before[0];
    assert_eq!((id(&taken[0]), text(&taken[0])), (id(first), text(first)));
    let all: Vec<String> = ids.into_iter().chain(more).collect();
    let mut at = 0;
    wait_long("all is there", || {
        let numbers = sink
            .accepted()
            .iter()
            .map(|it| numbers(it).len())
            .sum::<usize>();
        numbers == 20
    });
    for received in sink.accepted() {
        let count = numbers(&received).len();
        let (first, last) = (&all[at], &all[at + count - 1]);
        assert_eq!(id(&received), format!("{first}_{last}"));
        for (name, value) in [
            ("x-intertie-first", first.as_str()),
            ("x-intertie-last", last),
            ("x-intertie-count", &count.to_string()),
            ("webhook-signature", &signature(SECRET, &received)),
        ] {
            assert_eq!(received.header(name), Some(value), "{name}");
        }
        assert!(count <= 7);
        at += count;
    }
    engine.stop();
}

fn numbers(received: &Received) -> Vec<u64> {
    serde_json::from_slice(&received.body).unwrap()
}

#[test]
fn a_stop_in_good_order_repeats_nothing() {
    let sink = Sink::answering(|_, _| {
        thread::sleep(Duration::from_millis(3));
        (200, String::new())
    });
    let concurrent = "ordered: false, concurrent: 4";
    let place = Place::new(&endpoint("shop", &sink.url(), concurrent));
    for round in 0..3 {
        let engine = place.run();
        place.publish_all(round * 50..(round + 1) * 50);
        engine.stop();
    }
    let engine = place.run();
    sink.wait_for(150);
    engine.stop();
    let mut numbers: Vec<u64> = sink.bodies().iter().map(|it| it.parse().unwrap()).collect();
    numbers.sort_unstable();
    let expected: Vec<u64> = (0..150).collect();
    assert_eq!(numbers, expected);
}
