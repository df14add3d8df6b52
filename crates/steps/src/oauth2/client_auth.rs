//! How a client says to a token server who it is: by a secret, or by a token that it signs (RFC
//! 6749, section 2.3; RFC 7523, section 2.2).

use std::fmt;

use access::jwt::{Algorithm, Signer, unique_id};
use base64ct::{Base64, Encoding as _};
use component::definition::{ConnectionContext, Surroundings};
use component::handler::Services;
use config::{Code, Report, Spanned};
use message::{Fault, Kind, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Mode, Oauth2Config, push_parameter};
use crate::codes::BAD_OAUTH2;
use crate::url_template::push_encoded;

/// How long a token that says who asks is good, in seconds.
const ASSERTION_LIFE: u64 = 60;

/// `urn:ietf:params:oauth:client-assertion-type:jwt-bearer`.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A key that the client signs tokens with instead of sending a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateKeyConfig {
    /// The file with the private key, in PEM format (PKCS #8, PKCS #1 or SEC 1), not encrypted.
    file: Spanned<String>,
    /// The algorithm of the signature.
    #[serde(default)]
    algorithm: AlgorithmName,
    /// The identifier of the key, sent as `kid`.
    key_id: Option<Spanned<String>>,
    /// For whom the tokens are (`aud`); the default is `token_url`.
    audience: Option<Spanned<String>>,
}

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
enum AlgorithmName {
    /// RSA with SHA-256.
    #[default]
    RS256,
    /// RSA-PSS with SHA-256.
    PS256,
    /// ECDSA on P-256.
    ES256,
    /// Ed25519.
    EdDSA,
}

/// How a client says who it is.
pub(super) enum ClientAuth {
    /// By the value of `Authorization`.
    Header(String),
    /// By parameters that stand in the form already.
    Form,
    /// By a token that is signed for each request.
    Assertion(Box<Assertion>),
}

/// Signs tokens that say who asks (`private_key_jwt`, RFC 7523).
pub struct Assertion {
    signer: Signer,
    client_id: String,
    audience: String,
}

impl ClientAuth {
    /// Reads it; what always stands in the form is added there. Every problem is reported.
    pub fn read(
        config: &Oauth2Config,
        form: &mut String,
        context: &mut ConnectionContext<'_>,
    ) -> Option<Self> {
        let client_id = &config.client_id.value;
        let secret = config.client_secret.as_ref();
        let mode = config.mode.as_ref();
        if let Some(key) = &config.private_key {
            let others = [secret.map(|it| it.span), mode.map(|it| it.span)];
            for span in others.into_iter().flatten() {
                let message = "with `private_key` there is neither `client_secret` nor `mode`";
                context.report.error(BAD_OAUTH2, span, message);
            }
            push_parameter(form, "client_id", client_id);
            let parties = (client_id.as_str(), config.token_url.value.as_str());
            let around = context.surroundings;
            let read = Assertion::read(key, parties, around, BAD_OAUTH2, context.report);
            return read.map(Self::of_assertion);
        }
        let Some(secret) = secret else {
            if let Some(mode) = mode {
                let message = "`mode` has no effect without `client_secret`";
                context.report.error(BAD_OAUTH2, mode.span, message);
            }
            if config.refresh_token.is_none() {
                let message = "there is neither `client_secret` nor `private_key`";
                let span = config.client_id.span;
                let diagnostic = context.report.error(BAD_OAUTH2, span, message);
                diagnostic.hint("only a client with a `refresh_token` may do without both");
                return None;
            }
            push_parameter(form, "client_id", client_id);
            return Some(Self::Form);
        };
        Some(match mode.map(|it| it.value).unwrap_or_default() {
            Mode::Header => Self::Header(basic_authorization(client_id, &secret.value)),
            Mode::Body => {
                push_parameter(form, "client_id", client_id);
                push_parameter(form, "client_secret", &secret.value);
                Self::Form
            }
            Mode::Jwt => {
                push_parameter(form, "client_id", client_id);
                Self::of_assertion(Assertion {
                    signer: Signer::from_secret(secret.value.as_bytes()),
                    client_id: client_id.clone(),
                    audience: config.token_url.value.clone(),
                })
            }
        })
    }

