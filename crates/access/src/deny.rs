//! Credentials that are refused although they are good: tokens by `jti`, callers by `sub`, API keys
//! and users by their id, what a session at an issuer has given by `sid`, and what a person has
//! logged in for by `login`, each until it expires by itself or is taken from the list.
//!
//! Entries come from two sources: a file of the operator's, which is read anew when it changes, and
//! changes while the engine runs: of an operator, and of an issuer that says that somebody has
//! logged out. These are written to a journal, a JSON object a line, whose replay gives the same
//! list:
//!
//! ```json
//! {"op":"add","jti":"6f1c","exp":1800000000,"reason":"laptop stolen"}
//! {"op":"remove","jti":"6f1c"}
//! ```
//!
//! The file has the same lines without `op`. What an issuer says has `"op":"logout"` instead of
//! `add`: such entries have a bound of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::{FileProblem, strict_json};

/// The most bytes of what an entry names.
pub const NAME_MAX: usize = 512;
/// The most bytes of a reason.
pub const REASON_MAX: usize = 200;
/// The most entries of the operator's file.
pub const FILE_ENTRIES_MAX: usize = 1_000_000;

/// What an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A token, by its claim `jti`.
    Token,
    /// Every credential of a caller, by its claim `sub` or by the id that the caller is known by.
    Subject,
    /// An API key, or a user of `Basic`, by its id.
    Key,
    /// What a session at an issuer has given, by the claims `iss` and `sid` with a space between.
    Session,
    /// What somebody has logged in for at an issuer, by the claims `iss` and `sub` with a space
    /// between: all of it, or what was issued before some time.
    Login,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Token,
        Self::Subject,
        Self::Key,
        Self::Session,
        Self::Login,
    ];

    /// The member of a line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "jti",
            Self::Subject => "sub",
            Self::Key => "key",
            Self::Session => "sid",
            Self::Login => "login",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Token => 0,
            Self::Subject => 1,
            Self::Key => 2,
            Self::Session => 3,
            Self::Login => 4,
        }
    }

    /// Whether it names what ends by itself, so that an entry has to end, too. Such credentials are
    /// taken for as long after their end as clocks may differ.
    fn ends_by_itself(self) -> bool {
        match self {
            Self::Token | Self::Session | Self::Login => true,
            Self::Subject | Self::Key => false,
        }
    }
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// What it names.
    pub kind: Kind,
    /// The name.
    pub name: Arc<str>,
    /// Until when, in seconds since 1970; what ends by itself always has an end. None: until it is
    /// removed.
    pub expires: Option<u64>,
    /// Of a login: only what was issued until then, in seconds since 1970. None: all of it.
    pub before: Option<u64>,
    /// Why, for operators; callers are not told.
    pub reason: Option<String>,
    /// Whether an issuer has said so and no operator. It stands in the journal alone.
    pub is_logout: bool,
}

/// An entry that [`DenyList::log_out`] has put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutEntry {
    /// The entry, which refuses what an earlier one of its name does, too.
    pub entry: Denied,
    /// The entry of another logout that had to make room.
    pub dropped: Option<Denied>,
}

/// A change of the list, as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entry is added, or takes the place of the one that names the same.
    Add(Denied),
    /// The entry is removed.
    Remove(Kind, Arc<str>),
}

/// Why an entry is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The list has as many entries as it may have, all of which are in force.
    Full,
    /// It has expired already.
    Expired,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The operator's file: only a change of the file removes it.
    File,
    /// A change while the engine runs.
    Journal,
}

type Entries = [HashMap<Arc<str>, Denied>; Kind::ALL.len()];

/// The deny list. A look-up takes the same time however many entries there are.
#[derive(Debug)]
pub struct DenyList {
    file: Arc<FileEntries>,
    changed: Entries,
    /// Those of `changed` that have an end, the first to end in front.
    order: BTreeSet<(u64, Kind, Arc<str>)>,
    /// Those of `order` that are of logouts.
    logouts: BTreeSet<(u64, Kind, Arc<str>)>,
    count_max: usize,
    clock_skew: u64,
}

/// The entries of the operator's file, ready to be looked up: to make and to drop a million of them
/// takes a while, for which nobody has to wait who asks the list.
#[derive(Debug, Default)]
pub struct FileEntries(Entries);

