//! The `Link` header (RFC 8288), as far as the next page goes.

use websub::link::links;

/// The target of the link with `rel="next"` in a `Link` field.
pub(super) fn next(field: &str) -> Option<&str> {
    let mut links = links(field);
    links.find_map(|it| it.has("next").then_some(it.target))
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
