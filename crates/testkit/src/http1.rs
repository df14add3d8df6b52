//! Reads HTTP/1.1 messages strictly (RFC 9112), requests and responses, as they arrive.

use crate::response::{is_token, latin1};
use crate::wire::Wire;

/// Field lines in order.
pub type Fields = Vec<(String, String)>;

/// Why a message cannot be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The connection ended first.
    Ended(String),
    /// It is not what RFC 9112 allows.
    Malformed(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(why) => write!(formatter, "ended: {why}"),
            Self::Malformed(why) => write!(formatter, "malformed: {why}"),
        }
    }
}

/// The start line and the fields of a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The request line or status line.
    pub start: String,
    /// The field lines.
    pub fields: Fields,
}

/// All values of a name.
pub fn values<'a>(fields: &'a Fields, name: &str) -> Vec<&'a str> {
    let same = fields
        .iter()
        .filter(|(other, _)| other.eq_ignore_ascii_case(name));
    same.map(|(_, value)| value.as_str()).collect()
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// This many bytes.
    Length(usize),
    /// Chunks.
    Chunked,
    /// All until the connection ends.
    UntilClose,
}

impl Framing {
    /// What the fields say. `otherwise` holds when they say nothing.
    ///
    /// # Errors
    /// When they are ambiguous or malformed.
    pub fn of(fields: &Fields, otherwise: Self) -> Result<Self, Problem> {
        let lengths = values(fields, "content-length");
        let codings = values(fields, "transfer-encoding");
        match (codings.as_slice(), lengths.as_slice()) {
            (["chunked"], []) => Ok(Self::Chunked),
            ([], [length]) if length.bytes().all(|it| it.is_ascii_digit()) => {
                let length = length.parse().ok().map(Self::Length);
                length.ok_or_else(|| Problem::Malformed("no number as Content-Length".into()))
            }
            ([], []) => Ok(otherwise),
            _ => Err(Problem::Malformed(format!(
                "framing is {codings:?} and {lengths:?}"
            ))),
        }
    }
}

/// The bytes of one direction of a connection.
pub struct Reader {
    wire: Wire,
    /// What has come and is not taken yet.
    pub waiting: Vec<u8>,
}

impl Reader {
    /// Reads from this connection.
    pub fn new(wire: Wire) -> Self {
        Self {
            wire,
            waiting: Vec::new(),
        }
    }

    async fn fill(&mut self) -> Result<usize, Problem> {
        let count = self.wire.read(&mut self.waiting).await;
        count.map_err(|error| Problem::Ended(error.to_string()))
    }

    async fn line(&mut self) -> Result<String, Problem> {
        let mut seen = 0;
        loop {
            let found = self.waiting[seen..].iter().position(|it| *it == b'\n');
            if let Some(at) = found {
                let line: Vec<u8> = self.waiting.drain(..=seen + at).collect();
                return clean(&line);
            }
            seen = self.waiting.len();
            if self.fill().await? == 0 {
                return Err(Problem::Ended(format!(
                    "within a line: {:?}",
                    latin1(&self.waiting)
                )));
            }
        }
    }

    /// Reads a head. None when the connection ends before one begins.
    ///
    /// # Errors
    /// When it is cut off or malformed.
    pub async fn head(&mut self) -> Result<Option<Head>, Problem> {
        if self.waiting.is_empty() && self.fill().await? == 0 {
            return Ok(None);
        }
        let start = self.line().await?;
        let fields = self.fields().await?;
        Ok(Some(Head { start, fields }))
    }

    async fn fields(&mut self) -> Result<Fields, Problem> {
        let mut fields = Fields::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(fields);
            }
            match line.split_once(':') {
                Some((name, value)) if is_token(name) => {
                    fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
                }
                _ => return Err(Problem::Malformed(format!("no field: {line:?}"))),
            }
        }
    }
}

fn clean(line: &[u8]) -> Result<String, Problem> {
    let is_fine = |byte: &u8| *byte == b'\t' || (0x20..0x7f).contains(byte) || *byte > 0x7f;
    match line.strip_suffix(b"\r\n") {
        Some(line) if line.iter().all(is_fine) => Ok(latin1(line)),
        _ => Err(Problem::Malformed(format!("a line: {:?}", latin1(line)))),
    }
}

/// A body that is being read.
#[derive(Debug)]
pub struct BodyReader {
    framing: Framing,
    /// What is left of the body or of the chunk.
    left: usize,
    in_chunk: bool,
    done: bool,
    /// The fields behind a chunked body.
    pub trailers: Fields,
}

impl BodyReader {
    /// At the beginning of a body.
    pub fn new(framing: Framing) -> Self {
        let left = match framing {
            Framing::Length(length) => length,
            _ => 0,
        };
        Self {
            framing,
            left,
            in_chunk: false,
            done: matches!(framing, Framing::None | Framing::Length(0)),
            trailers: Fields::new(),
        }
    }

    /// Whether all of it has been read.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the next bytes, at most `max`; none at the body's end.
    ///
    /// # Errors
    /// When it is cut off or malformed.
    pub async fn next(
        &mut self,
        reader: &mut Reader,
        max: usize,
    ) -> Result<Option<Vec<u8>>, Problem> {
        if self.done {
            return Ok(None);
        }
        if self.framing == Framing::Chunked && !self.in_chunk {
            self.begin_chunk(reader).await?;
            if self.done {
                return Ok(None);
            }
        }
        if reader.waiting.is_empty() && reader.fill().await? == 0 {
            if self.framing == Framing::UntilClose {
                self.done = true;
                return Ok(None);
            }
            return Err(Problem::Ended("within a body".to_owned()));
        }
        let mut count = max.min(reader.waiting.len());
        if self.framing != Framing::UntilClose {
            count = count.min(self.left);
            self.left -= count;
        }
        let part = reader.waiting[..count].to_vec();
        reader.waiting.drain(..count);
        if self.left == 0 {
            match self.framing {
                Framing::Chunked => self.end_chunk(reader).await?,
                Framing::UntilClose => {}
                _ => self.done = true,
            }
        }
        Ok(Some(part))
    }

    async fn begin_chunk(&mut self, reader: &mut Reader) -> Result<(), Problem> {
        let line = reader.line().await?;
        let is_size =
            (1..=15).contains(&line.len()) && line.bytes().all(|it| it.is_ascii_hexdigit());
        let size = usize::from_str_radix(&line, 16).ok();
        let size = size.filter(|_| is_size);
        let size = size.ok_or_else(|| Problem::Malformed(format!("no chunk size: {line:?}")))?;
        if size == 0 {
            self.trailers = reader.fields().await?;
            self.done = true;
        } else {
            (self.left, self.in_chunk) = (size, true);
        }
        Ok(())
    }

    async fn end_chunk(&mut self, reader: &mut Reader) -> Result<(), Problem> {
        self.in_chunk = false;
        match reader.line().await?.as_str() {
            "" => Ok(()),
            line => Err(Problem::Malformed(format!("behind a chunk: {line:?}"))),
        }
    }
}
