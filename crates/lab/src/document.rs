//! JSON documents of which a part is renewed at each tick. A text depends on nothing but the
//! document's number, the tick and its instant, so that whoever has one can tell what it must be.

use std::io::Write;

use crate::stamp;

/// The letters of a member's value, in documents that are not small.
const VALUE: usize = 88;
const VALUE_SMALL: usize = 16;
/// Documents below this have short values.
const SMALL: usize = 2000;
/// `"m000000":"` before a value and `",` behind it.
const AROUND: usize = 13;
/// What stands before the first member at most, with the padding's name at the end.
const REST: usize = 110;
/// The least bytes of a document.
pub const BYTES_MIN: usize = 200;
/// The most bytes of a document.
pub const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What all documents of a source have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    bytes: usize,
    value: usize,
    members: usize,
    renewed: usize,
}

impl Shape {
    /// Documents of so many bytes, of which so many percent of the members are new at each tick.
    pub fn new(bytes: usize, percent: u8) -> Self {
        let bytes = bytes.clamp(BYTES_MIN, BYTES_MAX);
        let value = if bytes < SMALL { VALUE_SMALL } else { VALUE };
        let members = (bytes.saturating_sub(REST) / (value + AROUND)).clamp(1, 999_999);
        let percent = usize::from(percent.min(100));
        let least = usize::from(percent > 0);
        Self {
            bytes,
            value,
            members,
            renewed: ((members * percent + 50) / 100).max(least),
        }
    }

    /// The bytes of the JSON Patch from one tick to the next, as RFC 6902 needs it at least.
    pub fn patch_bytes(&self) -> usize {
        let told = "[{\"op\":\"replace\",\"path\":\"/tick\",\"value\":1000},\
            {\"op\":\"replace\",\"path\":\"/at\",\"value\":1763740000000000}]";
        let each = "{\"op\":\"replace\",\"path\":\"/m000000\",\"value\":\"\"},";
        told.len() + self.renewed * (each.len() + self.value)
    }

    /// The members that are new at a tick: the first of them; the others follow, round the end.
    fn first_renewed(&self, tick: u64) -> usize {
        let at = (u128::from(tick.saturating_sub(1)) * self.renewed as u128) % self.members as u128;
        usize::try_from(at).unwrap_or(0)
    }

    fn is_renewed(&self, member: usize, tick: u64) -> bool {
        let distance = member + self.members - self.first_renewed(tick);
        distance % self.members < self.renewed
    }

    /// The last tick up to this one at which a member was new; 0 is the beginning.
    fn last_renewed(&self, member: usize, tick: u64) -> u64 {
        if self.renewed == 0 {
            return 0;
        }
        let ticks = (0..=tick).rev();
        let rounds = self.members.div_ceil(self.renewed) + 1;
        let mut looked = ticks.take(rounds).take_while(|tick| *tick > 0);
        looked
            .find(|tick| self.is_renewed(member, *tick))
            .unwrap_or(0)
    }

    /// The text of a document at a tick.
    pub fn text(&self, document: u32, tick: u64, at: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        self.head(document, tick, at, &mut out);
        for member in 0..self.members {
            let renewed = self.last_renewed(member, tick);
            self.member(document, member, renewed, &mut out);
        }
        self.end(&mut out);
        out
    }

    fn head(&self, document: u32, tick: u64, at: u64, out: &mut Vec<u8>) {
        // invariant: writing to a Vec does not fail.
        let _ = write!(
            out,
            "{{\"document\":{document},\"tick\":{tick},\"at\":{at},"
        );
    }

    fn member(&self, document: u32, member: usize, tick: u64, out: &mut Vec<u8>) {
        let _ = write!(out, "\"m{member:06}\":\"");
        let seed = stamp::hash(u64::from(document), &tick.to_le_bytes());
        let seed = stamp::hash(seed, &member.to_le_bytes());
        stamp::letters(seed, self.value, out);
        out.extend_from_slice(b"\",");
    }

    fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"pad\":\"");
        let padding = self.bytes.saturating_sub(out.len() + 2);
        out.resize(out.len() + padding, b'.');
        out.extend_from_slice(b"\"}");
    }
}

