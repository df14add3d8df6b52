//! What has been found, as a table: a row for each client and back end, a column for each scenario.

use std::collections::BTreeMap;

use super::outcome::Difference;

/// The most rows of one difference that are named.
const NAMED: usize = 4;

/// What came of one scenario with one client and one back end.
#[derive(Debug, Default)]
pub struct Cell {
    scenario: &'static str,
    is_unsupported: bool,
    differences: Vec<(Difference, Option<&'static str>)>,
}

impl Cell {
    pub fn new(
        scenario: &'static str,
        differences: Vec<(Difference, Option<&'static str>)>,
    ) -> Self {
        Self {
            scenario,
            is_unsupported: false,
            differences,
        }
    }

    pub fn same() -> Self {
        Self::default()
    }

    /// The client cannot do this.
    pub fn unsupported() -> Self {
        Self {
            is_unsupported: true,
            ..Self::default()
        }
    }

    /// The differences that nothing explains.
    pub fn unexplained(&self) -> Vec<String> {
        let differences = self.differences.iter().filter(|it| it.1.is_none());
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        differences
            .map(|(it, _)| {
                let (direct, proxied) = (shown(&it.direct), shown(&it.proxied));
                let (scenario, key) = (self.scenario, &it.key);
                if it.is_gain() {
                    return format!("{scenario}: proxied does what direct does not: `{direct}`");
                }
                format!("{scenario}: {key} is `{direct}` direct, `{proxied}` through the engine")
            })
            .collect()
    }

    fn sign(&self) -> char {
        match self {
            Self {
                is_unsupported: true,
                ..
            } => '.',
            it if it.differences.is_empty() => '=',
            it if it
                .differences
                .iter()
                .any(|it| it.1.is_none() && !it.0.is_gain()) =>
            {
                'X'
            }
            it if it.differences.iter().any(|it| it.1.is_none()) => 'P',
            it if it.differences.iter().any(|it| it.0.is_gain()) => 'p',
            _ => 'e',
        }
    }
}

#[derive(Debug, Default)]
pub struct Table {
    scenarios: Vec<&'static str>,
    /// For each client and back end the signs of the scenarios.
    rows: BTreeMap<(String, &'static str), BTreeMap<&'static str, char>>,
    /// For each reason how often it was needed, and where.
    reasons: BTreeMap<&'static str, (usize, Vec<String>)>,
}

impl Table {
    pub fn add(&mut self, client: &'static str, backend: &str, scenario: &'static str, cell: Cell) {
        if !self.scenarios.contains(&scenario) {
            self.scenarios.push(scenario);
        }
        let row = self.rows.entry((backend.to_owned(), client)).or_default();
        row.insert(scenario, cell.sign());
        for (difference, reason) in &cell.differences {
            let Some(reason) = reason else { continue };
            let (count, examples) = self.reasons.entry(reason).or_default();
            *count += 1;
            let example = format!("{} ({scenario})", difference.key);
            if examples.len() < NAMED && !examples.contains(&example) {
                examples.push(example);
            }
        }
    }

    /// The table, and the explanations that were needed.
    pub fn shown(&self) -> String {
        let mut lines = vec![
            "= the same, e explained, X different, . not a thing that the client does".to_owned(),
            "p proxied does what direct does not, explained; P the same, not explained".to_owned(),
        ];
        for (number, scenario) in self.scenarios.iter().enumerate() {
            lines.push(format!("  {} {scenario}", letter(number)));
        }
        let letters: String = (0..self.scenarios.len()).map(letter).collect();
        lines.push(format!("{:<14}{:<14}{letters}", "back end", "client"));
        for ((backend, client), signs) in &self.rows {
            let sign = |scenario| signs.get(scenario).copied().unwrap_or(' ');
            let signs: String = self.scenarios.iter().map(sign).collect();
            lines.push(format!("{backend:<14}{client:<14}{signs}"));
        }
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for sign in self.rows.values().flat_map(BTreeMap::values) {
            *counts.entry(*sign).or_default() += 1;
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(it, count)| format!("{count} {it}"))
            .collect();
        lines.push(format!("in all: {}", counts.join(", ")));
        lines.push("explained:".to_owned());
        for (reason, (count, examples)) in &self.reasons {
            lines.push(format!("  {count} x {reason}: {}", examples.join(", ")));
        }
        lines.join("\n")
    }
}

/// The letter of a column.
fn letter(number: usize) -> char {
    ('A'..='Z').chain('a'..='z').nth(number).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{self, Outcome};
    use super::*;

    /// Cells in which the proxied request does what the direct one does not looked explained.
    #[test]
    fn what_only_the_proxied_request_does_is_shown() {
        let outcome = |pairs: &[(&str, &str)]| -> Outcome {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            pairs.iter().map(owned).collect()
        };
        let direct = outcome(&[("status", "200"), ("length", "3"), ("h.etag", "1")]);
        let proxied = outcome(&[("status", "200"), ("length", "5"), ("h.etag", "2")]);
        let found = outcome::differences_alone((&direct, "3 bytes".to_owned()), (&proxied, None));
        let keys: Vec<&str> = found.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, ["h.etag", "alone"]);
        let cell = |reasons: [Option<&'static str>; 2]| {
            Cell::new("get", found.iter().cloned().zip(reasons).collect())
        };
        assert_eq!(cell([Some("a"), Some("b")]).sign(), 'p');
        assert_eq!(cell([Some("a"), None]).sign(), 'P');
        assert_eq!(cell([None, None]).sign(), 'X');
        let shown = cell([Some("a"), None]).unexplained();
        assert_eq!(shown, ["get: proxied does what direct does not: `3 bytes`"]);
        // Of a refusal there is nothing to compare with a success.
        let refused = outcome(&[("status", "411"), ("h.etag", "1")]);
        let found = outcome::differences_alone((&refused, "411".to_owned()), (&proxied, None));
        assert_eq!(found.len(), 1);
        // Where both are wrong everything counts.
        let both = outcome::differences_alone(
            (&refused, "411".to_owned()),
            (&proxied, Some("5 bytes".to_owned())),
        );
        assert_eq!(both.len(), 4);
    }
}
