//! What a request shows of its sender, and where.

use std::borrow::Cow;
use std::sync::Arc;

use access::credentials::{
    self, ACCESS_TOKEN, Credential as Presented, KeyPlace, Presented as PresentedIn, Problem,
    Scheme, Source, Wanted,
};
use component::access::{CredentialLocation, RequestHead, TOKEN_SUBPROTOCOL};
use component::cookies;
use config::{Report, Spanned};
use message::Field;

use crate::codes::BAD_WAY;
use crate::config::TokenPlace;

/// How the credential of a way is presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// `Authorization: Bearer` (RFC 6750, section 2.1).
    Bearer,
    /// `Authorization: Basic` (RFC 7617).
    Basic,
    /// A header field of its own; its name in lower case.
    Field(Arc<str>),
    /// A parameter of the query.
    Query(Arc<str>),
    /// A cookie.
    Cookie(Arc<str>),
    /// The header field of this name has a signature of the body; its name in lower case.
    Signature(&'static str),
    /// The certificate that the client has shown. It is the connection's, and counts for requests
    /// that have no credential of their own.
    Certificate,
    /// There is nothing to look for: every request is for the way.
    Always,
}

impl Carrier {
    /// Where a credential stands in a request that can be taken out, when it came from there. A
    /// signature is no secret.
    pub fn place(&self, source: Source) -> Option<CredentialLocation> {
        Some(match self {
            Self::Bearer if source == Source::Query => {
                CredentialLocation::Query(ACCESS_TOKEN.into())
            }
            Self::Bearer if source == Source::Subprotocol => CredentialLocation::Subprotocol,
            Self::Bearer | Self::Basic => CredentialLocation::Authorization,
            Self::Field(name) => CredentialLocation::Field(Arc::clone(name)),
            Self::Query(name) => CredentialLocation::Query(Arc::clone(name)),
            Self::Cookie(name) => CredentialLocation::Cookie(Arc::clone(name)),
            Self::Signature(_) | Self::Certificate | Self::Always => return None,
        })
    }

    /// Whether browsers and connections present it by themselves. What a request shows on purpose
    /// counts before it, right or wrong.
    pub fn is_implied(&self) -> bool {
        matches!(self, Self::Cookie(_) | Self::Certificate)
    }

    /// A name that outlives the process, of those whose credential can be presented again: a
    /// signature is for one body, a cookie and a certificate come again by themselves, and what
    /// takes every request has none.
    pub fn ticket_name(&self) -> Option<String> {
        Some(match self {
            Self::Bearer => "bearer".to_owned(),
            Self::Basic => "basic".to_owned(),
            Self::Field(name) => format!("field {name}"),
            Self::Query(name) => format!("query {name}"),
            Self::Cookie(_) | Self::Signature(_) | Self::Certificate | Self::Always => return None,
        })
    }
}

/// Where bearer tokens may stand beside `Authorization`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenSources {
    pub query: bool,
    pub subprotocol: bool,
}

impl TokenSources {
    /// Reads `also_in`. Every problem is reported.
    pub fn read(places: &[Spanned<TokenPlace>], report: &mut Report) -> Self {
        let mut sources = Self::default();
        for place in places {
            let is_there = match place.value {
                TokenPlace::Query => &mut sources.query,
                TokenPlace::Subprotocol => &mut sources.subprotocol,
            };
            if std::mem::replace(is_there, true) {
                let message = "`also_in` names this twice";
                report
                    .error(BAD_WAY, place.span, message)
                    .hint("leave one out");
            }
        }
        sources
    }

    /// Those of either.
    pub fn or(self, other: Self) -> Self {
        Self {
            query: self.query || other.query,
            subprotocol: self.subprotocol || other.subprotocol,
        }
    }

    /// Whether a token may stand there.
    pub fn allow(self, source: Source) -> bool {
        match source {
            Source::Field => true,
            Source::Query => self.query,
            Source::Subprotocol => self.subprotocol,
        }
    }
}

/// A credential of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Credential<'a> {
    /// Which of the carriers it came by.
    pub carrier: usize,
    /// Where it stood.
    pub source: Source,
    /// What it is: a token, a key, or user and password in Base64; empty where the way looks for
    /// itself.
    pub value: Cow<'a, [u8]>,
    /// The proof of possession beside a token that was presented by `Authorization: DPoP`.
    pub proof: Option<&'a [u8]>,
}

impl Credential<'_> {
    /// One without a value.
    pub fn none(carrier: usize) -> Self {
        Self {
            carrier,
            source: Source::Field,
            value: Cow::Borrowed(&[]),
            proof: None,
        }
    }
}

