//! Bounds how many refusals are written, so that nobody can fill a disk or a topic by being
//! refused. A state machine without a clock: the caller says what time it is.
//!
//! The first refusal of a [`Key`] is written at once. Those that follow within a window are
//! counted, and the count is written when the window ends. All lines together take tokens of one
//! bucket; a refusal without a token is counted with all others of its kind.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// What refusals are counted together by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// From where: see [`network`].
    pub network: IpAddr,
    /// The way by which the caller wanted to be known.
    pub way: Option<Arc<str>>,
    /// Who was refused, when the credential was good.
    pub id: Option<Arc<str>>,
    /// Why.
    pub reason: Box<str>,
}

/// The address by which refusals are counted: the addresses of one IPv6 network of 64 bits count as
/// one, for each host there has all of them (RFC 4291, section 2.5.4).
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 64)).into(),
        address => address,
    }
}

/// The bounds of a [`Limiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterSettings {
    /// The most lines in a second; at least 1.
    pub rate: u32,
    /// How long refusals of one key are counted before the count is written.
    pub window: Duration,
    /// The most keys that are remembered.
    pub keys_max: usize,
}

impl Default for LimiterSettings {
    fn default() -> Self {
        Self {
            rate: 10,
            window: Duration::from_secs(60),
            keys_max: 4096,
        }
    }
}

/// What becomes of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is written.
    Write,
    /// It is counted with those of its key, or of all.
    Count,
}

/// A count that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What was counted; none for refusals of keys that are not remembered.
    pub key: Option<Key>,
    /// How many there were.
    pub count: u64,
    /// When the first of them was.
    pub since: SystemTime,
}

/// Refusals that have been counted and not been written.
#[derive(Debug, Default)]
struct Counted {
    count: u64,
    since: Option<SystemTime>,
}

impl Counted {
    fn add(&mut self, wall: SystemTime) {
        self.count += 1;
        self.since.get_or_insert(wall);
    }

    fn take(&mut self, key: Option<&Key>) -> Option<Summary> {
        let Self { count, since } = std::mem::take(self);
        Some(Summary {
            key: key.cloned(),
            count,
            since: since?,
        })
    }
}

/// A key that is remembered.
#[derive(Debug)]
struct Window {
    ends: Instant,
    counted: Counted,
}

/// Decides which refusals are written.
#[derive(Debug)]
pub struct Limiter {
    settings: LimiterSettings,
    windows: HashMap<Key, Window>,
    others: Counted,
    /// When the count of the others is written next.
    others_end: Instant,
    /// When the bucket of tokens is full again (the virtual scheduling form of the leaky bucket,
    /// ITU-T I.371).
    full_at: Instant,
}

impl Limiter {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(settings: LimiterSettings, now: Instant) -> Self {
        Self {
            settings,
            windows: HashMap::new(),
            others: Counted::default(),
            others_end: now,
            full_at: now,
        }
    }

    /// Takes a token, if there is one. The bucket has those of one second.
    fn take_token(&mut self, now: Instant) -> bool {
        let step = Duration::from_secs(1) / self.settings.rate.max(1);
        let spent = self.full_at.saturating_duration_since(now);
        let is_there = spent + step <= Duration::from_secs(1);
        if is_there {
            self.full_at = now + spent + step;
        }
        is_there
    }

    /// Notes a refusal.
    pub fn note(&mut self, key: Key, now: Instant, wall: SystemTime) -> Noted {
        if let Some(window) = self.windows.get_mut(&key) {
            // One that has ended without a refusal says nothing any more.
            if now < window.ends || window.counted.count > 0 {
                window.counted.add(wall);
                return Noted::Count;
            }
            self.windows.remove(&key);
        }
        if self.windows.len() >= self.settings.keys_max || !self.take_token(now) {
            if self.others.count == 0 {
                self.others_end = now + self.settings.window;
            }
            self.others.add(wall);
            return Noted::Count;
        }
        let window = Window {
            ends: now + self.settings.window,
            counted: Counted::default(),
        };
        self.windows.insert(key, window);
        Noted::Write
    }

    /// The counts whose windows have ended, the oldest first, as far as there are tokens for them;
    /// the others wait and go on counting.
    pub fn due(&mut self, now: Instant) -> Vec<Summary> {
        self.windows
            .retain(|_, window| now < window.ends || window.counted.count > 0);
        let ended = self.windows.iter().filter(|(_, window)| window.ends <= now);
        let mut ended: Vec<(Instant, Key)> = ended
            .map(|(key, window)| (window.ends, key.clone()))
            .collect();
        ended.sort_by_key(|(ends, _)| *ends);
        let mut due = Vec::new();
        if self.others.count > 0 && self.others_end <= now {
            due.extend(self.others.take(None));
        }
        for (_, key) in ended {
            if !self.take_token(now) {
                break;
            }
            if let Some(window) = self.windows.get_mut(&key) {
                window.ends = now + self.settings.window;
                due.extend(window.counted.take(Some(&key)));
            }
        }
        due
    }

