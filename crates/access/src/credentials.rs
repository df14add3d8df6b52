//! Credentials as they stand in a request: `Authorization`, the fields and query parameters of API
//! keys, `access_token` (RFC 9110, section 11; RFC 6750, section 2; RFC 9449, section 7.1).
//!
//! [`find`] and [`locate`] look only for what [`Wanted`] names. A request has at most one
//! credential: of two, one reader would judge the first and another one the second. [`Challenges`]
//! are the answers.

mod basic;
mod challenges;
mod query;
mod subprotocol;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

pub use basic::{BASIC_MAX, Basic, BasicBuffer, UserPassword};
pub use challenges::{Challenges, Failure};
pub use query::ACCESS_TOKEN;

use crate::api_keys::KEY_MAX;
use crate::jwt::TOKEN_MAX;

/// The most bytes of a DPoP proof.
pub const PROOF_MAX: usize = 8 * 1024;
/// The most fields, and the most query parameters, that API keys may stand in.
pub const KEY_PLACES_MAX: usize = 16;

/// A scheme of `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// A token of whoever has it (RFC 6750).
    Bearer,
    /// A user and a password (RFC 7617).
    Basic,
    /// A token that is bound to a key (RFC 9449).
    Dpop,
}

impl Scheme {
    const ALL: [(Self, &[u8]); 3] = [
        (Self::Bearer, b"Bearer"),
        (Self::Basic, b"Basic"),
        (Self::Dpop, b"DPoP"),
    ];

    /// The scheme of this name; case does not matter (RFC 9110, section 11.1).
    fn of(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        let known = all.find(|(_, known)| name.eq_ignore_ascii_case(known));
        known.map(|(scheme, _)| scheme)
    }
}

/// Where an API key stands, by its number in [`Wanted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyPlace {
    /// A header field: what [`Wanted::key_field`] gave.
    Field(usize),
    /// A query parameter: what [`Wanted::key_parameter`] gave.
    Parameter(usize),
}

/// What to look for in requests. It is made when files are loaded.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    bearer: bool,
    basic: bool,
    dpop: bool,
    token_parameter: bool,
    token_subprotocol: Option<&'static str>,
    key_fields: Vec<String>,
    key_parameters: Vec<String>,
}

impl Wanted {
    /// Looks for this scheme in `Authorization`. Other schemes are left to whoever reads them.
    pub fn scheme(&mut self, scheme: Scheme) {
        match scheme {
            Scheme::Bearer => self.bearer = true,
            Scheme::Basic => self.basic = true,
            Scheme::Dpop => self.dpop = true,
        }
    }

    /// Looks for the query parameter `access_token` (RFC 6750, section 2.3) too: for browsers'
    /// `EventSource` and `WebSocket`, which set no header. Queries stand in logs and histories, so
    /// nothing looks there without being told.
    pub fn token_parameter(&mut self) {
        self.token_parameter = true;
    }

    /// Looks for a token among the subprotocols of a WebSocket handshake too, behind the one of
    /// this name.
    pub fn token_subprotocol(&mut self, before: &'static str) {
        self.token_subprotocol = Some(before);
    }

    /// Looks for API keys in this header field, and gives its number; a name that is there already
    /// has the same one.
    ///
    /// # Errors
    /// A sentence, when the name is none, or `Authorization`, or there are too many.
    pub fn key_field(&mut self, name: &str) -> Result<KeyPlace, &'static str> {
        if !is_token(name) {
            return Err("it is no name of a header field");
        }
        if ["authorization", "proxy-authorization", "dpop", "cookie"]
            .iter()
            .any(|it| name.eq_ignore_ascii_case(it))
        {
            return Err("this field has a syntax of its own, in which an API key has no place");
        }
        let is_same = |it: &String| it.eq_ignore_ascii_case(name);
        add(&mut self.key_fields, name, is_same).map(KeyPlace::Field)
    }

    /// Looks for API keys in this query parameter, and gives its number; a name that is there
    /// already has the same one.
    ///
    /// # Errors
    /// A sentence, when the name is empty, `access_token`, or there are too many.
    pub fn key_parameter(&mut self, name: &str) -> Result<KeyPlace, &'static str> {
        if name.is_empty() || name.len() > 100 || name == ACCESS_TOKEN {
            return Err("it is no name for the query parameter of an API key");
        }
        add(&mut self.key_parameters, name, |it| it == name).map(KeyPlace::Parameter)
    }

    fn takes(&self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::Bearer => self.bearer,
            Scheme::Basic => self.basic,
            Scheme::Dpop => self.dpop,
        }
    }

    fn takes_any(&self) -> bool {
        self.bearer || self.basic || self.dpop
    }

    fn reads_query(&self) -> bool {
        self.token_parameter || !self.key_parameters.is_empty()
    }
}