/// A document that is renewed in place.
pub struct Document {
    shape: Shape,
    number: u32,
    /// The number of the tick that it is at.
    pub tick: u64,
    /// The instant of that tick, in microseconds since 1970.
    pub at: u64,
    /// The members as they stand in the text.
    members: Vec<u8>,
}

impl Document {
    /// The document at its beginning.
    pub fn new(shape: Shape, number: u32, at: u64) -> Self {
        let mut members = Vec::new();
        for member in 0..shape.members {
            shape.member(number, member, 0, &mut members);
        }
        Self {
            shape,
            number,
            tick: 0,
            at,
            members,
        }
    }

    /// Goes on to the next tick.
    pub fn renew(&mut self, at: u64) {
        self.tick += 1;
        self.at = at;
        let first = self.shape.first_renewed(self.tick);
        let mut text = Vec::new();
        for index in first..first + self.shape.renewed {
            let member = index % self.shape.members;
            text.clear();
            self.shape.member(self.number, member, self.tick, &mut text);
            let start = member * text.len();
            if let Some(room) = self.members.get_mut(start..start + text.len()) {
                room.copy_from_slice(&text);
            }
        }
    }

    /// Adds the text.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut text = Vec::with_capacity(self.shape.bytes);
        self.shape.head(self.number, self.tick, self.at, &mut text);
        text.extend_from_slice(&self.members);
        self.shape.end(&mut text);
        out.extend_from_slice(&text);
    }
}

/// The number, the tick and the instant with which a document begins.
pub fn told(text: &[u8]) -> Option<(u32, u64, u64)> {
    let rest = text.strip_prefix(b"{\"document\":")?;
    let (document, length) = stamp::number(rest)?;
    let rest = rest.get(length..)?.strip_prefix(b",\"tick\":")?;
    let (tick, length) = stamp::number(rest)?;
    let rest = rest.get(length..)?.strip_prefix(b",\"at\":")?;
    let (at, _) = stamp::number(rest)?;
    Some((u32::try_from(document).ok()?, tick, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    const AT: u64 = 1_763_740_000_000_000;

    fn object(text: &[u8]) -> Map<String, Value> {
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn documents_have_their_size() {
        for (bytes, members) in [(200, 3), (1999, 65), (20_000, 196), (50_000, 493)] {
            let shape = Shape::new(bytes, 20);
            let text = shape.text(7, 1234, AT);
            assert_eq!((text.len(), shape.members), (bytes, members));
            assert_eq!(object(&text).len(), members + 4);
            assert_eq!(told(&text), Some((7, 1234, AT)));
        }
    }

    #[test]
    fn the_part_that_is_asked_for_is_renewed_at_each_tick() {
        for (percent, renewed) in [(0, 0), (20, 39), (100, 196)] {
            let shape = Shape::new(20_000, percent);
            let mut document = Document::new(shape, 3, AT);
            let mut before = object(&shape.text(3, 0, AT));
            for tick in 1..=30 {
                document.renew(AT + tick);
                let mut text = Vec::new();
                document.write(&mut text);
                assert!(text == shape.text(3, tick, AT + tick), "{percent} {tick}");
                let after = object(&text);
                let members = after.iter().filter(|(name, _)| name.starts_with('m'));
                let changed = members.filter(|(name, value)| before[*name] != **value);
                assert_eq!(changed.count(), renewed);
                before = after;
            }
        }
    }

    #[test]
    fn everything_is_new_after_a_round() {
        let shape = Shape::new(50_000, 20);
        let (first, last) = (shape.text(1, 10, AT), shape.text(1, 16, AT));
        let (first, last) = (object(&first), object(&last));
        let same =
            |(name, value): &(&String, &Value)| name.starts_with('m') && last[*name] == **value;
        assert_eq!(first.iter().filter(same).count(), 0);
    }

    #[test]
    fn patches_are_estimated() {
        let shape = Shape::new(50_000, 20);
        assert_eq!(shape.renewed, 99);
        assert!(
            (12_000..16_000).contains(&shape.patch_bytes()),
            "{}",
            shape.patch_bytes()
        );
    }
}