    /// All counts, whether their windows have ended or not, without asking for tokens: the end of
    /// the stream.
    pub fn finish(&mut self) -> Vec<Summary> {
        let windows = std::mem::take(&mut self.windows).into_iter();
        let counts = windows.filter_map(|(key, mut window)| window.counted.take(Some(&key)));
        self.others.take(None).into_iter().chain(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: LimiterSettings = LimiterSettings {
        rate: 10,
        window: Duration::from_secs(60),
        keys_max: 100,
    };

    struct Clock {
        limiter: Limiter,
        start: Instant,
        wall: SystemTime,
        milliseconds: u64,
    }

    impl Clock {
        fn new(settings: LimiterSettings) -> Self {
            let start = Instant::now();
            Self {
                limiter: Limiter::new(settings, start),
                start,
                wall: SystemTime::UNIX_EPOCH,
                milliseconds: 0,
            }
        }

        fn now(&self) -> Instant {
            self.start + Duration::from_millis(self.milliseconds)
        }

        fn at(&self, milliseconds: u64) -> SystemTime {
            self.wall + Duration::from_millis(milliseconds)
        }

        fn note(&mut self, key: &Key) -> Noted {
            let (now, wall) = (self.now(), self.at(self.milliseconds));
            self.limiter.note(key.clone(), now, wall)
        }

        fn due(&mut self) -> Vec<Summary> {
            let now = self.now();
            self.limiter.due(now)
        }
    }

    fn key(address: &str, reason: &str) -> Key {
        Key {
            network: network(address.parse().unwrap()),
            way: Some("staff".into()),
            id: None,
            reason: reason.into(),
        }
    }

    #[test]
    fn the_first_is_written_and_those_that_follow_are_counted() {
        let mut clock = Clock::new(SETTINGS);
        let expired = key("192.0.2.1", "expired");
        assert_eq!(clock.note(&expired), Noted::Write);
        for milliseconds in [1000, 2000, 59_999] {
            clock.milliseconds = milliseconds;
            assert_eq!(clock.note(&expired), Noted::Count);
            assert_eq!(clock.due(), []);
        }
        assert_eq!(clock.note(&key("192.0.2.1", "signature")), Noted::Write);
        assert_eq!(clock.note(&key("192.0.2.2", "expired")), Noted::Write);
        clock.milliseconds = 60_000;
        let since = clock.at(1000);
        let summary = Summary {
            key: Some(expired.clone()),
            count: 3,
            since,
        };
        assert_eq!(clock.due(), [summary]);
        // A new window has begun, in which there is nothing.
        assert_eq!(clock.note(&expired), Noted::Count);
        clock.milliseconds = 120_000;
        assert_eq!(clock.due().len(), 1);
        clock.milliseconds = 180_000;
        assert_eq!(clock.due(), []);
        assert_eq!(clock.note(&expired), Noted::Write);
    }

    #[test]
    fn no_more_lines_than_the_rate_are_written() {
        let mut clock = Clock::new(SETTINGS);
        let mut lines = 0;
        for number in 0..10_000_u32 {
            clock.milliseconds = u64::from(number);
            // Each comes from another address.
            let address = std::net::Ipv4Addr::from(number).to_string();
            lines += u32::from(clock.note(&key(&address, "unknown_key")) == Noted::Write);
            lines += clock.due().len() as u32;
        }
        assert!((100..=110).contains(&lines), "{lines} in ten seconds");
        clock.milliseconds = 70_000;
        let due = clock.due();
        let others = due.iter().find(|it| it.key.is_none()).unwrap();
        assert!(others.count > 9_000, "{others:?}");
    }

    #[test]
    fn counts_wait_for_tokens_too_and_none_is_lost() {
        let settings = LimiterSettings {
            rate: 2,
            ..SETTINGS
        };
        let mut clock = Clock::new(settings);
        let keys: Vec<Key> = (0..20)
            .map(|it| key(&format!("192.0.2.{it}"), "x"))
            .collect();
        let (mut written, mut counted) = (0, 0);
        for key in &keys {
            written += u64::from(clock.note(key) == Noted::Write);
            clock.milliseconds += 500;
        }
        assert_eq!(written, 20);
        for key in &keys {
            assert_eq!(clock.note(key), Noted::Count);
        }
        clock.milliseconds = 100_000;
        for second in 0..10 {
            clock.milliseconds = 100_000 + second * 1000;
            let due = clock.due();
            assert!(due.len() <= 2, "{due:?}");
            counted += due.iter().map(|it| it.count).sum::<u64>();
        }
        assert_eq!(counted, 20);
    }

    #[test]
    fn keys_are_bounded_and_the_end_gives_all_counts() {
        let settings = LimiterSettings {
            rate: 1000,
            keys_max: 3,
            ..SETTINGS
        };
        let mut clock = Clock::new(settings);
        let keys: Vec<Key> = (0..5)
            .map(|it| key(&format!("192.0.2.{it}"), "x"))
            .collect();
        let noted: Vec<Noted> = keys.iter().map(|key| clock.note(key)).collect();
        use Noted::{Count, Write};
        assert_eq!(noted, [Write, Write, Write, Count, Count]);
        clock.note(&keys[0]);
        let counts = clock.limiter.finish();
        let total: u64 = counts.iter().map(|it| it.count).sum();
        assert_eq!((counts.len(), total), (2, 3));
        assert_eq!(clock.limiter.finish(), []);
        // Keys are forgotten when nothing follows.
        clock.milliseconds = 60_001;
        assert_eq!(clock.note(&keys[4]), Write);
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let same = |left: &str, right: &str| {
            network(left.parse().unwrap()) == network(right.parse().unwrap())
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:2"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
