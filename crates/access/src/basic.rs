//! Users with passwords, for HTTP's `Basic` scheme (RFC 7617). The file has a line for each, as
//! `htpasswd -B` writes it (bcrypt) or with Argon2id, or as JSON like the file of API keys:
//!
//! ```text
//! ann:$2y$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW
//! bob:$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$...
//! {"id":"eve","hash":"$argon2id$...","scopes":["orders.read"]}
//! ```
//!
//! A check of a password is slow on purpose: it takes milliseconds of a processor and up to 256
//! MiB. So it runs beside the workers, [`CheckQueue`] bounds how many there are, [`VerifiedUsers`]
//! remembers those that were right, and [`crate::guessing`] bounds those that are wrong.

mod hash;
mod queue;
mod verified;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use hashbrown::HashMap;
use serde_json::Value;

pub use hash::{NoHash, NotChecked, PASSWORD_MIN, PasswordHash};
pub use queue::{CheckId, CheckQueue, Entry, Finished, Waiter};
pub use verified::{Identity, VerifiedUsers};

use crate::api_keys::{is_id, plan, scopes};
use crate::credentials::UserPassword;
use crate::sha256::sha256;
use crate::{FileProblem, strict_json};

/// The most users of a file.
pub const USERS_MAX: usize = 100_000;

/// A user of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name; no two users share it.
    pub id: String,
    /// The hash of the password.
    pub hash: PasswordHash,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The plan by which its use is limited.
    pub plan: Option<String>,
}

/// The users of one file.
#[derive(Clone, Debug)]
pub struct Users {
    entries: Vec<Arc<User>>,
    by_id: HashMap<String, usize>,
    /// Chooses whose hash an unknown name is checked against. It depends on the file alone, so that
    /// the same name takes the same time after a restart, and nobody else can compute it.
    choice: hmac::Key,
    generation: u64,
}

/// A user who may be who calls: the password is yet to be checked.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Whose hash it is.
    entry: Arc<User>,
    /// The name is somebody else's: the answer is no, after the same work.
    is_unknown: bool,
}

impl Users {
    /// Reads a file. Empty lines and lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The first line that is no user, or repeats another one's name, without its hash.
    pub fn parse(text: &str) -> Result<Self, FileProblem> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let mut entries = Vec::new();
        let mut by_id = HashMap::new();
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let problem = |message: String| FileProblem {
                line: number + 1,
                message,
            };
            let user = User::of_line(line).map_err(|it| problem(it.to_owned()))?;
            if entries.len() == USERS_MAX {
                return Err(problem(format!("there are more than {USERS_MAX} users")));
            }
            if let Some(first) = by_id.insert(user.id.clone(), entries.len()) {
                let first = lines.get(first).copied().unwrap_or(0);
                let id = &user.id;
                return Err(problem(format!("line {first} has the user {id:?} already")));
            }
            entries.push(Arc::new(user));
            lines.push(number + 1);
        }
        Ok(Self {
            entries,
            by_id,
            choice: hmac::Key::new(hmac::HMAC_SHA256, &sha256(text.as_bytes())),
            generation: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        })
    }

    /// Whether this very user is there, unchanged.
    #[must_use]
    pub fn has(&self, user: &User) -> bool {
        let at = self.by_id.get(&user.id);
        at.and_then(|at| self.entries.get(*at))
            .is_some_and(|it| **it == *user)
    }

    /// Whose password is to be checked for this name. For an unknown one it is the hash of any user
    /// of the file, always the same for a name: the time that it takes says nothing about who is
    /// there. `None` when the file has no user at all.
    #[must_use]
    pub fn candidate(&self, name: &[u8]) -> Option<Candidate> {
        let known = std::str::from_utf8(name)
            .ok()
            .and_then(|it| self.by_id.get(it).copied());
        let index = match known {
            Some(index) => index,
            None => {
                let tag = hmac::sign(&self.choice, name);
                let number = tag.as_ref().iter().take(4);
                let number = number.fold(0, |all, &byte| all << 8 | usize::from(byte));
                number.checked_rem(self.entries.len())?
            }
        };
        Some(Candidate {
            entry: Arc::clone(self.entries.get(index)?),
            is_unknown: known.is_none(),
        })
    }

    /// What tells these users from those of every other file of the process, also from those of the
    /// same file when it was read before. Later ones have a greater number.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The most bytes that one check needs.
    #[must_use]
    pub fn memory_max(&self) -> u64 {
        let memory = self.entries.iter().map(|it| it.hash.memory());
        memory.max().unwrap_or(0)
    }

    /// All users, in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = &User> {
        self.entries.iter().map(|it| &**it)
    }
}

