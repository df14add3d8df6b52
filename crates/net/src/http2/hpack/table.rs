//! The tables of HPACK (RFC 7541, section 2.3): the static one and the dynamic one.
//!
//! Every entry lies as `name: value` in one piece, the form it has in a head's bytes, so that an
//! indexed field is one copy.

use std::collections::VecDeque;

use message::Field;

use super::super::kind::Kind;

/// What an entry costs beside its name and value (RFC 7541, section 4.1).
pub(super) const OVERHEAD: usize = 32;

/// The static table (RFC 7541, appendix A); its first entry has index 1.
pub(super) static STATIC: [&str; 61] = [
    ":authority: ",
    ":method: GET",
    ":method: POST",
    ":path: /",
    ":path: /index.html",
    ":scheme: http",
    ":scheme: https",
    ":status: 200",
    ":status: 204",
    ":status: 206",
    ":status: 304",
    ":status: 400",
    ":status: 404",
    ":status: 500",
    "accept-charset: ",
    "accept-encoding: gzip, deflate",
    "accept-language: ",
    "accept-ranges: ",
    "accept: ",
    "access-control-allow-origin: ",
    "age: ",
    "allow: ",
    "authorization: ",
    "cache-control: ",
    "content-disposition: ",
    "content-encoding: ",
    "content-language: ",
    "content-length: ",
    "content-location: ",
    "content-range: ",
    "content-type: ",
    "cookie: ",
    "date: ",
    "etag: ",
    "expect: ",
    "expires: ",
    "from: ",
    "host: ",
    "if-match: ",
    "if-modified-since: ",
    "if-none-match: ",
    "if-range: ",
    "if-unmodified-since: ",
    "last-modified: ",
    "link: ",
    "location: ",
    "max-forwards: ",
    "proxy-authenticate: ",
    "proxy-authorization: ",
    "range: ",
    "referer: ",
    "refresh: ",
    "retry-after: ",
    "server: ",
    "set-cookie: ",
    "strict-transport-security: ",
    "transfer-encoding: ",
    "user-agent: ",
    "vary: ",
    "via: ",
    "www-authenticate: ",
];

static NAME_LENGTHS: [u8; 61] = name_lengths();

const fn name_lengths() -> [u8; 61] {
    let mut lengths = [0; 61];
    let mut index = 0;
    while index < 61 {
        let line = STATIC[index].as_bytes();
        let mut at = 1;
        while line[at] != b':' {
            at += 1;
        }
        lengths[index] = at as u8;
        index += 1;
    }
    lengths
}

/// An entry of either table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// The name, a colon, a space, the value.
    pub line: &'a [u8],
    /// The length of the name.
    pub name: usize,
    /// What the name means.
    pub kind: Kind,
    /// Whether the value may stand in a message.
    pub is_valid: bool,
}

/// The entry of the static table with this index, which counts from 1.
#[inline]
pub(super) fn fixed(index: usize) -> Option<Found<'static>> {
    let place = index.checked_sub(1)?;
    Some(Found {
        line: STATIC.get(place)?.as_bytes(),
        name: usize::from(*NAME_LENGTHS.get(place)?),
        kind: fixed_kind(index),
        is_valid: true,
    })
}

#[inline]
fn fixed_kind(index: usize) -> Kind {
    match index {
        1 => Kind::Authority,
        2 | 3 => Kind::Method,
        4 | 5 => Kind::Path,
        6 | 7 => Kind::Scheme,
        8..=14 => Kind::Status,
        23 => Kind::Plain(Field::Authorization),
        26 => Kind::Plain(Field::ContentEncoding),
        28 => Kind::Plain(Field::ContentLength),
        31 => Kind::Plain(Field::ContentType),
        32 => Kind::Cookie,
        33 => Kind::Plain(Field::Date),
        35 => Kind::Plain(Field::Expect),
        38 => Kind::Plain(Field::Host),
        48 => Kind::Plain(Field::ProxyAuthenticate),
        49 => Kind::Plain(Field::ProxyAuthorization),
        57 => Kind::Refused,
        60 => Kind::Plain(Field::Via),
        _ => Kind::Plain(Field::Other),
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where the line begins, counted over all bytes that were ever stored.
    at: usize,
    name: u32,
    value: u32,
    kind: Kind,
    is_valid: bool,
}

impl Slot {
    fn size(&self) -> usize {
        self.name as usize + self.value as usize + OVERHEAD
    }
}

/// The dynamic table (RFC 7541, section 2.3.2).
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// How many bytes have been dropped before the first of `bytes`.
    dropped: usize,
    /// The oldest entry is first.
    slots: VecDeque<Slot>,
    size: usize,
    size_max: usize,
    inserted: u32,
}

