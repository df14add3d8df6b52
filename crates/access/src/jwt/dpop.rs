//! Proofs that a caller has the private key that its token is bound to: DPoP (RFC 9449).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value};

use super::{Algorithm, Compact, Key};
use crate::credentials::PROOF_MAX;
use crate::percent::{Piece, Pieces};
use crate::sha256::sha256;
use crate::strict_json;

/// The most bytes of `jti`.
const ID_MAX: usize = 256;
/// The most bytes of `htu`.
const TARGET_MAX: usize = 8 * 1024;

/// The request that a proof is for, as the client has sent it: behind a proxy that is another
/// address than ours.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The method.
    pub method: &'a str,
    /// `http` or `https`
    pub scheme: &'a str,
    /// The host, with the port unless that is the scheme's own.
    pub authority: &'a str,
    /// The path, percent-encoded, without query.
    pub path: &'a str,
}

/// A proof whose signature, time and target are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The SHA-256 thumbprint of the key (RFC 7638), for [`super::Presented::Dpop`].
    pub key: [u8; 32],
    /// What tells it from all others: for [`crate::signed_body::Replays`], once the token is known
    /// to be this key's. Before, anybody could fill that.
    pub identity: Vec<u8>,
}

/// Why a proof is refused. The caller is told only that it is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadProof {
    /// It is no JSON Web Token, above [`PROOF_MAX`], or a claim is missing or of another type.
    Malformed,
    /// `typ` is not `dpop+jwt`.
    Type,
    /// Its algorithm is symmetric, or not that of its key.
    Algorithm,
    /// `jwk` is missing, no key that could be used, or has a private part.
    Key,
    /// The signature is not the key's.
    Signature,
    /// `htm` or `htu` is another request's.
    Target,
    /// `iat` is too long ago, or in the future.
    Time,
    /// `ath` is another token's.
    Token,
}

impl BadProof {
    /// A word for the log and for labels of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Type => "type",
            Self::Algorithm => "algorithm",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Target => "target",
            Self::Time => "time",
            Self::Token => "token",
        }
    }
}

/// Verifies a proof for a request and its token (RFC 9449, section 4.3), but for what needs a
/// memory: that it comes for the first time. `now` is in seconds since 1970; `tolerance` is by how
/// many seconds `iat` may differ from it, before or after, as [`crate::signed_body::Replays::new`]
/// has it.
///
/// Verify the token first, so that only its holder can make us check the signature of a proof; then
/// [`super::Verified::confirm`] says whether it is bound to this key. Nonces of the server (section
/// 9) are not asked for, so `nonce` says nothing.
///
/// # Errors
/// The first reason to refuse it; the signature comes last, for it costs most.
pub fn verify_proof(
    proof: &[u8],
    token: &[u8],
    target: &Target<'_>,
    now: u64,
    tolerance: u64,
) -> Result<Proof, BadProof> {
    if proof.len() > PROOF_MAX {
        return Err(BadProof::Malformed);
    }
    let (compact, header) =
        Compact::with_header(proof, |header| header.into_map()).map_err(|it| match it {
            super::Refused::Algorithm => BadProof::Algorithm,
            _ => BadProof::Malformed,
        })?;
    if compact.kind.as_deref() != Some("dpop+jwt") {
        return Err(BadProof::Type);
    }
    if compact.algorithm.is_symmetric() {
        return Err(BadProof::Algorithm);
    }
    let claims = strict_json::object(&compact.payload).map_err(|_| BadProof::Malformed)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let text = |name: &str| text(name).ok_or(BadProof::Malformed);
    let id = text("jti")?;
    if !(1..=ID_MAX).contains(&id.len()) {
        return Err(BadProof::Malformed);
    }
    if text("htm")? != target.method || !is_target(text("htu")?, target) {
        return Err(BadProof::Target);
    }
    let issued = claims.get("iat").ok_or(BadProof::Malformed)?;
    if seconds(issued)?.abs_diff(now) > tolerance {
        return Err(BadProof::Time);
    }
    let hash = Base64UrlUnpadded::encode_string(&sha256(token));
    if verify_slices_are_equal(hash.as_bytes(), text("ath")?.as_bytes()).is_err() {
        return Err(BadProof::Token);
    }
    let jwk = header.get("jwk").and_then(Value::as_object);
    let jwk = jwk.ok_or(BadProof::Key)?;
    let rsa = match compact.algorithm.rsa() {
        Some(_) => compact.algorithm,
        None => Algorithm::Rs256,
    };
    let key = Key::of_jwk(jwk, rsa).map_err(|_| BadProof::Key)?;
    if key.algorithm() != compact.algorithm {
        return Err(BadProof::Algorithm);
    }
    let thumbprint = thumbprint(jwk).ok_or(BadProof::Key)?;
    if !key.verify(compact.signed, &compact.signature) {
        return Err(BadProof::Signature);
    }
    // The id is the client's own: two clients may have the same.
    let identity = [&thumbprint, id.as_bytes()].concat();
    Ok(Proof {
        key: thumbprint,
        identity,
    })
}

/// A time in seconds since 1970, whole or not (RFC 7519, section 2).
fn seconds(value: &Value) -> Result<u64, BadProof> {
    let whole = value.as_u64();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is bounded"
    )]
    let real = value
        .as_f64()
        .filter(|it| (0.0..1e12).contains(it))
        .map(|it| it as u64);
    whole.or(real).ok_or(BadProof::Malformed)
}

/// The SHA-256 of a key's required members in the order of their names (RFC 7638, section 3). The
/// members are base64url and names of curves, which JSON writes as they are.
fn thumbprint(jwk: &Map<String, Value>) -> Option<[u8; 32]> {
    let member = |name: &str| jwk.get(name).and_then(Value::as_str);
    let names: &[&str] = match member("kty")? {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return None,
    };
    let pair = |name: &&str| Some(format!("\"{name}\":\"{}\"", member(name)?));
    let pairs: Option<Vec<String>> = names.iter().map(pair).collect();
    Some(sha256(format!("{{{}}}", pairs?.join(",")).as_bytes()))
}

/// Whether `htu` is the address of a request, without query and fragment, by the normalisations of
/// RFC 3986, sections 6.2.2 and 6.2.3, but for dot segments: no client sends these.
fn is_target(uri: &str, target: &Target<'_>) -> bool {
    if uri.len() > TARGET_MAX {
        return false;
    }
    let address = uri.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = address.split_once("://") else {
        return false;
    };
    let slash = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let path = if path.is_empty() { "/" } else { path };
    let wanted = if target.path.is_empty() {
        "/"
    } else {
        target.path
    };
    let host = without_port(authority, scheme);
    let is_address = scheme.eq_ignore_ascii_case(target.scheme)
        && host.eq_ignore_ascii_case(without_port(target.authority, target.scheme));
    is_address && !host.is_empty() && normal(path).eq(normal(wanted))
}

/// An authority without the port that the scheme has anyway.
fn without_port<'a>(authority: &'a str, scheme: &str) -> &'a str {
    let port = match scheme.eq_ignore_ascii_case("https") {
        true => ":443",
        false => ":80",
    };
    let host = authority.strip_suffix(port).unwrap_or(authority);
    host.strip_suffix(':').unwrap_or(host)
}

/// A path in which escapes of unreserved characters are undone.
fn normal(path: &str) -> impl Iterator<Item = Piece> {
    Pieces(path.as_bytes()).map(|piece| match piece {
        Piece::Escaped(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
            Piece::Plain(byte)
        }
        _ => piece,
    })
}
