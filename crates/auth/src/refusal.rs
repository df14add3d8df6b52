//! What whoever is not let in is told: as much as RFC 6750 and RFC 9110 demand, and nothing that
//! helps to guess.

use std::time::Duration;

use message::{Fault, Kind, Origin, Reply};

use crate::credential::Carrier;

/// The reply to a request without a credential: all challenges of the door (RFC 9110, section
/// 11.6.1).
pub(crate) fn unknown(carriers: &[Carrier]) -> Box<Reply> {
    refuse(fault("this needs credentials"), carriers, "")
}

/// The reply to a request whose credential is wrong (RFC 6750, section 3.1).
pub(crate) fn invalid(carrier: &Carrier) -> Box<Reply> {
    let parameters = r#", error="invalid_token""#;
    let fault = fault("the credentials are not valid");
    refuse(fault, std::slice::from_ref(carrier), parameters)
}

/// The reply to a request with two credentials (RFC 6750, sections 2 and 3.1).
pub(crate) fn ambiguous() -> Box<Reply> {
    Box::new(Fault::invalid("a request has one credential").to_reply())
}

/// The reply to a caller who may not do this. `scopes` are those that it must have.
pub(crate) fn forbidden(carrier: &Carrier, scopes: &[String]) -> Box<Reply> {
    let fault = Fault::new(
        Kind::Forbidden,
        Origin::Client,
        "the caller may not do this",
    );
    let mut reply = fault.to_reply();
    if *carrier == Carrier::Bearer && !scopes.is_empty() {
        let scopes = scopes.join(" ");
        let value = format!(r#"Bearer error="insufficient_scope", scope="{scopes}""#);
        reply.headers.append("WWW-Authenticate", value);
    }
    Box::new(reply)
}

/// The reply when nobody can tell who calls.
pub(crate) fn unavailable() -> Box<Reply> {
    let detail = "credentials cannot be checked at the moment";
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    Box::new(fault.with_retry_after(Duration::from_secs(5)).to_reply())
}

fn fault(detail: &'static str) -> Fault {
    Fault::new(Kind::Unauthorized, Origin::Client, detail)
}

/// A 401 with challenges. A key in a header or query and a signature have no registered scheme; 401
/// must have a challenge all the same, and clients ignore those that they do not know.
fn refuse(fault: Fault, carriers: &[Carrier], parameters: &str) -> Box<Reply> {
    let mut reply = fault.to_reply();
    for carrier in carriers {
        let challenge = match carrier {
            Carrier::Bearer => format!(r#"Bearer realm="intertie"{parameters}"#),
            Carrier::Field(name) => format!(r#"ApiKey realm="intertie", header="{name}""#),
            Carrier::Query(name) => format!(r#"ApiKey realm="intertie", query="{name}""#),
            Carrier::Signature(name) => format!(r#"HMAC realm="intertie", header="{name}""#),
            // Who is asked gives its own challenge.
            Carrier::Always => continue,
        };
        reply.headers.append("WWW-Authenticate", challenge);
    }
    Box::new(reply)
}