/// By which schemes of `Authorization` tokens may be presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenSchemes {
    /// As a bearer's.
    pub bearer: bool,
    /// With a proof of possession.
    pub dpop: bool,
}

/// Finds credentials where the ways of a door have them.
#[derive(Debug)]
pub(crate) struct Finder {
    carriers: Vec<Carrier>,
    wanted: Wanted,
    /// The same for requests that are no WebSocket handshake, whose subprotocols mean nothing;
    /// where tokens may stand among these.
    wanted_of_others: Option<Wanted>,
    /// The carriers of the places of keys: of fields and of parameters.
    keys: Vec<(KeyPlace, usize)>,
    /// The fields with signatures.
    signatures: Vec<(&'static str, usize)>,
    cookies: Vec<(Arc<str>, usize)>,
    /// The carrier of certificates.
    certificate: Option<usize>,
}

impl Finder {
    /// One for these carriers, each of which is there once, and for tokens in these places.
    ///
    /// # Errors
    /// A sentence, when there are too many places for keys.
    pub fn new(
        carriers: Vec<Carrier>,
        tokens: TokenSchemes,
        sources: TokenSources,
    ) -> Result<Self, &'static str> {
        let mut wanted = Wanted::default();
        if sources.query {
            wanted.token_parameter();
        }
        let (mut keys, mut signatures, mut certificate) = (Vec::new(), Vec::new(), None);
        let mut cookies = Vec::new();
        for (at, carrier) in carriers.iter().enumerate() {
            match carrier {
                Carrier::Bearer => {
                    let schemes = [(tokens.bearer, Scheme::Bearer), (tokens.dpop, Scheme::Dpop)];
                    for (_, scheme) in schemes.into_iter().filter(|(is_taken, _)| *is_taken) {
                        wanted.scheme(scheme);
                    }
                }
                Carrier::Basic => wanted.scheme(Scheme::Basic),
                Carrier::Field(name) => keys.push((wanted.key_field(name)?, at)),
                Carrier::Query(name) => keys.push((wanted.key_parameter(name)?, at)),
                Carrier::Signature(name) => signatures.push((*name, at)),
                Carrier::Cookie(name) => cookies.push((Arc::clone(name), at)),
                Carrier::Certificate => certificate = Some(at),
                Carrier::Always => {}
            }
        }
        let wanted_of_others = sources.subprotocol.then(|| wanted.clone());
        if sources.subprotocol {
            wanted.token_subprotocol(TOKEN_SUBPROTOCOL);
        }
        Ok(Self {
            carriers,
            wanted,
            wanted_of_others,
            keys,
            signatures,
            cookies,
            certificate,
        })
    }

    /// What it looks for.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// How credentials may come.
    pub fn carriers(&self) -> &[Carrier] {
        &self.carriers
    }

