//! The values of `WWW-Authenticate` (RFC 9110, section 11.6.1): how a caller may say who it is, and
//! what was wrong. They are made when files are loaded, and tell the same to everybody.

use super::{Problem, Scheme, Wanted};
use crate::jwt::Algorithm;

/// The algorithms that proofs of possession may be signed with (RFC 9449, section 5.1): those of
/// public keys.
const DPOP_ALGORITHMS: [Algorithm; 10] = [
    Algorithm::Es256,
    Algorithm::Es384,
    Algorithm::Es512,
    Algorithm::EdDsa,
    Algorithm::Ps256,
    Algorithm::Ps384,
    Algorithm::Ps512,
    Algorithm::Rs256,
    Algorithm::Rs384,
    Algorithm::Rs512,
];

/// Why there is a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// There is no credential, or one of a scheme that is not known: no error is told (RFC 6750,
    /// section 3.1). Or a password or an API key was wrong: their schemes have no errors.
    Credentials,
    /// The request is refused for its syntax. The status is [`Problem::status`].
    Request(Problem),
    /// The token that was presented by this scheme is not good, for whatever reason: 401.
    Token(Scheme),
    /// The proof of possession is not good: 401 (RFC 9449, section 7.1).
    Proof,
}

/// The challenges of a listener, flow or topic, each to be a field `WWW-Authenticate` of its own:
/// many clients cannot take a list of several apart.
#[derive(Clone, Debug)]
pub struct Challenges {
    realm: String,
    schemes: Vec<Challenge>,
    /// For each failure its values.
    made: Vec<(Failure, Vec<String>)>,
}

#[derive(Clone, Debug)]
enum Challenge {
    Of(Scheme),
    /// No scheme for API keys is registered. A 401 has to have a challenge (RFC 9110, section
    /// 15.5.2), and this is what other products have.
    ApiKey(&'static str, String),
}

/// `error` and `error_description`.
type Words = (&'static str, &'static str);

impl Challenges {
    /// The challenges for what is looked for. The realm is shown to people.
    ///
    /// # Errors
    /// A sentence, when the realm has other characters than printable ASCII.
    pub fn new(realm: &str, wanted: &Wanted) -> Result<Self, &'static str> {
        let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if realm.len() > 200 || !realm.bytes().all(is_printable) {
            return Err("a realm is at most 200 characters of printable ASCII");
        }
        // The strongest first (RFC 9110, section 11.5, leaves the choice to the client).
        let schemes = [Scheme::Dpop, Scheme::Bearer, Scheme::Basic].into_iter();
        let schemes = schemes.filter(|it| {
            let by_query = *it == Scheme::Bearer && wanted.token_parameter;
            wanted.takes(*it) || by_query
        });
        let fields = wanted.key_fields.iter().map(|it| ("header", it));
        let parameters = wanted.key_parameters.iter().map(|it| ("query", it));
        let keys = fields.chain(parameters);
        let keys = keys.map(|(place, name)| Challenge::ApiKey(place, quoted(name)));
        let mut challenges = Self {
            realm: quoted(realm),
            schemes: schemes.map(Challenge::Of).chain(keys).collect(),
            made: Vec::new(),
        };
        challenges.made = failures()
            .map(|failure| (failure, challenges.make(failure)))
            .collect();
        Ok(challenges)
    }

    /// The values for a failure. There are none where callers are known by nothing that a challenge
    /// could ask for, such as certificates: then the status is 403, for a 401 has to have one.
    #[must_use]
    pub fn of(&self, failure: Failure) -> &[String] {
        let made = self.made.iter().find(|(it, _)| *it == failure);
        made.map_or(&[], |(_, values)| values)
    }

    /// The values for a 403: the caller is known, and its token has not these scopes. Only schemes
    /// with tokens have such a challenge; whoever has another credential has no use for one.
    ///
    /// # Errors
    /// A sentence, when a scope is none (RFC 6749, section 3.3).
    pub fn insufficient_scope(&self, scopes: &[&str]) -> Result<Vec<String>, &'static str> {
        let is_scope = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let is_good = |it: &&str| !it.is_empty() && it.bytes().all(is_scope);
        if !scopes.iter().all(is_good) {
            return Err("a scope is printable ASCII without spaces, quotes and backslashes");
        }
        let words = (
            "insufficient_scope",
            "The token does not have the scopes that are needed",
        );
        let scopes = format!(", scope=\"{}\"", scopes.join(" "));
        let schemes = self.schemes.iter().filter_map(|it| match it {
            Challenge::Of(scheme @ (Scheme::Bearer | Scheme::Dpop)) => Some(*scheme),
            _ => None,
        });
        Ok(schemes
            .map(|scheme| self.value(scheme, Some(words), &scopes))
            .collect())
    }

    fn make(&self, failure: Failure) -> Vec<String> {
        let value = |challenge: &Challenge| match challenge {
            Challenge::Of(scheme) => self.value(*scheme, words(failure, *scheme), ""),
            Challenge::ApiKey(place, name) => {
                format!("ApiKey realm={}, {place}={name}", self.realm)
            }
        };
        self.schemes.iter().map(value).collect()
    }

    fn value(&self, scheme: Scheme, words: Option<Words>, scopes: &str) -> String {
        let realm = &self.realm;
        let words = words.map_or(String::new(), |(error, description)| {
            format!(", error=\"{error}\", error_description=\"{description}\"")
        });
        match scheme {
            Scheme::Bearer => format!("Bearer realm={realm}{words}{scopes}"),
            Scheme::Basic => format!("Basic realm={realm}, charset=\"UTF-8\""),
            Scheme::Dpop => {
                let algorithms = DPOP_ALGORITHMS.map(Algorithm::name).join(" ");
                format!("DPoP realm={realm}{words}{scopes}, algs=\"{algorithms}\"")
            }
        }
    }
}

fn failures() -> impl Iterator<Item = Failure> {
    let others = [
        Failure::Credentials,
        Failure::Token(Scheme::Bearer),
        Failure::Token(Scheme::Dpop),
        Failure::Token(Scheme::Basic),
        Failure::Proof,
    ];
    let problems = Problem::ALL.into_iter().map(Failure::Request);
    others.into_iter().chain(problems)
}

/// What the challenge of a scheme says about a failure: nothing, where it is another one's.
fn words(failure: Failure, scheme: Scheme) -> Option<Words> {
    const TOKEN: Words = ("invalid_token", "The token is not valid");
    const PROOF: Words = ("invalid_dpop_proof", "The proof is not valid");
    match (failure, scheme) {
        (_, Scheme::Basic) | (Failure::Credentials, _) => None,
        (Failure::Token(presented), _) => (presented == scheme).then_some(TOKEN),
        (Failure::Proof, Scheme::Dpop) => Some(PROOF),
        (Failure::Proof, Scheme::Bearer) => None,
        (Failure::Request(Problem::Proof), _) => match scheme {
            Scheme::Dpop => Some((PROOF.0, Problem::Proof.explanation())),
            _ => None,
        },
        (Failure::Request(problem), _) => {
            let error = match problem.status() {
                400 => "invalid_request",
                _ => TOKEN.0,
            };
            Some((error, problem.explanation()))
        }
    }
}

/// A text of printable ASCII as quoted-string (RFC 9110, section 5.6.4).
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
