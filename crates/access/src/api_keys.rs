//! API keys: who calls is known by a secret that we have made. The file of keys has their hashes
//! only, one entry a line, as JSON:
//!
//! ```json
//! {"id":"shop","hash":"sha256:9f86d0...","scopes":["orders.write"],"created":1800000000}
//! ```
//!
//! A key that we make has 256 random bits, so one SHA-256 is as hard to undo as any slower hash.
//! One that was made elsewhere must be as hard to guess.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use hashbrown::HashMap;
use serde_json::{Map, Value, json};

use crate::FileProblem;
use crate::sha256::sha256;
use crate::{hex, random, strict_json};

/// What each key begins with, so that scanners of repositories and logs know one when they see it.
pub const PREFIX: &str = "itk_";
/// The most bytes of a key.
pub const KEY_MAX: usize = 512;
/// The least bytes of a key: those of other systems may be taken over, but not those of men.
pub const KEY_MIN: usize = 20;
/// The most entries of a file.
pub const ENTRIES_MAX: usize = 1_000_000;

type Hash = [u8; 32];

/// An entry of the file: everything about a key but the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Who has it, in words of the file's owner; no two entries share it.
    pub id: String,
    hash: Hash,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The plan by which its use is limited.
    pub plan: Option<String>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// From when on it is refused, in seconds since 1970.
    pub expires: Option<u64>,
}

/// The keys of one file.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys {
    entries: Vec<ApiKey>,
    by_hash: HashMap<Hash, usize>,
}

/// Why there is no new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// The id is none: see [`is_id`].
    Id,
    /// It has less than [`KEY_MIN`] or more than [`KEY_MAX`] bytes.
    Length,
    /// The system has no random bytes.
    Random,
}

impl ApiKeys {
    /// Reads a file. Empty lines and lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The first line that is no entry, or repeats the id or the key of another one.
    pub fn parse(text: &str) -> Result<Self, FileProblem> {
        let mut keys = Self::default();
        let mut ids = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let problem = |message: String| FileProblem {
                line: number + 1,
                message,
            };
            let entry = ApiKey::of_line(line).map_err(|it| problem(it.to_owned()))?;
            if keys.entries.len() == ENTRIES_MAX {
                return Err(problem(format!("there are more than {ENTRIES_MAX} keys")));
            }
            if let Some(first) = ids.insert(entry.id.clone(), number + 1) {
                let id = &entry.id;
                return Err(problem(format!("line {first} has the id {id:?} already")));
            }
            if keys
                .by_hash
                .insert(entry.hash, keys.entries.len())
                .is_some()
            {
                return Err(problem("another line has the same key".to_owned()));
            }
            keys.entries.push(entry);
        }
        Ok(keys)
    }

    /// The entry of a key that was presented, unless it has expired. How long this takes says
    /// nothing about how much of a key was right: it is the hash that is looked up.
    #[must_use]
    pub fn find(&self, presented: &[u8], now: u64) -> Option<&ApiKey> {
        if !(KEY_MIN..=KEY_MAX).contains(&presented.len()) {
            return None;
        }
        let hash = sha256(presented);
        let entry = self.entries.get(*self.by_hash.get(&hash)?)?;
        verify_slices_are_equal(&entry.hash, &hash).ok()?;
        let is_expired = entry.expires.is_some_and(|end| now >= end);
        (!is_expired).then_some(entry)
    }

    /// Whether this very entry is there, unchanged.
    #[must_use]
    pub fn has(&self, entry: &ApiKey) -> bool {
        let at = self.by_hash.get(&entry.hash);
        at.and_then(|at| self.entries.get(*at)) == Some(entry)
    }

    /// All entries, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[ApiKey] {
        &self.entries
    }
}

impl ApiKey {
    /// Makes a key of 256 random bits and its entry. The key is nowhere else: it is shown once.
    ///
    /// # Errors
    /// [`NoKey::Id`] or [`NoKey::Random`].
    pub fn generate(id: &str, now: u64) -> Result<(String, Self), NoKey> {
        let secret: [u8; 32] = random::bytes().ok_or(NoKey::Random)?;
        let key = format!("{PREFIX}{}", Base64UrlUnpadded::encode_string(&secret));
        let entry = Self::of_key(id, key.as_bytes(), now)?;
        Ok((key, entry))
    }

