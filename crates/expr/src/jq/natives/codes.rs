//! Encodings, digests and identifiers.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use hmac::{KeyInit, Mac, SimpleHmac};
use jaq_core::native::{bome, unary, v};
use sha2::Digest;

use super::{Cv, Filter};
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::{meter, walk};
use crate::value::{self, Value};

pub(super) fn all() -> Vec<Filter> {
    vec![
        ("encode_base64url", v(0), |cv| {
            bome(encoded(&cv.1, 2, |it| URL_SAFE_NO_PAD.encode(it)))
        }),
        ("decode_base64url", v(0), |cv| bome(from_base64url(&cv.1))),
        ("decode_base64", v(0), |cv| bome(decode_base64(&cv.1))),
        ("decode_uri", v(0), |cv| bome(decode_uri(&cv.1))),
        ("frombase64", v(0), |cv| bome(from_base64(&cv.1))),
        ("encode_hex", v(0), |cv| bome(encoded(&cv.1, 2, hex))),
        ("decode_hex", v(0), |cv| bome(from_hex(&cv.1))),
        ("sha1", v(0), |cv| {
            bome(encoded(&cv.1, 0, |it| hex(&sha1::Sha1::digest(it))))
        }),
        ("sha256", v(0), |cv| {
            bome(encoded(&cv.1, 0, |it| hex(&sha2::Sha256::digest(it))))
        }),
        ("sha512", v(0), |cv| {
            bome(encoded(&cv.1, 0, |it| hex(&sha2::Sha512::digest(it))))
        }),
        ("md5", v(0), |cv| {
            bome(encoded(&cv.1, 0, |it| hex(&md5::Md5::digest(it))))
        }),
        ("hmac_sha1", v(1), |cv| unary(cv, hmac::<sha1::Sha1>)),
        ("hmac_sha256", v(1), |cv| unary(cv, hmac::<sha2::Sha256>)),
        ("hmac_sha512", v(1), |cv| unary(cv, hmac::<sha2::Sha512>)),
        ("encode_base32", v(0), |cv| bome(encoded(&cv.1, 2, base32))),
        ("decode_base32", v(0), |cv| bome(from_base32(&cv.1))),
        ("uuid", v(0), |_| {
            bome(Ok(Counted::from(uuid::Uuid::new_v4().to_string())))
        }),
        ("uuid7", v(0), |cv| bome(Ok(uuid7(&cv)))),
        ("utf8", v(0), |cv| bome(utf8(&cv.1))),
    ]
}

/// The bytes of a string as another text, of about `growth` times the length.
fn encoded(input: &Counted, growth: usize, encode: impl Fn(&[u8]) -> String) -> Result {
    let bytes = input.string()?;
    // A digest goes through some hundred bytes in a microsecond.
    meter::steps(bytes.len() / 64)?;
    meter::memory(bytes.len() * growth)?;
    Ok(Counted::from(encode(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|it| [it >> 4, it & 15]);
    digits
        .map(|it| char::from(DIGITS[usize::from(it)]))
        .collect()
}

fn decoded(input: &Counted, what: &str, bytes: Option<Vec<u8>>) -> Result {
    match bytes {
        Some(bytes) => Ok(Counted::scalar(Value::byte_str(bytes))),
        None => Err(Error::str(format_args!("{input} is not {what}"))),
    }
}

fn from_base64(input: &Counted) -> Result {
    let text = input.string()?;
    meter::memory(text.len())?;
    decoded(input, "Base64", STANDARD.decode(text).ok())
}

/// A text in Base64 without the `=` at its end.
fn without_padding(text: &[u8]) -> &[u8] {
    let last = text.iter().rposition(|it| *it != b'=');
    last.and_then(|last| text.get(..=last)).unwrap_or_default()
}

/// What `@base64` made, with its padding or without.
fn decode_base64(input: &Counted) -> Result {
    let text: &[u8] = input.string()?;
    meter::memory(text.len())?;
    let digits = without_padding(text);
    match STANDARD_NO_PAD.decode(digits) {
        Ok(bytes) => Ok(Counted::scalar(Value::utf8_str(bytes))),
        // In the words of jq.
        Err(_) if digits.len() % 4 == 1 => Err(Error::str(format_args!(
            "string ({input}) trailing base64 byte found"
        ))),
        Err(_) => Err(Error::str(format_args!(
            "string ({input}) is not valid base64 data"
        ))),
    }
}

/// What `@uri` made.
fn decode_uri(input: &Counted) -> Result {
    let text: &[u8] = input.string()?;
    meter::memory(text.len())?;
    let digit = |it: Option<&u8>| char::from(*it?).to_digit(16);
    // In the words of jq.
    let invalid = || Error::str(format_args!("string ({input}) is not a valid uri encoding"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high << 4 | low) as u8,
                _ => return Err(invalid()),
            },
            byte => *byte,
        });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Counted::from(text)),
        Err(_) => Err(invalid()),
    }
}