impl FileEntries {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(HashMap::len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(HashMap::is_empty)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Denied> {
        self.0.iter().flat_map(HashMap::values)
    }

    /// Puts an entry in. Of two that name the same, both hold.
    fn put(&mut self, entry: Denied) {
        let Some(of_kind) = self.0.get_mut(entry.kind.index()) else {
            return;
        };
        match of_kind.get_mut(&entry.name) {
            Some(known) => known.widen(entry),
            None => {
                of_kind.insert(Arc::clone(&entry.name), entry);
            }
        }
    }
}

impl FromIterator<Denied> for FileEntries {
    fn from_iter<T: IntoIterator<Item = Denied>>(entries: T) -> Self {
        let mut all = Self::default();
        entries.into_iter().for_each(|entry| all.put(entry));
        all
    }
}

impl Denied {
    /// An entry.
    ///
    /// # Errors
    /// A sentence: the name or the reason is none, or a token has no end.
    pub fn new(
        kind: Kind,
        name: &str,
        expires: Option<u64>,
        reason: Option<&str>,
    ) -> Result<Self, &'static str> {
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
            return Err("the name must have 1 to 512 bytes, none of them control");
        }
        if kind.ends_by_itself() && expires.is_none() {
            return Err("the `exp` of the token is missing: without it the entry would never end");
        }
        let is_reason = |it: &str| it.len() <= REASON_MAX && !it.chars().any(char::is_control);
        if !reason.is_none_or(is_reason) {
            return Err("`reason` must have at most 200 bytes, none of them control");
        }
        Ok(Self {
            kind,
            name: Arc::from(name),
            expires,
            before: None,
            reason: reason.map(str::to_owned),
            is_logout: false,
        })
    }

    /// The same of what was issued until this time, in seconds since 1970: whoever logs in again is
    /// let in.
    #[must_use]
    pub fn issued_until(mut self, time: u64) -> Self {
        self.before = Some(time);
        self
    }

    /// Whether it means a credential that was issued at this time; one that does not say when may
    /// have been issued before.
    #[must_use]
    pub fn means(&self, issued: Option<u64>) -> bool {
        let is_before = |before| issued.is_none_or(|at| at <= before);
        self.before.is_none_or(is_before)
    }

    /// Makes it refuse what another one of the same name refuses, too.
    pub fn widen(&mut self, other: Self) {
        let widest = |one: Option<u64>, other: Option<u64>| Some(one?.max(other?));
        let expires = widest(self.expires, other.expires);
        if expires != self.expires {
            self.reason = other.reason;
        }
        self.expires = expires;
        self.before = widest(self.before, other.before);
    }

    fn of_members(members: &Map<String, Value>) -> Result<Self, &'static str> {
        let (kind, name) = named(members)?;
        let is_known = |it: &String| match &**it {
            "op" | "exp" | "reason" => true,
            "before" => kind == Kind::Login,
            name => name == kind.name(),
        };
        if !members.keys().all(is_known) {
            return Err(
                "only what is denied, `exp` and `reason` are known, and `before` of a `login`",
            );
        }
        let seconds = |name, problem| match members.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(problem),
        };
        let expires = seconds("exp", "`exp` must be seconds since 1970")?;
        let before = seconds("before", "`before` must be seconds since 1970")?;
        let reason = match members.get("reason") {
            None => None,
            Some(value) => Some(value.as_str().ok_or("`reason` must be a text")?),
        };
        let entry = Self::new(kind, name, expires, reason)?;
        Ok(Self { before, ..entry })
    }

    /// Reads an entry as the file has it.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn of_line(line: &str) -> Result<Self, &'static str> {
        entry_of(line)
    }

    /// The members of its line.
    #[must_use]
    pub fn members(&self) -> Value {
        let mut members = json!({ self.kind.name(): &*self.name, "before": self.before,
            "exp": self.expires, "reason": self.reason });
        if let Some(members) = members.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        members
    }

    /// Whether it is in force.
    fn holds(&self, now: u64, clock_skew: u64) -> bool {
        self.end(clock_skew).is_none_or(|end| now < end)
    }

    fn end(&self, clock_skew: u64) -> Option<u64> {
        let late = if self.kind.ends_by_itself() {
            clock_skew
        } else {
            0
        };
        self.expires.map(|it| it.saturating_add(late))
    }
}

