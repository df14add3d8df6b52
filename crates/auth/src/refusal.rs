//! The replies to refused requests: they say what RFC 6750 and RFC 9110 demand, and nothing that
//! helps to guess credentials.

use std::time::Duration;

use access::credentials::{Challenges, Failure, Problem, Scheme};
use message::{Fault, Kind, Origin, Reply};

use crate::credential::{Carrier, Finder};

/// What challenges call us.
const REALM: &str = "intertie";

/// The replies of one door.
#[derive(Debug)]
pub(crate) struct Refusals {
    challenges: Challenges,
    /// Those of signatures and cookies, for which no scheme is registered: a 401 must have a
    /// challenge all the same, and clients ignore those that they do not know.
    signatures: Vec<String>,
}

impl Refusals {
    /// Those of a door that looks for these credentials.
    ///
    /// # Errors
    /// A sentence about what cannot stand in a challenge.
    pub fn new(finder: &Finder) -> Result<Self, &'static str> {
        let signature = |carrier: &Carrier| match carrier {
            Carrier::Signature(name) => Some(format!(r#"HMAC realm="{REALM}", header="{name}""#)),
            Carrier::Cookie(name) => {
                Some(format!(r#"Cookie realm="{REALM}", cookie-name="{name}""#))
            }
            _ => None,
        };
        Ok(Self {
            challenges: Challenges::new(REALM, finder.wanted())?,
            signatures: finder.carriers().iter().filter_map(signature).collect(),
        })
    }

    /// The reply to a request without a credential: all challenges of the door (RFC 9110, section
    /// 11.6.1).
    pub fn unknown(&self) -> Box<Reply> {
        let detail = match self.has_challenges() {
            true => "this needs credentials",
            false => "this needs a client certificate",
        };
        self.refuse(self.fault(detail), Failure::Credentials)
    }

    /// Whether a request can be asked for credentials. A certificate is no matter of requests.
    fn has_challenges(&self) -> bool {
        !self.challenges.of(Failure::Credentials).is_empty() || !self.signatures.is_empty()
    }

    /// A 401 has to have a challenge (RFC 9110, section 15.5.2): without any it is 403.
    fn fault(&self, detail: &'static str) -> Fault {
        let kind = match self.has_challenges() {
            true => Kind::Unauthorized,
            false => Kind::Forbidden,
        };
        Fault::new(kind, Origin::Client, detail)
    }

    /// The reply to a request whose token comes without a good proof that it is the sender's (RFC
    /// 9449, section 7.1).
    pub fn unproved(&self) -> Box<Reply> {
        self.refuse(self.fault("the credentials are not valid"), Failure::Proof)
    }

    /// The reply to a request whose credential is wrong (RFC 6750, section 3.1).
    pub fn invalid(&self, carrier: &Carrier, has_proof: bool) -> Box<Reply> {
        let failure = match carrier {
            Carrier::Bearer if has_proof => Failure::Token(Scheme::Dpop),
            Carrier::Bearer => Failure::Token(Scheme::Bearer),
            _ => Failure::Credentials,
        };
        self.refuse(self.fault("the credentials are not valid"), failure)
    }

    /// The reply to a request with two credentials, or one that nobody can read (RFC 6750, sections
    /// 2 and 3.1).
    pub fn unreadable(&self, problem: Problem) -> Box<Reply> {
        let fault = match problem.status() {
            401 => self.fault(problem.explanation()),
            status => Fault::invalid(problem.explanation()).with_status(status),
        };
        self.refuse(fault, Failure::Request(problem))
    }

    /// The reply to a caller who may not do this. `scopes` are those that it must have.
    pub fn forbidden(&self, carrier: &Carrier, scopes: &[String]) -> Box<Reply> {
        let detail = "the caller may not do this";
        let fault = Fault::new(Kind::Forbidden, Origin::Client, detail);
        let mut reply = fault.to_reply();
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        if *carrier == Carrier::Bearer && !scopes.is_empty() {
            // They were checked when the file was loaded.
            let challenges = self.challenges.insufficient_scope(&scopes);
            for challenge in challenges.unwrap_or_default() {
                reply.headers.append("WWW-Authenticate", challenge);
            }
        }
        Box::new(reply)
    }

    fn refuse(&self, fault: Fault, failure: Failure) -> Box<Reply> {
        let mut reply = fault.to_reply();
        for challenge in self.challenges.of(failure).iter().chain(&self.signatures) {
            reply.headers.append("WWW-Authenticate", challenge);
        }
        Box::new(reply)
    }
}

/// The reply when nobody can tell who calls.
pub(crate) fn unavailable() -> Box<Reply> {
    let detail = "credentials cannot be checked at the moment";
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    Box::new(fault.with_retry_after(Duration::from_secs(5)).to_reply())
}

/// The reply to an address that has sent too many wrong credentials.
pub(crate) fn limited(wait: Duration) -> Box<Reply> {
    let detail = "too many credentials were not valid";
    let fault = Fault::new(Kind::Limited, Origin::Client, detail);
    Box::new(fault.with_retry_after(wait).to_reply())
}

/// The reply to a caller that has too many tickets.
pub(crate) fn too_many_tickets(wait: Duration) -> Box<Reply> {
    let detail = "the caller has too many tickets";
    let fault = Fault::new(Kind::Limited, Origin::Client, detail);
    // In whole seconds, and at least one.
    let wait = Duration::from_secs(wait.as_secs() + 1);
    Box::new(fault.with_retry_after(wait).to_reply())
}

/// The reply to a request for a ticket whose `Origin` is none.
pub(crate) fn bad_origin() -> Box<Reply> {
    Box::new(Fault::invalid("the Origin is too long").to_reply())
}

/// The reply to a request with a ticket, or for one, that names several origins.
pub(crate) fn several_origins() -> Box<Reply> {
    Box::new(Fault::invalid("a request has one Origin").to_reply())
}

/// The reply to a request for a ticket whose credential cannot be presented again.
pub(crate) fn no_tickets() -> Box<Reply> {
    let detail = "this credential cannot be exchanged for a ticket";
    Box::new(Fault::invalid(detail).to_reply())
}
