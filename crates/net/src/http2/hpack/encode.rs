//! The encoder of header sections (RFC 7541, section 6), made for speed: what repeats becomes one
//! byte, all else is copied.

use message::Field;

use super::super::kind::Kind;
use super::table::{Found, OVERHEAD, STATIC, Table, fixed};
use super::{TABLE_SIZE, huffman, integer};

/// How many lines with like hashes are kept apart.
const WAYS: usize = 4;
/// How many sets the finder of dynamic entries has; 4096 bytes are at most 128 entries.
const FINDER: usize = 64;
/// How many sets of lines that were sent once are remembered.
const SEEN: usize = 16;
/// The largest entry that goes into the table, so that one line cannot push out all others.
const ENTRY_MAX: usize = TABLE_SIZE / 4;
/// A cookie that is shorter could be guessed (RFC 7541, section 7.1.3).
const COOKIE_MIN: usize = 20;
/// The first index of the dynamic table.
const DYNAMIC: usize = 62;
const NAMES: usize = 256;

/// How a line is to be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// As an entry of the dynamic table, once it has been seen to repeat.
    Repeats,
    /// As it is: the value changes all the time.
    Plain,
    /// As it is, and nobody on the way may index it (RFC 7541, section 7.1.3).
    Never,
}

/// A line that was put into the table.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    hash: u32,
    insertion: u32,
}

/// The encoder of one connection's header sections.
#[derive(Debug)]
pub(crate) struct Encoder {
    table: Table,
    /// Hashes of lines, and which insertion put each into the table.
    finder: Box<[[Known; WAYS]; FINDER]>,
    /// The hashes of lines that were sent once, the latest first.
    seen: Box<[[u32; WAYS]; SEEN]>,
    /// The smallest size since the last block, when the size has changed.
    smallest: Option<usize>,
    scratch: Vec<u8>,
}

