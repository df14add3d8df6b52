//! Spellings of URLs that somebody may set to make the engine call what it should not.

/// A spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressSpelling {
    /// What is expected: `url`, `scheme`, `port` or `address` for what it is refused by, `name` for
    /// a name whose addresses decide, `pass`.
    pub verdict: &'static str,
    /// The URL.
    pub url: String,
    /// What it plays with.
    pub reason: &'static str,
}

/// All of `data/egress_spellings.txt`.
pub fn egress_spellings() -> Vec<EgressSpelling> {
    let lines = include_str!("../data/egress_spellings.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| {
        let (verdict, rest) = line.split_once(" | ").expect(line);
        let (url, reason) = rest.rsplit_once("| ").expect(line);
        let url = url.strip_suffix(' ').unwrap_or(url);
        EgressSpelling {
            verdict,
            url: unescape(url),
            reason,
        }
    });
    parts.collect()
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let (kind, behind) = behind.split_at(1);
        rest = behind;
        match kind {
            "t" => out.push('\t'),
            "n" => out.push('\n'),
            "r" => out.push('\r'),
            "\\" => out.push('\\'),
            "u" => {
                let (number, behind) = rest.split_once('}').expect(text);
                let number = number.strip_prefix('{').expect(text);
                let number = u32::from_str_radix(number, 16).expect(text);
                out.push(char::from_u32(number).expect(text));
                rest = behind;
            }
            other => panic!("\\{other} in {text}"),
        }
    }
    out + rest
}
