//! Requests as the streaming stubs read them: a head without a body.

use std::io;

use tokio::io::AsyncRead;

use crate::wire::{BodyLength, Buffer, body_length, invalid};

const FIELDS_MAX: usize = 100;
/// A head that is longer is refused.
const HEAD_MAX: usize = 64 * 1024;

/// The head of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Whether it is HTTP/1.0, where nothing is chunked and connections end.
    pub is_old: bool,
    fields: Vec<(String, Vec<u8>)>,
}

impl Request {
    /// The value of a field, if it is there.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let field = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.as_slice())
    }

    /// Whether a field's list has this word, in whatever case.
    pub fn lists(&self, name: &str, word: &str) -> bool {
        let fields = self.fields.iter();
        let mut named = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.any(|(_, value)| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|it| it.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        })
    }

    /// Whether the client wants the connection to end behind the answer.
    pub fn is_last(&self) -> bool {
        self.is_old || self.lists("connection", "close")
    }
}

/// Reads the next request. `None` when the client has gone.
///
/// # Errors
/// When the stream fails, or what comes is no request without a body.
pub(super) async fn read<S>(stream: &mut S, input: &mut Buffer) -> io::Result<Option<Request>>
where
    S: AsyncRead + Unpin,
{
    loop {
        if let Some((request, length)) = parse(input.bytes())? {
            input.take(length);
            return Ok(Some(request));
        }
        if input.bytes().len() > HEAD_MAX {
            return Err(invalid("the head is too long"));
        }
        if !input.read(stream).await? {
            return Ok(None);
        }
    }
}

fn parse(bytes: &[u8]) -> io::Result<Option<(Request, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let status = parsed
        .parse(bytes)
        .map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    match body_length(parsed.headers)? {
        BodyLength::Exactly(0) | BodyLength::Unknown => {}
        _ => return Err(invalid("a body that nobody wants")),
    }
    let target = parsed.path.unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let fields = parsed.headers.iter();
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        is_old: parsed.version == Some(0),
        fields: fields
            .map(|it| (it.name.to_owned(), it.value.to_vec()))
            .collect(),
    };
    Ok(Some((request, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn heads_are_read_one_by_one() {
        let text = "GET /a?b=c HTTP/1.1\r\nConnection: Keep-Alive, Upgrade\r\nX: 1\r\n\r\n\
            GET /b HTTP/1.0\r\n\r\n";
        let (mut stream, mut input) = (text.as_bytes(), Buffer::default());
        let first = read(&mut stream, &mut input).await.unwrap().unwrap();
        assert_eq!((first.method.as_str(), first.path.as_str()), ("GET", "/a"));
        assert_eq!(first.field("x"), Some(&b"1"[..]));
        assert!(first.lists("connection", "upgrade") && !first.lists("connection", "close"));
        assert!(!first.is_last());
        let second = read(&mut stream, &mut input).await.unwrap().unwrap();
        assert!(second.path == "/b" && second.is_last());
        assert_eq!(read(&mut stream, &mut input).await.unwrap(), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bodies_are_refused() {
        let text = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
        let mut input = Buffer::default();
        assert!(read(&mut text.as_bytes(), &mut input).await.is_err());
    }
}