impl Change {
    /// The line of the journal, without a line end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let (name, mut members) = match self {
            Self::Add(entry) if entry.is_logout => ("logout", entry.members()),
            Self::Add(entry) => ("add", entry.members()),
            Self::Remove(kind, name) => ("remove", json!({ kind.name(): &**name })),
        };
        if let Some(members) = members.as_object_mut() {
            members.shift_insert(0, "op".to_owned(), Value::from(name));
        }
        members.to_string()
    }

    /// Reads a line of the journal.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn of_line(line: &str) -> Result<Self, &'static str> {
        let members = object(line)?;
        match members.get("op").and_then(Value::as_str) {
            Some("add") => Denied::of_members(&members).map(Self::Add),
            Some("logout") => {
                let entry = Denied::of_members(&members)?;
                match entry.kind {
                    Kind::Session | Kind::Login => Ok(Self::Add(Denied {
                        is_logout: true,
                        ..entry
                    })),
                    _ => Err("a logout names a `sid` or a `login`"),
                }
            }
            Some("remove") => {
                let (kind, name) = named(&members)?;
                match members.len() {
                    2 => Ok(Self::Remove(kind, Arc::from(name))),
                    _ => Err(
                        "what is removed has only one of `jti`, `sub`, `key`, `sid` and `login`",
                    ),
                }
            }
            _ => Err("`op` must be `add`, `logout` or `remove`"),
        }
    }
}

impl DenyList {
    /// An empty one. Operators may make at most so many entries, and logouts as many of their own;
    /// the file has a bound of its own.
    /// `clock_skew` are the seconds by which clocks may differ where tokens are checked, the most
    /// of all ways.
    #[must_use]
    pub fn new(count_max: usize, clock_skew: u64) -> Self {
        Self {
            file: Arc::default(),
            changed: Entries::default(),
            order: BTreeSet::new(),
            logouts: BTreeSet::new(),
            count_max,
            clock_skew,
        }
    }

    /// The entry by which a credential is refused, if there is one. `now` is in seconds since 1970.
    #[must_use]
    pub fn find(&self, kind: Kind, name: &str, now: u64) -> Option<&Denied> {
        let sources = [Source::Journal, Source::File].into_iter();
        let mut found = sources.filter_map(|it| self.find_in(it, kind, name, now));
        found.next()
    }

    /// The same of one source.
    #[must_use]
    pub fn find_in(&self, source: Source, kind: Kind, name: &str, now: u64) -> Option<&Denied> {
        let entries = match source {
            Source::File => &self.file.0,
            Source::Journal => &self.changed,
        };
        let entry = entries.get(kind.index())?.get(name)?;
        entry.holds(now, self.clock_skew).then_some(entry)
    }

    /// Whether somebody's login at an issuer has been denied for what was issued at this time.
    #[must_use]
    pub fn has_login(&self, name: &str, issued: Option<u64>, now: u64) -> bool {
        let mut sources = [Source::Journal, Source::File].into_iter();
        sources.any(|source| {
            let found = self.find_in(source, Kind::Login, name, now);
            found.is_some_and(|entry| entry.means(issued))
        })
    }

