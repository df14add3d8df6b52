//! Values that nobody may read: a register of the whole process, and texts without them.
//!
//! Whoever reads a secret registers it before anything else is done with it. Whatever writes a
//! text that leaves the process other than as a message (log, report, metrics, problem reply)
//! sends it through [`redact`]. Values are only ever added: one that was replaced stays redacted,
//! since older texts and connections may still hold it.

mod forms;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// The least number of characters of a secret, without the white space around it. Shorter ones
/// occur in ordinary texts, so they cannot be redacted: whoever reads secrets refuses them.
pub const SHORTEST: usize = 4;

/// What stands where a secret stood.
pub const MASK: &str = "***";

/// Parts of names of header fields whose values are secrets, in small letters: credentials, what
/// stands for them, and what proves something.
const SECRET_PARTS: [&str; 13] = [
    "auth",
    "assertion",
    "cookie",
    "credential",
    "csrf",
    "jwt",
    "key",
    "passw",
    "secret",
    "session",
    "signature",
    "token",
    "xsrf",
];

/// Whether the value of a header field of this name is [masked](MASK) wherever headers are shown:
/// `Authorization`, `Cookie`, `X-Api-Key`, `X-Hub-Signature-256`, any `Proxy-` field and the like.
pub fn is_secret_header(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    name.starts_with("proxy-") || SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// How many bytes of a form are searched for: three quarters, from 12 to 128. What follows in the
/// text is compared with the rest of the form. So a secret that was cut off is found too, and
/// tables stay small.
const SEARCHED_MIN: usize = 12;
const SEARCHED_MAX: usize = 128;

/// Whether there is anything to look for. Set once, after the first value is in the table.
static IN_USE: AtomicBool = AtomicBool::new(false);
static REGISTER: RwLock<Register> = RwLock::new(Register {
    forms: BTreeSet::new(),
    table: None,
});

struct Register {
    /// Every form in which a value may show up.
    forms: BTreeSet<String>,
    /// Made of the forms; none when that failed, and then nothing is shown at all.
    table: Option<Arc<Table>>,
}

struct Table {
    automaton: AhoCorasick,
    /// The forms in the order of the automaton's patterns.
    forms: Vec<String>,
}

/// Whether a value is long enough to be redacted.
pub fn is_long_enough(value: &str) -> bool {
    value.trim().chars().nth(SHORTEST - 1).is_some()
}

/// Registers a value: from now on it is redacted, as it is and as base64 (also within longer
/// encoded text), percent-encoded, hexadecimal, and escaped for JSON, XML and logs. One with fewer
/// than [`SHORTEST`] characters is left out.
pub fn register(value: &str) {
    register_all([value]);
}

/// Registers values, all at once: the table is made once.
pub fn register_all<'a>(values: impl IntoIterator<Item = &'a str>) {
    let values = values.into_iter().filter(|value| is_long_enough(value));
    let forms: Vec<String> = values.flat_map(forms::of).collect();
    let mut register = REGISTER.write().unwrap_or_else(PoisonError::into_inner);
    let before = register.forms.len();
    register.forms.extend(forms);
    if register.forms.len() == before {
        return;
    }
    register.table = Table::new(register.forms.iter().cloned().collect()).map(Arc::new);
    IN_USE.store(true, Ordering::Release);
}

/// The text with every registered value replaced by [`MASK`]; the text itself when it has none.
pub fn redact(text: &str) -> Cow<'_, str> {
    let Some(found) = find(text.as_bytes()) else {
        return Cow::Borrowed(text);
    };
    let mut redacted = String::with_capacity(text.len());
    let mut shown_to = 0;
    for range in found {
        // A secret that was cut may end, for bytes, within a character.
        let end = (range.end..=text.len()).find(|at| text.is_char_boundary(*at));
        redacted.push_str(text.get(shown_to..range.start).unwrap_or_default());
        redacted.push_str(MASK);
        shown_to = end.unwrap_or(text.len());
    }
    redacted.push_str(text.get(shown_to..).unwrap_or_default());
    Cow::Owned(redacted)
}

/// [`redact`] for bytes, which need not be UTF-8.
pub fn redact_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(found) = find(bytes) else {
        return Cow::Borrowed(bytes);
    };
    let mut redacted = Vec::with_capacity(bytes.len());
    let mut shown_to = 0;
    for range in found {
        redacted.extend_from_slice(bytes.get(shown_to..range.start).unwrap_or_default());
        redacted.extend_from_slice(MASK.as_bytes());
        shown_to = range.end;
    }
    redacted.extend_from_slice(bytes.get(shown_to..).unwrap_or_default());
    Cow::Owned(redacted)
}

/// Where registered values stand, in order and apart from each other; none when there is none.
fn find(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    // Whoever registers a value uses it afterwards, so the order of other accesses is no matter.
    if !IN_USE.load(Ordering::Relaxed) {
        return None;
    }
    let register = REGISTER.read().unwrap_or_else(PoisonError::into_inner);
    let table = register.table.clone();
    drop(register);
    let Some(table) = table else {
        // Without a table nobody knows what is secret: show nothing.
        return Some(std::iter::once(0..bytes.len()).collect());
    };
    table.find(bytes)
}

impl Table {
    fn new(forms: Vec<String>) -> Option<Self> {
        let searched = forms.iter().map(|form| {
            let form = form.as_bytes();
            let length = (form.len() * 3 / 4).clamp(SEARCHED_MIN, SEARCHED_MAX);
            form.get(..length).unwrap_or(form)
        });
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(searched)
            .ok()?;
        Some(Self { automaton, forms })
    }

    fn find(&self, bytes: &[u8]) -> Option<Vec<Range<usize>>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for hit in self.automaton.find_overlapping_iter(bytes) {
            let form = self.forms.get(hit.pattern().as_usize());
            let rest = form.and_then(|form| form.as_bytes().get(hit.len()..));
            let behind = bytes.get(hit.end()..).unwrap_or_default();
            let same = behind
                .iter()
                .zip(rest.unwrap_or_default())
                .take_while(|(one, other)| one == other);
            found.push(hit.start()..hit.end() + same.count());
        }
        if found.is_empty() {
            return None;
        }
        found.sort_unstable_by_key(|range| range.start);
        found.dedup_by(|next, last| {
            let is_joined = next.start < last.end;
            if is_joined {
                last.end = last.end.max(next.end);
            }
            is_joined
        });
        Some(found)
    }
}

#[cfg(test)]
mod tests;
