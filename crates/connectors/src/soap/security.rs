//! Who asks, as OASIS Web Services Security says it: UsernameToken Profile 1.1 and the timestamp
//! of SOAP Message Security 1.1 (section 10).

use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use expr::xml::{NotXml, Writer};
use sha1::{Digest as _, Sha1};

use crate::soap::wsdl::Version;

const WSSE: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const WSU: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
const TOKEN: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0";
const BASE64_TYPE: &str = "http://docs.oasis-open.org/wss/2004/01/\
                           oasis-200401-wss-soap-message-security-1.0#Base64Binary";

/// What the security header of every message says.
#[derive(Clone, PartialEq, Eq)]
pub struct Security {
    /// Name and password, and whether only a digest of the password is sent.
    pub token: Option<(String, String, bool)>,
    /// How long a message is good.
    pub lifetime: Option<Duration>,
}

impl Security {
    /// Writes the block. `now` is the time since 1970, `nonce` has never been used before.
    ///
    /// # Errors
    /// When name or password cannot be written.
    pub fn write(
        &self,
        version: Version,
        (now, nonce): (Duration, &[u8]),
        out: &mut Writer,
    ) -> Result<(), NotXml> {
        let created = instant(now);
        out.start(Some(WSSE), "Security")?;
        out.attribute(Some(version.envelope()), "mustUnderstand", must(version))?;
        if let Some(lifetime) = self.lifetime {
            out.start(Some(WSU), "Timestamp")?;
            out.attribute(Some(WSU), "Id", "timestamp")?;
            leaf((WSU, "Created"), None, &created, out)?;
            leaf((WSU, "Expires"), None, &instant(now + lifetime), out)?;
            out.end(Some(WSU), "Timestamp");
        }
        if let Some((name, password, is_digest)) = &self.token {
            out.start(Some(WSSE), "UsernameToken")?;
            out.attribute(Some(WSU), "Id", "token")?;
            leaf((WSSE, "Username"), None, name, out)?;
            if *is_digest {
                let kind = format!("{TOKEN}#PasswordDigest");
                let digest = digest(nonce, &created, password);
                leaf((WSSE, "Password"), Some(("Type", &kind)), &digest, out)?;
                let nonce = Base64::encode_string(nonce);
                leaf(
                    (WSSE, "Nonce"),
                    Some(("EncodingType", BASE64_TYPE)),
                    &nonce,
                    out,
                )?;
                leaf((WSU, "Created"), None, &created, out)?;
            } else {
                let kind = format!("{TOKEN}#PasswordText");
                leaf((WSSE, "Password"), Some(("Type", &kind)), password, out)?;
            }
            out.end(Some(WSSE), "UsernameToken");
        }
        out.end(Some(WSSE), "Security");
        Ok(())
    }
}

fn leaf(
    (namespace, name): (&str, &str),
    attribute: Option<(&str, &str)>,
    text: &str,
    out: &mut Writer,
) -> Result<(), NotXml> {
    out.start(Some(namespace), name)?;
    if let Some((name, value)) = attribute {
        out.attribute(None, name, value)?;
    }
    out.text(text)?;
    out.end(Some(namespace), name);
    Ok(())
}

/// What `mustUnderstand` says when it is so.
pub fn must(version: Version) -> &'static str {
    match version {
        Version::V11 => "1",
        Version::V12 => "true",
    }
}

/// The digest of a password (UsernameToken Profile 1.1, section 3.1).
fn digest(nonce: &[u8], created: &str, password: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(nonce);
    hash.update(created.as_bytes());
    hash.update(password.as_bytes());
    Base64::encode_string(&hash.finalize())
}

/// A time since 1970 as `xs:dateTime` with milliseconds.
fn instant(time: Duration) -> String {
    let (days, seconds) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    // Civil from days: eras of 400 years that begin on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let millis = time.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(instant(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_digest_is_that_of_others() {
        // Made with Python's hashlib.
        let found = digest(b"0123456789abcdef", "2026-01-01T00:00:00.000Z", "secret");
        assert_eq!(found, "Jcd++c9gZ/c4zFSpJtkPJ3kxLec=");
    }
}
