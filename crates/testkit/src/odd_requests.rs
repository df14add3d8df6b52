//! Odd requests: what attackers and careless clients send to make two implementations disagree.

use std::time::Duration;

use crate::response::{Response, responses};
use crate::strict::{CUT_BODY, StrictBackend};

/// How long a back end may be within a request after the client's connection has ended.
const PATIENCE: Duration = Duration::from_secs(5);

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

impl OddRequest {
    /// The method that it seems to have: its first word.
    fn method(&self) -> &str {
        let bytes = self.bytes.trim_ascii_start();
        let word = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
        std::str::from_utf8(word).unwrap_or_default()
    }
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
/// arrived as exactly one well-formed request (or as many as it holds), and nothing lies behind it
/// on the back end's connection. `answer` is all that the client has read until the end.
///
/// # Errors
/// What is wrong.
pub fn verdict(odd: &OddRequest, backend: &StrictBackend, answer: &[u8]) -> Result<(), String> {
    let settled = backend.settles(PATIENCE);
    let requests = backend.requests();
    let mut wrong = backend.violations();
    wrong.retain(|violation| violation != CUT_BODY);
    if !wrong.is_empty() || !settled {
        return Err(format!("the back end got {wrong:?}; all taken: {settled}"));
    }
    let methods: Vec<&str> = requests.iter().map(|it| it.method.as_str()).collect();
    if methods
        .first()
        .is_some_and(|method| *method != odd.method())
    {
        return Err(format!("another request arrived: {requests:?}"));
    }
    let methods = if methods.is_empty() {
        vec![odd.method()]
    } else {
        methods
    };
    let shown = String::from_utf8_lossy(answer);
    let answers = responses(answer, &methods)
        .map_err(|problem| format!("the answer {shown:?} is none: {problem}"))?;
    let arrived = requests.len();
    let refused = arrived == 0 && matches!(answers.as_slice(), [only] if is_refusal(only));
    // Behind what arrived, one refusal may end the connection.
    let answered = arrived > 0
        && answers.len() >= arrived
        && answers[..arrived].iter().all(|answer| answer.status == 200)
        && matches!(&answers[arrived..], [] | [_])
        && answers[arrived..].iter().all(is_refusal);
    let is_right = match odd.expectation {
        Expectation::Refuse => refused,
        Expectation::Pass => answered && arrived == odd.most && answers.len() == arrived,
        Expectation::Either => refused || (answered && arrived <= odd.most),
    };
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "{arrived} of {} arrived, answer {shown:?}",
            odd.most
        )),
    }
}

/// Whether a response says that the request was wrong, and that the connection ends with it.
fn is_refusal(response: &Response) -> bool {
    matches!(response.status, 400..=499 | 501 | 505)
        && response
            .header("Connection")
            .is_some_and(|options| options.eq_ignore_ascii_case("close"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RawClient;

    #[test]
    fn there_are_many_and_each_has_a_name_of_its_own() {
        let all = all();
        assert!(all.len() >= 220, "{}", all.len());
        let mut names: Vec<_> = all.iter().map(|odd| (&odd.category, &odd.name)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn every_category_is_there() {
        let categories = [
            "chunk-end",
            "chunk-extension",
            "chunk-size",
            "chunk-spelling",
            "chunk-trailer",
            "cl-te",
            "connection",
            "empty-line",
            "expect",
            "field",
            "field-good",
            "field-limit",
            "garbage",
            "host",
            "length-fold",
            "length-get",
            "length-line",
            "length-name",
            "length-spelling",
            "length-twice",
            "length-value",
            "length-zero",
            "line-end",
            "pipelined",
            "request-line",
            "target",
            "target-good",
            "te-body",
            "te-case",
            "te-fold",
            "te-line",
            "te-name",
            "te-old",
            "te-twice",
            "te-value",
            "te-value-and-length",
            "upgrade",
            "version",
        ];
        let mut found: Vec<String> = all().into_iter().map(|odd| odd.category).collect();
        found.sort();
        found.dedup();
        assert_eq!(found, categories);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(
            unescape("a\\r\\n\\x00{repeat:b\\t:3}\\\\\""),
            b"a\r\n\0b\tb\tb\t\\\""
        );
    }

    const GOOD: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const REFUSED: &str =
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

    /// The verdict on a proxy that sends this to the back end and answers that.
    fn judged(expectation: Expectation, most: usize, arrives: &str, answer: &str) -> bool {
        let backend = StrictBackend::start();
        if !arrives.is_empty() {
            let mut client = RawClient::connect(backend.port());
            client.send(arrives);
            client.finish();
            client.rest();
        }
        let odd = OddRequest {
            category: String::new(),
            name: String::new(),
            expectation,
            most,
            bytes: b"\r\nGET /a HTTP/1.1\r\n".to_vec(),
        };
        verdict(&odd, &backend, answer.as_bytes()).is_ok()
    }

    #[test]
    fn right_outcomes_are_right() {
        use Expectation::{Either, Pass, Refuse};
        let two = [GOOD, GOOD].concat();
        assert!(judged(Refuse, 1, "", REFUSED));
        assert!(judged(
            Refuse,
            1,
            "",
            "HTTP/1.1 505 No\r\nConnection: close\r\n\r\n{}"
        ));
        assert!(judged(Pass, 1, GOOD, OK));
        assert!(judged(Pass, 2, &two, &[OK, OK].concat()));
        assert!(judged(Either, 1, GOOD, OK));
        assert!(judged(Either, 1, "", REFUSED));
        assert!(judged(Either, 1, GOOD, &[OK, REFUSED].concat()));
        let cut = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";
        assert!(judged(Refuse, 1, cut, REFUSED), "nobody takes a cut body");
    }

    #[test]
    fn wrong_outcomes_are_wrong() {
        use Expectation::{Either, Pass, Refuse};
        let two = [GOOD, GOOD].concat();
        let open = REFUSED.replace("close", "keep-alive");
        let unavailable = REFUSED.replace("400", "502");
        let cases = [
            ("it was let through", Refuse, 1, GOOD, OK),
            ("it arrived and was refused", Refuse, 1, GOOD, REFUSED),
            ("no answer", Refuse, 1, "", ""),
            ("no answer", Either, 1, "", ""),
            ("the connection stays open", Refuse, 1, "", &open),
            ("a gateway error is no refusal", Refuse, 1, "", &unavailable),
            (
                "a second answer came",
                Refuse,
                1,
                "",
                &[REFUSED, REFUSED].concat(),
            ),
            ("it was refused", Pass, 1, "", REFUSED),
            ("one of two", Pass, 2, GOOD, OK),
            ("two of one", Pass, 1, &two, OK),
            ("two of one", Either, 1, &two, &[OK, OK].concat()),
            ("one more answer", Pass, 1, GOOD, &[OK, OK].concat()),
            (
                "the answer is cut",
                Pass,
                1,
                GOOD,
                "HTTP/1.1 200 OK\r\nContent-Le",
            ),
            (
                "bytes behind the request",
                Pass,
                1,
                &[GOOD, "G"].concat(),
                OK,
            ),
            (
                "bytes before the request",
                Pass,
                1,
                &["G", GOOD].concat(),
                OK,
            ),
            (
                "it arrived ill-formed",
                Pass,
                1,
                "GET /a HTTP/1.1\r\n\r\n",
                OK,
            ),
        ];
        for (what, expectation, most, arrives, answer) in cases {
            assert!(!judged(expectation, most, arrives, answer), "{what}");
        }
    }
}
