//! JSON Pointer (RFC 6901).

use expr::Value;
use expr::value::{as_array, get};

/// A place within a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer; `None` when the text is none: it is empty or begins with `/`, and `~` comes
    /// only in `~0` and `~1`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let tokens = text.strip_prefix('/')?.split('/');
        tokens.map(unescape).collect::<Option<_>>().map(Self)
    }

    /// What is there.
    pub fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.0
            .iter()
            .try_fold(document, |value, token| match value {
                Value::Obj(_) => get(value, token),
                Value::Arr(_) => as_array(value)?.get(index(token)?),
                _ => None,
            })
    }

    /// Whether it means the whole document.
    pub fn is_whole(&self) -> bool {
        self.0.is_empty()
    }
}

fn unescape(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escaped, rest) = match (part.strip_prefix('0'), part.strip_prefix('1')) {
            (Some(rest), _) => ('~', rest),
            (_, Some(rest)) => ('/', rest),
            _ => return None,
        };
        text.push(escaped);
        text.push_str(rest);
    }
    Some(text)
}

/// The number of an item: no sign, no leading zeros.
fn index(token: &str) -> Option<usize> {
    let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = token == "0" || !token.starts_with('0');
    token.parse().ok().filter(|_| is_number && is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointers_of_the_rfc_find_their_values() {
        let text = br#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"m~n":8," ":7}"#;
        let document = expr::json::parse(&text.to_vec().into(), 8).unwrap();
        for (pointer, expected) in [
            ("/foo", Some(r#"["bar","baz"]"#)),
            ("/foo/0", Some("\"bar\"")),
            ("/", Some("0")),
            ("/a~1b", Some("1")),
            ("/c%d", Some("2")),
            ("/m~0n", Some("8")),
            ("/ ", Some("7")),
            ("/foo/2", None),
            ("/foo/-", None),
            ("/foo/00", None),
            ("/foo/+1", None),
            ("/foo/0/x", None),
            ("/bar", None),
        ] {
            let found = Pointer::parse(pointer).unwrap();
            let found = found.find(&document).map(expr::value::shown);
            assert_eq!(found.as_deref(), expected, "{pointer}");
        }
        assert!(Pointer::parse("").unwrap().is_whole());
        for text in ["foo", "/a~", "/a~2", "#/foo"] {
            assert_eq!(Pointer::parse(text), None, "{text}");
        }
    }
}