impl Candidate {
    /// Checks the password: slow, so not on a worker's thread. The user, if it is right.
    ///
    /// # Errors
    /// When there is no memory for it: then it says nothing about the password.
    pub fn check(&self, password: &[u8]) -> Result<Option<Arc<User>>, NotChecked> {
        let is_right = self.entry.hash.is_of(password)?;
        let is_user = is_right && !self.is_unknown;
        Ok(is_user.then(|| Arc::clone(&self.entry)))
    }
}

impl User {
    /// A user with a new hash of this password, by Argon2id.
    ///
    /// # Errors
    /// Why it cannot be one.
    pub fn new(id: &str, password: &[u8]) -> Result<Self, NoHash> {
        if !is_user(id) {
            return Err(NoHash::Id);
        }
        Ok(Self {
            id: id.to_owned(),
            hash: PasswordHash::new(id, password)?,
            scopes: Vec::new(),
            plan: None,
        })
    }

    /// The line of the file: `name:hash`, or JSON when that cannot say all.
    #[must_use]
    pub fn to_line(&self) -> String {
        if self.scopes.is_empty() && self.plan.is_none() && !self.id.starts_with(['{', '#']) {
            return format!("{}:{}", self.id, self.hash);
        }
        let mut line = serde_json::json!({ "id": self.id, "hash": self.hash.to_string(),
            "scopes": self.scopes, "plan": self.plan });
        if let Some(members) = line.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        line.to_string()
    }

    fn of_line(line: &str) -> Result<Self, &'static str> {
        if line.starts_with('{') {
            return Self::of_json(line);
        }
        let (id, hash) = line
            .split_once(':')
            .ok_or("it is not `user:hash`, and no JSON object")?;
        if !is_user(id) {
            return Err(USER_RULE);
        }
        Ok(Self {
            id: id.to_owned(),
            hash: PasswordHash::parse(hash)?,
            scopes: Vec::new(),
            plan: None,
        })
    }

    fn of_json(line: &str) -> Result<Self, &'static str> {
        let members = strict_json::object(line.as_bytes())
            .map_err(|_| "it is not one JSON object whose members have different names")?;
        let is_known = |name: &String| matches!(&**name, "id" | "hash" | "scopes" | "plan");
        if !members.keys().all(is_known) {
            return Err("only `id`, `hash`, `scopes` and `plan` are known");
        }
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        Ok(Self {
            id: text("id")
                .filter(|it| is_user(it))
                .ok_or(USER_RULE)?
                .to_owned(),
            hash: PasswordHash::parse(text("hash").ok_or("`hash` must be a text")?)?,
            scopes: scopes(&members)?,
            plan: plan(&members)?,
        })
    }
}

const USER_RULE: &str =
    "the user must have 1 to 200 printable characters without spaces and without `:`";

/// Whether a text can be a user's name: an id without a colon, which would end it (RFC 7617,
/// section 2).
#[must_use]
pub fn is_user(name: &str) -> bool {
    is_id(name) && !name.contains(':')
}

/// What the same user and password always have in common within the process, and nobody outside it
/// can compute.
fn identify(key: &hmac::Key, presented: UserPassword<'_>) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    // The length, or `a` with `bc` would be `ab` with `c`.
    context.update(&(presented.user.len() as u64).to_be_bytes());
    context.update(presented.user);
    context.update(presented.password);
    let mut identity = [0; 32];
    for (to, from) in identity.iter_mut().zip(context.sign().as_ref()) {
        *to = *from;
    }
    identity
}
