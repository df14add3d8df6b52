//! What has been found, as a table: a row for each client and back end, a column for each scenario.
//! It is kept in files as it was found, and explained when it is shown: a new explanation needs no
//! new run, and runs of parts of the pairs make one table.

use std::collections::{BTreeMap, BTreeSet};

use super::explain::{self, Found, Reason};
use super::outcome::Difference;

/// The most rows of one difference that are named.
const NAMED: usize = 4;

/// A difference, and what else its explanation goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    pub difference: Difference,
    /// What Go's client gets from the back end by the protocol that the engine speaks to it.
    pub native: Option<String>,
}

/// What came of one scenario with one client and one back end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The back end and the protocol it is spoken to with.
    pub backend: String,
    /// The client's mode.
    pub client: String,
    pub scenario: String,
    /// Whether the client cannot do this.
    pub is_unsupported: bool,
    pub differences: Vec<Noted>,
}

impl Cell {
    fn explained(&self) -> impl Iterator<Item = (&Difference, Option<Reason>)> {
        self.differences.iter().map(|noted| {
            let found = Found {
                scenario: &self.scenario,
                client: &self.client,
                backend: &self.backend,
                difference: &noted.difference,
                native: noted.native.as_deref(),
            };
            (&noted.difference, explain::reason(&found))
        })
    }

    /// The differences that nothing explains.
    pub fn unexplained(&self) -> Vec<String> {
        let differences = self.explained().filter(|it| it.1.is_none());
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        differences
            .map(|(it, _)| {
                let (direct, proxied) = (shown(&it.direct), shown(&it.proxied));
                let (scenario, key) = (&self.scenario, &it.key);
                if it.is_gain() {
                    return format!("{scenario}: proxied does what direct does not: `{direct}`");
                }
                format!("{scenario}: {key} is `{direct}` direct, `{proxied}` through the engine")
            })
            .collect()
    }