    /// Whether there is no entry at all, so that nobody needs to look for one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.file.is_empty() && self.changed.iter().all(HashMap::is_empty)
    }

    /// Adds an entry, which is in force at once. Its line goes to the journal afterwards; when that
    /// fails the caller is told so, and the entry holds until the process ends.
    ///
    /// # Errors
    /// When there are too many, or it has expired.
    pub fn add(&mut self, entry: Denied, now: u64) -> Result<(), NotAdded> {
        if !entry.holds(now, self.clock_skew) {
            return Err(NotAdded::Expired);
        }
        self.forget(now);
        let known = self.find_in(Source::Journal, entry.kind, &entry.name, now);
        let is_known = known.is_some_and(|it| !it.is_logout);
        if !is_known && self.len() - self.logouts.len() >= self.count_max {
            return Err(NotAdded::Full);
        }
        self.put(entry);
        Ok(())
    }

    /// Adds what an issuer says that has ended. An operator's entry of the same name stays the
    /// operator's. When logouts have no place left, the one of them that ends first is dropped:
    /// they come by themselves, and must neither fill the list of operators nor shrink it.
    ///
    /// # Errors
    /// When it has expired.
    pub fn log_out(&mut self, entry: Denied, now: u64) -> Result<LogoutEntry, NotAdded> {
        let entry = Denied {
            is_logout: true,
            ..entry
        };
        if !entry.holds(now, self.clock_skew) {
            return Err(NotAdded::Expired);
        }
        self.forget(now);
        let known = self.find_in(Source::Journal, entry.kind, &entry.name, now);
        let (entry, dropped) = match known.cloned() {
            Some(mut known) => {
                known.widen(entry);
                (known, None)
            }
            None if self.logouts.len() >= self.count_max => (entry, self.drop_logout()),
            None => (entry, None),
        };
        self.put(entry.clone());
        Ok(LogoutEntry { entry, dropped })
    }

    /// Removes the entry of a logout that ends first.
    fn drop_logout(&mut self) -> Option<Denied> {
        let (_, kind, name) = self.logouts.first().cloned()?;
        self.remove(kind, &name)
    }

    /// Removes an entry that a change has added, and gives it back. Its line goes to the journal
    /// beforehand: what cannot be written stays denied.
    pub fn remove(&mut self, kind: Kind, name: &str) -> Option<Denied> {
        let entry = self.changed.get_mut(kind.index())?.remove(name)?;
        if let Some(end) = entry.end(self.clock_skew) {
            let key = (end, kind, Arc::clone(&entry.name));
            self.order.remove(&key);
            self.logouts.remove(&key);
        }
        Some(entry)
    }

    /// Does a change of the journal again. An entry that has expired meanwhile still takes the
    /// place of the one before it. The bound does not hold here: nothing that was written is lost
    /// because the bound was lowered.
    pub fn replay(&mut self, change: Change, now: u64) {
        match change {
            Change::Add(entry) => self.put(entry),
            Change::Remove(kind, name) => {
                self.remove(kind, &name);
            }
        }
        self.forget(now);
    }

    /// Changes that make the same list from nothing, in no particular order: a journal that has
    /// grown is replaced by them.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        let entries = self.changed.iter().flat_map(HashMap::values);
        entries.cloned().map(Change::Add)
    }

    /// Takes the entries of the operator's file in the place of those that it had before, which it
    /// gives back.
    pub fn set_file(&mut self, entries: Arc<FileEntries>) -> Arc<FileEntries> {
        std::mem::replace(&mut self.file, entries)
    }

    /// All entries that are in force, in no particular order.
    pub fn entries(&self, now: u64) -> impl Iterator<Item = (Source, &Denied)> {
        let file = self.file.0.iter().flat_map(HashMap::values);
        let changed = self.changed.iter().flat_map(HashMap::values);
        let file = file.map(|it| (Source::File, it));
        let all = file.chain(changed.map(|it| (Source::Journal, it)));
        let clock_skew = self.clock_skew;
        all.filter(move |(_, it)| it.holds(now, clock_skew))
    }

    /// Forgets what has expired; adding does so by itself.
    pub fn forget(&mut self, now: u64) {
        while let Some((end, _, _)) = self.order.first()
            && *end <= now
            && let Some((_, kind, name)) = self.order.pop_first()
        {
            self.remove(kind, &name);
        }
    }

    /// The number of entries added while the engine runs, by operators and by logouts; those of the
    /// file do not count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changed.iter().map(HashMap::len).sum()
    }

    fn put(&mut self, entry: Denied) {
        self.remove(entry.kind, &entry.name);
        if let Some(end) = entry.end(self.clock_skew) {
            let key = (end, entry.kind, Arc::clone(&entry.name));
            if entry.is_logout {
                self.logouts.insert(key.clone());
            }
            self.order.insert(key);
        }
        if let Some(of_kind) = self.changed.get_mut(entry.kind.index()) {
            of_kind.insert(Arc::clone(&entry.name), entry);
        }
    }
}

/// Reads the operator's file. Empty lines and lines that begin with `#` are comments. Several lines
/// may name the same, as when files are put together: each of them holds.
///
/// # Errors
/// The first line that is no entry.
pub fn parse_file(text: &str) -> Result<FileEntries, FileProblem> {
    let mut entries = FileEntries::default();
    let mut count = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let problem = |message: String| FileProblem {
            line: number + 1,
            message,
        };
        let entry = entry_of(line).map_err(|it| problem(it.to_owned()))?;
        count += 1;
        if count > FILE_ENTRIES_MAX {
            return Err(problem(format!(
                "there are more than {FILE_ENTRIES_MAX} entries"
            )));
        }
        entries.put(entry);
    }
    Ok(entries)
}

