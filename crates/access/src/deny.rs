//! Credentials that are refused although they are good: tokens by `jti`, callers by `sub`, API keys
//! and users by their id, each until it expires by itself or is taken from the list.
//!
//! Entries come from two sources: a file of the operator's, which is read anew when it changes, and
//! changes while the engine runs. These are written to a journal, a JSON object a line, whose
//! replay gives the same list:
//!
//! ```json
//! {"op":"add","jti":"6f1c","exp":1800000000,"reason":"laptop stolen"}
//! {"op":"remove","jti":"6f1c"}
//! ```
//!
//! The file has the same lines without `op`.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
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
    /// Every token of a caller, by its claim `sub`.
    Subject,
    /// An API key, or a user of `Basic`, by its id.
    Key,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Token, Self::Subject, Self::Key];

    /// The member of a line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "jti",
            Self::Subject => "sub",
            Self::Key => "key",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Token => 0,
            Self::Subject => 1,
            Self::Key => 2,
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
    /// Until when, in seconds since 1970; tokens always have an end. None: until it is removed.
    pub expires: Option<u64>,
    /// Why, for operators; callers are not told.
    pub reason: Option<String>,
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

type Entries = [HashMap<Arc<str>, Denied>; 3];

/// The deny list. A look-up takes the same time however many entries there are.
#[derive(Debug)]
pub struct DenyList {
    file: Entries,
    changed: Entries,
    /// Those of `changed` that have an end, the first to end in front.
    order: BTreeSet<(u64, Kind, Arc<str>)>,
    count_max: usize,
    clock_skew: u64,
}

/// The entries of the operator's file, ready to be looked up: to make and to drop a million of them
/// takes a while, for which nobody has to wait who asks the list.
#[derive(Debug)]
pub struct FileEntries(Entries);

impl From<Vec<Denied>> for FileEntries {
    fn from(entries: Vec<Denied>) -> Self {
        let mut all = Entries::default();
        for entry in entries {
            if let Some(of_kind) = all.get_mut(entry.kind.index()) {
                of_kind.insert(Arc::clone(&entry.name), entry);
            }
        }
        Self(all)
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
            return Err("`jti`, `sub` or `key` must have 1 to 512 bytes, none of them control");
        }
        if kind == Kind::Token && expires.is_none() {
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
            reason: reason.map(str::to_owned),
        })
    }

    fn of_members(members: &Map<String, Value>) -> Result<Self, &'static str> {
        let (kind, name) = named(members)?;
        let is_known = |it: &String| matches!(&**it, "op" | "exp" | "reason") || *it == kind.name();
        if !members.keys().all(is_known) {
            return Err("only one of `jti`, `sub` and `key`, `exp` and `reason` are known");
        }
        let expires = match members.get("exp") {
            None => None,
            Some(value) => Some(value.as_u64().ok_or("`exp` must be seconds since 1970")?),
        };
        let reason = match members.get("reason") {
            None => None,
            Some(value) => Some(value.as_str().ok_or("`reason` must be a text")?),
        };
        Self::new(kind, name, expires, reason)
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
        let mut members = json!({ self.kind.name(): &*self.name, "exp": self.expires,
            "reason": self.reason });
        if let Some(members) = members.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        members
    }

    /// Whether it is in force. A token is taken for as long after its end as clocks may differ.
    fn holds(&self, now: u64, clock_skew: u64) -> bool {
        self.end(clock_skew).is_none_or(|end| now < end)
    }

    fn end(&self, clock_skew: u64) -> Option<u64> {
        let late = match self.kind {
            Kind::Token => clock_skew,
            Kind::Subject | Kind::Key => 0,
        };
        self.expires.map(|it| it.saturating_add(late))
    }
}

