//! Which deliveries have been dealt with: a hub repeats one whose answer it has not seen.
//!
//! One with a `webhook-id` is known by that and its body, for a day. One without can only be known
//! by its body, and the same body later may be an event of its own, so it counts as a repetition
//! only directly behind itself, and only for ten minutes. An event is never taken for another one
//! because of that, but one that is repeated behind another comes twice.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};

/// How long an id is remembered.
pub const ID_TIME: Duration = Duration::from_secs(24 * 3600);
/// How long a body is.
pub const BODY_TIME: Duration = Duration::from_secs(600);
/// How many ids are.
const IDS_MAX: usize = 10_000;
/// The most bytes of an id; a longer one is none.
const ID_MAX: usize = 256;

/// What tells deliveries apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    digest: [u8; 32],
    has_id: bool,
}

impl Key {
    /// Of a delivery with this id, type and body.
    pub fn of(id: Option<&[u8]>, content_type: &[u8], body: &[u8]) -> Self {
        let id = id.filter(|it| (1..=ID_MAX).contains(&it.len()));
        let mut context = Context::new(&SHA256);
        for part in [id.unwrap_or_default(), content_type] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.update(body);
        let mut digest = [0; 32];
        for (to, from) in digest.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self {
            digest,
            has_id: id.is_some(),
        }
    }

    /// The digest as text.
    pub fn name(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.digest {
            // Writing to a text cannot fail.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        }
        text
    }

    /// What is written to the disk of it.
    pub fn to_bytes(self) -> [u8; 33] {
        let mut bytes = [u8::from(self.has_id); 33];
        for (to, from) in bytes.iter_mut().skip(1).zip(self.digest) {
            *to = from;
        }
        bytes
    }

    /// What was written to the disk.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (has_id, digest) = bytes.split_first()?;
        Some(Self {
            digest: digest.try_into().ok()?,
            has_id: *has_id == 1,
        })
    }
}

/// What a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// One to be dealt with: [`Deliveries::end`] has to follow.
    New,
    /// One that has been dealt with.
    Repeated,
    /// One that is being dealt with.
    UnderWay,
}

/// The deliveries of a subscription that are known.
#[derive(Debug, Default)]
pub struct Deliveries {
    under_way: HashSet<Key>,
    /// When those with an id were dealt with, since 1970.
    done: HashMap<Key, Duration>,
    /// The same in their order.
    order: VecDeque<(Key, Duration)>,
    /// The last one without.
    last: Option<(Key, Duration)>,
}

impl Deliveries {
    /// A delivery has come.
    pub fn begin(&mut self, key: Key, now: Duration) -> Begin {
        if self.under_way.contains(&key) {
            return Begin::UnderWay;
        }
        let at = match key.has_id {
            true => self.done.get(&key).map(|at| (*at, ID_TIME)),
            false => self
                .last
                .filter(|it| it.0 == key)
                .map(|it| (it.1, BODY_TIME)),
        };
        match at {
            Some((at, time)) if now < at.saturating_add(time) => Begin::Repeated,
            _ => {
                self.under_way.insert(key);
                Begin::New
            }
        }
    }

    /// A delivery has been dealt with, or not; without a word it has not been. What is not
    /// remembered any more.
    pub fn end(&mut self, key: Key, is_done: bool, now: Duration) -> Vec<Key> {
        self.under_way.remove(&key);
        match is_done {
            true => self.remember(key, now),
            false => Vec::new(),
        }
    }

