//! The `Link` header (RFC 8288): targets and their relations.

/// A link: its target as it is written, and its relations, separated by spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// What stands between `<` and `>`.
    pub target: &'a str,
    /// The first `rel` (section 3.3).
    relations: &'a str,
}

impl Link<'_> {
    /// Whether this relation is among them.
    pub fn has(&self, relation: &str) -> bool {
        let mut relations = self.relations.split_ascii_whitespace();
        relations.any(|it| it.eq_ignore_ascii_case(relation))
    }
}

/// The links of one `Link` field, in their order.
pub fn links(field: &str) -> impl Iterator<Item = Link<'_>> {
    let mut rest = field;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once('<')?;
        let (target, after) = behind.split_once('>')?;
        let (parameters, others) = after.split_at(end_of_link(after));
        rest = others;
        Some(Link {
            target: target.trim(),
            relations: relations(parameters),
        })
    })
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

fn relations(parameters: &str) -> &str {
    let mut found = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_rel = name.trim().eq_ignore_ascii_case("rel");
        is_rel.then(|| value.trim().trim_matches('"'))
    });
    found.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(field: &'a str, relation: &str) -> Vec<&'a str> {
        let links = links(field).filter(|it| it.has(relation));
        links.map(|it| it.target).collect()
    }

    #[test]
    fn links_are_found_by_their_relations() {
        let both = "<https://hub/>; rel=\"hub\", <https://t/x?a=1,2>; rel=\"self\"";
        assert_eq!(found(both, "hub"), ["https://hub/"]);
        assert_eq!(found(both, "self"), ["https://t/x?a=1,2"]);
        let odd = r#"< /a >;REL="x Hub y"; title="<b>, <c>; rel=hub",</d>; rel=HUB ; rel=self"#;
        assert_eq!(found(odd, "hub"), ["/a", "/d"]);
        assert!(found(odd, "self").is_empty());
        for none in ["", "<a", "<a>", "<a>; rel", "a; rel=hub", "<a>; title=hub"] {
            assert!(found(none, "hub").is_empty(), "{none}");
        }
    }
}
