//! Bodies that their sender has signed with a secret that both share, as the webhooks of GitHub,
//! Stripe, Slack and of Standard Webhooks are.

mod replays;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::hmac;
use base64ct::{Base64, Encoding as _};

use crate::hex;

pub use replays::{Replay, Replays};

/// The most signatures of one request: senders list several while they change secrets.
const SIGNATURES_MAX: usize = 10;

/// How a sender signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `X-Hub-Signature-256: sha256=HEX` over the body. Nothing of it tells when it was signed.
    GitHub,
    /// `Stripe-Signature: t=SECONDS,v1=HEX` over `SECONDS.BODY`.
    Stripe,
    /// `X-Slack-Signature: v0=HEX` over `v0:SECONDS:BODY`, the time in
    /// `X-Slack-Request-Timestamp`.
    Slack,
    /// `webhook-signature: v1,BASE64` over `ID.SECONDS.BODY`, with `webhook-id` and
    /// `webhook-timestamp` (Standard Webhooks, version 1.0.0).
    StandardWebhooks,
}

/// The header fields that a scheme reads, each with its values; a field that comes twice is
/// refused.
pub type Fields<'a> = &'a dyn Fn(&str) -> Vec<&'a [u8]>;

/// Why a request is refused. The caller is told only that its signature is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// A field of the scheme is not there.
    Missing,
    /// A field is there twice, too long or not as the scheme writes it.
    Malformed,
    /// It was signed too long ago, or in the future.
    Time,
    /// No signature is right.
    Signature,
}

impl Refused {
    /// A word for the log and for labels of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Time => "time",
            Self::Signature => "signature",
        }
    }
}

/// The secrets of one sender. Several are taken while one is being replaced.
#[derive(Clone, Debug)]
pub struct Secrets {
    keys: Vec<hmac::Key>,
}

impl Secrets {
    /// Secrets as the sender shows them: for Standard Webhooks in Base64, with or without `whsec_`;
    /// otherwise the text itself.
    ///
    /// # Errors
    /// A sentence about the first that cannot be used.
    pub fn of(scheme: Scheme, texts: &[&str]) -> Result<Self, &'static str> {
        let key = |text: &&str| {
            let bytes = match scheme {
                Scheme::StandardWebhooks => {
                    let encoded = text.strip_prefix("whsec_").unwrap_or(text);
                    Base64::decode_vec(encoded)
                        .map_err(|_| "it is not Base64, with or without `whsec_` in front")?
                }
                _ => text.as_bytes().to_vec(),
            };
            match bytes.len() {
                0..16 => Err("it has less than 16 bytes and could be guessed"),
                _ => Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes)),
            }
        };
        let keys = texts.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        match keys.is_empty() {
            true => Err("there is no secret"),
            false => Ok(Self { keys }),
        }
    }
}

/// A request whose head has been read: its body is fed in as it comes, then [`Check::end`] judges.
/// Nothing may act on the body before.
pub struct Check {
    contexts: Vec<hmac::Context>,
    given: Vec<[u8; 32]>,
    identity: Identity,
    seconds: Option<u64>,
}

/// What tells one signed request from another. It does not depend on the secret: a sender that
/// changes secrets signs each request by several of them.
#[derive(Clone)]
enum Identity {
    /// The sender's own identifier.
    Id(Vec<u8>),
    /// The hash of all that is signed.
    Content(digest::Context),
}

impl std::fmt::Debug for Check {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Check").finish_non_exhaustive()
    }
}

impl Scheme {
    /// Reads the head of a request. `now` is in seconds since 1970, `tolerance` how many seconds it
    /// may differ from the time of the signature.
    ///
    /// # Errors
    /// What can be seen without the body.
    pub fn begin(
        self,
        fields: Fields<'_>,
        secrets: &Secrets,
        now: u64,
        tolerance: u64,
    ) -> Result<Check, Refused> {
        let signed = self.read(fields)?;
        let seconds = match &signed.seconds {
            None => None,
            Some(seconds) => Some(seconds.parse::<u64>().map_err(|_| Refused::Malformed)?),
        };
        if seconds.is_some_and(|time| time.abs_diff(now) > tolerance) {
            return Err(Refused::Time);
        }
        if signed.given.is_empty() {
            return Err(Refused::Malformed);
        }
        let context = |key: &hmac::Key| {
            let mut context = hmac::Context::with_key(key);
            context.update(&signed.prefix);
            context
        };
        Ok(Check {
            contexts: secrets.keys.iter().map(context).collect(),
            given: signed.given,
            seconds,
            identity: match signed.id {
                Some(id) => Identity::Id(id),
                None => {
                    let mut content = digest::Context::new(&SHA256);
                    content.update(&signed.prefix);
                    Identity::Content(content)
                }
            },
        })
    }

