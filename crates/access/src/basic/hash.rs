//! Hashes of passwords: bcrypt as `htpasswd -B` writes it, and Argon2id (RFC 9106) in the form of
//! the PHC string format.

use std::fmt;

use argon2::{Argon2, Block, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64Bcrypt, Base64Unpadded, Encoding as _};

use crate::credentials::BASIC_MAX;
use crate::random;

/// bcrypt takes so many bytes and ignores the rest, so longer passwords are refused.
const BCRYPT_PASSWORD_MAX: usize = 72;
/// A check with cost 14 takes about a second; each step more doubles it.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=14;
/// In KiB: 256 MiB.
const ARGON2_MEMORY_MAX: u32 = 256 * 1024;
const ARGON2_ITERATIONS_MAX: u32 = 10;
const ARGON2_LANES_MAX: u32 = 16;

/// Passwords of people that we make hashes of have at least so many characters (NIST SP 800-63B,
/// section 5.1.1.2).
pub const PASSWORD_MIN: usize = 8;

/// The hash of a password, with its salt and its cost. `{:?}` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Bcrypt {
        /// `2a`, `2b` or `2y`: three names of the same function.
        name: &'static str,
        cost: u32,
        salt: [u8; 16],
        hash: [u8; 23],
    },
    Argon2id {
        /// In KiB.
        memory: u32,
        iterations: u32,
        lanes: u32,
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
}

/// Why there is no hash of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHash {
    /// The name cannot be a user's.
    Id,
    /// It has less than [`PASSWORD_MIN`] characters.
    Short,
    /// User and password have more than [`BASIC_MAX`] bytes together.
    Long,
    /// It has control characters, which a client must not send (RFC 7617, section 2).
    Control,
    /// The system has no random bytes, or not enough memory.
    System,
}

impl NoHash {
    /// A sentence without a full stop.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Id => super::USER_RULE,
            Self::Short => "the password must have at least 8 characters",
            Self::Long => "user and password must not have more than 1199 bytes together",
            Self::Control => "the password must not have control characters",
            Self::System => "the system has no random bytes or not enough memory",
        }
    }
}

/// There was no memory to check a password: nothing is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotChecked;

impl PasswordHash {
    /// A new one, by Argon2id with the parameters that OWASP's Password Storage Cheat Sheet advises
    /// first: 19 MiB, two iterations, one lane.
    pub(super) fn new(id: &str, password: &[u8]) -> Result<Self, NoHash> {
        let characters = String::from_utf8_lossy(password).chars().count();
        if characters < PASSWORD_MIN {
            return Err(NoHash::Short);
        }
        if id.len() + 1 + password.len() > BASIC_MAX {
            return Err(NoHash::Long);
        }
        if password.iter().any(u8::is_ascii_control) {
            return Err(NoHash::Control);
        }
        let salt: [u8; 16] = random::bytes().ok_or(NoHash::System)?;
        let (memory, iterations, lanes) = (19 * 1024, 2, 1);
        let mut hash = vec![0; 32];
        let costs = (memory, iterations, lanes);
        argon2id(costs, &salt, password, &mut hash).map_err(|NotChecked| NoHash::System)?;
        Ok(Self(Kind::Argon2id {
            memory,
            iterations,
            lanes,
            salt: salt.to_vec(),
            hash,
        }))
    }

