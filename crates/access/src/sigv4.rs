//! Signature Version 4 of Amazon Web Services: what a request says about who sends it ("Create a
//! signed AWS API request" in the IAM User Guide). The signature goes into `Authorization`.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

use crate::hex;
use crate::sha256::sha256;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What stands for the hash of a body that is not signed.
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// Signs requests with an access key for one service in one region.
pub struct Signer {
    access_key: String,
    secret_key: String,
    region: String,
    service: String,
}

/// Without the secret key.
impl fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            region, service, ..
        } = self;
        write!(formatter, "signatures for {service} in {region}")
    }
}

/// A request as it is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path, percent-encoded as it is sent.
    pub path: &'a [u8],
    /// Its query, percent-encoded as it is sent, without `?`; may be empty.
    pub query: &'a [u8],
    /// The header fields to sign, `Host` included, as they are sent.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// [`hash`] of the body, or [`UNSIGNED_PAYLOAD`].
    pub payload: &'a str,
}

/// The hash of a body: 64 hexadecimal digits.
#[must_use]
pub fn hash(body: &[u8]) -> String {
    hex::encode(&sha256(body))
}

impl Signer {
    /// Signs with this access key for this service in this region, such as `s3` in `eu-west-1`.
    #[must_use]
    pub fn new(access_key: &str, secret_key: &str, region: &str, service: &str) -> Self {
        Self {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
        }
    }