    /// The entry of a key that was made elsewhere.
    ///
    /// # Errors
    /// [`NoKey::Id`] or [`NoKey::Length`].
    pub fn of_key(id: &str, key: &[u8], now: u64) -> Result<Self, NoKey> {
        if !is_id(id) {
            return Err(NoKey::Id);
        }
        if !(KEY_MIN..=KEY_MAX).contains(&key.len()) {
            return Err(NoKey::Length);
        }
        Ok(Self {
            id: id.to_owned(),
            hash: sha256(key),
            scopes: Vec::new(),
            plan: None,
            created: now,
            expires: None,
        })
    }

    /// The line of the file.
    #[must_use]
    pub fn to_line(&self) -> String {
        let hash = format!("sha256:{}", hex::encode(&self.hash));
        let mut line = json!({ "id": self.id, "hash": hash, "scopes": self.scopes,
            "plan": self.plan, "created": self.created, "expires": self.expires });
        if let Some(members) = line.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        line.to_string()
    }

    fn of_line(line: &str) -> Result<Self, &'static str> {
        const KNOWN: [&str; 6] = ["id", "hash", "scopes", "plan", "created", "expires"];
        let members = strict_json::object(line.as_bytes())
            .map_err(|_| "it is not one JSON object whose members have different names")?;
        if members.keys().any(|name| !KNOWN.contains(&&**name)) {
            return Err("only `id`, `hash`, `scopes`, `plan`, `created` and `expires` are known");
        }
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let id = text("id").filter(|it| is_id(it));
        let hash = text("hash").and_then(|it| hex::decode(it.strip_prefix("sha256:")?));
        Ok(Self {
            id: id
                .ok_or("`id` must be a text of 1 to 200 printable characters without spaces")?
                .to_owned(),
            hash: hash.ok_or("`hash` must be `sha256:` and 64 hexadecimal digits")?,
            scopes: scopes(&members)?,
            plan: plan(&members)?,
            created: seconds(&members, "created")?.unwrap_or(0),
            expires: seconds(&members, "expires")?,
        })
    }
}

/// Whether a name is fit for an id: it stands in logs, metrics and listings.
#[must_use]
pub fn is_id(name: &str) -> bool {
    let is_plain = |it: char| !it.is_control() && !it.is_whitespace();
    (1..=200).contains(&name.chars().count()) && name.chars().all(is_plain)
}

pub(crate) fn plan(members: &Map<String, Value>) -> Result<Option<String>, &'static str> {
    match members.get("plan") {
        None => Ok(None),
        Some(Value::String(plan)) => Ok(Some(plan.clone())),
        Some(_) => Err("`plan` must be a text"),
    }
}

pub(crate) fn scopes(members: &Map<String, Value>) -> Result<Vec<String>, &'static str> {
    const PROBLEM: &str = "`scopes` must be a list of texts without spaces";
    let Some(scopes) = members.get("scopes") else {
        return Ok(Vec::new());
    };
    let scope = |it: &Value| {
        let text = it.as_str().filter(|it| !it.is_empty() && !it.contains(' '));
        text.map(str::to_owned)
    };
    let all = scopes.as_array().ok_or(PROBLEM)?.iter().map(scope);
    all.collect::<Option<_>>().ok_or(PROBLEM)
}

