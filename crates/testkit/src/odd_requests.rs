//! Odd requests: what attackers and careless clients send to make two implementations disagree.

use crate::strict::StrictBackend;

/// What is expected of an odd request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It must be refused.
    Refuse,
    /// It is odd but right, and must arrive.
    Pass,
    /// Both are right.
    Either,
}

/// An odd request.
#[derive(Clone, Debug)]
pub struct OddRequest {
    /// What it plays with.
    pub category: String,
    /// What it does.
    pub name: String,
    /// What is expected of it.
    pub expectation: Expectation,
    /// How many requests may arrive at the most.
    pub most: usize,
    /// What is sent.
    pub bytes: Vec<u8>,
}

/// All of them.
pub fn all() -> Vec<OddRequest> {
    let lines = include_str!("../data/odd_requests.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(parse)
        .collect()
}

fn parse(line: &str) -> OddRequest {
    let parts: Vec<&str> = line.splitn(5, " | ").collect();
    let [category, name, expectation, most, bytes] = parts.as_slice() else {
        panic!("not five parts: {line}");
    };
    let expectation = match *expectation {
        "refuse" => Expectation::Refuse,
        "pass" => Expectation::Pass,
        "either" => Expectation::Either,
        other => panic!("no expectation: {other}"),
    };
    OddRequest {
        category: (*category).to_owned(),
        name: (*name).to_owned(),
        expectation,
        most: most.parse().unwrap(),
        bytes: unescape(bytes),
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((inside, behind)) = rest
            .strip_prefix("{repeat:")
            .and_then(|rest| rest.split_once('}'))
        {
            let (piece, count) = inside.rsplit_once(':').unwrap();
            bytes.extend(unescape(piece).repeat(count.parse().unwrap()));
            rest = behind;
            continue;
        }
        let Some(escape) = rest.strip_prefix('\\') else {
            bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let (byte, length) = match escape.as_bytes()[0] {
            b'r' => (b'\r', 1),
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'x' => (u8::from_str_radix(&escape[1..3], 16).unwrap(), 3),
            other => (other, 1),
        };
        bytes.push(byte);
        rest = &escape[length..];
    }
    bytes
}

/// Whether what came of an odd request is right: it was refused and nothing of it arrived, or it
/// arrived as exactly one well-formed request (or as many as it holds).
///
/// # Errors
/// What is wrong.
pub fn verdict(odd: &OddRequest, backend: &StrictBackend, answer: &[u8]) -> Result<(), String> {
    let arrived = backend.requests().len();
    // A request that is cut in its body is never taken by anybody.
    let wrong: Vec<String> = backend
        .violations()
        .into_iter()
        .filter(|violation| !violation.starts_with("cut within"))
        .collect();
    if !wrong.is_empty() {
        return Err(format!("the back end got {wrong:?}"));
    }
    if arrived > odd.most {
        return Err(format!(
            "{arrived} requests arrived: {:?}",
            backend.requests()
        ));
    }
    let text = String::from_utf8_lossy(answer);
    let status: u16 = text
        .get(9..12)
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0);
    let refused = (400..=505).contains(&status) && arrived == 0;
    match odd.expectation {
        Expectation::Refuse if !refused => Err(format!("{arrived} arrived, answer {text:?}")),
        Expectation::Pass if arrived != odd.most => Err(format!(
            "{arrived} of {} arrived, answer {text:?}",
            odd.most
        )),
        Expectation::Either if !refused && arrived == 0 => {
            Err(format!("neither refused nor arrived, answer {text:?}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_many_and_each_has_a_name_of_its_own() {
        let all = all();
        assert!(all.len() >= 200, "{}", all.len());
        let mut names: Vec<_> = all.iter().map(|odd| (&odd.category, &odd.name)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(
            unescape("a\\r\\n\\x00{repeat:b\\t:3}\\\\\""),
            b"a\r\n\0b\tb\tb\t\\\""
        );
    }
}