fn add(
    names: &mut Vec<String>,
    name: &str,
    is_same: impl Fn(&String) -> bool,
) -> Result<usize, &'static str> {
    if let Some(known) = names.iter().position(is_same) {
        return Ok(known);
    }
    if names.len() == KEY_PLACES_MAX {
        return Err("API keys may stand in at most 16 different fields or parameters");
    }
    names.push(name.to_owned());
    Ok(names.len() - 1)
}

/// A credential as it was presented: its syntax is right, nothing else is known of it. `{:?}` shows
/// its kind and place only.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential<'a> {
    /// `Authorization: Bearer`, or the query parameter `access_token`.
    Bearer(Cow<'a, [u8]>),
    /// `Authorization: DPoP` and the value of the field `DPoP`.
    Dpop {
        /// The token.
        token: &'a [u8],
        /// A JSON Web Token that proves the possession of a key.
        proof: &'a [u8],
    },
    /// `Authorization: Basic`
    Basic(Basic<'a>),
    /// An API key.
    ApiKey {
        /// Where it stood.
        place: KeyPlace,
        /// The key.
        key: Cow<'a, [u8]>,
    },
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer(_) => formatter.write_str("Bearer"),
            Self::Dpop { .. } => formatter.write_str("DPoP"),
            Self::Basic(_) => formatter.write_str("Basic"),
            Self::ApiKey { place, .. } => formatter.debug_tuple("ApiKey").field(place).finish(),
        }
    }
}

/// Where a credential stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// In a header field.
    #[default]
    Field,
    /// In a parameter of the query.
    Query,
    /// Among the subprotocols of a WebSocket handshake.
    Subprotocol,
}

/// What a request carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presented<'a> {
    /// Its credential, if any.
    pub credential: Option<Credential<'a>>,
    /// Where that stood.
    pub source: Source,
    /// The bytes of the query that are the parameter, with its name, when the credential stood
    /// there: a log must not show them, and the response must be `Cache-Control: private` or
    /// stricter (RFC 6750, section 2.3).
    pub parameter: Option<Range<usize>>,
}

/// Why a request is refused before anybody looks at what its credential says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// There is more than one field `Authorization`.
    RepeatedAuthorization,
    /// There are two credentials, or one of them twice (RFC 6750, section 2).
    SeveralCredentials,
    /// `Authorization`, or the place of a key, has another syntax: it is empty, or has spaces or
    /// control characters.
    Malformed,
    /// The credential has more bytes than any that we would take.
    TooLong,
    /// `Authorization: DPoP` comes without a proof, or with several (RFC 9449, section 4.3).
    Proof,
}

impl Problem {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::RepeatedAuthorization,
        Self::SeveralCredentials,
        Self::Malformed,
        Self::TooLong,
        Self::Proof,
    ];

    /// The status of the response: 400 for what is no request (`invalid_request`), 401 for what is
    /// one without a credential that could be good (RFC 6750, section 3.1; RFC 9449, section 7.1).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::RepeatedAuthorization | Self::SeveralCredentials | Self::Malformed => 400,
            Self::TooLong | Self::Proof => 401,
        }
    }

    /// A word for the log and for labels of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RepeatedAuthorization => "repeated_authorization",
            Self::SeveralCredentials => "several_credentials",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Proof => "proof",
        }
    }

    /// A sentence for the caller, the same for everybody.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::RepeatedAuthorization => "The request has several Authorization fields",
            Self::SeveralCredentials => "The request has several credentials",
            Self::Malformed => "The credentials of the request are malformed",
            Self::TooLong => "The credentials of the request are too long",
            Self::Proof => "DPoP demands exactly one proof",
        }
    }
}

