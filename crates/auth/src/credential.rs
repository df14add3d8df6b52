//! What a request shows of its sender, and where.

use std::borrow::Cow;
use std::sync::Arc;

use component::access::{Place, RequestHead, decode_parameter, parameter_name};

/// How the credential of a way is presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// `Authorization: Bearer` (RFC 6750, section 2.1).
    Bearer,
    /// A header field of its own; its name in lower case.
    Field(Arc<str>),
    /// A parameter of the query.
    Query(Arc<str>),
    /// The header field of this name has a signature of the body; its name in lower case.
    Signature(&'static str),
    /// There is nothing to look for: every request is for the way.
    Always,
}

impl Carrier {
    /// Where a credential stands in a request that can be taken out. A signature is no secret.
    pub fn place(&self) -> Option<Place> {
        Some(match self {
            Self::Bearer => Place::Field(AUTHORIZATION.into()),
            Self::Field(name) => Place::Field(Arc::clone(name)),
            Self::Query(name) => Place::Query(Arc::clone(name)),
            Self::Signature(_) | Self::Always => return None,
        })
    }
}

const AUTHORIZATION: &str = "authorization";

/// A credential of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Credential<'a> {
    /// Which of the carriers it came by.
    pub carrier: usize,
    /// What it is, without the scheme.
    pub value: Cow<'a, [u8]>,
}

/// A request that shows more than one credential, or one that nobody can read (RFC 6750, section
/// 3.1: `invalid_request`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous;

/// Finds the credential of a request among these carriers.
///
/// # Errors
/// When there are several: nobody can say who is meant.
pub(crate) fn find<'a>(
    head: RequestHead<'a>,
    carriers: &[Carrier],
) -> Result<Option<Credential<'a>>, Ambiguous> {
    let mut found = None;
    let mut put =
        |carrier: usize, value: Cow<'a, [u8]>| match found.replace(Credential { carrier, value }) {
            None => Ok(()),
            Some(_) => Err(Ambiguous),
        };
    let mut has_authorization = false;
    for (_, name, value) in head.headers.iter() {
        if name.eq_ignore_ascii_case(AUTHORIZATION.as_bytes()) {
            // Two of them are never right (RFC 9110, section 11.6.2).
            if std::mem::replace(&mut has_authorization, true) {
                return Err(Ambiguous);
            }
            if let Some(token) = bearer(value)
                && let Some(at) = carriers.iter().position(|it| *it == Carrier::Bearer)
            {
                put(at, Cow::Borrowed(token))?;
            }
            continue;
        }
        let is_here = |it: &Carrier| {
            let field: &str = match it {
                Carrier::Field(field) => field,
                Carrier::Signature(field) => field,
                Carrier::Bearer | Carrier::Query(_) | Carrier::Always => return false,
            };
            name.eq_ignore_ascii_case(field.as_bytes())
        };
        if let Some(at) = carriers.iter().position(is_here) {
            put(at, Cow::Borrowed(value))?;
        }
    }
    for (at, carrier) in carriers.iter().enumerate() {
        let Carrier::Query(wanted) = carrier else {
            continue;
        };
        let query = head.query.unwrap_or_default();
        for part in query.split(|&byte| byte == b'&') {
            let part = String::from_utf8_lossy(part);
            if parameter_name(&part) == **wanted {
                let value = part.split_once('=').map_or("", |(_, value)| value);
                put(at, Cow::Owned(decode_parameter(value).into_bytes()))?;
            }
        }
    }
    Ok(found)
}

/// The token of `Bearer TOKEN`; the scheme in any case (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer";
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    match rest.first() {
        None => Some(rest),
        Some(b' ') => Some(rest.trim_ascii()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use message::{Headers, Request};

    use super::*;

    fn carriers() -> [Carrier; 3] {
        [
            Carrier::Bearer,
            Carrier::Field("x-api-key".into()),
            Carrier::Query("key".into()),
        ]
    }

    fn found(fields: &[(&str, &str)], query: &str) -> Result<Option<(usize, String)>, Ambiguous> {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        let mut request = Request::of_source("GET", headers, message::Body::Empty);
        request.query = Some(query.to_owned());
        let found = find(RequestHead::of(&request), &carriers())?;
        let text = |it: Cow<'_, [u8]>| String::from_utf8_lossy(&it).into_owned();
        Ok(found.map(|it| (it.carrier, text(it.value))))
    }

    fn one(carrier: usize, value: &str) -> Result<Option<(usize, String)>, Ambiguous> {
        Ok(Some((carrier, value.to_owned())))
    }

    #[test]
    fn a_credential_is_found_where_its_way_has_it() {
        assert_eq!(
            found(&[("Authorization", "Bearer a.b.c")], ""),
            one(0, "a.b.c")
        );
        assert_eq!(found(&[("AUTHORIZATION", "bEARER   a")], ""), one(0, "a"));
        assert_eq!(found(&[("x-API-key", "k")], ""), one(1, "k"));
        assert_eq!(found(&[], "a=1&k%65y=s%20t"), one(2, "s t"));
        assert_eq!(found(&[("Authorization", "Bearer")], ""), one(0, ""));
        for other in ["Basic YTpi", "Bearertoken", "Bear", ""] {
            assert_eq!(found(&[("Authorization", other)], ""), Ok(None), "{other}");
        }
        assert_eq!(found(&[], "keys=1"), Ok(None));
    }

    #[test]
    fn two_credentials_are_none() {
        let bearer = ("Authorization", "Bearer a");
        for (fields, query) in [
            (&[bearer, bearer][..], ""),
            (&[bearer, ("Authorization", "Basic YTpi")], ""),
            (&[bearer, ("X-Api-Key", "k")], ""),
            (&[("X-Api-Key", "k"), ("x-api-key", "k")], ""),
            (&[bearer], "key=k"),
            (&[], "key=k&key=k"),
            (&[], "key=k&k%65y=l"),
        ] {
            assert_eq!(found(fields, query), Err(Ambiguous), "{fields:?} {query}");
        }
    }
}