fn from_base64url(input: &Counted) -> Result {
    let text: &[u8] = input.string()?;
    meter::memory(text.len())?;
    let bytes = URL_SAFE_NO_PAD.decode(without_padding(text)).ok();
    match bytes.map(String::from_utf8) {
        Some(Ok(text)) => Ok(Counted::from(text)),
        Some(Err(bytes)) => Ok(Counted::scalar(Value::byte_str(bytes.into_bytes()))),
        None => decoded(input, "Base64 for URLs", None),
    }
}

fn from_hex(input: &Counted) -> Result {
    let text = input.string()?;
    meter::memory(text.len())?;
    let digit = |it: u8| char::from(it).to_digit(16).map(|it| it as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes: Option<Vec<u8>> = bytes.collect();
    decoded(input, "hexadecimal", bytes.filter(|_| rest.is_empty()))
}

const DIGITS_32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let mut all = [0; 8];
        for (place, byte) in all[3..].iter_mut().zip(chunk) {
            *place = *byte;
        }
        let bits = u64::from_be_bytes(all);
        let digits = (chunk.len() * 8).div_ceil(5);
        for at in 0..8 {
            let digit = (bits >> (35 - at * 5)) & 31;
            text.push(match at < digits {
                true => char::from(DIGITS_32[digit as usize]),
                false => '=',
            });
        }
    }
    text
}

fn from_base32(input: &Counted) -> Result {
    let text: &[u8] = input.string()?;
    meter::steps(text.len() / 16)?;
    meter::memory(text.len())?;
    let end = text
        .iter()
        .rposition(|it| *it != b'=')
        .map_or(0, |it| it + 1);
    let mut bytes = Vec::with_capacity(end);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.get(..end).unwrap_or_default() {
        let Some(digit) = DIGITS_32.iter().position(|it| it == byte) else {
            return decoded(input, "Base32", None);
        };
        bits = bits << 5 | digit as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Counted::from(text)),
        Err(error) => decoded(input, "Base32", Some(error.into_bytes())),
    }
}

fn hmac<D>(input: Counted, key: Counted) -> Result
where
    D: Digest + hmac::digest::block_api::BlockSizeUser,
{
    let mut mac = SimpleHmac::<D>::new_from_slice(key.string()?).map_err(Error::str)?;
    let bytes: &Bytes = input.string()?;
    meter::steps(bytes.len() / 64)?;
    mac.update(bytes);
    Ok(Counted::from(hex(&mac.finalize().into_bytes())))
}

fn uuid7(cv: &Cv<'_>) -> Counted {
    let now = jaq_std::ValT::as_f64(&cv.0.data().now())
        .unwrap_or_default()
        .max(0.0);
    let time = uuid::Timestamp::from_unix(uuid::NoContext, now as u64, (now.fract() * 1e9) as u32);
    Counted::from(uuid::Uuid::new_v7(time).to_string())
}

/// The text of bytes that are UTF-8.
fn utf8(input: &Counted) -> Result {
    let bytes = input.string()?;
    walk::bytes_seen(bytes.len())?;
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(Counted::scalar(Value::utf8_str(bytes.clone()))),
        Err(_) => {
            let shown = value::shown(&input.value);
            Err(Error::str(format_args!("{shown} is not UTF-8")))
        }
    }
}
