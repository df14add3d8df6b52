//! AWS Signature Version 4 of an HTTP connection: each request is signed just before it is sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use access::sigv4::{self, Signer, UNSIGNED_PAYLOAD};
use component::credentials::{Credentials, Grant, Signs, Unsigned};
use component::handler::{LocalFuture, Services};
use config::{Report, Spanned};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use message::{Fault, Headers, HeadersView, Kind, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes::BAD_AWS_SIGV4;

const DATE: &str = "X-Amz-Date";
const HASH: &str = "X-Amz-Content-Sha256";
const TOKEN: &str = "X-Amz-Security-Token";
/// How the names of AWS's own fields begin.
const ORDERS: &str = "x-amz-";
const AUTHORIZATION: &str = "Authorization";

/// So many seconds may the clocks differ before a refusal is put down to them. AWS takes five
/// minutes, S3 fifteen.
const SKEW: u64 = 240;

/// AWS Signature Version 4.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AwsSigv4Config {
    /// The region, such as `eu-west-1`.
    region: Spanned<String>,
    /// The service as signatures name it, such as `s3`, `sqs`, `execute-api` or `es`.
    service: Spanned<String>,
    /// The access key ID.
    access_key: Spanned<String>,
    /// The secret access key.
    secret_key: Spanned<String>,
    /// The session token of temporary credentials.
    session_token: Option<Spanned<String>>,
    /// Whether the body is part of the signature. `signed`: the body is read into memory before
    /// the request is sent, by `forward` too. `unsigned`: it is streamed; S3 only, over `https`.
    #[schemars(extend("default" = "signed"))]
    payload: Option<Spanned<Payload>>,
}

/// Whether the body is part of the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Payload {
    Signed,
    Unsigned,
}

/// Signs the requests of a connection.
struct AwsSigv4 {
    signer: Signer,
    session_token: Option<String>,
    payload: Payload,
    /// How many seconds the clock of AWS is ahead of ours, as far as it matters.
    offset: AtomicI64,
}

/// Without the secrets.
impl fmt::Debug for AwsSigv4 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "aws_sigv4: {:?}", self.signer)
    }
}

/// Reads the settings. Every problem is reported.
pub(crate) fn read(
    config: &AwsSigv4Config,
    is_secure: bool,
    report: &mut Report,
) -> Option<Arc<dyn Credentials>> {
    let before = report.errors();
    let is_name = |text: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        !text.is_empty() && text.chars().all(known)
    };
    for (name, text) in [("region", &config.region), ("service", &config.service)] {
        if !is_name(&text.value) {
            let message = format!("this is no `{name}`");
            let diagnostic = report.error(BAD_AWS_SIGV4, text.span, message);
            diagnostic.hint("it has letters, digits and `-`, such as `eu-west-1` or `s3`");
        }
    }
    let secrets = [
        ("access_key", Some(&config.access_key)),
        ("secret_key", Some(&config.secret_key)),
        ("session_token", config.session_token.as_ref()),
    ];
    for (name, text) in secrets {
        let is_sound = |text: &&Spanned<String>| {
            let bytes = text.value.as_bytes();
            !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic) && Headers::is_value(bytes)
        };
        if let Some(text) = text.filter(|text| !is_sound(text)) {
            // The value itself must not be shown.
            let message = format!("`{name}` is empty or has white space");
            let diagnostic = report.error(BAD_AWS_SIGV4, text.span, message);
            diagnostic.hint("is there a line break at its end?");
        }
    }
    let payload = config.payload.as_ref();
    if let Some(payload) = payload.filter(|it| it.value == Payload::Unsigned) {
        let message = match (sigv4::is_s3(&config.service.value), is_secure) {
            (false, _) => Some("only S3 takes bodies that are not signed"),
            (true, false) => Some("bodies that are not signed are sent over `https` only"),
            (true, true) => None,
        };
        if let Some(message) = message {
            let diagnostic = report.error(BAD_AWS_SIGV4, payload.span, message);
            diagnostic.hint("leave `payload` out: the body is then read before it is sent");
        }
    }
    let signer = Signer::new(
        &config.access_key.value,
        &config.secret_key.value,
        &config.region.value,
        &config.service.value,
    );
    (report.errors() == before).then(|| {
        Arc::new(AwsSigv4 {
            signer,
            session_token: config.session_token.as_ref().map(|it| it.value.clone()),
            payload: payload.map_or(Payload::Signed, |it| it.value),
            offset: AtomicI64::new(0),
        }) as _
    })
}