    /// Reads a hash as it stands in a file.
    ///
    /// # Errors
    /// A sentence without the hash: it is of a kind that is broken or that is not known, or its
    /// costs are beyond the bounds.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        for name in ["2y", "2b", "2a"] {
            let rest = text.strip_prefix('$').and_then(|it| it.strip_prefix(name));
            if let Some(rest) = rest.and_then(|it| it.strip_prefix('$')) {
                return bcrypt_of(name, rest).map(Self);
            }
        }
        match text.strip_prefix("$argon2id$") {
            Some(rest) => argon2id_of(rest).map(Self),
            None => Err(refusal(text)),
        }
    }

    /// Whether it is the hash of this password: slow.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn is_of(&self, password: &[u8]) -> Result<bool, NotChecked> {
        match &self.0 {
            Kind::Bcrypt {
                cost, salt, hash, ..
            } => {
                // With its end, which is part of it where there is room.
                let mut bytes = password.to_vec();
                bytes.push(0);
                bytes.truncate(BCRYPT_PASSWORD_MAX);
                let found = bcrypt::bcrypt(*cost, *salt, &bytes);
                let found = found.get(..hash.len()).unwrap_or_default();
                let is_same = verify_slices_are_equal(found, hash).is_ok();
                Ok(is_same && password.len() <= BCRYPT_PASSWORD_MAX)
            }
            Kind::Argon2id {
                memory,
                iterations,
                lanes,
                salt,
                hash,
            } => {
                let mut found = vec![0; hash.len()];
                argon2id((*memory, *iterations, *lanes), salt, password, &mut found)?;
                Ok(verify_slices_are_equal(&found, hash).is_ok())
            }
        }
    }

    /// How many bytes a check needs.
    #[must_use]
    pub fn memory(&self) -> u64 {
        match &self.0 {
            // The state of Blowfish.
            Kind::Bcrypt { .. } => 5 * 1024,
            Kind::Argon2id { memory, .. } => u64::from(*memory) * 1024,
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordHash")
    }
}

/// As it stands in a file.
impl fmt::Display for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bcrypt {
                name,
                cost,
                salt,
                hash,
            } => {
                let salt = Base64Bcrypt::encode_string(salt);
                let hash = Base64Bcrypt::encode_string(hash);
                write!(formatter, "${name}${cost:02}${salt}{hash}")
            }
            Kind::Argon2id {
                memory,
                iterations,
                lanes,
                salt,
                hash,
            } => {
                let salt = Base64Unpadded::encode_string(salt);
                let hash = Base64Unpadded::encode_string(hash);
                let costs = format!("m={memory},t={iterations},p={lanes}");
                write!(formatter, "$argon2id$v=19${costs}${salt}${hash}")
            }
        }
    }
}

