//! A token among the subprotocols of a WebSocket handshake: `bearer, TOKEN`. Browsers' `WebSocket`
//! sets no other field: `new WebSocket(url, ["bearer", token])`.

use std::borrow::Cow;

use super::{Credential, Problem, check_token};
use crate::jwt::TOKEN_MAX;

/// The subprotocol whose next one is a token. The reply names it when no other is chosen: browsers
/// close a connection whose reply has none of those that they have offered.
const TOKEN_SUBPROTOCOL: &str = "bearer";

/// The field (RFC 6455, section 11.3.4).
pub(super) const FIELD: &[u8] = b"sec-websocket-protocol";

/// Looks for a token in one line of the field.
pub(super) fn find(value: &[u8]) -> Result<Option<Credential<'_>>, Problem> {
    let mut names = value.split(|&it| it == b',').map(<[u8]>::trim_ascii);
    if !names.any(|it| it == TOKEN_SUBPROTOCOL.as_bytes()) {
        return Ok(None);
    }
    let token = names.next().ok_or(Problem::Malformed)?;
    check_token(token, TOKEN_MAX)?;
    if names.any(|it| it == TOKEN_SUBPROTOCOL.as_bytes()) {
        return Err(Problem::SeveralCredentials);
    }
    Ok(Some(Credential::Bearer(Cow::Borrowed(token))))
}