    /// The header field that carries the signature, in lower case.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::GitHub => "x-hub-signature-256",
            Self::Stripe => "stripe-signature",
            Self::Slack => "x-slack-signature",
            Self::StandardWebhooks => "webhook-signature",
        }
    }

    /// Whether what is signed tells when: otherwise only a memory of signatures stops a replay.
    #[must_use]
    pub fn has_time(self) -> bool {
        self != Self::GitHub
    }

    fn read(self, fields: Fields<'_>) -> Result<Signed, Refused> {
        match self {
            Self::GitHub => {
                let text = one(fields, self.field())?;
                let given = text.strip_prefix("sha256=").and_then(hex::decode);
                Ok(Signed {
                    given: given.into_iter().collect(),
                    ..Signed::default()
                })
            }
            Self::Stripe => read_stripe(one(fields, self.field())?),
            Self::Slack => {
                let seconds = digits(one(fields, "x-slack-request-timestamp")?)?;
                let text = one(fields, self.field())?;
                let given = text.strip_prefix("v0=").and_then(hex::decode);
                Ok(Signed {
                    prefix: format!("v0:{seconds}:").into_bytes(),
                    seconds: Some(seconds.to_owned()),
                    given: given.into_iter().collect(),
                    id: None,
                })
            }
            Self::StandardWebhooks => {
                let seconds = digits(one(fields, "webhook-timestamp")?)?;
                let id = one(fields, "webhook-id")?;
                if id.is_empty() || id.len() > 256 || has_time(id) {
                    return Err(Refused::Malformed);
                }
                let signatures = one(fields, self.field())?.split(' ');
                let given = signatures.filter_map(|it| it.strip_prefix("v1,"));
                let given = given.filter_map(|it| Base64::decode_vec(it).ok()?.try_into().ok());
                Ok(Signed {
                    prefix: format!("{id}.{seconds}.").into_bytes(),
                    seconds: Some(seconds.to_owned()),
                    given: given.take(SIGNATURES_MAX).collect(),
                    id: Some(id.as_bytes().to_vec()),
                })
            }
        }
    }
}

/// Whether something behind a point of an identifier could be a time. What is signed is
/// `ID.SECONDS.BODY`: parts of the body could be presented as parts of such an identifier, with
/// which a request that was taken once would come as another one.
fn has_time(id: &str) -> bool {
    id.split('.').skip(1).any(|part| digits(part).is_ok())
}

/// What the fields of a scheme say.
#[derive(Default)]
struct Signed {
    /// What is signed in front of the body.
    prefix: Vec<u8>,
    seconds: Option<String>,
    given: Vec<[u8; 32]>,
    /// The sender's own identifier of the request.
    id: Option<Vec<u8>>,
}

fn read_stripe(text: &str) -> Result<Signed, Refused> {
    let (mut seconds, mut given) = (None, Vec::new());
    for part in text.split(',') {
        match part.trim().split_once('=') {
            // Two times would be two requests.
            Some(("t", _)) if seconds.is_some() => return Err(Refused::Malformed),
            Some(("t", time)) => seconds = Some(digits(time)?),
            Some(("v1", signature)) if given.len() < SIGNATURES_MAX => {
                given.extend(hex::decode(signature));
            }
            _ => {}
        }
    }
    let seconds = seconds.ok_or(Refused::Malformed)?;
    Ok(Signed {
        prefix: format!("{seconds}.").into_bytes(),
        seconds: Some(seconds.to_owned()),
        given,
        id: None,
    })
}

/// The one value of a field.
fn one<'a>(fields: Fields<'a>, name: &str) -> Result<&'a str, Refused> {
    match fields(name).as_slice() {
        [] => Err(Refused::Missing),
        [value] if value.len() <= 4096 => {
            std::str::from_utf8(value).map_err(|_| Refused::Malformed)
        }
        _ => Err(Refused::Malformed),
    }
}

/// A time as digits only: a sign or a space would be a second spelling of one time.
fn digits(text: &str) -> Result<&str, Refused> {
    let is_time = (1..=12).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    is_time.then_some(text).ok_or(Refused::Malformed)
}

impl Check {
    /// When the request was signed, in seconds since 1970, where the scheme signs that.
    #[must_use]
    pub fn signed_at(&self) -> Option<u64> {
        self.seconds
    }

    /// The sender's own identifier of the request, where the scheme signs one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match &self.identity {
            Identity::Id(id) => std::str::from_utf8(id).ok(),
            Identity::Content(_) => None,
        }
    }

    /// Takes the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        for context in &mut self.contexts {
            context.update(bytes);
        }
        if let Identity::Content(content) = &mut self.identity {
            content.update(bytes);
        }
    }

    /// Judges, at the end of the body. What is returned tells the request from every other one, for
    /// [`Replays`].
    ///
    /// # Errors
    /// [`Refused::Signature`]
    pub fn end(self) -> Result<Vec<u8>, Refused> {
        let mut is_right = false;
        for context in self.contexts {
            let tag = context.sign();
            let is_tag = |given: &[u8; 32]| verify_slices_are_equal(tag.as_ref(), given).is_ok();
            is_right |= self.given.iter().any(is_tag);
        }
        if !is_right {
            return Err(Refused::Signature);
        }
        Ok(match self.identity {
            Identity::Id(id) => id,
            Identity::Content(content) => content.finish().as_ref().to_vec(),
        })
    }
}
