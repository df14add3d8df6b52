//! What is sent and what must come back: JSON of exactly the wanted size with a number inside that
//! no other request has, so that a mixed-up reply is noticed.

use std::fmt::Write;

use anyhow::ensure;
use serde_json::Value;

/// The digits of the number.
const DIGITS: usize = 8;
/// The least of the numbers; there are nine times as many.
pub(crate) const FIRST: u64 = 10_000_000;
/// How many numbers there are.
pub(crate) const NUMBERS: u64 = 9 * FIRST;
/// The least size: everything around the strings, and a string of one letter.
const SIZE_MIN: usize = "{\"id\":12345678,\"payload\":[\"a\"]}".len();
/// The characters of a string, as the published measurements have it.
const STRING: usize = 10;

/// A text with a number in it, once or several times.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    text: Vec<u8>,
    /// Where the number begins.
    at: Vec<usize>,
}

impl Numbered {
    fn new(text: String) -> Self {
        let number = FIRST.to_string();
        Self {
            at: text.match_indices(&number).map(|(at, _)| at).collect(),
            text: text.into_bytes(),
        }
    }

    /// The same text behind a head.
    pub fn behind(&self, head: &[u8]) -> Self {
        Self {
            text: [head, &self.text].concat(),
            at: self.at.iter().map(|at| at + head.len()).collect(),
        }
    }

    /// The text with this number, which is brought into range.
    pub fn with(&mut self, number: u64) -> &[u8] {
        for at in &self.at {
            let mut rest = FIRST + number % NUMBERS;
            let digits = self.text.get_mut(*at..*at + DIGITS);
            for digit in digits.unwrap_or_default().iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.text
    }

    /// Puts other bytes in, from this place on.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.text.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// A text in which this number stands somewhere, if it does.
    fn found(text: &[u8], number: u64) -> Option<Self> {
        let digits = (FIRST + number % NUMBERS).to_string();
        let at = memchr::memmem::find(text, digits.as_bytes())?;
        Some(Self {
            text: text.to_vec(),
            at: vec![at],
        })
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.text.len()
    }
}

/// The number in the member `id` of a body, if it has one in range.
pub(crate) fn number(body: &[u8]) -> Option<u64> {
    let name = b"\"id\"";
    let at = memchr::memmem::find(body, name)? + name.len();
    let value = body.get(at..)?;
    let start = value.iter().position(u8::is_ascii_digit)?;
    let digits = value.get(start..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit());
    let digits = digits.get(..end.unwrap_or(digits.len()))?;
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_sub(FIRST).filter(|number| *number < NUMBERS)
}

/// What must come back: the same bytes, or the same JSON.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    text: Numbered,
    is_json: bool,
    /// How the peer prints this JSON: the bytes of most replies need not be read again.
    seen: Option<Numbered>,
}

impl Expected {
    fn new(text: Numbered, is_json: bool) -> Self {
        Self {
            text,
            is_json,
            seen: None,
        }
    }

    /// Whether a body is the one with this number.
    pub fn is(&mut self, number: u64, body: &[u8]) -> bool {
        if self.text.with(number) == body {
            return true;
        }
        if !self.is_json {
            return false;
        }
        if let Some(seen) = &mut self.seen
            && seen.with(number) == body
        {
            return true;
        }
        let is_same = is_same_json(self.text.with(number), body);
        if is_same {
            self.seen = Numbered::found(body, number);
        }
        is_same
    }

    /// The body with this number.
    pub fn with(&mut self, number: u64) -> &[u8] {
        self.text.with(number)
    }
}

fn is_same_json(one: &[u8], other: &[u8]) -> bool {
    let [one, other] = [one, other].map(serde_json::from_slice::<Value>);
    matches!((one, other), (Ok(one), Ok(other)) if is_same(&one, &other))
}

/// Whether two values are equal whatever the order of members, and however numbers are written.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|other| is_same(value, other))
            };
            one.len() == other.len() && one.iter().all(is_in)
        }
        _ => one == other,
    }
}

/// A request's body and the reply's.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    /// What is sent.
    pub sent: Numbered,
    /// What must come back.
    pub expected: Expected,
}

impl Bodies {
    /// Bodies of so many bytes; as XML they are longer.
    ///
    /// # Errors
    /// When the size is too small for the number and a string.
    pub fn new(size: usize, becomes_xml: bool) -> anyhow::Result<Self> {
        ensure!(size >= SIZE_MIN, "bodies have at least {SIZE_MIN} bytes");
        let strings = strings(size);
        let json = Numbered::new(json(&strings));
        let expected = match becomes_xml {
            true => Numbered::new(xml(&strings)),
            false => json.clone(),
        };
        Ok(Self {
            sent: json,
            expected: Expected::new(expected, false),
        })
    }

    /// A text, and the text that must come back.
    pub fn text(sent: String, expected: String) -> Self {
        Self {
            sent: Numbered::new(sent),
            expected: Expected::new(Numbered::new(expected), false),
        }
    }

    /// A JSON body, and the JSON that must come back, in which the least number stands once.
    pub fn json(sent: String, expected: String) -> Self {
        Self {
            sent: Numbered::new(sent),
            expected: Expected::new(Numbered::new(expected), true),
        }
    }
}

