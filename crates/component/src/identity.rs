//! The identity header: a field by which the engine tells a system behind it who has sent a
//! request, as a token that is signed. `proxy` takes what a client has sent in that field out of
//! every request, and puts the engine's own in where a step asks for it. What is in the token, and
//! who signs it, is the business of the crate `auth`.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use message::{Fault, Field, Headers, HeadersView};

use crate::access::{AccessPage, Caller};
use crate::trigger::ListenAddress;

/// The name of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityField {
    name: String,
    /// In small letters, with `-` for `_`.
    spelling: String,
}

impl IdentityField {
    /// The header of this name, which is a token (RFC 9110, section 5.6.2).
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            spelling: name.to_ascii_lowercase().replace('_', "-"),
        }
    }

    /// The name as the file has it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a name is this one, in any case, and with `_` and `-` taken for the same: CGI and
    /// its like cannot tell them apart.
    #[must_use]
    pub fn is(&self, name: &[u8]) -> bool {
        Field::is_spelling(name, self.spelling.as_bytes())
    }

    /// Removes every line with this name.
    pub fn remove_from(&self, headers: &mut Headers) {
        headers.retain(|_, name| !self.is(name));
    }

    /// A copy without the lines with this name; `None` when there is no such line.
    #[must_use]
    pub fn without(&self, fields: HeadersView<'_>) -> Option<Headers> {
        if !fields.iter().any(|(_, name, _)| self.is(name)) {
            return None;
        }
        let mut others = fields.to_owned();
        self.remove_from(&mut others);
        Some(others)
    }
}

/// Signs tokens for systems that take those of one audience. The text of `Debug` shows no secret.
pub trait Identity: fmt::Debug + Send + Sync {
    /// The header that they stand in.
    fn field(&self) -> &IdentityField;

    /// A token that says who a caller is. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// When there can be none: the request must not be sent then.
    fn token(&self, caller: &Caller, now: u64) -> Result<Arc<str>, Fault>;
}

/// What `engine.identity` describes.
pub trait Identities: Send + Sync {
    /// The header.
    fn field(&self) -> &Arc<IdentityField>;

    /// What signs tokens for this audience, without one that of the engine; `None` when that has
    /// none either.
    fn for_audience(&self, audience: Option<&str>) -> Option<Arc<dyn Identity>>;

    /// The page with the public keys, and its address; without one it is on every address with a
    /// flow that knows its callers.
    fn page(&self) -> (Option<ListenAddress>, AccessPage);
}

/// A token that has been signed.
#[derive(Clone)]
pub struct SignedToken {
    /// The token.
    pub token: Arc<str>,
    /// From when on it may be used, in seconds since 1970.
    pub from: u64,
    /// When another one has to be signed.
    pub until: u64,
}

/// The tokens that have been signed for one caller, each with the number of what has signed it.
#[derive(Default)]
pub(crate) struct SignedTokens(Mutex<Vec<(u64, SignedToken)>>);

/// Without the tokens.
impl fmt::Debug for SignedTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SignedTokens")
    }
}

impl SignedTokens {
    fn tokens(&self) -> MutexGuard<'_, Vec<(u64, SignedToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of this signer, or a new one.
    pub fn get(
        &self,
        signer: u64,
        now: u64,
        sign: impl FnOnce() -> Result<SignedToken, Fault>,
    ) -> Result<Arc<str>, Fault> {
        let is_good = |it: &SignedToken| (it.from..it.until).contains(&now);
        let tokens = self.tokens();
        let mut known = tokens.iter();
        if let Some((_, known)) = known.find(|(of, it)| *of == signer && is_good(it)) {
            return Ok(Arc::clone(&known.token));
        }
        // A signature takes long enough to let other workers look meanwhile.
        drop(tokens);
        let signed = sign()?;
        let token = Arc::clone(&signed.token);
        let mut tokens = self.tokens();
        tokens.retain(|(of, it)| *of != signer && is_good(it));
        tokens.push((signer, signed));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_known_however_it_is_spelt() {
        for own in ["X-Intertie-Identity", "x_intertie_identity"] {
            let field = IdentityField::new(own);
            for name in [
                "x-intertie-identity",
                "X_INTERTIE-Identity",
                "x_intertie_identity",
            ] {
                assert!(field.is(name.as_bytes()), "{name}");
            }
            for name in [
                "X-Intertie-Identit",
                "X-Intertie-Identity2",
                "XIntertie-Identity-",
            ] {
                assert!(!field.is(name.as_bytes()), "{name}");
            }
            let mut headers = Headers::new();
            headers.append("A", "1");
            assert!(field.without(headers.view()).is_none());
            headers.append("x_Intertie-identity", "forged");
            let others = field.without(headers.view()).unwrap();
            assert_eq!(others.view().len(), 1);
            assert_eq!(others.get("a"), Some(&b"1"[..]));
        }
    }

    #[test]
    fn a_token_is_signed_once_for_each_signer_while_it_is_good() {
        let (tokens, signed) = (SignedTokens::default(), std::cell::Cell::new(0));
        let get = |signer, now| {
            let token = tokens.get(signer, now, || {
                signed.set(signed.get() + 1);
                Ok(SignedToken {
                    token: format!("{signer} at {now}").into(),
                    from: now,
                    until: now + 15,
                })
            });
            token.unwrap().to_string()
        };
        assert_eq!(get(1, 100), "1 at 100");
        assert_eq!(get(2, 101), "2 at 101");
        assert_eq!(get(1, 114), "1 at 100");
        assert_eq!(signed.get(), 2);
        assert_eq!(get(1, 115), "1 at 115");
        // The clock has been set back.
        assert_eq!(get(1, 50), "1 at 50");
        assert_eq!(tokens.tokens().len(), 1);
        let failed = tokens.get(3, 50, || Err(Fault::invalid("no")));
        assert!(failed.is_err());
    }
}