impl Encoder {
    /// An encoder with the table that every connection begins with.
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TABLE_SIZE),
            finder: Box::new([[Known::default(); WAYS]; FINDER]),
            seen: Box::new([[0; WAYS]; SEEN]),
            smallest: None,
            scratch: Vec::new(),
        }
    }

    /// Takes the size that the peer allows the table. No more than the usual size is ever used.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        let size = limit.min(TABLE_SIZE);
        if size != self.table.size_max() {
            self.smallest = Some(self.smallest.map_or(size, |smallest| smallest.min(size)));
            self.table.resize(size);
        }
    }

    /// Begins a block: tells the sizes that the table has taken (RFC 7541, section 4.2).
    #[inline]
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            if smallest < self.table.size_max() {
                integer::encode(smallest, 5, 0x20, out);
            }
            integer::encode(self.table.size_max(), 5, 0x20, out);
        }
    }

    /// Writes `:status`.
    #[inline]
    pub(crate) fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
                let text = [digit(100), digit(10), digit(1)];
                return self.line(8, b":status", &text, Policy::Repeats, out);
            }
        };
        out.push(0x80 | index);
    }

    /// Writes `:method`.
    pub(crate) fn method(&mut self, method: &[u8], out: &mut Vec<u8>) {
        match method {
            b"GET" => out.push(0x82),
            b"POST" => out.push(0x83),
            _ => self.line(2, b":method", method, Policy::Repeats, out),
        }
    }

    /// Writes `:scheme`.
    pub(crate) fn scheme(&mut self, scheme: &[u8], out: &mut Vec<u8>) {
        match scheme {
            b"http" => out.push(0x86),
            b"https" => out.push(0x87),
            _ => self.line(6, b":scheme", scheme, Policy::Repeats, out),
        }
    }

    /// Writes `:authority`.
    pub(crate) fn authority(&mut self, authority: &[u8], out: &mut Vec<u8>) {
        self.line(1, b":authority", authority, Policy::Repeats, out);
    }

    /// Writes `:path`.
    pub(crate) fn path(&mut self, path: &[u8], out: &mut Vec<u8>) {
        match path {
            b"/" => out.push(0x84),
            _ => self.line(4, b":path", path, Policy::Plain, out),
        }
    }

    /// Writes a field line. The name may be in any case.
    #[inline]
    pub(crate) fn field(&mut self, field: Field, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if let Some((index, name)) = known(field) {
            return self.line(index, name, value, policy(index, name, value), out);
        }
        if !has_upper(name) {
            return self.lower(name, value, out);
        }
        let mut lower = std::mem::take(&mut self.scratch);
        lower.clear();
        lower.extend(name.iter().map(u8::to_ascii_lowercase));
        self.lower(&lower, value, out);
        self.scratch = lower;
    }

    #[inline]
    fn lower(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let index = static_name(name);
        if index == 16 && value == b"gzip, deflate" {
            out.push(0x90);
            return;
        }
        self.line(index, name, value, policy(index, name, value), out);
    }

    /// Writes a line; `index` is that of its name in the static table, or 0.
    fn line(&mut self, index: usize, name: &[u8], value: &[u8], policy: Policy, out: &mut Vec<u8>) {
        match policy {
            Policy::Plain => literal(4, 0, index, name, value, out),
            Policy::Never => literal(4, 0x10, index, name, value, out),
            Policy::Repeats => self.repeating(index, name, value, out),
        }
    }

    fn repeating(&mut self, index: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let hash = hash(index, name, value);
        if let Some(age) = self.find(hash, name, value) {
            return integer::encode(DYNAMIC + age, 7, 0x80, out);
        }
        let has_room = name.len() + value.len() + OVERHEAD <= ENTRY_MAX.min(self.table.size_max());
        if !has_room || !self.has_seen(hash) {
            return literal(4, 0, index, name, value, out);
        }
        self.remember(hash);
        self.insert(name, value);
        integer::encode(index, 6, 0x40, out);
        if index == 0 {
            short_string(name, out);
        }
        short_string(value, out);
    }

    /// How many entries of the table are newer than this line.
    #[inline]
    fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let set = self.finder.get(hash as usize % FINDER)?;
        let known = set.iter().filter(|known| known.hash == hash);
        known.map(|known| self.age(*known)).find(|&age| {
            let found = self.table.get(age);
            found.is_some_and(|found| is_line(&found, name, value))
        })
    }

    fn age(&self, known: Known) -> usize {
        let inserted = self.table.inserted();
        inserted.wrapping_sub(known.insertion).wrapping_sub(1) as usize
    }

    /// Whether a line with this hash was sent lately. From now on it was.
    fn has_seen(&mut self, hash: u32) -> bool {
        let Some(set) = self.seen.get_mut((hash >> 16) as usize % SEEN) else {
            return false;
        };
        let has_seen = set.contains(&hash);
        if !has_seen {
            set.rotate_right(1);
            set[0] = hash;
        }
        has_seen
    }

    /// Notes that the next insertion is of a line with this hash, instead of the oldest one.
    fn remember(&mut self, hash: u32) {
        let insertion = self.table.inserted();
        let Some(set) = self.finder.get_mut(hash as usize % FINDER) else {
            return;
        };
        let age = |known: &&mut Known| insertion.wrapping_sub(known.insertion);
        let same = set.iter().position(|known| known.hash == hash);
        let place = match same {
            Some(place) => set.get_mut(place),
            None => set.iter_mut().max_by_key(age),
        };
        if let Some(place) = place {
            *place = Known { hash, insertion };
        }
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.scratch_line(name, value);
        let line = std::mem::take(&mut self.scratch);
        self.table.insert(Found {
            line: &line,
            name: name.len(),
            kind: Kind::Refused,
            is_valid: false,
        });
        self.scratch = line;
    }

    fn scratch_line(&mut self, name: &[u8], value: &[u8]) {
        self.scratch.clear();
        self.scratch.extend_from_slice(name);
        self.scratch.extend_from_slice(b": ");
        self.scratch.extend_from_slice(value);
    }
}

/// The name of a field that is often sent, and its index in the static table, or 0: it needs no
/// look at the name's letters.
#[inline]
fn known(field: Field) -> Option<(usize, &'static [u8])> {
    Some(match field {
        Field::Authorization => (23, b"authorization"),
        Field::ContentEncoding => (26, b"content-encoding"),
        Field::ContentLength => (28, b"content-length"),
        Field::ContentType => (31, b"content-type"),
        Field::Date => (33, b"date"),
        Field::Expect => (35, b"expect"),
        Field::Forwarded => (0, b"forwarded"),
        Field::Host => (38, b"host"),
        Field::Via => (60, b"via"),
        Field::XForwardedFor => (0, b"x-forwarded-for"),
        Field::XForwardedHost => (0, b"x-forwarded-host"),
        Field::XForwardedPort => (0, b"x-forwarded-port"),
        Field::XForwardedProto => (0, b"x-forwarded-proto"),
        Field::XRealIp => (0, b"x-real-ip"),
        _ => return None,
    })
}

