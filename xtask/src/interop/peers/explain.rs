//! Which differences between direct and proxied are right, and why. One that no row explains fails
//! the check.

use super::outcome::Difference;

/// A row of the table. A pattern is `*`, or alternatives between `|`, of which one may end in `*`.
pub struct Explanation {
    pub scenario: &'static str,
    /// The client's mode.
    pub client: &'static str,
    /// The back end and the protocol it is spoken to with: `nginx h2c`.
    pub backend: &'static str,
    pub key: &'static str,
    /// The value; `-` for none.
    pub direct: &'static str,
    pub proxied: &'static str,
    pub reason: &'static str,
}

/// Where and in what a difference was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub scenario: &'a str,
    pub client: &'a str,
    pub backend: &'a str,
    pub difference: &'a Difference,
}

const fn any(
    key: &'static str,
    direct: &'static str,
    proxied: &'static str,
    reason: &'static str,
) -> Explanation {
    Explanation {
        scenario: "*",
        client: "*",
        backend: "*",
        key,
        direct,
        proxied,
        reason,
    }
}

pub const EXPLANATIONS: &[Explanation] = &[
    any(
        "h.connection|h.keep-alive|then.h.connection|then.h.keep-alive",
        "*",
        "*",
        "these speak of one connection and are never passed on (RFC 9110, section 7.6.1)",
    ),
];

/// The reason for a difference, if there is one.
pub fn reason(found: &Found<'_>) -> Option<&'static str> {
    let row = EXPLANATIONS.iter().find(|row| row.fits(found));
    row.map(|row| row.reason)
}

impl Explanation {
    fn fits(&self, found: &Found<'_>) -> bool {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        fits(self.scenario, found.scenario)
            && fits(self.client, found.client)
            && fits(self.backend, found.backend)
            && fits(self.key, &found.difference.key)
            && fits(self.direct, &value(&found.difference.direct))
            && fits(self.proxied, &value(&found.difference.proxied))
    }
}

/// Whether a text fits a pattern.
pub fn fits(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    })
}
