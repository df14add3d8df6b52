//! Random schedules of requests, answers, time-outs, ends and restarts, beside a plain model. What
//! must hold after each step:
//!
//! - A subscription is what the last confirmed request has made of it, and nothing else has changed
//!   it but its end.
//! - A lease is within its bounds, and none is there when it is over.
//! - The disk has exactly what is active.
//! - No challenge comes twice, and no more callbacks are asked at a time than may be.
//! - The counts of callers and hosts are those of what is there.
//! - Hosts are asked in vain no more often than the budget says, and those under way.
//!
//! And when all questions are answered with yes, each key is as its last accepted request says.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use fastrand::Rng;

use super::*;

const CALLERS: [&str; 4] = ["ann", "bob", "eve", "mallory"];
const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];
const TOPICS: [&str; 2] = ["http://t.example/1", "http://t.example/2"];

/// What a subscription is to the model: secret, end.
type Active = (Option<Secret>, u64);

/// What has been asked, as the model knows it.
struct Asked {
    verification: Verification,
    key: (String, String),
    request: Request,
    since: Duration,
    number: u64,
    is_late: bool,
}

/// A request that was accepted.
#[derive(Clone, Debug, PartialEq)]
enum Request {
    Subscribe(Option<Secret>, Option<u64>),
    Unsubscribe,
}

struct World {
    seed: u64,
    random: Rng,
    hub: Hub,
    now: Moment,
    numbers: u64,
    /// The last accepted request of each key, by which the next question is known.
    accepted: BTreeMap<(String, String), Request>,
    /// The last question about each key that was answered, and its request.
    settled: BTreeMap<(String, String), (u64, Request)>,
    asked: VecDeque<Asked>,
    active: BTreeMap<(String, String), Active>,
    disk: BTreeMap<(String, String), Record>,
    challenges: HashSet<String>,
    /// When questions about something new were answered with no, by host.
    failures: BTreeMap<&'static str, Vec<Duration>>,
}