impl Table {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            dropped: 0,
            slots: VecDeque::new(),
            size: 0,
            size_max,
            inserted: 0,
        }
    }

    /// The size that the entries may have together.
    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// The size of all entries (RFC 7541, section 4.1).
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many entries were ever inserted.
    pub(super) fn inserted(&self) -> u32 {
        self.inserted
    }

    /// The entry that is `age` entries older than the newest.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<Found<'_>> {
        let place = self.slots.len().checked_sub(age + 1)?;
        let slot = self.slots.get(place)?;
        let start = slot.at.wrapping_sub(self.dropped);
        let end = start + slot.name as usize + 2 + slot.value as usize;
        Some(Found {
            line: self.bytes.get(start..end)?,
            name: slot.name as usize,
            kind: slot.kind,
            is_valid: slot.is_valid,
        })
    }

    /// Changes the size that the entries may have, and evicts what no longer fits
    /// (RFC 7541, section 4.3).
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(size_max);
    }

    /// Inserts an entry (RFC 7541, section 4.4); the answer is whether it fits at all.
    pub(super) fn insert(&mut self, found: Found<'_>) -> bool {
        let slot = Slot {
            at: self.dropped.wrapping_add(self.bytes.len()),
            name: found.name as u32,
            value: (found.line.len() - found.name).saturating_sub(2) as u32,
            kind: found.kind,
            is_valid: found.is_valid,
        };
        let Some(room) = self.size_max.checked_sub(slot.size()) else {
            self.evict(0);
            return false;
        };
        self.evict(room);
        self.bytes.extend_from_slice(found.line);
        self.slots.push_back(slot);
        self.size += slot.size();
        self.inserted = self.inserted.wrapping_add(1);
        true
    }

    fn evict(&mut self, size_max: usize) {
        while self.size > size_max {
            let Some(slot) = self.slots.pop_front() else {
                break;
            };
            self.size -= slot.size();
        }
        let end = self.dropped.wrapping_add(self.bytes.len());
        let first = self.slots.front().map_or(end, |slot| slot.at);
        let dead = first.wrapping_sub(self.dropped);
        // Moving the living bytes only when as many are dead keeps an insertion cheap.
        if dead > 0 && dead >= self.bytes.len() - dead {
            self.bytes.drain(..dead.min(self.bytes.len()));
            self.dropped = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut Table, line: &str, name: usize) -> bool {
        table.insert(Found {
            line: line.as_bytes(),
            name,
            kind: Kind::Cookie,
            is_valid: true,
        })
    }

    #[test]
    fn kinds_of_the_static_table_are_those_of_its_names() {
        for index in 1..=61 {
            let found = fixed(index).unwrap();
            let name = &found.line[..found.name];
            assert_eq!(found.kind, Kind::of(name), "{index}");
            assert_eq!(&found.line[found.name..found.name + 2], b": ");
        }
        assert!(fixed(0).is_none() && fixed(62).is_none());
    }

    #[test]
    fn old_entries_make_room() {
        let mut table = Table::new(100);
        for number in 0..1000 {
            assert!(insert(&mut table, &format!("name: {number:06}"), 4));
            assert!(table.size() <= 100 && table.bytes.len() < 200);
        }
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(0).unwrap().line, b"name: 000999");
        assert_eq!(table.get(1).unwrap().line, b"name: 000998");
        assert!(table.get(2).is_none());
    }

    #[test]
    fn too_large_an_entry_empties_the_table() {
        let mut table = Table::new(100);
        insert(&mut table, "name: value", 4);
        assert!(!insert(&mut table, &format!("name: {}", "v".repeat(65)), 4));
        assert_eq!((table.len(), table.size()), (0, 0));
        assert!(insert(&mut table, &format!("name: {}", "v".repeat(64)), 4));
        table.resize(99);
        assert_eq!(table.len(), 0);
    }
}
