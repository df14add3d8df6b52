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

/// Whether a field that lists entity tags has this one, which is strong, or `*`; `None` when the
/// request does not have the field. A comma inside another tag does no harm: no part of it is a
/// tag of ours.
pub(crate) fn is_listed(
    headers: &Headers,
    field: &str,
    tag: &str,
    comparison: Comparison,
) -> Option<bool> {
    let lines = headers.view().iter();
    let mut lines = lines
        .filter(|it| it.1.eq_ignore_ascii_case(field.as_bytes()))
        .map(|it| it.2)
        .peekable();
    lines.peek()?;
    let mut tags = lines.flat_map(|line| line.split(|byte| *byte == b','));
    Some(tags.any(|listed| {
        let listed = listed.trim_ascii();
        let opaque = match comparison {
            Comparison::Strong => listed,
            Comparison::Weak => listed.strip_prefix(b"W/").unwrap_or(listed),
        };
        opaque == b"*" || opaque == tag.as_bytes()
    }))
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
        ] {
            let mut headers = Headers::new();
            lines.iter().for_each(|it| headers.append("if-match", it));
            let listed = |comparison| is_listed(&headers, "If-Match", "\"a\"", comparison);
            assert_eq!(listed(Comparison::Strong), strong, "{lines:?}");
            assert_eq!(listed(Comparison::Weak), weak, "{lines:?}");
        }
    }
}