    fn sign(&self) -> char {
        let (mut open, mut open_gain, mut gain) = (false, false, false);
        for (difference, reason) in self.explained() {
            gain |= difference.is_gain();
            open |= reason.is_none() && !difference.is_gain();
            open_gain |= reason.is_none() && difference.is_gain();
        }
        match (open, open_gain, gain) {
            _ if self.is_unsupported => '.',
            _ if self.differences.is_empty() => '=',
            (true, ..) => 'X',
            (_, true, _) => 'P',
            (.., true) => 'p',
            _ => 'e',
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    cells: Vec<Cell>,
    /// The most KiB that the engine held in a scenario, and with whom.
    peaks: BTreeMap<String, (u64, String)>,
    /// How many runs have come to their end.
    ended: usize,
}

impl Table {
    /// The run is over.
    pub fn end(&mut self) {
        self.ended += 1;
    }

    pub fn ended(&self) -> usize {
        self.ended
    }

    pub fn add(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    /// Notes the most that the engine held in a scenario.
    pub fn note_peak(&mut self, scenario: &str, kib: u64, pair: &str) {
        let peak = self.peaks.entry(scenario.to_owned()).or_default();
        if kib > peak.0 {
            *peak = (kib, pair.to_owned());
        }
    }

    /// Lines from which [`Self::read`] makes the same table.
    pub fn lines(&self) -> String {
        let mut lines = Vec::new();
        for cell in &self.cells {
            let kind = if cell.is_unsupported { "no" } else { "cell" };
            let place = [&*cell.backend, &cell.client, &cell.scenario];
            lines.push(line(&[&[kind], &place[..]].concat()));
            for Noted { difference, native } in &cell.differences {
                let texts = [&difference.direct, &difference.proxied, native];
                let texts = texts.map(optional);
                let [direct, proxied, native] = &texts;
                lines.push(line(&["differs", &difference.key, direct, proxied, native]));
            }
        }
        for (scenario, (kib, pair)) in &self.peaks {
            lines.push(line(&["peak", scenario, &kib.to_string(), pair]));
        }
        lines.extend((0..self.ended).map(|_| line(&["end"])));
        lines.join("")
    }

    /// Adds what another run has written; `None` when it is not that.
    pub fn read(&mut self, text: &str) -> Option<()> {
        for line in text.lines() {
            let words: Vec<String> = line.split('\t').map(plain).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words.as_slice() {
                [kind @ ("cell" | "no"), backend, client, scenario] => self.cells.push(Cell {
                    backend: (*backend).to_owned(),
                    client: (*client).to_owned(),
                    scenario: (*scenario).to_owned(),
                    is_unsupported: *kind == "no",
                    differences: Vec::new(),
                }),
                ["differs", key, direct, proxied, native] => {
                    let given = |text: &str| text.strip_prefix('=').map(str::to_owned);
                    let difference = Difference {
                        key: (*key).to_owned(),
                        direct: given(direct),
                        proxied: given(proxied),
                    };
                    let native = given(native);
                    let noted = Noted { difference, native };
                    self.cells.last_mut()?.differences.push(noted);
                }
                ["peak", scenario, kib, pair] => {
                    self.note_peak(scenario, kib.parse().ok()?, pair);
                }
                ["end"] => self.end(),
                _ => return None,
            }
        }
        Some(())
    }

    /// What nothing explains, with the pair.
    pub fn unexplained(&self) -> Vec<String> {
        let of_cell = |cell: &Cell| {
            let pair = format!("{} -> {}", cell.client, cell.backend);
            let found = cell.unexplained().into_iter();
            found.map(move |it| format!("{pair}: {it}"))
        };
        self.cells.iter().flat_map(of_cell).collect()
    }

    /// The rows of the explanations that are needed.
    pub fn explained_by(&self) -> BTreeSet<String> {
        let reasons = self.cells.iter().flat_map(Cell::explained);
        reasons.filter_map(|(_, reason)| reason?.row).collect()
    }

    /// The table, and the explanations that were needed.
    pub fn shown(&self) -> String {
        let mut lines = vec![
            "= the same, e explained, X different, . not a thing that the client does".to_owned(),
            "p proxied does what direct does not, explained; P the same, not explained".to_owned(),
        ];
        lines.extend(self.rows());
        lines.push("explained:".to_owned());
        lines.extend(self.reasons());
        for (scenario, (kib, pair)) in &self.peaks {
            let mib = kib / 1024;
            lines.push(format!(
                "most memory of the engine, {scenario}: {mib} MiB ({pair})"
            ));
        }
        lines.join("\n")
    }

    fn rows(&self) -> Vec<String> {
        let mut scenarios: Vec<&str> = Vec::new();
        let mut rows: BTreeMap<_, BTreeMap<&str, char>> = BTreeMap::new();
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for cell in &self.cells {
            let sign = cell.sign();
            *counts.entry(sign).or_default() += 1;
            if !scenarios.contains(&&*cell.scenario) {
                scenarios.push(&cell.scenario);
            }
            let row = rows.entry((&*cell.backend, &*cell.client)).or_default();
            row.insert(&*cell.scenario, sign);
        }
        let numbered = scenarios.iter().enumerate();
        let mut lines: Vec<String> = numbered
            .map(|(number, scenario)| format!("  {} {scenario}", letter(number)))
            .collect();
        let letters: String = (0..scenarios.len()).map(letter).collect();
        lines.push(format!("{:<14}{:<14}{letters}", "back end", "client"));
        for ((backend, client), signs) in &rows {
            let sign = |scenario| signs.get(scenario).copied().unwrap_or(' ');
            let signs: String = scenarios.iter().copied().map(sign).collect();
            lines.push(format!("{backend:<14}{client:<14}{signs}"));
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(it, count)| format!("{count} {it}"))
            .collect();
        lines.push(format!("in all: {}", counts.join(", ")));
        lines
    }

    /// For each reason how often it is needed, and where.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
        for cell in &self.cells {
            for (difference, reason) in cell.explained() {
                let Some(reason) = reason else { continue };
                let (count, examples) = reasons.entry(reason.text).or_default();
                *count += 1;
                let example = format!("{} ({})", difference.key, cell.scenario);
                if examples.len() < NAMED && !examples.contains(&example) {
                    examples.push(example);
                }
            }
        }
        let shown = reasons.into_iter().map(|(reason, (count, examples))| {
            format!("  {count} x {reason}: {}", examples.join(", "))
        });
        shown.collect()
    }
}

/// The letter of a column.
fn letter(number: usize) -> char {
    ('A'..='Z').chain('a'..='z').nth(number).unwrap_or('?')
}

fn line(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|it| escaped(it)).collect();
    words.join("\t") + "\n"
}

fn optional(text: &Option<String>) -> String {
    text.as_ref()
        .map_or_else(|| "-".to_owned(), |text| format!("={text}"))
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\t', "\\t");
    text.replace('\n', "\\n").replace('\r', "\\r")
}

fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match (letter, letter == '\\') {
            (_, true) => match letters.next().unwrap_or('\\') {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                other => other,
            },
            (letter, false) => letter,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{self, Outcome};
    use super::*;

    fn outcome(pairs: &[(&str, &str)]) -> Outcome {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn cell(scenario: &str, differences: &[Difference], native: Option<&str>) -> Cell {
        let noted = |difference: &Difference| Noted {
            difference: difference.clone(),
            native: native.map(str::to_owned),
        };
        Cell {
            backend: "go h1".to_owned(),
            client: "curl-h1".to_owned(),
            scenario: scenario.to_owned(),
            is_unsupported: false,
            differences: differences.iter().map(noted).collect(),
        }
    }

    /// Cells in which the proxied request does what the direct one does not looked explained.
    #[test]
    fn what_only_the_proxied_request_does_is_shown() {
        let direct = outcome(&[("status", "200"), ("length", "3"), ("h.etag", "1")]);
        let proxied = outcome(&[("status", "200"), ("length", "5"), ("h.etag", "2")]);
        let found = outcome::differences_alone((&direct, "timeout".to_owned()), (&proxied, None));
        let keys: Vec<&str> = found.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, ["h.etag", "alone"]);
        assert_eq!(cell("get", &found, None).sign(), 'X');
        // The etag is that of the back end's other protocol.
        let native = cell("get", &found, Some("2"));
        assert_eq!(native.sign(), 'P');
        let shown = native.unexplained();
        let expected = "get: proxied does what direct does not: `timeout`";
        assert_eq!(shown, [expected]);
        let mut explained = cell("expect", &found, Some("2"));
        explained.backend = "nginx h1".to_owned();
        assert_eq!(explained.sign(), 'p');
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

    #[test]
    fn tables_of_parts_make_one() {
        let via = Difference {
            key: "seen.via".to_owned(),
            direct: None,
            proxied: Some("1.1 intertie".to_owned()),
        };
        let odd = Difference {
            key: "text".to_owned(),
            direct: Some("tab\tline\nback\\n".to_owned()),
            proxied: Some(String::new()),
        };
        let (mut one, mut other) = (Table::default(), Table::default());
        one.add(cell("request", &[via], None));
        one.note_peak("down", 2048, "curl-h1 -> go h1");
        one.end();
        other.add(cell("get", &[odd], Some("-")));
        other.add(Cell {
            is_unsupported: true,
            ..cell("head", &[], None)
        });
        other.note_peak("down", 4096, "java-h1 -> go h2");
        let mut whole = Table::default();
        for part in [&one, &other] {
            whole.read(&part.lines()).unwrap();
        }
        let cells = [one.cells, other.cells].concat();
        assert_eq!((whole.cells.as_slice(), whole.ended()), (&*cells, 1));
        let shown = whole.shown();
        assert!(
            shown.contains("go h1         curl-h1       eX.\n"),
            "{shown}"
        );
        assert!(shown.contains("down: 4 MiB (java-h1 -> go h2)"), "{shown}");
        assert_eq!(whole.explained_by().len(), 1);
        assert_eq!(whole.unexplained().len(), 1);
        assert!(whole.read("something else").is_none());
    }
}
