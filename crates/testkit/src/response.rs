//! Reads responses strictly: what RFC 9112 does not allow is a problem, never guessed at.

use std::io::Read;

/// A response, read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// The field lines in order, names as they came, one character for each byte.
    pub headers: Vec<(String, String)>,
    /// The content, without chunk framing.
    pub body: Vec<u8>,
    /// The field lines behind a chunked body.
    pub trailers: Vec<(String, String)>,
    /// The bytes of all of it, as they came.
    pub raw: Vec<u8>,
}

impl Response {
    /// The value of the first line with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// All values of this name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let same = self
            .headers
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_str()).collect()
    }

    /// The content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads one response after another.
pub(crate) struct ResponseReader<R> {
    pub source: R,
    /// What has come and is not taken yet.
    pub waiting: Vec<u8>,
    raw: Vec<u8>,
}

impl<R: Read> ResponseReader<R> {
    pub fn new(source: R) -> Self {
        Self {
            source,
            waiting: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// Reads one head and its body, which a reply to HEAD, an interim one, 204 and 304 have not
    /// (RFC 9112 section 6.3).
    pub fn next(&mut self, method: &str) -> Result<Response, String> {
        self.raw.clear();
        let head = self.until(b"\r\n\r\n")?;
        let mut response = parse_head(&head)?;
        let has_body = method != "HEAD" && !matches!(response.status, 100..200 | 204 | 304);
        let lengths = response.all("Content-Length");
        let codings = response.all("Transfer-Encoding");
        match (codings.as_slice(), lengths.as_slice()) {
            _ if !has_body => {}
            (["chunked"], []) => self.chunks(&mut response)?,
            ([], [length]) => {
                let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
                let length = length.parse().ok().filter(|_| is_number);
                response.body = self.exactly(length.ok_or("no number as Content-Length")?)?;
            }
            ([], []) => response.body = self.rest()?,
            _ => return Err(format!("framing is {codings:?} and {lengths:?}")),
        }
        response.raw = std::mem::take(&mut self.raw);
        Ok(response)
    }

    fn chunks(&mut self, response: &mut Response) -> Result<(), String> {
        loop {
            let line = self.until(b"\r\n")?;
            let digits = line.strip_suffix(b"\r\n").unwrap_or_default();
            let is_size = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
            let size = usize::from_str_radix(&latin1(digits), 16).ok();
            match size.filter(|_| is_size) {
                None => return Err(format!("no plain chunk size: {:?}", latin1(&line))),
                Some(0) => break,
                Some(size) => response.body.extend(self.exactly(size)?),
            }
            if self.exactly(2)? != b"\r\n" {
                return Err("a chunk does not end where its size says".to_owned());
            }
        }
        loop {
            match self.until(b"\r\n")?.as_slice() {
                b"\r\n" => return Ok(()),
                line => response.trailers.push(field(line.trim_ascii_end())?),
            }
        }
    }

    /// Reads up to and including these bytes.
    pub fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, String> {
        loop {
            let found = self
                .waiting
                .windows(end.len())
                .position(|window| window == end);
            if let Some(at) = found {
                return Ok(self.take(at + end.len()));
            }
            if self.fill()? == 0 {
                return Err(format!(
                    "closed before {:?}: {:?}",
                    latin1(end),
                    self.shown()
                ));
            }
        }
    }

    /// Reads this many bytes.
    pub fn exactly(&mut self, count: usize) -> Result<Vec<u8>, String> {
        while self.waiting.len() < count {
            if self.fill()? == 0 {
                return Err(format!("closed before {count} bytes: {:?}", self.shown()));
            }
        }
        Ok(self.take(count))
    }

    /// Reads until the other side closes, a reset included.
    pub fn rest(&mut self) -> Result<Vec<u8>, String> {
        while self.fill()? > 0 {}
        Ok(self.take(self.waiting.len()))
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken: Vec<u8> = self.waiting.drain(..count).collect();
        self.raw.extend_from_slice(&taken);
        taken
    }

    fn fill(&mut self) -> Result<usize, String> {
        let mut bytes = [0; 16 * 1024];
        match self.source.read(&mut bytes) {
            Ok(count) => {
                self.waiting.extend_from_slice(&bytes[..count]);
                Ok(count)
            }
            Err(error) if is_timeout(&error) => {
                Err(format!("nothing came; so far {:?}", self.shown()))
            }
            Err(_) => Ok(0),
        }
    }

    fn shown(&self) -> String {
        latin1(&self.waiting)
    }
}

/// Reads all responses in these bytes, which answer requests of these methods in order. An interim
/// response answers nothing.
pub(crate) fn responses(bytes: &[u8], methods: &[&str]) -> Result<Vec<Response>, String> {
    let mut reader = ResponseReader::new(bytes);
    let mut responses: Vec<Response> = Vec::new();
    loop {
        if reader.waiting.is_empty() && reader.fill()? == 0 {
            return Ok(responses);
        }
        let method = methods.get(responses.len()).copied().unwrap_or("GET");
        let response = reader.next(method)?;
        if !matches!(response.status, 100 | 102..200) {
            responses.push(response);
        }
    }
}

fn parse_head(head: &[u8]) -> Result<Response, String> {
    let head = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    let text = latin1(head);
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    if text.contains(|letter: char| letter.is_control() && !"\r\n\t".contains(letter))
        || text.replace("\r\n", "").contains(['\r', '\n'])
    {
        return Err(format!("control characters in a head: {text:?}"));
    }
    let is_number = |text: &&str| text.len() == 3 && text.bytes().all(|it| it.is_ascii_digit());
    let parts = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.split_once(' '))
        .filter(|(status, _)| is_number(status));
    let (status, reason) = parts.ok_or_else(|| format!("no status line: {status_line:?}"))?;
    Ok(Response {
        status: status.parse().map_err(|_| "no status")?,
        reason: reason.to_owned(),
        headers: lines
            .map(|line| field(line.as_bytes()))
            .collect::<Result<_, _>>()?,
        ..Response::default()
    })
}

fn field(line: &[u8]) -> Result<(String, String), String> {
    let line = String::from_utf8_lossy(line);
    match line.split_once(':') {
        Some((name, value)) if is_token(name) => {
            Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
        }
        _ => Err(format!("no field: {line:?}")),
    }
}

/// A token as RFC 9110 section 5.6.2 says.
pub(crate) fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

/// One character for each byte, so that nothing is lost.
pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

pub(crate) fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_one_by_one() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\
            HTTP/1.1 200 Fine, really\r\nTransfer-Encoding: chunked\r\n\r\n\
            2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n\
            HTTP/1.1 404 \r\nX:\r\n\r\nuntil the end";
        let all = responses(bytes, &["HEAD", "GET", "GET"]).unwrap();
        let statuses: Vec<u16> = all.iter().map(|response| response.status).collect();
        assert_eq!(statuses, [200, 200, 404]);
        assert_eq!(all[0].raw, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
        assert_eq!(
            (all[1].reason.as_str(), all[1].text().as_str()),
            ("Fine, really", "hi")
        );
        assert_eq!(all[1].trailers, [("X-Sum".to_owned(), "1".to_owned())]);
        assert_eq!(all[1].header("transfer-encoding"), Some("chunked"));
        assert_eq!(
            (all[2].header("x"), all[2].text().as_str()),
            (Some(""), "until the end")
        );
    }

    #[test]
    fn what_is_no_response_is_a_problem() {
        let cases = [
            ("HTTP/1.0 200 OK\r\n\r\n", "no status line"),
            ("HTTP/1.1 20 OK\r\n\r\n", "no status line"),
            ("HTTP/1.1 200\r\n\r\n", "no status line"),
            ("HTTP/1.1 200 OK\r\nX: a\nb\r\n\r\n", "control characters"),
            ("HTTP/1.1 200 OK\r\nX: \0\r\n\r\n", "control characters"),
            ("HTTP/1.1 200 OK\r\nX : a\r\n\r\n", "no field"),
            ("HTTP/1.1 200 OK\r\n folded\r\n\r\n", "no field"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
                "no number",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx",
                "closed before 5",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
                "framing",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "framing",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a\r\nx\r\n",
                "chunk size",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
                "does not end",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                "closed before",
            ),
            ("HTTP/1.1 200 OK", "closed before"),
        ];
        for (bytes, expected) in cases {
            let problem = responses(bytes.as_bytes(), &["GET"]).expect_err(bytes);
            assert!(problem.contains(expected), "{bytes:?}: {problem}");
        }
    }
}
