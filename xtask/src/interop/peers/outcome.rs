//! What came of a scenario, in a form in which outcomes can be compared.

use std::collections::BTreeMap;

use super::scenario::{Body, Scenario};

/// Names and values: `status`, `h.NAME` for a header, `seen.NAME` for one that the back end saw.
pub type Outcome = BTreeMap<String, String>;

/// Something that is not the same without and with the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub key: String,
    /// `None` where there is nothing of the kind.
    pub direct: Option<String>,
    pub proxied: Option<String>,
}

/// The addresses in values that differ by nature.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<'a> {
    /// Host and port that the client asked.
    pub asked: &'a str,
    /// Those of all listeners of the back end.
    pub backend: &'a [String],
}

/// The key of a difference of outcomes as a whole, one of which is not what it must be.
pub const ALONE: &str = "alone";

impl Difference {
    /// Whether the proxied request does what the direct one does not.
    pub fn is_gain(&self) -> bool {
        self.key == ALONE && self.proxied.is_none()
    }
}

/// Reads a flat JSON object of texts.
pub fn parse(line: &str) -> Option<Outcome> {
    let mut letters = line.trim().strip_prefix('{')?.chars();
    let mut texts = Vec::new();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => texts.push(text(&mut letters)?),
            ',' | ':' | ' ' => {}
            '}' => break,
            _ => return None,
        }
    }
    let pairs = texts.chunks_exact(2);
    let pair = |pair: &[String]| Some((pair.first()?.clone(), pair.get(1)?.clone()));
    pairs.map(pair).collect()
}

/// The rest of a text, up to its closing quote.
fn text(letters: &mut std::str::Chars<'_>) -> Option<String> {
    let mut text = String::new();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => match letters.next()? {
                'n' => text.push('\n'),
                'r' => text.push('\r'),
                't' => text.push('\t'),
                'u' => {
                    let code: String = letters.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&code, 16).ok()?;
                    text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

/// Takes out what differs from one run to the next: addresses and the time.
pub fn normalize(scenario: &Scenario, found: Outcome, addresses: Addresses<'_>) -> Outcome {
    let mut outcome = Outcome::new();
    for (key, value) in found {
        let value = match key.ends_with("h.date") {
            true => "a date".to_owned(),
            false => without_addresses(&value, addresses),
        };
        if key == "text" && scenario.name == "request" {
            for line in value.lines() {
                let (name, value) = line.split_once(": ").unwrap_or((line, ""));
                outcome.insert(format!("seen.{name}"), value.to_owned());
            }
        } else {
            outcome.insert(key, value);
        }
    }
    if scenario.name == "request" {
        // Its content is compared line by line.
        for key in ["sha256", "length", "h.content-length"] {
            outcome.remove(key);
        }
    }
    outcome
}

fn without_addresses(value: &str, addresses: Addresses<'_>) -> String {
    let mut value = value.replace(addresses.asked, "ASKED");
    for address in addresses.backend {
        value = value.replace(address, "BACKEND");
    }
    value
}

/// What is wrong with an outcome whatever the other one is. `hash` gives that of the pattern.
pub fn check(
    scenario: &Scenario,
    outcome: &Outcome,
    hash: impl Fn(u64) -> String,
) -> Result<(), String> {
    let get = |key: &str| outcome.get(key).map_or("", String::as_str);
    if let Some(error) = outcome.get("error") {
        return Err(format!("{error} after {} bytes", get("length")));
    }
    if scenario
        .status
        .is_some_and(|wanted| wanted != get("status"))
    {
        return Err(format!("status {}", get("status")));
    }
    let is_right = match scenario.body {
        Body::Any => true,
        Body::Text(text) => get("text") == text,
        Body::Pattern(size) => get("length") == size.to_string() && get("sha256") == hash(size),
        Body::Digest(size) => get("text") == format!("{size} {}\n", hash(size)),
    };
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "a wrong body: {} bytes {}",
            get("length"),
            get("text")
        )),
    }
}

/// Everything in which two outcomes differ, where the direct one is not what it must be, for this
/// reason: even the client and the back end alone do not do what the scenario is about. Where the
/// proxied one is right, only headers can be compared, of replies with the same status.
pub fn differences_alone(
    (direct, problem): (&Outcome, String),
    (proxied, proxied_problem): (&Outcome, Option<String>),
) -> Vec<Difference> {
    let mut found = differences(direct, proxied);
    if proxied_problem.is_none() {
        let is_same_status = direct.get("status") == proxied.get("status");
        found.retain(|it| {
            let is_header = it.key.split('.').any(|part| part == "h");
            is_same_status && is_header && it.direct.is_some() && it.proxied.is_some()
        });
    }
    found.push(Difference {
        key: ALONE.to_owned(),
        direct: Some(problem),
        proxied: proxied_problem,
    });
    found
}

/// Everything in which two outcomes differ.
pub fn differences(direct: &Outcome, proxied: &Outcome) -> Vec<Difference> {
    let mut keys: Vec<&String> = direct.keys().chain(proxied.keys()).collect();
    keys.sort();
    keys.dedup();
    let differing = keys
        .into_iter()
        .filter(|key| direct.get(*key) != proxied.get(*key));
    differing
        .map(|key| Difference {
            key: key.clone(),
            direct: direct.get(key).cloned(),
            proxied: proxied.get(key).cloned(),
        })
        .collect()
}