fn seconds(members: &Map<String, Value>, name: &str) -> Result<Option<u64>, &'static str> {
    match members.get(name) {
        None => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or("`created` and `expires` must be seconds since 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::{ApiKey, ApiKeys, KEY_MAX, KEY_MIN, NoKey};

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_key_is_found_by_all_of_it_until_it_expires() {
        let (key, mut entry) = ApiKey::generate("shop", NOW).unwrap();
        entry.scopes = vec!["orders.write".to_owned()];
        entry.plan = Some("gold".to_owned());
        entry.expires = Some(NOW + 10);
        let (other, second) = ApiKey::generate("desk", NOW).unwrap();
        let file = format!("# ours\n\n{}\n{}\n", entry.to_line(), second.to_line());
        assert!(!file.contains(&key) && !file.contains(&key[4..]));
        let keys = ApiKeys::parse(&file).unwrap();
        assert_eq!(keys.entries(), [entry.clone(), second]);
        assert_eq!(keys.find(key.as_bytes(), NOW), Some(&entry));
        assert_eq!(keys.find(key.as_bytes(), NOW + 10), None);
        assert_eq!(keys.find(other.as_bytes(), NOW + 10).unwrap().id, "desk");
        for cut in 0..key.len() {
            assert_eq!(keys.find(&key.as_bytes()[..cut], NOW), None);
        }
        assert_eq!(keys.find(format!("{key} ").as_bytes(), NOW), None);
        assert_eq!(keys.find(&vec![b'x'; KEY_MAX + 1], NOW), None);
    }

    #[test]
    fn keys_of_others_are_long_enough_and_ids_are_fit_for_a_file() {
        let own = "k".repeat(KEY_MIN);
        let entry = ApiKey::of_key("old", own.as_bytes(), NOW).unwrap();
        let keys = ApiKeys::parse(&entry.to_line()).unwrap();
        assert_eq!(keys.find(own.as_bytes(), NOW), Some(&entry));
        for key in ["", &own[1..], &own.repeat(100)] {
            let refused = ApiKey::of_key("old", key.as_bytes(), NOW);
            assert_eq!(refused, Err(NoKey::Length), "{key}");
        }
        assert_eq!(ApiKey::generate("a b", NOW).unwrap_err(), NoKey::Id);
        // The hash of nothing, written by hand, lets nobody in.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let line = format!(r#"{{"id":"a","hash":"sha256:{empty}"}}"#);
        assert_eq!(ApiKeys::parse(&line).unwrap().find(b"", NOW), None);
    }

    #[test]
    fn keys_are_long_and_each_is_another() {
        let (first, _) = ApiKey::generate("a", NOW).unwrap();
        let (second, _) = ApiKey::generate("a", NOW).unwrap();
        assert!(first.starts_with("itk_") && first.len() == 4 + 43 && first != second);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_line() {
        let hash = format!("sha256:{}", "a0".repeat(32));
        let line = |rest: &str| format!(r#"{{"hash":"{hash}",{rest}}}"#);
        for (text, line_number, part) in [
            ("x".to_owned(), 1, "JSON object"),
            (line(r#""id":"a","id":"b""#), 1, "JSON object"),
            (line(r#""id":"a","scope":"b""#), 1, "are known"),
            (line(r#""id":"a b""#), 1, "`id`"),
            (line(r#""id":"""#), 1, "`id`"),
            (line(r#""plan":"a""#), 1, "`id`"),
            (r#"{"id":"a","hash":"sha256:00"}"#.to_owned(), 1, "`hash`"),
            (line(r#""id":"a","scopes":"b""#), 1, "`scopes`"),
            (line(r#""id":"a","scopes":["b c"]"#), 1, "`scopes`"),
            (
                line(r#""id":"a","expires":"tomorrow""#),
                1,
                "seconds since 1970",
            ),
            (line(r#""id":"a","expires":-1"#), 1, "seconds since 1970"),
            (line(r#""id":"a","plan":1"#), 1, "`plan`"),
            (
                format!("\n{0}\n{0}", line(r#""id":"a""#)),
                3,
                "line 2 has the id",
            ),
            (
                format!("{}\n{}", line(r#""id":"a""#), line(r#""id":"b""#)),
                2,
                "same key",
            ),
        ] {
            let problem = ApiKeys::parse(&text).unwrap_err();
            assert_eq!(problem.line, line_number, "{text}");
            assert!(problem.message.contains(part), "{text}: {problem}");
        }
    }
}