/// Whether a name has capital letters, eight bytes at a time.
#[inline]
fn has_upper(name: &[u8]) -> bool {
    const fn each(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    let upper = |word: u64| {
        let low = word & each(0x7f);
        // The top bit of each byte tells whether it is at least `A`, and whether it is above `Z`.
        let (from_a, above_z) = (low + each(0x80 - b'A'), low + each(0x7f - b'Z'));
        from_a & !above_z & !word & each(0x80)
    };
    let (words, rest) = name.as_chunks::<8>();
    let mut found = 0;
    for word in words {
        found |= upper(u64::from_ne_bytes(*word));
    }
    let last = match name.last_chunk::<8>() {
        Some(last) => u64::from_ne_bytes(*last),
        None => rest
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    found | upper(last) != 0
}

fn is_line(found: &Found<'_>, name: &[u8], value: &[u8]) -> bool {
    found.line.len() == name.len() + 2 + value.len()
        && found.name == name.len()
        && found.line.starts_with(name)
        && found.line.ends_with(value)
}

fn literal(bits: u32, pattern: u8, index: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    integer::encode(index, bits, pattern, out);
    if index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// Writes a string as it is: encoding it would cost both sides more than the bytes it saves.
#[inline]
fn string(text: &[u8], out: &mut Vec<u8>) {
    integer::encode(text.len(), 7, 0, out);
    out.extend_from_slice(text);
}

/// Writes a string that is sent once for many lines, so that it may be worth encoding.
fn short_string(text: &[u8], out: &mut Vec<u8>) {
    let length = huffman::encoded_len(text);
    if length >= text.len() {
        return string(text, out);
    }
    integer::encode(length, 7, 0x80, out);
    huffman::encode(text, out);
}

fn policy(index: usize, name: &[u8], value: &[u8]) -> Policy {
    match index {
        // authorization, proxy-authorization, set-cookie
        23 | 49 | 55 => Policy::Never,
        32 if value.len() < COOKIE_MIN => Policy::Never,
        // age, content-length, content-range, date, etag, expires, if-match, if-modified-since,
        // if-none-match, if-range, if-unmodified-since, last-modified, location, range
        21 | 28 | 30 | 33 | 34 | 36 | 39..=44 | 46 | 50 => Policy::Plain,
        0 if name == b"x-request-id" => Policy::Plain,
        _ => Policy::Repeats,
    }
}

/// A hash of a line's length and of the bytes at the ends of its name and value: lines that
/// differ only in between take each other's place, which costs bytes and nothing else.
#[inline]
fn hash(index: usize, name: &[u8], value: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    let mut state = (index as u64) << 32 | value.len() as u64;
    if index == 0 {
        state = mix(state, ends(name));
    }
    let (first, last) = value.split_at(value.len() / 2);
    state = mix(state, ends(first));
    state = mix(state, ends(last));
    (state >> 32) as u32
}

/// The first and the last eight bytes, or all of fewer.
#[inline]
fn ends(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        return u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29);
    }
    let mut word = text.len() as u64;
    for &byte in text {
        word = word << 8 | u64::from(byte);
    }
    word
}

/// The static index of each name, at the place that the name's form tells.
static PLACES: [u8; NAMES] = places();

const fn place(name: &[u8]) -> usize {
    let length = name.len();
    if length == 0 {
        return 0;
    }
    let (first, middle, last) = (name[0], name[length / 2], name[length - 1]);
    (first as usize * PLACE_FACTORS[0]
        + middle as usize * PLACE_FACTORS[1]
        + last as usize * PLACE_FACTORS[2]
        + length * PLACE_FACTORS[3])
        % NAMES
}

/// Found by trying: no two names of the static table have one place.
const PLACE_FACTORS: [usize; 4] = [167, 236, 113, 239];

const fn places() -> [u8; NAMES] {
    let mut places = [0; NAMES];
    let mut index = STATIC.len();
    while index > 0 {
        let (line, mut at) = (STATIC[index - 1].as_bytes(), 1);
        while line[at] != b':' {
            at += 1;
        }
        places[place(line.split_at(at).0)] = index as u8;
        index -= 1;
    }
    places
}

/// The first index of the static table that has this name, or 0.
#[inline]
fn static_name(name: &[u8]) -> usize {
    let index = usize::from(PLACES[place(name)]);
    match fixed(index) {
        Some(found) if found.name == name.len() && found.line.starts_with(name) => index,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::super::{DecodeError, Decoder, Line, Sink};
    use super::*;

    #[test]
    fn known_fields_have_the_index_of_their_name() {
        let names = [
            "authorization",
            "content-encoding",
            "content-length",
            "content-type",
            "expect",
            "forwarded",
            "host",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ];
        for name in names {
            let name = name.as_bytes();
            assert_eq!(known(Field::of(name)), Some((static_name(name), name)));
        }
    }

    #[test]
    fn capital_letters_are_found_wherever_they_are() {
        for length in 1..20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    for other in [b'a', b'-', b'@', b'[', 0xff] {
                        let mut name = vec![other; length];
                        name[at] = byte;
                        assert_eq!(has_upper(&name), byte.is_ascii_uppercase(), "{name:?}");
                    }
                }
            }
        }
    }

    #[derive(Default)]
    struct Lines(Vec<u8>, Vec<String>);

    impl Sink for Lines {
        fn bytes(&mut self) -> &mut Vec<u8> {
            &mut self.0
        }

        fn line(&mut self, line: Line) -> Result<(), DecodeError> {
            let text = String::from_utf8_lossy(&self.0[line.start..]).into_owned();
            self.1.push(text);
            Ok(())
        }
    }

    fn encoded(encoder: &mut Encoder, lines: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in lines {
            let field = Field::of(name.as_bytes());
            encoder.field(field, name.as_bytes(), value.as_bytes(), &mut out);
        }
        out
    }

    #[test]
    fn every_static_name_is_found() {
        for index in 1..=STATIC.len() {
            let found = fixed(index).unwrap();
            let name = &found.line[..found.name];
            let first = fixed(static_name(name)).unwrap();
            assert_eq!(&first.line[..first.name], name);
        }
        for name in ["", "x", "dat", "dates", "x-forwarded-for"] {
            assert_eq!(static_name(name.as_bytes()), 0, "{name}");
        }
    }

    #[test]
    fn what_repeats_becomes_one_byte() {
        let mut encoder = Encoder::new();
        let lines = [
            ("Server", "intertie"),
            ("X-Thing", "some value"),
            ("Vary", "accept"),
        ];
        let first = encoded(&mut encoder, &lines);
        let second = encoded(&mut encoder, &lines);
        let third = encoded(&mut encoder, &lines);
        assert!(first.len() > 30 && second.len() > 15);
        assert_eq!(third, [0xc0, 0xbf, 0xbe]);
    }

    #[test]
    fn many_repeating_lines_all_find_their_places() {
        let mut encoder = Encoder::new();
        let names: Vec<String> = (0..40).map(|number| format!("x-name-{number}")).collect();
        let lines: Vec<_> = names
            .iter()
            .map(|name| (&name[..], "a value of it"))
            .collect();
        for _ in 0..6 {
            encoded(&mut encoder, &lines);
        }
        let block = encoded(&mut encoder, &lines);
        assert_eq!(block.len(), lines.len());
    }

    #[test]
    fn secrets_are_never_indexed() {
        let mut encoder = Encoder::new();
        for line in [
            ("authorization", "x"),
            ("cookie", "a=b"),
            ("set-cookie", "a=b"),
        ] {
            for _ in 0..3 {
                let out = encoded(&mut encoder, &[line]);
                assert_eq!(out[0] & 0xf0, 0x10, "{line:?}");
            }
        }
    }

    #[test]
    fn decoder_and_encoder_agree_whatever_is_sent() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let mut random = Rng::with_seed(1);
        for round in 0..5000 {
            if round % 50 == 0 {
                encoder.set_limit([0, 100, 4096, 1000][random.usize(..4)]);
                encoder.set_limit([4096, 200, 10_000][random.usize(..3)]);
            }
            let lines: Vec<(String, String)> = (0..random.u8(..8))
                .map(|_| match random.u8(..3) {
                    0 => (
                        format!("x-{}", random.u8(..40)),
                        "v".repeat(random.usize(..300)),
                    ),
                    1 => ("user-agent".into(), format!("agent {}", random.u8(..30))),
                    _ => ("date".into(), format!("{}", random.u16(..1000))),
                })
                .collect();
            let pairs: Vec<_> = lines.iter().map(|(n, v)| (&n[..], &v[..])).collect();
            let block = encoded(&mut encoder, &pairs);
            let mut found = Lines::default();
            decoder.decode(&block, &mut found).unwrap();
            let wanted: Vec<_> = pairs.iter().map(|(n, v)| format!("{n}: {v}")).collect();
            assert_eq!(found.1, wanted);
        }
    }
}
