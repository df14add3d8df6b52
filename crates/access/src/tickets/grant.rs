//! What a ticket stands for: a credential, bound to where it may be used.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};

/// A credential that a door has seen, to be judged again whenever the ticket or the cookie made of
/// this is used: a credential that has expired or has been revoked meanwhile lets nobody in.
///
/// `{:?}` shows no credential.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    /// The path for which it is good.
    pub path: String,
    /// The origin of the page that has asked for it (RFC 6454), as `Origin` had it.
    pub origin: Option<String>,
    /// How the credential was presented, in a form that a later process understands.
    pub carrier: String,
    /// The credential itself.
    pub credential: Vec<u8>,
    /// Until when a cookie made of it is good at most, in seconds since 1970.
    pub until: u64,
}

/// The version of the form that [`Grant::encode`] writes.
const VERSION: u8 = 1;
/// Flags: there is an origin; the credential is a JSON Web Token in bytes.
const HAS_ORIGIN: u8 = 1;
const IS_PACKED: u8 = 2;

impl Grant {
    /// The bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let origin = self.origin.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.path.len() + origin + self.carrier.len() + self.credential.len()
    }

    /// All of it as bytes, as few as possible: cookies are short. A JSON Web Token takes a quarter
    /// less than as text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let packed = pack(&self.credential);
        let has_origin = if self.origin.is_some() { HAS_ORIGIN } else { 0 };
        let is_packed = if packed.is_some() { IS_PACKED } else { 0 };
        let mut out = vec![VERSION, has_origin | is_packed];
        out.extend_from_slice(&self.until.to_be_bytes());
        put(&mut out, self.path.as_bytes());
        if let Some(origin) = &self.origin {
            put(&mut out, origin.as_bytes());
        }
        put(&mut out, self.carrier.as_bytes());
        match packed {
            Some(segments) => segments.iter().for_each(|it| put(&mut out, it)),
            None => put(&mut out, &self.credential),
        }
        out
    }

    /// Reads what [`Grant::encode`] has written; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[VERSION, flags], mut rest) = bytes.split_first_chunk::<2>()? else {
            return None;
        };
        let (until, behind) = rest.split_first_chunk::<8>()?;
        rest = behind;
        let path = text(&mut rest)?;
        let origin = match flags & HAS_ORIGIN {
            0 => None,
            _ => Some(text(&mut rest)?),
        };
        let carrier = text(&mut rest)?;
        let credential = match flags & IS_PACKED {
            0 => get(&mut rest)?.to_vec(),
            _ => {
                let mut segments = [""; 3].map(str::to_owned);
                for segment in &mut segments {
                    *segment = Base64UrlUnpadded::encode_string(get(&mut rest)?);
                }
                segments.join(".").into_bytes()
            }
        };
        rest.is_empty().then(|| Self {
            path,
            origin,
            carrier,
            credential,
            until: u64::from_be_bytes(*until),
        })
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Grant");
        shown
            .field("path", &self.path)
            .field("origin", &self.origin);
        shown.field("until", &self.until).finish_non_exhaustive()
    }
}

/// The three segments of a JSON Web Token (RFC 7519, section 3) without their encoding, if that can
/// be undone to the same text.
fn pack(credential: &[u8]) -> Option<[Vec<u8>; 3]> {
    let text = std::str::from_utf8(credential).ok()?;
    let mut segments = text.split('.');
    // The decoder refuses what it would not encode itself: trailing bits that are not 0.
    let mut next = || Base64UrlUnpadded::decode_vec(segments.next()?).ok();
    let packed = [next()?, next()?, next()?];
    segments.next().is_none().then_some(packed)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    // Heads of requests, in which all of it has stood, are far smaller.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

fn get<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (bytes, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(get(rest)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(credential: &str, origin: Option<&str>) -> Grant {
        Grant {
            path: "/topics/prices".to_owned(),
            origin: origin.map(str::to_owned),
            carrier: "bearer".to_owned(),
            credential: credential.as_bytes().to_vec(),
            until: 1_800_000_000,
        }
    }

    #[test]
    fn every_credential_survives_the_encoding() {
        // `AB` has trailing bits that `AA` has not: as bytes they would be the same.
        for credential in [
            "",
            "k",
            "eyJh.eyJi.c2ln",
            "AA.AA.AA",
            "AB.AA.AA",
            "a.b",
            "..",
            "a.b.c.d",
        ] {
            for origin in [None, Some("https://shop.example")] {
                let grant = grant(credential, origin);
                let encoded = grant.encode();
                assert_eq!(
                    Grant::decode(&encoded).as_ref(),
                    Some(&grant),
                    "{credential}"
                );
                for cut in 0..encoded.len() {
                    assert_eq!(Grant::decode(&encoded[..cut]), None, "{credential} {cut}");
                }
                assert_eq!(Grant::decode(&[&encoded[..], b"x"].concat()), None);
            }
        }
    }

    #[test]
    fn tokens_take_three_quarters_of_their_text() {
        let segment = Base64UrlUnpadded::encode_string(&[7; 900]);
        let token = format!("{segment}.{segment}.{segment}");
        assert!(grant(&token, None).encode().len() < 2_800);
        assert_eq!(token.len(), 3_602);
    }

    #[test]
    fn debug_output_has_no_credential() {
        let shown = format!("{:?}", grant("s3cret", None));
        assert!(
            !shown.contains("s3cret") && !shown.contains("115"),
            "{shown}"
        );
    }
}
