//! A token among the subprotocols of a WebSocket handshake: `bearer, TOKEN`. Browsers' `WebSocket`
//! sets no other field: `new WebSocket(url, ["bearer", token])`.

use std::borrow::Cow;

use super::{Credential, Problem, check_token};
use crate::jwt::TOKEN_MAX;

/// The field (RFC 6455, section 11.3.4).
pub(super) const FIELD: &[u8] = b"sec-websocket-protocol";

/// Looks for a token in one line of the field: the name behind this one.
pub(super) fn find<'a>(value: &'a [u8], before: &str) -> Result<Option<Credential<'a>>, Problem> {
    let mut names = value.split(|&it| it == b',').map(<[u8]>::trim_ascii);
    if !names.any(|it| it == before.as_bytes()) {
        return Ok(None);
    }
    let token = names.next().ok_or(Problem::Malformed)?;
    check_token(token, TOKEN_MAX)?;
    if names.any(|it| it == before.as_bytes()) {
        return Err(Problem::SeveralCredentials);
    }
    Ok(Some(Credential::Bearer(Cow::Borrowed(token))))
}
