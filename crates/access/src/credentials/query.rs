//! Credentials in a query, `name=value&name=value`.

use std::borrow::Cow;

use super::{Credential, KeyPlace, Presented, Problem, Wanted, check_key, check_token, put};
use crate::jwt::TOKEN_MAX;
use crate::percent::{Piece, Pieces};

/// The parameter of the query that may have a token (RFC 6750, section 2.3).
pub const ACCESS_TOKEN: &str = "access_token";

/// Finds the credentials of a query. Escapes are undone in names too: `%61ccess_token` is the same
/// parameter. A `+` is a plus: no credential has a space in it.
pub(super) fn find<'a>(
    query: &'a [u8],
    wanted: &Wanted,
    presented: &mut Presented<'a>,
) -> Result<(), Problem> {
    let mut start = 0;
    for pair in query.split(|&it| it == b'&') {
        let range = start..start + pair.len();
        start = range.end + 1;
        let middle = pair.iter().position(|&it| it == b'=');
        let (name, value) = pair.split_at(middle.unwrap_or(pair.len()));
        let value = value.get(1..).unwrap_or_default();
        let is_name = |wanted: &str| is_same(name, wanted.as_bytes());
        let credential = if wanted.token_parameter && is_name(ACCESS_TOKEN) {
            let token = unescaped(value)?;
            check_token(&token, TOKEN_MAX)?;
            Credential::Bearer(token)
        } else if let Some(number) = wanted.key_parameters.iter().position(|it| is_name(it)) {
            let place = KeyPlace::Parameter(number);
            let key = check_key(unescaped(value)?)?;
            Credential::ApiKey { place, key }
        } else {
            continue;
        };
        put(presented, credential, Some(range))?;
    }
    Ok(())
}

/// What a piece of an encoded text means, unless it is a `%` that begins no escape.
fn meaning(piece: Piece) -> Option<u8> {
    match piece {
        Piece::Plain(b'%') => None,
        Piece::Plain(byte) | Piece::Escaped(byte) => Some(byte),
    }
}

fn is_same(name: &[u8], wanted: &[u8]) -> bool {
    let is_escaped = || {
        Pieces(name)
            .map(meaning)
            .eq(wanted.iter().map(|&byte| Some(byte)))
    };
    name == wanted || name.contains(&b'%') && is_escaped()
}

fn unescaped(value: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
    if !value.contains(&b'%') {
        return Ok(Cow::Borrowed(value));
    }
    // A query is as long as the head allows; what is longer than any credential is not copied.
    if value.len() > TOKEN_MAX * 3 {
        return Err(Problem::TooLong);
    }
    let bytes: Option<Vec<u8>> = Pieces(value).map(meaning).collect();
    bytes.map(Cow::Owned).ok_or(Problem::Malformed)
}
