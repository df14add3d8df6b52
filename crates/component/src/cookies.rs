//! The cookies of a request (RFC 6265, section 4.2.1): how doors read them and how they are taken
//! out of what is forwarded. Both split a field alike, or a cookie that opens a door could pass it.

use message::{Headers, HeadersView};

/// Whether this is the name of the field with cookies.
#[must_use]
pub fn is_cookie(field: &[u8]) -> bool {
    field.eq_ignore_ascii_case(b"cookie")
}

/// Name and value of a pair, without blanks around them; no value where there is no `=`.
fn split(pair: &[u8]) -> (&[u8], Option<&[u8]>) {
    match pair.iter().position(|&byte| byte == b'=') {
        None => (pair.trim_ascii(), None),
        Some(at) => {
            let (name, value) = pair.split_at(at);
            let value = value.get(1..).unwrap_or_default();
            (name.trim_ascii(), Some(value.trim_ascii()))
        }
    }
}

/// Names and values in the order of the request, without quotes around values: browsers send the
/// cookie of the longest path first (section 5.4).
pub fn pairs(headers: HeadersView<'_>) -> impl Iterator<Item = (&[u8], &[u8])> {
    let fields = headers.iter().filter(|(_, name, _)| is_cookie(name));
    let pairs = fields.flat_map(|(_, _, value)| value.split(|&byte| byte == b';'));
    pairs.filter_map(|pair| {
        let (name, value) = split(pair);
        let value = value?;
        let unquoted = value
            .strip_prefix(b"\"")
            .and_then(|it| it.strip_suffix(b"\""));
        Some((name, unquoted.unwrap_or(value)))
    })
}

/// The value of a field `Cookie` without the cookies of these names; `None` when nothing is left.
#[must_use]
pub fn without_names<T: AsRef<str>>(value: &[u8], names: &[T]) -> Option<Vec<u8>> {
    let is_other = |pair: &&[u8]| {
        let (own, _) = split(pair);
        names.iter().all(|name| own != name.as_ref().as_bytes())
    };
    let pairs = value.split(|&byte| byte == b';').filter(is_other);
    let pairs: Vec<&[u8]> = pairs.map(<[u8]>::trim_ascii).collect();
    (!pairs.is_empty()).then(|| pairs.join(&b"; "[..]))
}

/// Header fields without the cookies of this name.
#[must_use]
pub fn without(headers: &Headers, name: &str) -> Headers {
    let mut others = Headers::new();
    for (_, field, value) in headers.view().iter() {
        let is_cookies = is_cookie(field);
        let field = String::from_utf8_lossy(field);
        match is_cookies {
            false => others.append(&field, value),
            true => {
                if let Some(rest) = without_names(value, &[name]) {
                    others.append(&field, rest);
                }
            }
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_read_from_all_their_fields() {
        let mut headers = Headers::new();
        headers.append("Cookie", "a=1; s=\"x=y\";b; ss=4");
        headers.append("X-Cookie", "s=2");
        headers.append("cookie", " s = 3 ");
        let found: Vec<_> = pairs(headers.view()).collect();
        let expected: [(&[u8], &[u8]); 4] =
            [(b"a", b"1"), (b"s", b"x=y"), (b"ss", b"4"), (b"s", b"3")];
        assert_eq!(found, expected);
        let headers = without(&headers, "s");
        let left: Vec<_> = headers.view().iter().map(|it| it.2.to_vec()).collect();
        assert_eq!(left, [&b"a=1; b; ss=4"[..], b"s=2"]);
    }

    #[test]
    fn a_cookie_is_taken_out_and_others_stay() {
        for (cookies, expected) in [
            ("s=1", None),
            ("a=1; s=2; b=3", Some("a=1; b=3")),
            (" s =2;a=1", Some("a=1")),
            ("s=1; s=2; ss=3", Some("ss=3")),
            ("s; a=1", Some("a=1")),
        ] {
            let rest = without_names(cookies.as_bytes(), &["s"]);
            assert_eq!(rest.as_deref(), expected.map(str::as_bytes), "{cookies}");
        }
    }
}