/// The strings of a body: of ten characters, and a rest.
fn strings(size: usize) -> Vec<String> {
    let mut alphabet = ('0'..='9').chain('A'..='Z').chain('a'..='z').cycle();
    let mut left = size + "\"a\"".len() - SIZE_MIN;
    let mut strings = Vec::new();
    while left > 0 {
        // A comma and a string of one letter need four.
        let length = if left < STRING + 2 + 4 {
            left - 2
        } else {
            STRING
        };
        strings.push(alphabet.by_ref().take(length).collect());
        left = left.saturating_sub(length + 3);
    }
    strings
}

fn json(strings: &[String]) -> String {
    format!(
        "{{\"id\":{FIRST},\"payload\":[\"{}\"]}}",
        strings.join("\",\"")
    )
}

/// By the rules of `docs/json-xml.md`: several members get a root, an array repeats its element.
fn xml(strings: &[String]) -> String {
    let mut text = format!("<root><id>{FIRST}</id>");
    for string in strings {
        // invariant: writing to a String does not fail.
        let _ = write!(text, "<payload>{string}</payload>");
    }
    text.push_str("</root>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_are_json() {
        for size in (SIZE_MIN..200).chain([1024, 10_240]) {
            let mut bodies = Bodies::new(size, false).unwrap();
            assert_eq!(bodies.sent.len(), size);
            let value: Value = serde_json::from_slice(bodies.sent.with(7)).unwrap();
            assert_eq!(value["id"], 10_000_007);
            let strings = value["payload"].as_array().unwrap();
            assert!(strings.iter().all(|it| !it.as_str().unwrap().is_empty()));
            assert_eq!(bodies.expected.with(7), bodies.sent.with(7));
        }
        assert!(Bodies::new(SIZE_MIN - 1, false).is_err());
    }

    #[test]
    fn numbers_are_found_again() {
        let mut bodies = Bodies::new(256, false).unwrap();
        for wanted in [0, 7, NUMBERS - 1] {
            assert_eq!(number(bodies.sent.with(wanted)), Some(wanted));
        }
        assert_eq!(number(br#"{ "a": 1, "id" : 10000003 }"#), Some(3));
        for text in [
            "",
            "{}",
            r#"{"id":"x"}"#,
            r#"{"id":5}"#,
            r#"{"id":100000000}"#,
        ] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Numbered::new("no number".to_owned()).with(3), b"no number");
    }

    #[test]
    fn numbers_stay_in_range_and_differ() {
        let mut bodies = Bodies::new(50, false).unwrap();
        let first = bodies.sent.with(0).to_vec();
        assert_ne!(bodies.sent.with(1), first);
        assert_eq!(bodies.sent.with(NUMBERS), first);
        let mut request = bodies.sent.behind(b"head ");
        assert_eq!(request.with(0), [b"head ", first.as_slice()].concat());
        request.put(1, b"ard");
        assert_eq!(request.with(0), [b"hard ", first.as_slice()].concat());
    }

    #[test]
    fn replies_are_compared_as_json_where_that_is_said() {
        let text = r#"{"a":10000000,"b":[1.5,{"c":"x","d":2}]}"#.to_owned();
        let mut bodies = Bodies::json(text.clone(), text);
        let expected = &mut bodies.expected;
        let other = |number: u64| {
            format!(
                r#"{{ "b": [15e-1, {{"d":2.0,"c":"x"}}], "a": {} }}"#,
                FIRST + number
            )
        };
        for number in [1, 1, 2, 3] {
            assert!(expected.is(number, other(number).as_bytes()), "{number}");
            let same = expected.with(number).to_vec();
            assert!(expected.is(number, &same));
            assert!(!expected.is(number, other(number + 1).as_bytes()));
        }
        for wrong in [
            "",
            "null",
            r#"{"a":10000001}"#,
            r#"{"a":10000001,"b":[1.5,{"c":"x","d":2}],"e":null}"#,
            r#"{"a":10000001,"b":[1.5,{"c":"x","d":"2"}]}"#,
            r#"{"a":"10000001","b":[1.5,{"c":"x","d":2}]}"#,
            r#"{"a":10000001,"b":[{"c":"x","d":2},1.5]}"#,
        ] {
            assert!(!expected.is(1, wrong.as_bytes()), "{wrong}");
        }
        let mut bytes = Bodies::new(50, false).unwrap();
        let text = bytes.expected.with(1).to_vec();
        assert!(bytes.expected.is(1, &text));
        assert!(!bytes.expected.is(1, &[&text[..], b" "].concat()));
    }

    #[test]
    fn xml_is_what_the_conversion_gives() {
        let mut bodies = Bodies::new(50, true).unwrap();
        let text = std::str::from_utf8(bodies.expected.with(1))
            .unwrap()
            .to_owned();
        assert_eq!(
            text,
            "<root><id>10000001</id><payload>0123456789</payload><payload>ABCDEFG</payload></root>"
        );
        assert_eq!(
            bodies.sent.with(1),
            br#"{"id":10000001,"payload":["0123456789","ABCDEFG"]}"#
        );
    }
}