/// Finds the credential of a request. `fields` are the names and values of its header fields, in
/// any case; `query` is what stands behind `?`, as it was sent. Nothing is copied, but from a query
/// what has escapes in it.
///
/// # Errors
/// When there is more than one, or it has another syntax than its scheme.
pub fn find<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    query: Option<&'a [u8]>,
    wanted: &Wanted,
) -> Result<Presented<'a>, Problem> {
    let presented = locate(fields, query, wanted)?;
    if let Some(Credential::Bearer(token)) = &presented.credential {
        check_token68(token)?;
    }
    Ok(presented)
}

/// The same for callers that cache the tokens they have verified. The characters of a bearer token
/// in `Authorization` are not checked, which for a usual JSON Web Token is most of the work; it may
/// even be empty. A token that is not in the cache has to pass [`check_token68`].
///
/// # Errors
/// As [`find`], but for that.
pub fn locate<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    query: Option<&'a [u8]>,
    wanted: &Wanted,
) -> Result<Presented<'a>, Problem> {
    let mut authorization = None;
    let (mut proof, mut proofs) = (None, 0_usize);
    let mut presented = Presented::default();
    for (name, value) in fields {
        if let Some(before) = wanted.token_subprotocol
            && name.eq_ignore_ascii_case(subprotocol::FIELD)
        {
            if let Some(credential) = subprotocol::find(value, before)? {
                put(&mut presented, credential, None)?;
                presented.source = Source::Subprotocol;
            }
        } else if wanted.takes_any() && is_authorization(name) {
            if authorization.replace(value.trim_ascii()).is_some() {
                return Err(Problem::RepeatedAuthorization);
            }
        } else if wanted.dpop && name.eq_ignore_ascii_case(b"dpop") {
            (proof, proofs) = (Some(value.trim_ascii()), proofs + 1);
        } else if let Some(number) = wanted
            .key_fields
            .iter()
            .position(|it| name.eq_ignore_ascii_case(it.as_bytes()))
        {
            let place = KeyPlace::Field(number);
            let key = check_key(Cow::Borrowed(value.trim_ascii()))?;
            put(&mut presented, Credential::ApiKey { place, key }, None)?;
        }
    }
    if let Some(value) = authorization {
        // Two proofs are told apart from none, to be refused in either case.
        let proof = proof.filter(|_| proofs == 1);
        if let Some(credential) = read_authorization(value, proof, wanted)? {
            put(&mut presented, credential, None)?;
        }
    }
    if let Some(query) = query
        && wanted.reads_query()
    {
        query::find(query, wanted, &mut presented)?;
    }
    Ok(presented)
}

/// Whether it is the name `Authorization`, in any case. Every request with a token comes by here;
/// the length is known when this is compiled, so that no byte needs a branch.
fn is_authorization(name: &[u8]) -> bool {
    const NAME: &[u8; 13] = b"authorization";
    // Nothing but the letters themselves becomes one of them by this.
    let is_it = |name: &[u8; NAME.len()]| {
        let pairs = name.iter().zip(NAME);
        pairs.fold(0, |differs, (byte, wanted)| {
            differs | ((byte | 0x20) ^ wanted)
        }) == 0
    };
    name.try_into().is_ok_and(is_it)
}

/// Keeps the credential that was found, unless there is one already.
fn put<'a>(
    presented: &mut Presented<'a>,
    credential: Credential<'a>,
    parameter: Option<Range<usize>>,
) -> Result<(), Problem> {
    if presented.credential.replace(credential).is_some() {
        return Err(Problem::SeveralCredentials);
    }
    presented.source = match &parameter {
        Some(_) => Source::Query,
        None => Source::Field,
    };
    presented.parameter = parameter;
    Ok(())
}