impl Change {
    /// The line of the journal, without a line end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let (name, mut members) = match self {
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
            Some("remove") => {
                let (kind, name) = named(&members)?;
                match members.len() {
                    2 => Ok(Self::Remove(kind, Arc::from(name))),
                    _ => Err("what is removed has only one of `jti`, `sub` and `key`"),
                }
            }
            _ => Err("`op` must be `add` or `remove`"),
        }
    }
}

impl DenyList {
    /// An empty one. Changes may make at most so many entries; the file has a bound of its own.
    /// `clock_skew` are the seconds by which clocks may differ where tokens are checked, the most
    /// of all ways.
    #[must_use]
    pub fn new(count_max: usize, clock_skew: u64) -> Self {
        Self {
            file: Entries::default(),
            changed: Entries::default(),
            order: BTreeSet::new(),
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
            Source::File => &self.file,
            Source::Journal => &self.changed,
        };
        let entry = entries.get(kind.index())?.get(name)?;
        entry.holds(now, self.clock_skew).then_some(entry)
    }

    /// Whether there is no entry at all, so that nobody needs to look for one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut all = self.changed.iter().chain(&self.file);
        all.all(HashMap::is_empty)
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
        let is_known = self.changed.get(entry.kind.index());
        let is_known = is_known.is_some_and(|it| it.contains_key(&entry.name));
        if !is_known && self.len() >= self.count_max {
            return Err(NotAdded::Full);
        }
        self.put(entry);
        Ok(())
    }

    /// Removes an entry that a change has added, and gives it back. Its line goes to the journal
    /// beforehand: what cannot be written stays denied.
    pub fn remove(&mut self, kind: Kind, name: &str) -> Option<Denied> {
        let entry = self.changed.get_mut(kind.index())?.remove(name)?;
        if let Some(end) = entry.end(self.clock_skew) {
            self.order.remove(&(end, kind, Arc::clone(&entry.name)));
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
    pub fn set_file(&mut self, entries: impl Into<FileEntries>) -> FileEntries {
        FileEntries(std::mem::replace(&mut self.file, entries.into().0))
    }

    /// All entries that are in force, in no particular order.
    pub fn entries(&self, now: u64) -> impl Iterator<Item = (Source, &Denied)> {
        let file = self.file.iter().flat_map(HashMap::values);
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
            if let Some(of_kind) = self.changed.get_mut(kind.index()) {
                of_kind.remove(&name);
            }
        }
    }

    /// How many entries changes have made.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changed.iter().map(HashMap::len).sum()
    }

    fn put(&mut self, entry: Denied) {
        self.remove(entry.kind, &entry.name);
        if let Some(end) = entry.end(self.clock_skew) {
            self.order
                .insert((end, entry.kind, Arc::clone(&entry.name)));
        }
        if let Some(of_kind) = self.changed.get_mut(entry.kind.index()) {
            of_kind.insert(Arc::clone(&entry.name), entry);
        }
    }
}

/// Reads the operator's file. Empty lines and lines that begin with `#` are comments.
///
/// # Errors
/// The first line that is no entry, or names what another one names.
pub fn parse_file(text: &str) -> Result<Vec<Denied>, FileProblem> {
    let mut entries = Vec::new();
    let mut lines: HashMap<(Kind, Arc<str>), usize> = HashMap::new();
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
        if entries.len() == FILE_ENTRIES_MAX {
            return Err(problem(format!(
                "there are more than {FILE_ENTRIES_MAX} entries"
            )));
        }
        let name = (entry.kind, Arc::clone(&entry.name));
        if let Some(first) = lines.insert(name, number + 1) {
            return Err(problem(format!("line {first} names the same already")));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry_of(line: &str) -> Result<Denied, &'static str> {
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
    const PROBLEM: &str = "exactly one of `jti`, `sub` and `key` must be there, as a text";
    let mut found = Kind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind, members.get(kind.name())?)));
    match (found.next(), found.next()) {
        (Some((kind, Value::String(name))), None) => Ok((kind, name)),
        _ => Err(PROBLEM),
    }
}
