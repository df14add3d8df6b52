//! The `Link` header (RFC 8288), as far as the next page goes.

/// The target of the link with `rel="next"` in a `Link` field.
pub(super) fn next(field: &str) -> Option<&str> {
    let mut rest = field;
    while let Some((_, behind)) = rest.split_once('<') {
        let (target, after) = behind.split_once('>')?;
        let (parameters, others) = after.split_at(end_of_link(after));
        if is_next(parameters) {
            return Some(target.trim());
        }
        rest = others;
    }
    None
}

/// Where the parameters of a link end: at the comma that is not within quotes.
fn end_of_link(text: &str) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return at,
            _ => {}
        }
    }
    text.len()
}

/// Whether `next` is among the relations; of several `rel` the first counts (section 3.3).
fn is_next(parameters: &str) -> bool {
    let mut found = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_rel = name.trim().eq_ignore_ascii_case("rel");
        is_rel.then(|| value.trim().trim_matches('"'))
    });
    let relations = found.next().unwrap_or_default();
    let mut relations = relations.split_ascii_whitespace();
    relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_among_other_links() {
        for (field, expected) in [
            (
                r#"<http://a/?page=2>; rel="next""#,
                Some("http://a/?page=2"),
            ),
            ("</x?a=1,2>;rel=next", Some("/x?a=1,2")),
            (
                r#"<?p=1>; rel=prev; title="a, <b>", <?p=3>; title="x"; REL="last Next""#,
                Some("?p=3"),
            ),
            (r#"<?p=1>; rel="prev", <?p=9>; rel="last""#, None),
            ("<?p=1>; rel=prev; rel=next", None),
            (r#"<?p=1>; title="rel=next""#, None),
            ("", None),
            ("<?p=1", None),
        ] {
            assert_eq!(next(field), expected, "{field}");
        }
    }
}