/// `auth-scheme [ 1*SP ( token68 / #auth-param ) ]` (RFC 9110, section 11.4); our schemes have a
/// token68. A scheme that is not wanted is no credential of ours.
fn read_authorization<'a>(
    value: &'a [u8],
    proof: Option<&'a [u8]>,
    wanted: &Wanted,
) -> Result<Option<Credential<'a>>, Problem> {
    let end = value.iter().position(|&it| !is_token_byte(it));
    let (name, rest) = value.split_at(end.unwrap_or(value.len()));
    if name.is_empty() || rest.first().is_some_and(|&it| it != b' ') {
        return Err(Problem::Malformed);
    }
    let Some(scheme) = Scheme::of(name).filter(|it| wanted.takes(*it)) else {
        return Ok(None);
    };
    let spaces = rest.iter().take_while(|&&it| it == b' ').count();
    let text = rest.get(spaces..).unwrap_or_default();
    let bound = match scheme {
        Scheme::Basic => BASIC_MAX.div_ceil(3) * 4,
        Scheme::Bearer | Scheme::Dpop => TOKEN_MAX,
    };
    check_length(text, bound)?;
    Ok(Some(match scheme {
        Scheme::Bearer => Credential::Bearer(Cow::Borrowed(text)),
        Scheme::Basic => {
            check_token68(text)?;
            Credential::Basic(Basic::new(text))
        }
        Scheme::Dpop => {
            check_token68(text)?;
            let proof = proof.ok_or(Problem::Proof)?;
            check_token(proof, PROOF_MAX).map_err(|_| Problem::Proof)?;
            let token = text;
            Credential::Dpop { token, proof }
        }
    }))
}

fn check_token(text: &[u8], bound: usize) -> Result<(), Problem> {
    check_length(text, bound)?;
    check_token68(text)
}

fn check_length(text: &[u8], bound: usize) -> Result<(), Problem> {
    match text.len() > bound {
        true => Err(Problem::TooLong),
        false => Ok(()),
    }
}

/// `token68 = 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"="` (RFC 9110, section
/// 11.2)
///
/// # Errors
/// [`Problem::Malformed`], when the text is no such token.
pub fn check_token68(text: &[u8]) -> Result<(), Problem> {
    let padding = text.iter().rev().take_while(|&&it| it == b'=').count();
    let (plain, _) = text.split_at(text.len() - padding);
    match !plain.is_empty() && is_plain(plain) {
        true => Ok(()),
        false => Err(Problem::Malformed),
    }
}

/// How many bytes are looked at together.
const CHUNK: usize = 32;

/// Whether all bytes are those of a token68. Every request with a token comes by here, so a chunk
/// is looked at without a branch, which compilers make vectors of.
fn is_plain(text: &[u8]) -> bool {
    let (chunks, rest) = text.as_chunks::<CHUNK>();
    let is_chunk =
        |chunk: &[u8; CHUNK]| chunk.iter().fold(true, |all, &it| all & is_plain_byte(it));
    chunks.iter().all(is_chunk)
        && match text.last_chunk::<CHUNK>() {
            Some(last) => is_chunk(last),
            None => rest.iter().all(|&it| is_plain_byte(it)),
        }
}

/// Whether it is a byte of a token68 before its padding, without a branch: `-`, `.` and `/` stand
/// before the digits in ASCII.
fn is_plain_byte(byte: u8) -> bool {
    let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let is_digit = byte.wrapping_sub(b'-') <= b'9' - b'-';
    is_letter | is_digit | (byte == b'_') | (byte == b'~') | (byte == b'+')
}

/// An API key is printable ASCII without spaces.
fn check_key(key: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Problem> {
    if key.is_empty() || !key.iter().all(u8::is_ascii_graphic) {
        return Err(Problem::Malformed);
    }
    match key.len() <= KEY_MAX {
        true => Ok(key),
        false => Err(Problem::TooLong),
    }
}

/// Whether a text is a token (RFC 9110, section 5.6.2), as names of fields and schemes are.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_is_known_in_any_case_and_nothing_else_is_taken_for_it() {
        for name in ["authorization", "Authorization", "AUTHORIZATION"] {
            assert!(is_authorization(name.as_bytes()), "{name}");
            for at in 0..name.len() {
                for byte in 0..=u8::MAX {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    let is_it = other.eq_ignore_ascii_case(b"authorization");
                    assert_eq!(is_authorization(&other), is_it, "{byte:#x} at {at}");
                }
            }
        }
        assert!(!is_authorization(b"authorizatio") && !is_authorization(b""));
    }

    #[test]
    fn a_byte_that_no_token_has_is_found_wherever_it_stands() {
        let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        for byte in 0..=u8::MAX {
            assert_eq!(is_plain_byte(byte), is_of_token(byte), "{byte:#x}");
        }
        for length in 1..=3 * CHUNK + 1 {
            let mut text = vec![b'a'; length];
            assert!(is_plain(&text), "{length}");
            for at in 0..length {
                text[at] = b'=';
                assert!(!is_plain(&text), "{at} of {length}");
                text[at] = b'Z';
            }
        }
    }
}
