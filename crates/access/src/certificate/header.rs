//! The header field `Client-Cert`, in which a proxy that has ended TLS passes the certificate of
//! the client on (RFC 9440).

use base64ct::{Base64, Encoding as _};

use super::CERTIFICATE_MAX;

/// Why the field is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderProblem {
    /// It comes more than once.
    Repeated,
    /// It is no byte sequence of Structured Fields (RFC 8941, section 3.3.5): Base64 with padding
    /// between colons.
    Malformed,
    /// The certificate has more than [`CERTIFICATE_MAX`] bytes.
    TooLong,
}

/// The certificate of the field, as DER, from the values of all fields of this name. Only what a
/// trusted proxy has set may be asked: anybody can send the field, so that of others has to be
/// taken out of the request (RFC 9440, section 4).
///
/// # Errors
/// When it is there in another form; then the request is refused, for the proxy has meant something
/// by it.
pub fn client_cert<'a>(
    mut values: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Vec<u8>>, HeaderProblem> {
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(HeaderProblem::Repeated);
    }
    let value = value.trim_ascii();
    let inside = value
        .strip_prefix(b":")
        .and_then(|it| it.strip_suffix(b":"));
    let inside = inside.ok_or(HeaderProblem::Malformed)?;
    if inside.len() > CERTIFICATE_MAX.div_ceil(3) * 4 {
        return Err(HeaderProblem::TooLong);
    }
    let text = std::str::from_utf8(inside).map_err(|_| HeaderProblem::Malformed)?;
    let der = Base64::decode_vec(text).map_err(|_| HeaderProblem::Malformed)?;
    match der.is_empty() {
        true => Err(HeaderProblem::Malformed),
        false => Ok(Some(der)),
    }
}