    /// Remembers one that was dealt with at this time. What is not remembered any more.
    pub fn remember(&mut self, key: Key, at: Duration) -> Vec<Key> {
        if !key.has_id {
            let before = self.last.replace((key, at));
            return before
                .map(|it| it.0)
                .filter(|it| *it != key)
                .into_iter()
                .collect();
        }
        self.done.insert(key, at);
        self.order.push_back((key, at));
        let mut gone = Vec::new();
        while let Some((oldest, since)) = self.order.front().copied()
            && (self.done.len() > IDS_MAX || since.saturating_add(ID_TIME) <= at)
        {
            self.order.pop_front();
            // It may have come again since.
            if self.done.get(&oldest) == Some(&since) {
                self.done.remove(&oldest);
                gone.push(oldest);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, body: &str) -> Key {
        let id = Some(id.as_bytes()).filter(|it| !it.is_empty());
        Key::of(id, b"application/json", body.as_bytes())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_700_000_000 + seconds)
    }

    #[test]
    fn an_id_comes_once_a_day() {
        let mut known = Deliveries::default();
        let (one, other) = (key("1", "a"), key("2", "a"));
        assert_eq!(known.begin(one, at(0)), Begin::New);
        assert_eq!(known.begin(one, at(0)), Begin::UnderWay);
        known.end(one, false, at(1));
        assert_eq!(known.begin(one, at(1)), Begin::New, "it has failed");
        known.end(one, true, at(2));
        assert_eq!(known.begin(one, at(3)), Begin::Repeated);
        assert_eq!(known.begin(other, at(3)), Begin::New);
        known.end(other, true, at(3));
        assert_eq!(
            known.begin(one, at(4)),
            Begin::Repeated,
            "behind another, too"
        );
        // The signature is not of the id: with another body it is another delivery.
        assert_eq!(known.begin(key("1", "b"), at(4)), Begin::New);
        assert_eq!(known.begin(one, at(2 + 24 * 3600)), Begin::New);
        assert_eq!(known.end(one, true, at(2 + 24 * 3600)).len(), 0);
        assert_eq!(known.begin(one, at(3 + 24 * 3600)), Begin::Repeated);
    }

    #[test]
    fn a_body_is_a_repetition_only_directly_behind_itself() {
        let mut known = Deliveries::default();
        let mut take = |body, seconds| {
            let begin = known.begin(key("", body), at(seconds));
            if begin == Begin::New {
                known.end(key("", body), true, at(seconds));
            }
            begin
        };
        assert_eq!(take("a", 0), Begin::New);
        assert_eq!(take("a", 599), Begin::Repeated);
        assert_eq!(take("b", 599), Begin::New);
        // The topic is as it was before: that is an event.
        assert_eq!(take("a", 599), Begin::New);
        assert_eq!(take("a", 599 + 600), Begin::New);
    }

    #[test]
    fn parts_of_a_delivery_are_not_mixed_up() {
        let keys = [
            Key::of(None, b"a", b"b"),
            Key::of(None, b"", b"ab"),
            Key::of(None, b"ab", b""),
            Key::of(Some(b"a"), b"", b"b"),
            Key::of(Some(b"a"), b"b", b""),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        let long = [b'x'; ID_MAX + 1];
        assert_eq!(Key::of(Some(&long), b"", b""), Key::of(None, b"", b""));
        for key in keys {
            assert_eq!(Key::from_bytes(&key.to_bytes()), Some(key));
        }
        assert_eq!(Key::from_bytes(b""), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Deliveries::default();
        let mut gone = Vec::new();
        for number in 0..IDS_MAX + 5 {
            gone.extend(known.remember(key(&number.to_string(), ""), at(0)));
        }
        let oldest: Vec<Key> = (0..5).map(|it| key(&it.to_string(), "")).collect();
        assert_eq!((gone, known.done.len()), (oldest, IDS_MAX));
        // What is over goes with the next one.
        let gone = known.remember(key("new", ""), at(24 * 3600));
        assert_eq!(
            (gone.len(), known.done.len(), known.order.len()),
            (IDS_MAX, 1, 1)
        );
        // One that comes again and again takes one place.
        let mut gone = Vec::new();
        for day in 2..6 {
            gone.extend(known.remember(key("new", ""), at(day * 24 * 3600)));
        }
        assert_eq!((gone.len(), known.done.len(), known.order.len()), (0, 1, 1));
        let last = known.remember(key("", "a"), at(0));
        assert_eq!(last, []);
        assert_eq!(known.remember(key("", "b"), at(0)), [key("", "a")]);
        assert_eq!(known.remember(key("", "b"), at(0)), []);
    }
}
