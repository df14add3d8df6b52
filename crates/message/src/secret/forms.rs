//! The forms in which a secret may show up: encoded, escaped, or as a part that says as much.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64ct::{Base64, Base64Unpadded, Base64UrlUnpadded, Encoding};

use super::is_long_enough;

/// The fewest characters of a line of a value that counts by itself.
const LINE_MIN: usize = 16;
/// The fewest characters of base64 that are looked for within longer encoded text.
const WITHIN_MIN: usize = 8;

/// Every form of a value, itself included.
pub(super) fn of(value: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let trimmed = value.trim();
    for text in [value, trimmed] {
        add_escaped(text, &mut forms);
        add_base64(text.as_bytes(), &mut forms);
        add_percent(text, &mut forms);
        forms.insert(hexadecimal(text, |byte| format!("{byte:02x}")));
        forms.insert(hexadecimal(text, |byte| format!("{byte:02X}")));
    }
    for password in passwords(trimmed) {
        add_escaped(&password, &mut forms);
        add_percent(&password, &mut forms);
    }
    if trimmed.contains('\n') {
        let lines = trimmed.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= LINE_MIN && !line.starts_with("-----"));
        forms.extend(lines.map(str::to_owned));
    }
    forms.retain(|form| is_long_enough(form));
    forms
}

/// As text is escaped in JSON, in Rust's `{:?}` and `escape_debug`, in XML, and by three of these:
/// a log line holds what a message says, which may quote what a header or a body has quoted.
fn add_escaped(text: &str, forms: &mut BTreeSet<String>) {
    let mut last = BTreeSet::from([text.to_owned(), xml(text, false), xml(text, true)]);
    for _ in 0..3 {
        let next = last.iter().flat_map(|text| {
            [
                text.escape_debug().to_string(),
                unquoted(format!("{text:?}")),
                unquoted(serde_json::Value::from(text.as_str()).to_string()),
            ]
        });
        let next: BTreeSet<String> = next.collect();
        forms.append(&mut last);
        last = next;
    }
    forms.append(&mut last);
}

fn unquoted(text: String) -> String {
    let inside = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inside.map_or_else(|| text.clone(), str::to_owned)
}

/// As in XML's text, or as in its attributes, where quotes are escaped too.
fn xml(text: &str, is_attribute: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' if is_attribute => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The whole in both alphabets, and what it looks like within longer text (`user:password`): there
/// it begins at one of three places within a group, and only whole digits can be known.
fn add_base64(bytes: &[u8], forms: &mut BTreeSet<String>) {
    forms.insert(Base64::encode_string(bytes));
    forms.insert(Base64Unpadded::encode_string(bytes));
    forms.insert(Base64UrlUnpadded::encode_string(bytes));
    for shift in 0..3_usize {
        let mut shifted = vec![0; shift];
        shifted.extend_from_slice(bytes);
        let known = (shift * 8).div_ceil(6)..shifted.len() * 8 / 6;
        for encoded in [
            Base64Unpadded::encode_string(&shifted),
            Base64UrlUnpadded::encode_string(&shifted),
        ] {
            let within = encoded.get(known.clone());
            let within = within.filter(|text| text.len() >= WITHIN_MIN);
            forms.extend(within.map(str::to_owned));
        }
    }
}

/// As in paths, in queries, in forms, with everything encoded that has to be in one of them, and
/// with everything encoded; with capital digits and small ones (RFC 3986, sections 2 and 3.3; the
/// URL Standard, section 5 for forms).
fn add_percent(text: &str, forms: &mut BTreeSet<String>) {
    const KEPT: [&[u8]; 4] = [b"", b"-._~", b"-._~!$&'()*+,;=:@", b"-._~!$&'()*+,;=:@/?"];
    for kept in KEPT {
        for is_form in [false, true] {
            for is_capital in [false, true] {
                forms.insert(percent(text, kept, is_form, is_capital));
            }
        }
    }
    forms.extend(percent_all(text));
}

fn percent_all(text: &str) -> [String; 2] {
    [
        hexadecimal(text, |byte| format!("%{byte:02x}")),
        hexadecimal(text, |byte| format!("%{byte:02X}")),
    ]
}

fn percent(text: &str, kept: &[u8], is_form: bool, is_capital: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            encoded.push(char::from(byte));
        } else if is_form && byte == b' ' {
            encoded.push('+');
        } else {
            // Writing into a String cannot fail.
            let _ = match is_capital {
                true => write!(encoded, "%{byte:02X}"),
                false => write!(encoded, "%{byte:02x}"),
            };
        }
    }
    encoded
}

fn hexadecimal(text: &str, digits: impl Fn(u8) -> String) -> String {
    text.bytes().map(digits).collect()
}

/// The password of a URL such as `amqp://user:password@host/`, as it stands and decoded.
fn passwords(text: &str) -> Vec<String> {
    let password = || {
        let (_, behind) = text.split_once("://")?;
        let authority = behind.split(['/', '?', '#']).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        Some(user.split_once(':')?.1)
    };
    let Some(password) = password() else {
        return Vec::new();
    };
    let mut both = vec![password.to_owned()];
    both.extend(decoded(password));
    both.retain(|password| is_long_enough(password));
    both
}

/// What percent-encoded text stands for; nothing when it is none.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind.get(2..)?;
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}