fn argon2id(
    (memory, iterations, lanes): (u32, u32, u32),
    salt: &[u8],
    password: &[u8],
    hash: &mut [u8],
) -> Result<(), NotChecked> {
    let params = Params::new(memory, iterations, lanes, Some(hash.len()));
    let params = params.map_err(|_| NotChecked)?;
    let mut blocks = Vec::new();
    let count = params.block_count();
    blocks.try_reserve_exact(count).map_err(|_| NotChecked)?;
    blocks.resize(count, Block::new());
    Argon2::new(argon2::Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into_with_memory(password, salt, hash, &mut blocks)
        .map_err(|_| NotChecked)
}

/// Reads `COST$SALTHASH`, two digits and 53 characters of bcrypt's own Base64.
fn bcrypt_of(name: &'static str, text: &str) -> Result<Kind, &'static str> {
    const PROBLEM: &str = "it is no bcrypt hash: `$2y$`, two digits, `$` and 53 characters";
    let (digits, rest) = text.split_once('$').ok_or(PROBLEM)?;
    let cost = match digits.len() == 2 {
        true => number(digits).ok_or(PROBLEM)?,
        false => return Err(PROBLEM),
    };
    if !BCRYPT_COSTS.contains(&cost) {
        return Err("the cost of a bcrypt hash must be 4 to 14: more takes seconds for each check");
    }
    let (encoded, rest) = rest.split_at_checked(22).ok_or(PROBLEM)?;
    let (mut salt, mut hash) = ([0; 16], [0; 23]);
    // Some programs leave bits in the last character of the salt that belong to no byte.
    let is_salt = lenient(encoded, &mut salt);
    let decoded = Base64Bcrypt::decode(rest, &mut hash).map(<[u8]>::len);
    match is_salt && decoded == Ok(23) {
        true => Ok(Kind::Bcrypt {
            name,
            cost,
            salt,
            hash,
        }),
        false => Err(PROBLEM),
    }
}

/// Decodes the 22 characters of a salt. Its last one has four bits that no byte has; OpenBSD's own
/// bcrypt ignores them.
fn lenient(encoded: &str, salt: &mut [u8; 16]) -> bool {
    const ALPHABET: &[u8] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let [start @ .., last] = encoded.as_bytes() else {
        return false;
    };
    let Some(value) = ALPHABET.iter().position(|it| it == last) else {
        return false;
    };
    let mut clean = start.to_vec();
    clean.extend(ALPHABET.get(value & 0x30));
    let decoded = Base64Bcrypt::decode(&clean, salt);
    decoded.map(<[u8]>::len) == Ok(16)
}

/// Reads `v=19$m=M,t=T,p=P$SALT$HASH`.
fn argon2id_of(text: &str) -> Result<Kind, &'static str> {
    const PROBLEM: &str = "it is no Argon2id hash: `$argon2id$v=19$m=M,t=T,p=P$SALT$HASH`";
    let mut parts = text.split('$');
    let mut part = || parts.next().ok_or(PROBLEM);
    let (version, costs, salt, hash) = (part()?, part()?, part()?, part()?);
    if parts.next().is_some() || version != "v=19" {
        return Err(PROBLEM);
    }
    let mut costs = costs.split(',');
    let mut cost = |name: &str| {
        let value = costs.next().and_then(|it| it.strip_prefix(name));
        value.and_then(number).ok_or(PROBLEM)
    };
    let (memory, iterations, lanes) = (cost("m=")?, cost("t=")?, cost("p=")?);
    if costs.next().is_some() {
        return Err(PROBLEM);
    }
    let is_bounded = memory <= ARGON2_MEMORY_MAX
        && (1..=ARGON2_ITERATIONS_MAX).contains(&iterations)
        && (1..=ARGON2_LANES_MAX).contains(&lanes);
    if !is_bounded {
        return Err("an Argon2id hash may cost m=262144 (256 MiB), t=10 and p=16 at most");
    }
    let decode = |text: &str| Base64Unpadded::decode_vec(text).map_err(|_| PROBLEM);
    let (salt, hash) = (decode(salt)?, decode(hash)?);
    if !(8..=64).contains(&salt.len()) || !(16..=64).contains(&hash.len()) {
        return Err("an Argon2id hash has a salt of 8 to 64 bytes and 16 to 64 bytes itself");
    }
    if memory < 8 * lanes {
        return Err("an Argon2id hash needs 8 KiB for each lane");
    }
    Ok(Kind::Argon2id {
        memory,
        iterations,
        lanes,
        salt,
        hash,
    })
}

fn number(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|it| it.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// What to tell about a hash that is not taken.
fn refusal(text: &str) -> &'static str {
    let begins = |start: &[&str]| start.iter().any(|it| text.starts_with(it));
    if begins(&["$apr1$", "$1$"]) {
        return "MD5 is too fast for passwords: make the line anew with `htpasswd -B` or \
                `intertie keys user`";
    }
    if begins(&["{SHA}", "{SSHA}", "{MD5}", "{SMD5}"]) {
        return "SHA-1 and MD5 are too fast for passwords: make the line anew with `htpasswd -B` \
                or `intertie keys user`";
    }
    if begins(&["$argon2"]) {
        return "of the Argon2 functions only Argon2id is taken: make the line anew with \
                `intertie keys user`";
    }
    if begins(&[
        "$5$", "$6$", "$7$", "$y$", "$2x$", "$2$", "$scrypt$", "$pbkdf2",
    ]) {
        return "of this kind no hash is taken: make the line anew with `htpasswd -B` or \
                `intertie keys user`";
    }
    "it is no bcrypt and no Argon2id hash, but the password itself, or a hash by crypt or MD5: \
     make the line anew with `htpasswd -B` or `intertie keys user`"
}