    /// Finds the credential of a request.
    ///
    /// # Errors
    /// When there are several, for nobody can say who is meant, or one that nobody can read.
    pub fn find<'a>(&self, head: RequestHead<'a>) -> Result<Option<Credential<'a>>, Problem> {
        self.read(
            head,
            credentials::find(fields(head), head.query, self.wanted_of(head))?,
        )
    }

    /// The same, but the characters of a bearer token have not been checked: see
    /// [`credentials::locate`].
    ///
    /// # Errors
    /// As [`find`](Self::find), but for that.
    pub fn locate<'a>(&self, head: RequestHead<'a>) -> Result<Option<Credential<'a>>, Problem> {
        let presented = credentials::locate(fields(head), head.query, self.wanted_of(head))?;
        self.read(head, presented)
    }

    /// What to look for in a request.
    fn wanted_of(&self, head: RequestHead<'_>) -> &Wanted {
        let others = self.wanted_of_others.as_ref();
        let others = others.filter(|_| !is_handshake(head));
        others.unwrap_or(&self.wanted)
    }

    /// The credential of a request, of which this was presented in the usual places.
    #[inline]
    fn read<'a>(
        &self,
        head: RequestHead<'a>,
        presented: PresentedIn<'a>,
    ) -> Result<Option<Credential<'a>>, Problem> {
        let of = |wanted: Carrier| self.carriers.iter().position(|it| *it == wanted);
        let source = presented.source;
        let mut found = None;
        let place;
        if let Some(credential) = presented.credential {
            let mut shown = None;
            let (at, value) = match credential {
                Presented::Bearer(token) => (of(Carrier::Bearer), token),
                Presented::Basic(basic) => (of(Carrier::Basic), Cow::Borrowed(basic.encoded())),
                Presented::ApiKey { place: it, key } => {
                    place = it;
                    let known = self.keys.iter().find(|(known, _)| *known == place);
                    (known.map(|(_, at)| *at), key)
                }
                Presented::Dpop { token, proof } => {
                    shown = Some(proof);
                    (of(Carrier::Bearer), Cow::Borrowed(token))
                }
            };
            found = at.map(|carrier| Credential {
                carrier,
                source,
                value,
                proof: shown,
            });
        }
        for (name, carrier) in &self.signatures {
            let is_it = |field: &[u8]| field.eq_ignore_ascii_case(name.as_bytes());
            for (_, field, value) in head.headers.iter() {
                if !is_it(field) {
                    continue;
                }
                let signature = Credential {
                    value: Cow::Borrowed(value),
                    ..Credential::none(*carrier)
                };
                if found.replace(signature).is_some() {
                    return Err(Problem::SeveralCredentials);
                }
            }
        }
        // A browser adds its cookies by itself: what a request shows on purpose counts, right or
        // wrong.
        if found.is_none() && !self.cookies.is_empty() {
            found = self.find_cookie(head)?;
        }
        let certificate = self.certificate.filter(|_| head.certificate.is_some());
        Ok(found.or_else(|| certificate.map(Credential::none)))
    }

    /// The cookie of the first way that has one in the request.
    fn find_cookie<'a>(&self, head: RequestHead<'a>) -> Result<Option<Credential<'a>>, Problem> {
        for cookie in &self.cookies {
            if let Some(found) = only(cookie, head)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The cookies of further ways beside the one that was found: a browser has one for each way by
    /// which it has logged in.
    ///
    /// # Errors
    /// When there are several of one way: nobody can say which one is meant, and each costs a look.
    pub fn other_cookies<'a>(
        &self,
        found: &Credential<'_>,
        head: RequestHead<'a>,
    ) -> Result<Vec<Credential<'a>>, Problem> {
        let is_found = |it: &(Arc<str>, usize)| it.1 == found.carrier;
        let Some(at) = self.cookies.iter().position(is_found) else {
            return Ok(Vec::new());
        };
        let mut others = Vec::new();
        for cookie in self.cookies.iter().skip(at + 1) {
            others.extend(only(cookie, head)?);
        }
        Ok(others)
    }
}

/// Names and values of the header fields of a request.
fn fields<'a>(head: RequestHead<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    head.headers.iter().map(|(_, name, value)| (name, value))
}

/// The only cookie of a name as a credential.
///
/// # Errors
/// When there are several.
fn only<'a>(
    (name, carrier): &(Arc<str>, usize),
    head: RequestHead<'a>,
) -> Result<Option<Credential<'a>>, Problem> {
    let named = cookies::pairs(head.headers).filter(move |(own, _)| *own == name.as_bytes());
    let mut found = named.map(move |(_, value)| Credential {
        value: Cow::Borrowed(value),
        ..Credential::none(*carrier)
    });
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(Problem::SeveralCredentials),
        (found, None) => Ok(found),
    }
}

/// Whether a request asks for a WebSocket (RFC 6455, section 4.1).
fn is_handshake(head: RequestHead<'_>) -> bool {
    let mut protocols = head.headers.iter().filter(|it| it.0 == Field::Upgrade);
    let is_it = |it: &[u8]| it.trim_ascii().eq_ignore_ascii_case(b"websocket");
    head.method == "GET" && protocols.any(|it| it.2.split(|byte| *byte == b',').any(is_it))
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

    fn found(fields: &[(&str, &str)], query: &str) -> Result<Option<(usize, String)>, Problem> {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        let mut request = Request::of_source("GET", headers, message::Body::Empty);
        request.query = Some(query.to_owned());
        let tokens = TokenSchemes {
            bearer: true,
            dpop: false,
        };
        let finder = Finder::new(carriers().to_vec(), tokens, TokenSources::default()).unwrap();
        let found = finder.find(RequestHead::of(&request))?;
        let text = |it: Cow<'_, [u8]>| String::from_utf8_lossy(&it).into_owned();
        Ok(found.map(|it| (it.carrier, text(it.value))))
    }

    fn one(carrier: usize, value: &str) -> Result<Option<(usize, String)>, Problem> {
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
        assert_eq!(found(&[], "a=1&k%65y=s%2Dt"), one(2, "s-t"));
        for unreadable in ["Bearer", "Bearer a b", ""] {
            let found = found(&[("Authorization", unreadable)], "");
            assert_eq!(found, Err(Problem::Malformed), "{unreadable}");
        }
        for other in ["Basic YTpi", "Bearertoken", "Bear"] {
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
            let several = matches!(
                found(fields, query),
                Err(Problem::RepeatedAuthorization | Problem::SeveralCredentials)
            );
            assert!(several, "{fields:?} {query}");
        }
    }
}