    /// The value of `Authorization`. `time` is that of the field `X-Amz-Date`, such as
    /// `20150830T123600Z`.
    #[must_use]
    pub fn authorization(&self, request: &Request<'_>, time: &str) -> String {
        let fields = canonical_fields(request.fields);
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        let names = names.join(";");
        let text = self.string_to_sign(&self.canonical(request), time);
        let signature = hex::encode(sign(&self.signing_key(time), text.as_bytes()).as_ref());
        let (key, scope) = (&self.access_key, self.scope(time));
        format!(
            "{ALGORITHM} Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }

    /// The request in the form that is hashed.
    #[must_use]
    pub fn canonical(&self, request: &Request<'_>) -> Vec<u8> {
        let fields = canonical_fields(request.fields);
        let mut text = format!("{}\n", request.method).into_bytes();
        text.extend_from_slice(self.canonical_path(request.path).as_bytes());
        text.push(b'\n');
        text.extend_from_slice(canonical_query(request.query).as_bytes());
        text.push(b'\n');
        for (name, value) in &fields {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        text.push(b'\n');
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        text.extend_from_slice(names.join(";").as_bytes());
        text.push(b'\n');
        text.extend_from_slice(request.payload.as_bytes());
        text
    }

    /// The text that is signed.
    #[must_use]
    pub fn string_to_sign(&self, canonical: &[u8], time: &str) -> String {
        let (scope, hash) = (self.scope(time), hash(canonical));
        format!("{ALGORITHM}\n{time}\n{scope}\n{hash}")
    }

    fn scope(&self, time: &str) -> String {
        let Self {
            region, service, ..
        } = self;
        format!("{}/{region}/{service}/aws4_request", date_of(time))
    }

    fn signing_key(&self, time: &str) -> Key {
        let parts = [date_of(time), &self.region, &self.service, "aws4_request"];
        let secret = format!("AWS4{}", self.secret_key);
        let mut key = Key::new(HMAC_SHA256, secret.as_bytes());
        for part in parts {
            key = Key::new(HMAC_SHA256, sign(&key, part.as_bytes()).as_ref());
        }
        key
    }

    /// S3 signs the path as it is meant, encoded once; every other service the path as it is sent,
    /// normalized and encoded once more.
    fn canonical_path(&self, path: &[u8]) -> String {
        if is_s3(&self.service) {
            return match path {
                b"" => "/".to_owned(),
                path => encoded(&decoded(path, false), true),
            };
        }
        encoded(&normalized(path), true)
    }
}

/// Whether a service is S3 or speaks as it does: its paths are encoded once, and bodies need not be
/// signed.
#[must_use]
pub fn is_s3(service: &str) -> bool {
    matches!(
        service,
        "s3" | "s3-outposts" | "s3-object-lambda" | "s3express"
    )
}

/// The day of a time such as `20150830T123600Z`.
fn date_of(time: &str) -> &str {
    time.split('T').next().unwrap_or_default()
}

/// Fields by name in small letters and in order, the values of one name joined by commas, and white
/// space in each made one space.
fn canonical_fields(fields: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    let mut lines: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (name, value) in fields {
        let words = value.split(u8::is_ascii_whitespace);
        let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
        let value = words.join(&b' ');
        match lines.get_mut(&name.to_ascii_lowercase()) {
            Some(line) => {
                line.push(b',');
                line.extend_from_slice(&value);
            }
            None => {
                lines.insert(name.to_ascii_lowercase(), value);
            }
        }
    }
    lines
}

/// The parameters of a query, each encoded in the one way that counts, in the order of their bytes.
fn canonical_query(query: &[u8]) -> String {
    let parameters = query.split(|byte| *byte == b'&');
    let parameters = parameters.filter(|it| !it.is_empty()).map(|parameter| {
        let mut parts = parameter.splitn(2, |byte| *byte == b'=');
        let mut part = || encoded(&decoded(parts.next().unwrap_or_default(), true), false);
        (part(), part())
    });
    let mut parameters: Vec<(String, String)> = parameters.collect();
    parameters.sort_unstable();
    let pairs = parameters
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let pairs: Vec<String> = pairs.collect();
    pairs.join("&")
}

/// A path without empty segments and with `.` and `..` followed (RFC 3986, section 5.2.4).
fn normalized(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let is_folder = [&b"/"[..], b"/.", b"/.."]
        .iter()
        .any(|end| path.ends_with(end));
    let mut out = Vec::with_capacity(path.len() + 1);
    for segment in &segments {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if is_folder || segments.is_empty() {
        out.push(b'/');
    }
    out
}

/// Undoes percent-encoding, and in a query `+`. What is not encoded well stays.
fn decoded(text: &[u8], is_query: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind) {
            (b'%', [high, low, after @ ..]) => {
                let pair = std::str::from_utf8(&[*high, *low])
                    .ok()
                    .and_then(hex::decode::<1>);
                match pair {
                    Some([byte]) => {
                        out.push(byte);
                        rest = after;
                    }
                    None => out.push(b'%'),
                }
            }
            (b'+', _) if is_query => out.push(b' '),
            (byte, _) => out.push(*byte),
        }
    }
    out
}

/// Percent-encodes everything but unreserved characters (RFC 3986, section 2.3).
fn encoded(text: &[u8], keeps_slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        let is_unreserved =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        match byte {
            b'/' if keeps_slashes => out.push('/'),
            byte if is_unreserved => out.push(char::from(*byte)),
            byte => {
                out.push('%');
                out.push_str(&hex::encode(&[*byte]).to_ascii_uppercase());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_encoded_twice_but_for_s3() {
        let path = |service: &str, path: &str| {
            let signer = Signer::new("a", "b", "eu-west-1", service);
            signer.canonical_path(path.as_bytes())
        };
        assert_eq!(path("sqs", "/a%20b/../c+d//"), "/c%2Bd/");
        assert_eq!(path("sqs", "/a%20b"), "/a%2520b");
        assert_eq!(path("s3", "/a%20b/../c+d//"), "/a%20b/../c%2Bd//");
        assert_eq!(path("s3", "/a%2fb%zz"), "/a/b%25zz");
        assert_eq!(path("s3", ""), "/");
    }

    #[test]
    fn parameters_are_encoded_in_one_way() {
        assert_eq!(
            canonical_query(b"b=1&a=%7e+x&a=%41&c&&=y"),
            "=y&a=A&a=~%20x&b=1&c="
        );
    }

    /// The example of the S3 documentation, "Authenticating Requests: Using the Authorization
    /// Header", GET Object.
    #[test]
    fn an_object_of_s3_is_asked_for_as_documented() {
        let signer = Signer::new(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "us-east-1",
            "s3",
        );
        let payload = hash(b"");
        let request = Request {
            method: "GET",
            path: b"/test.txt",
            query: b"",
            fields: &[
                ("Host", b"examplebucket.s3.amazonaws.com"),
                ("Range", b"bytes=0-9"),
                ("x-amz-content-sha256", payload.as_bytes()),
                ("x-amz-date", b"20130524T000000Z"),
            ],
            payload: &payload,
        };
        let value = signer.authorization(&request, "20130524T000000Z");
        assert!(
            value.ends_with(
                "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
            ),
            "{value}"
        );
        assert!(!format!("{signer:?}").contains("EXAMPLE"));
    }
}