/// A sound line of the file. It is read without a map of its members, which takes most of the time
/// of a large file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, deserialize_with = "present")]
    jti: Option<String>,
    #[serde(default, deserialize_with = "present")]
    sub: Option<String>,
    #[serde(default, deserialize_with = "present")]
    key: Option<String>,
    #[serde(default, deserialize_with = "present")]
    sid: Option<String>,
    #[serde(default, deserialize_with = "present")]
    login: Option<String>,
    #[serde(default, deserialize_with = "present")]
    exp: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    before: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    reason: Option<String>,
}

/// A member that is there has a value.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Line {
    /// The entry, if it names one thing.
    fn entry(self) -> Option<Denied> {
        let names = [self.jti, self.sub, self.key, self.sid, self.login];
        let named = Kind::ALL.into_iter().zip(names);
        let mut named = named.filter_map(|(kind, name)| Some((kind, name?)));
        let ((kind, name), None) = (named.next()?, named.next()) else {
            return None;
        };
        if self.before.is_some() && kind != Kind::Login {
            return None;
        }
        let entry = Denied::new(kind, &name, self.exp, self.reason.as_deref());
        let before = self.before;
        entry.ok().map(|entry| Denied { before, ..entry })
    }
}

fn entry_of(line: &str) -> Result<Denied, &'static str> {
    let sound = serde_json::from_str::<Line>(line).ok();
    match sound.and_then(Line::entry) {
        Some(entry) => Ok(entry),
        // It says what is wrong.
        None => entry_of_members(line),
    }
}

fn entry_of_members(line: &str) -> Result<Denied, &'static str> {
    let members = object(line)?;
    match members.contains_key("op") {
        true => Err("`op` is for the journal; the file has all entries that it denies"),
        false => Denied::of_members(&members),
    }
}

fn object(line: &str) -> Result<Map<String, Value>, &'static str> {
    strict_json::object(line.as_bytes())
        .map_err(|_| "it is not one JSON object whose members have different names")
}

/// What a line names, and how.
fn named(members: &Map<String, Value>) -> Result<(Kind, &str), &'static str> {
    const PROBLEM: &str =
        "exactly one of `jti`, `sub`, `key`, `sid` and `login` must be there, as a text";
    let mut found = Kind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind, members.get(kind.name())?)));
    match (found.next(), found.next()) {
        (Some((kind, Value::String(name))), None) => Ok((kind, name)),
        _ => Err(PROBLEM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_alike_with_and_without_a_map() {
        let sound = [
            r#"{"jti":"a","exp":5}"#,
            r#" {"reason":"a \u0062","sub":"\"q\""} "#,
            r#"{"key":"a","exp":0}"#,
            r#"{"sid":"i s","exp":5,"reason":""}"#,
            r#"{"login":"i a","before":1,"exp":5}"#,
        ];
        for line in sound {
            let read = serde_json::from_str::<Line>(line).unwrap().entry();
            assert_eq!(
                read.as_ref(),
                entry_of_members(line).as_ref().ok(),
                "{line}"
            );
            assert!(read.is_some());
        }
        for line in [
            "",
            "{}",
            "[]",
            r#"["a"]"#,
            r#"{"jti":"a"}"#,
            r#"{"sub":"a"} {}"#,
            r#"{"sub":"a","sub":"a"}"#,
            r#"{"sub":"a","key":"a"}"#,
            r#"{"sub":null}"#,
            r#"{"sub":"a","exp":null}"#,
            r#"{"sub":"a","exp":1.0}"#,
            r#"{"sub":"a","exp":-1}"#,
            r#"{"sub":"a","exp":"1"}"#,
            r#"{"sub":"a","before":1}"#,
            r#"{"sub":"a","reason":1}"#,
            r#"{"sub":"a","why":"b"}"#,
            r#"{"op":"add","sub":"a"}"#,
            r#"{"sub":"a\n"}"#,
        ] {
            let read = serde_json::from_str::<Line>(line).ok();
            assert_eq!(read.and_then(Line::entry), None, "{line}");
            assert!(entry_of_members(line).is_err(), "{line}");
        }
    }
}