fn settings() -> Settings {
    Settings {
        lease: 300,
        lease_min: 60,
        lease_max: 600,
        limits: Limits {
            subscriptions: 12,
            per_caller: 5,
            per_host: 6,
            pending: 10,
            pending_per_caller: 4,
            pending_per_host: 5,
            in_flight: 4,
            in_flight_per_host: 2,
            failures_per_caller: 6,
            failures_per_host: 1,
            failure_time: Duration::from_secs(120),
            parties: 4,
        },
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Rng::with_seed(seed),
            hub: Hub::new(settings()),
            now: at(0),
            numbers: 0,
            accepted: BTreeMap::new(),
            settled: BTreeMap::new(),
            asked: VecDeque::new(),
            active: BTreeMap::new(),
            disk: BTreeMap::new(),
            challenges: HashSet::new(),
            failures: BTreeMap::new(),
        }
    }

    fn key(&mut self) -> (String, String) {
        let topic = TOPICS[self.random.usize(..TOPICS.len())].to_owned();
        let host = HOSTS[self.random.usize(..HOSTS.len())];
        (topic, format!("http://{host}/{}", self.random.u8(..4)))
    }

    fn request(&mut self) {
        let key = self.key();
        let caller: Arc<str> = CALLERS[self.random.usize(..CALLERS.len())].into();
        let callback = url(&key.1);
        let topic: Arc<str> = key.0.as_str().into();
        if self.random.u8(..4) == 0 {
            let known = self.hub.find(&topic, callback.text()).is_some();
            let taken = self.hub.unsubscribe((topic, callback), &caller, self.now);
            if taken.is_ok() && known {
                self.accepted.insert(key, Request::Unsubscribe);
            }
            return;
        }
        let secret = Secret::new(["", "one", "two"][self.random.usize(..3)]);
        let lease = [None, Some(1), Some(100), Some(10_000)][self.random.usize(..4)];
        let request = Subscribe {
            topic,
            callback,
            lease,
            secret: secret.clone(),
        };
        let before = format!("{:?}", self.hub.get(&key.0, &key.1));
        if self.hub.subscribe(request, &caller, self.now).is_ok() {
            self.accepted
                .insert(key.clone(), Request::Subscribe(secret, lease));
        }
        assert_eq!(format!("{:?}", self.hub.get(&key.0, &key.1)), before);
    }

    fn ask(&mut self) {
        let numbers = &mut self.numbers;
        let dropped = self.hub.dropped();
        let asked = self.hub.next(self.now, || {
            *numbers += 1;
            Some(format!("c{numbers}"))
        });
        if self.hub.dropped() > dropped {
            self.forget_dropped();
        }
        let Some(verification) = asked else {
            return;
        };
        let topic = parameter(&verification, "hub.topic").unwrap();
        let key = (topic, verification.callback.as_str().to_owned());
        assert!(self.challenges.insert(challenge(&verification)));
        // A question is always about the last request of its key.
        let request = self.accepted.get(&key).cloned().expect("it was asked for");
        let lease = parameter(&verification, "hub.lease_seconds");
        let mode = parameter(&verification, "hub.mode").unwrap();
        match &request {
            Request::Unsubscribe => assert_eq!((mode.as_str(), lease), ("unsubscribe", None)),
            Request::Subscribe(_, wish) => {
                let granted = wish.unwrap_or(300).clamp(60, 600).to_string();
                assert_eq!((mode.as_str(), lease), ("subscribe", Some(granted)));
            }
        }
        self.asked.push_back(Asked {
            number: self.numbers,
            is_late: false,
            verification,
            key,
            request,
            since: self.now.at,
        });
    }

    /// Requests that were dropped unasked are not accepted any more.
    fn forget_dropped(&mut self) {
        let hub = &self.hub;
        self.accepted.retain(|(topic, callback), _| {
            let entry = hub.find(topic, callback);
            entry.is_some_and(|it| it.pending.is_some())
        });
    }

    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let at = self.random.usize(..self.asked.len());
        let asked = self.asked.remove(at).unwrap();
        // In every third schedule most callbacks say no.
        let says_yes = match self.seed % 3 {
            0 => self.random.u8(..4) == 0,
            _ => self.random.u8(..4) > 0,
        };
        self.settle(&asked, says_yes);
    }

    fn settle(&mut self, asked: &Asked, says_yes: bool) {
        let challenge = challenge(&asked.verification);
        let refusals = [
            Answer::Nothing,
            Answer::Reply(302, b""),
            Answer::Reply(200, b"c"),
        ];
        let answer = match says_yes {
            true => Answer::Reply(200, challenge.as_bytes()),
            false => refusals[self.random.usize(..refusals.len())],
        };
        let verdict = self.hub.answered(asked.verification.id, answer, self.now);
        let last = self.settled.get(&asked.key).map_or(0, |it| it.0);
        if asked.number > last {
            let settled = (asked.number, asked.request.clone());
            self.settled.insert(asked.key.clone(), settled);
        }
        match (&verdict, &asked.request) {
            (Verdict::Subscribed, Request::Subscribe(secret, wish)) => {
                assert!(says_yes);
                let lease = wish.unwrap_or(300).clamp(60, 600);
                let end = self.now.wall.as_secs() + lease;
                self.active.insert(asked.key.clone(), (secret.clone(), end));
            }
            (Verdict::Unsubscribed, Request::Unsubscribe) => {
                assert!(says_yes);
                self.active.remove(&asked.key);
            }
            (Verdict::Failed, _) => {
                assert!(!says_yes);
                if !self.active.contains_key(&asked.key) {
                    let host = asked.verification.callback.host();
                    let host = HOSTS.into_iter().find(|it| *it == &**host).unwrap();
                    self.failures.entry(host).or_default().push(self.now.at);
                }
            }
            (Verdict::Denied(_), Request::Subscribe(..)) => {
                assert!(says_yes && !self.active.contains_key(&asked.key));
            }
            // It was ended meanwhile.
            (Verdict::Over, _) => {}
            (verdict, request) => panic!("{verdict:?} for {request:?}"),
        }
    }

    fn pass_time(&mut self) {
        let seconds = [1, 1, 3, 10, 40, 200][self.random.usize(..6)];
        let time = Duration::from_secs(seconds);
        self.now.at += time;
        // The time of day may stand still.
        if self.random.u8(..8) > 0 {
            self.now.wall += time;
        }
    }

    fn expire(&mut self) {
        let over = self.now.at.saturating_sub(ANSWER_TIME);
        let mut late = Vec::new();
        for asked in &mut self.asked {
            if asked.since <= over && !std::mem::replace(&mut asked.is_late, true) {
                late.push(asked.key.clone());
            }
        }
        let ended = self.hub.expire(self.now);
        let wall = self.now.wall.as_secs();
        let over = self.active.iter().filter(|(_, (_, end))| *end <= wall);
        let over: BTreeSet<_> = over.map(|(key, _)| key.clone()).collect();
        let ended: BTreeSet<_> = ended
            .into_iter()
            .map(|(topic, callback)| (topic.to_string(), callback.to_string()))
            .collect();
        assert_eq!(ended, over);
        self.active.retain(|_, (_, end)| *end > wall);
        for key in late.into_iter().filter(|it| !self.active.contains_key(it)) {
            let host = HOSTS.into_iter().find(|it| key.1.contains(it)).unwrap();
            self.failures.entry(host).or_default().push(self.now.at);
        }
    }

    fn end_one(&mut self) {
        let key = self.key();
        let (topic, callback) = (key.0.as_str().into(), key.1.as_str().into());
        match self.random.u8(..2) {
            0 => {
                let told = self.hub.deny(&topic, &callback, Some("no"));
                assert_eq!(told.is_some(), self.active.remove(&key).is_some());
                // All requests about it are over, too.
                self.accepted.remove(&key);
                self.settled.remove(&key);
            }
            _ => {
                let version = self.hub.get(&key.0, &key.1).map(|it| it.version);
                if let Some(version) = version {
                    assert!(!self.hub.gone(&topic, &callback, version + 1));
                    assert!(self.hub.gone(&topic, &callback, version));
                    self.active.remove(&key);
                }
            }
        }
    }

    /// The process ends and starts again: requests that were not confirmed are lost.
    fn restart(&mut self) {
        self.write();
        self.hub = Hub::new(settings());
        let wall = self.now.wall.as_secs();
        for record in self.disk.values() {
            let is_live = record.expires > wall;
            let restored = self.hub.restore(record.clone(), self.now);
            assert_eq!(restored == Restored::Active, is_live);
        }
        self.disk.retain(|_, it| it.expires > wall);
        self.active.retain(|_, (_, end)| *end > wall);
        self.accepted.clear();
        self.settled.clear();
        self.asked.clear();
        self.failures.clear();
        self.now.at = Duration::ZERO;
    }

    fn write(&mut self) {
        for change in self.hub.changes() {
            match change {
                Change::Put(record) => {
                    let key = (record.topic.to_string(), record.callback.to_string());
                    self.disk.insert(key, record);
                }
                Change::Remove { topic, callback } => {
                    let removed = self.disk.remove(&(topic.to_string(), callback.to_string()));
                    assert!(removed.is_some(), "seed {}: what was not there", self.seed);
                }
            }
        }
    }

    fn check(&mut self) {
        self.write();
        let seed = self.seed;
        let found = TOPICS.into_iter().flat_map(|topic| {
            let all = self.hub.subscriptions(topic);
            all.map(move |it| {
                let key = (topic.to_owned(), it.callback.as_str().to_owned());
                (key, (it.secret.clone(), it.expires))
            })
        });
        assert_eq!(
            found.collect::<BTreeMap<_, _>>(),
            self.active,
            "seed {seed}"
        );
        let disk = self.disk.iter();
        let disk = disk.map(|(key, it)| (key.clone(), (it.secret.clone(), it.expires)));
        assert_eq!(disk.collect::<BTreeMap<_, _>>(), self.active, "seed {seed}");
        self.check_counts();
        let limits = &self.hub.settings.limits;
        for times in self.failures.values() {
            // Of callers that have failed before, and ten times as many of others.
            let most = 11 * limits.failures_per_host as usize + limits.in_flight_per_host;
            // In any time in which the budget fills up once, twice the budget at most.
            for (at, first) in times.iter().enumerate() {
                let within = times[at..].iter();
                let within = within.filter(|it| **it < *first + limits.failure_time);
                assert!(within.count() <= 2 * most, "seed {seed}: {times:?}");
            }
        }
    }

    fn check_counts(&self) {
        let (hub, limits) = (&self.hub, &self.hub.settings.limits);
        let entries: Vec<&Entry> = hub.topics.values().flat_map(HashMap::values).collect();
        let requests = |it: &&Entry| [it.pending.clone(), it.next.clone()].into_iter().flatten();
        let mut in_flight = 0;
        for host in HOSTS {
            let here = entries.iter().filter(|it| &**it.callback.host() == host);
            let active = here.clone().filter(|it| it.active.is_some()).count();
            let pending: Vec<Pending> = here.flat_map(requests).collect();
            let reserved = pending.iter().filter(|it| it.reserves).count();
            let asked = hub.in_flight.values().filter(|it| &*it.0 == host).count();
            let counts = [active, pending.len(), reserved, asked];
            assert_eq!(hub.hosts.counts(host), counts, "seed {}: {host}", self.seed);
            assert!(active + reserved <= limits.per_host && asked <= limits.in_flight_per_host);
            assert!(pending.len() <= limits.pending_per_host);
            in_flight += asked;
        }
        for caller in CALLERS {
            let active = entries.iter().filter_map(|it| it.active.as_ref());
            let active = active.filter(|it| &*it.caller == caller).count();
            let own = entries.iter().flat_map(requests);
            let pending: Vec<Pending> = own.filter(|it| &*it.caller == caller).collect();
            let reserved = pending.iter().filter(|it| it.reserves).count();
            let counts = [active, pending.len(), reserved];
            assert_eq!(hub.callers.counts(caller), counts, "seed {}", self.seed);
            assert!(active <= limits.per_caller);
            assert!(pending.len() <= limits.pending_per_caller);
        }
        let pending: Vec<Pending> = entries.iter().flat_map(requests).collect();
        let active = entries.iter().filter(|it| it.active.is_some()).count();
        assert_eq!(hub.counts(), (active, pending.len()));
        assert_eq!(
            hub.reserved,
            pending.iter().filter(|it| it.reserves).count()
        );
        assert_eq!((hub.ends.len(), in_flight), (active, hub.in_flight.len()));
        assert!(active <= limits.subscriptions && pending.len() <= limits.pending);
        assert!(in_flight <= limits.in_flight);
        let has_content = |it: &&Entry| it.active.is_some() || it.pending.is_some();
        assert!(entries.iter().all(has_content), "seed {}", self.seed);
    }

    fn step(&mut self) {
        match self.random.u8(..40) {
            0..12 => self.request(),
            12..22 => self.ask(),
            22..32 => self.answer(),
            32..36 => self.pass_time(),
            36..38 => self.expire(),
            38 => self.end_one(),
            _ if self.random.u8(..5) == 0 => self.restart(),
            _ => self.expire(),
        }
        self.check();
    }

    /// All callbacks say yes from here on.
    fn finish(&mut self) {
        loop {
            self.ask();
            let Some(asked) = self.asked.pop_front() else {
                break;
            };
            self.settle(&asked, true);
            self.check();
        }
        assert_eq!((self.hub.counts().1, self.hub.in_flight.len()), (0, 0));
        for (key, request) in &self.accepted {
            let settled = self.settled.get(key).map(|it| &it.1);
            assert_eq!(settled, Some(request), "seed {}: {key:?}", self.seed);
        }
    }
}

#[test]
fn random_schedules_keep_what_must_hold() {
    let (mut confirmed, mut dropped) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        for _ in 0..200 {
            world.step();
        }
        world.finish();
        confirmed += world.active.len();
        dropped += world.hub.dropped();
    }
    assert!(confirmed > 1_000 && dropped > 3, "{confirmed} {dropped}");
}