    fn of_assertion(assertion: Assertion) -> Self {
        Self::Assertion(Box::new(assertion))
    }

    /// Adds what is made for one request to its form.
    ///
    /// # Errors
    /// When the machine has no randomness.
    pub fn complete(&self, form: &mut String, services: &dyn Services) -> Result<(), Fault> {
        let Self::Assertion(assertion) = self else {
            return Ok(());
        };
        let made = assertion.parameters(services.wall().as_secs());
        let made = made.ok_or_else(|| {
            let detail = "a token that says who asks cannot be signed";
            Fault::new(Kind::Internal, Origin::Engine, detail)
        })?;
        for (name, value) in &made {
            push_parameter(form, name, value);
        }
        Ok(())
    }
}

/// What is told apart in the settings of a state: without the key.
impl fmt::Debug for ClientAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(value) => formatter.write_str(value),
            Self::Form => formatter.write_str("form"),
            Self::Assertion(it) => write!(formatter, "{:?} for {}", it.signer, it.audience),
        }
    }
}

impl Assertion {
    /// Reads the key. For whom its tokens are is `audience`, unless the key says otherwise. Every
    /// problem is reported under this code.
    pub fn read(
        key: &PrivateKeyConfig,
        (client_id, audience): (&str, &str),
        surroundings: &Surroundings<'_>,
        code: Code,
        report: &mut Report,
    ) -> Option<Self> {
        let file = &key.file;
        let bytes = (surroundings.files)(file.span.source, &file.value);
        let bytes = bytes.map_err(|problem| refuse_file(file, &problem, code, report));
        let algorithm = match key.algorithm {
            AlgorithmName::RS256 => Algorithm::Rs256,
            AlgorithmName::PS256 => Algorithm::Ps256,
            AlgorithmName::ES256 => Algorithm::Es256,
            AlgorithmName::EdDSA => Algorithm::EdDsa,
        };
        let key_id = key.key_id.as_ref().map(|it| it.value.as_str());
        let signer = Signer::from_pem(&bytes.ok()?, algorithm, key_id);
        let signer =
            signer.map_err(|problem| refuse_file(file, &problem.to_string(), code, report));
        let other = key.audience.as_ref().map(|it| it.value.as_str());
        Some(Self {
            signer: signer.ok()?,
            client_id: client_id.to_owned(),
            audience: other.unwrap_or(audience).to_owned(),
        })
    }

    /// The parameters of a request that have a new token, which is good for a minute (RFC 7523,
    /// sections 2.2 and 3); `None` when the machine has no randomness. `now` is in seconds since
    /// 1970.
    #[must_use]
    pub fn parameters(&self, now: u64) -> Option<[(&'static str, String); 2]> {
        let token = self.token(now)?;
        Some([
            ("client_assertion_type", ASSERTION_TYPE.to_owned()),
            ("client_assertion", token),
        ])
    }

    /// A token that is good for a minute (RFC 7523, section 3). Some servers compare `iat` with
    /// their own clock, so it has no `nbf`.
    fn token(&self, now: u64) -> Option<String> {
        let mut claims: Map<String, Value> = Map::new();
        let mut add = |name: &str, value: Value| claims.insert(name.to_owned(), value);
        add("iss", self.client_id.as_str().into());
        add("sub", self.client_id.as_str().into());
        add("aud", self.audience.as_str().into());
        add("jti", unique_id()?.into());
        add("iat", now.into());
        add("exp", now.saturating_add(ASSERTION_LIFE).into());
        self.signer.sign(&claims)
    }
}

fn refuse_file(file: &Spanned<String>, problem: &str, code: Code, report: &mut Report) {
    let message = format!("`{}` cannot be used: {problem}", file.value.escape_debug());
    report.error(code, file.span, message);
}

/// The `Authorization` of a client that shows its name and secret: both are encoded as in a form
/// before they are put together (RFC 6749, section 2.3.1).
#[must_use]
pub fn basic_authorization(client_id: &str, client_secret: &str) -> String {
    let mut pair = String::new();
    push_encoded(client_id, &mut pair);
    pair.push(':');
    push_encoded(client_secret, &mut pair);
    format!("Basic {}", Base64::encode_string(pair.as_bytes()))
}
