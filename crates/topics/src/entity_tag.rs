//! Conditional requests: `If-Match` and `If-None-Match` (RFC 9110, section 13.1).

use message::Headers;

/// How entity tags are compared (RFC 9110, section 8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// A weak tag matches nothing: for `If-Match`.
    Strong,
    /// Whether a tag is weak does not matter: for `If-None-Match`.
    Weak,
}

/// Whether a field that lists entity tags has this one, which is strong, or is `*`; `None` when the
/// request does not have the field.
pub(crate) fn is_listed(
    headers: &Headers,
    field: &str,
    tag: &str,
    comparison: Comparison,
) -> Option<bool> {
    let lines = headers.view().iter();
    let lines = lines.filter(|it| it.1.eq_ignore_ascii_case(field.as_bytes()));
    let lines: Vec<&[u8]> = lines.map(|it| it.2.trim_ascii()).collect();
    match lines[..] {
        [] => None,
        [b"*"] => Some(true),
        _ => Some(lines.iter().flat_map(|it| tags(it)).any(|listed| {
            let opaque = match comparison {
                Comparison::Strong => listed,
                Comparison::Weak => listed.strip_prefix(b"W/").unwrap_or(listed),
            };
            opaque == tag.as_bytes()
        })),
    }
}

/// The members of a list. A comma between quotes is a part of its tag.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let tags = list.split(move |byte| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    });
    tags.map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_any_line_and_place_and_weak_ones_only_where_they_count() {
        for (lines, strong, weak) in [
            (&[][..], None, None),
            (&[""], Some(false), Some(false)),
            (&["\"a\""], Some(true), Some(true)),
            (&["*"], Some(true), Some(true)),
            (&["W/\"a\""], Some(false), Some(true)),
            (&["\"b, c\" , \"a\""], Some(true), Some(true)),
            (&["\"b\"", "\"a\""], Some(true), Some(true)),
            (&["a"], Some(false), Some(false)),
            (&["\"aa\""], Some(false), Some(false)),
            (&["\"x,\"a\",y\""], Some(false), Some(false)),
            (&["\"x,*,y\""], Some(false), Some(false)),
            (&["\"x\", *"], Some(false), Some(false)),
            (&["*", "\"x\""], Some(false), Some(false)),
            (&["W/*"], Some(false), Some(false)),
            (&[",, \"a\" ,"], Some(true), Some(true)),
        ] {
            let mut headers = Headers::new();
            lines.iter().for_each(|it| headers.append("if-match", it));
            let listed = |comparison| is_listed(&headers, "If-Match", "\"a\"", comparison);
            assert_eq!(listed(Comparison::Strong), strong, "{lines:?}");
            assert_eq!(listed(Comparison::Weak), weak, "{lines:?}");
        }
    }
}