impl AwsSigv4 {
    /// The time of day of AWS, in seconds since 1970, as far as it is known.
    fn now(&self, wall: Duration) -> i64 {
        let wall = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
        wall.saturating_add(self.offset.load(Ordering::Relaxed))
    }

    fn sign(&self, request: &Unsigned<'_>, wall: Duration) -> Result<Grant, Fault> {
        let time = Timestamp::from_second(self.now(wall));
        let time = time.map_err(|_| {
            let detail = "the time of day cannot be written";
            Fault::new(Kind::Internal, Origin::Engine, detail)
        })?;
        let time = time.strftime("%Y%m%dT%H%M%SZ").to_string();
        let hash = match (self.payload, request.body) {
            (Payload::Unsigned, _) => UNSIGNED_PAYLOAD.to_owned(),
            (Payload::Signed, body) => sigv4::hash(body.unwrap_or_default()),
        };
        let mut lines = vec![(DATE, time.clone()), (HASH, hash.clone())];
        lines.extend(self.session_token.clone().map(|token| (TOKEN, token)));
        let mut fields: Vec<(&str, &[u8])> = vec![("Host", request.host)];
        for (_, name, value) in request.fields.iter().flat_map(|it| it.iter()) {
            let name = std::str::from_utf8(name).unwrap_or_default();
            if is_signed(name) {
                fields.push((name, value));
            }
        }
        let own = lines.iter().map(|(name, value)| (*name, value.as_bytes()));
        fields.extend(own);
        let mut parts = request.target.splitn(2, |byte| *byte == b'?');
        let signed = sigv4::Request {
            method: request.method,
            path: parts.next().unwrap_or_default(),
            query: parts.next().unwrap_or_default(),
            fields: &fields,
            payload: &hash,
        };
        let value = self.signer.authorization(&signed, &time);
        lines.push((AUTHORIZATION, value));
        Ok(Grant { lines })
    }
}

/// Fields beside `Host` that AWS wants signed where they are sent.
fn is_signed(name: &str) -> bool {
    let begins = name.get(..ORDERS.len());
    name.eq_ignore_ascii_case("content-type")
        || begins.is_some_and(|it| it.eq_ignore_ascii_case(ORDERS))
}

impl Credentials for AwsSigv4 {
    fn fields(&self) -> &'static [&'static str] {
        &[AUTHORIZATION, DATE, HASH, TOKEN]
    }

    fn orders(&self) -> Option<&'static str> {
        Some(ORDERS)
    }

    fn signs(&self) -> Signs {
        match self.payload {
            Payload::Signed => Signs::Body,
            Payload::Unsigned => Signs::Head,
        }
    }

    fn grant<'a>(
        &'a self,
        request: &'a Unsigned<'a>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Grant, Fault>> {
        Box::pin(async move { self.sign(request, services.wall()) })
    }

    /// A refusal whose `Date` is far from our time: the clocks differ, which is reckoned with from
    /// then on (`RequestTimeTooSkewed`, `InvalidSignatureException`, `RequestExpired`).
    fn refuses(&self, _: &Grant, status: u16, headers: HeadersView<'_>, wall: Duration) -> bool {
        if !matches!(status, 400 | 401 | 403) {
            return false;
        }
        let date = headers
            .get("Date")
            .and_then(|it| std::str::from_utf8(it).ok());
        let Some(date) = date.and_then(|it| rfc2822::parse(it).ok()) else {
            return false;
        };
        let date = date.timestamp().as_second();
        if date.abs_diff(self.now(wall)) <= SKEW {
            return false;
        }
        let wall = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
        let offset = date.saturating_sub(wall);
        self.offset.store(offset, Ordering::Relaxed);
        tracing::warn!(
            target: "aws_sigv4", seconds = offset,
            "the clock of AWS differs from this machine's: signatures go by that of AWS"
        );
        true
    }
}

#[cfg(test)]
mod tests;
