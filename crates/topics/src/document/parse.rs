//! Reads JSON strictly and writes it compactly, in one go.

use bytes::Bytes;
use expr::json::{JsonError, decode_escape};
use hashbrown::HashSet;

use super::{At, DEPTH_MAX, Document, Kind, Part};

/// So many names of an object are compared one by one.
const FEW: usize = 12;

/// What is wrong, and where in the text.
struct Wrong {
    at: usize,
    message: &'static str,
}

pub(super) fn parse(text: &[u8]) -> Result<Document, JsonError> {
    let fail = |wrong: Wrong| locate(text, &wrong);
    if let Err(error) = std::str::from_utf8(text) {
        return Err(fail(Wrong {
            at: error.valid_up_to(),
            message: "the text is not UTF-8",
        }));
    }
    if u32::try_from(text.len()).is_err() {
        return Err(fail(Wrong {
            at: 0,
            message: "the text is too large",
        }));
    }
    let mut parser = Parser {
        text,
        at: 0,
        out: Vec::with_capacity(text.len()),
        parts: Vec::with_capacity(text.len() / 12 + 1),
        open: Vec::new(),
    };
    parser.document().map_err(fail)?;
    let document = Document {
        text: Bytes::from(parser.out.into_boxed_slice()),
        parts: parser.parts,
    };
    Ok(document)
}

/// The same as the parser of expressions says it.
fn locate(text: &[u8], wrong: &Wrong) -> JsonError {
    let before = text.get(..wrong.at).unwrap_or(text);
    let line_start = before.iter().rposition(|it| *it == b'\n');
    let line = before
        .get(line_start.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    JsonError {
        message: wrong.message,
        line: 1 + before.iter().filter(|it| **it == b'\n').count(),
        column: 1 + String::from_utf8_lossy(line).chars().count(),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    parts: Vec<Part>,
    /// The lists and objects that the next value is in, the innermost last: their parts.
    open: Vec<(usize, Kind)>,
}

impl Parser<'_> {
    fn wrong(&self, message: &'static str) -> Wrong {
        Wrong {
            at: self.at,
            message,
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn document(&mut self) -> Result<(), Wrong> {
        loop {
            if !self.value()? {
                continue;
            }
            let mut is_over = true;
            while let Some((_, kind)) = self.open.last().copied() {
                if self.has_more(kind)? {
                    is_over = false;
                    break;
                }
            }
            if is_over {
                self.skip_space();
                return match self.peek() {
                    None => Ok(()),
                    Some(_) => Err(self.wrong("more text behind the value")),
                };
            }
        }
    }

    /// Takes a value; false when it is one with values in it, of which the first comes now.
    fn value(&mut self) -> Result<bool, Wrong> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'{') => return self.begin(Kind::Object),
            Some(b'[') => return self.begin(Kind::Array),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(_) => return Err(self.wrong("a value was expected")),
            None => return Err(self.wrong("the text ends where a value was expected")),
        }
        Ok(true)
    }

    /// Begins a list or an object; whether it is empty.
    fn begin(&mut self, kind: Kind) -> Result<bool, Wrong> {
        if self.open.len() == DEPTH_MAX {
            return Err(self.wrong("too many levels within each other"));
        }
        let (open, close) = brackets(kind);
        self.at += 1;
        self.open.push((self.parts.len(), kind));
        self.add(kind, self.out.len());
        self.out.push(open);
        self.skip_space();
        if self.peek() == Some(close) {
            self.end()?;
            return Ok(true);
        }
        if kind == Kind::Object {
            self.name()?;
        }
        Ok(false)
    }

    /// What comes behind a value in a list or object: whether there is another.
    fn has_more(&mut self, kind: Kind) -> Result<bool, Wrong> {
        self.skip_space();
        match (self.peek(), kind) {
            (Some(b','), _) => {
                self.at += 1;
                self.out.push(b',');
                if kind == Kind::Object {
                    self.name()?;
                }
                Ok(true)
            }
            (Some(b'}'), Kind::Object) | (Some(b']'), Kind::Array) => {
                self.end()?;
                Ok(false)
            }
            (_, Kind::Object) => Err(self.wrong("`,` or `}` was expected")),
            _ => Err(self.wrong("`,` or `]` was expected")),
        }
    }

    fn end(&mut self) -> Result<(), Wrong> {
        let Some((at, kind)) = self.open.pop() else {
            return Ok(());
        };
        self.out.push(brackets(kind).1);
        let (end, next) = (self.out.len() as u32, self.parts.len() as u32);
        if let Some(part) = self.parts.get_mut(at) {
            (part.end, part.next) = (end, next);
        }
        if kind == Kind::Object {
            self.check_names(at + 1)?;
        }
        self.at += 1;
        Ok(())
    }

    /// Refuses a name that comes twice.
    fn check_names(&self, first: usize) -> Result<(), Wrong> {
        let name_of = |part: &Part| self.out.get(part.start as usize..part.end as usize);
        let mut next = first;
        let names = std::iter::from_fn(|| {
            let name = self.parts.get(next).and_then(name_of)?;
            next = self
                .parts
                .get(next + 1)
                .map_or(usize::MAX, |it| it.next as usize);
            Some(name)
        });
        let mut few: [&[u8]; FEW] = [&[]; FEW];
        let mut many = HashSet::new();
        for (count, name) in names.enumerate() {
            let is_new = match few.get_mut(count) {
                Some(_) => !few.iter().take(count).any(|it| *it == name),
                None => {
                    if many.is_empty() {
                        many.reserve(8 * FEW);
                        many.extend(few);
                    }
                    many.insert(name)
                }
            };
            if !is_new {
                return Err(self.wrong("an object with two members of one name"));
            }
            if let Some(place) = few.get_mut(count) {
                *place = name;
            }
        }
        Ok(())
    }

    fn name(&mut self) -> Result<(), Wrong> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return Err(self.wrong("the name of a member was expected"));
        }
        self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.wrong("`:` was expected"));
        }
        self.at += 1;
        self.out.push(b':');
        Ok(())
    }

    /// Adds a value that begins there and ends where the text ends that is written now.
    fn add(&mut self, kind: Kind, start: usize) {
        let next = self.parts.len() as u32 + 1;
        self.parts.push(Part {
            start: start as u32,
            end: self.out.len() as u32,
            next,
            kind,
        });
    }

    fn copy(&mut self, from: usize) {
        let run = self.text.get(from..self.at).unwrap_or_default();
        self.out.extend_from_slice(run);
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), Wrong> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err(self.wrong("a value was expected"));
        }
        let start = self.out.len();
        self.at += word.len();
        self.out.extend_from_slice(word);
        self.add(Kind::Word, start);
        Ok(())
    }

    fn number(&mut self) -> Result<(), Wrong> {
        let (from, start) = (self.at, self.out.len());
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        self.copy(from);
        self.add(Kind::Number, start);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Wrong> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.at == start {
            true => Err(self.wrong("a digit was expected")),
            false => Ok(()),
        }
    }

    fn string(&mut self) -> Result<(), Wrong> {
        let start = self.out.len();
        let mut from = self.at;
        self.at += 1;
        loop {
            self.plain_run();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.copy(from);
                    self.add(Kind::Text, start);
                    return Ok(());
                }
                Some(b'\\') => {
                    self.copy(from);
                    let character = self.escape()?;
                    write_character(character, &mut self.out);
                    from = self.at;
                }
                Some(_) => return Err(self.wrong("a control character in a string")),
                None => return Err(self.wrong("the string has no end")),
            }
        }
    }

    /// Goes to the next quote, backslash or control character.
    #[inline]
    fn plain_run(&mut self) {
        let is_special = |it: &u8| *it < b' ' || *it == b'"' || *it == b'\\';
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (words, _) = rest.as_chunks::<16>();
        for word in words {
            // Without an early end the compiler looks at all sixteen at once.
            if word.iter().fold(false, |found, it| found | is_special(it)) {
                self.at += word.iter().position(is_special).unwrap_or_default();
                return;
            }
            self.at += 16;
        }
        while self.peek().is_some_and(|byte| !is_special(&byte)) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<char, Wrong> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (character, length) = decode_escape(rest).map_err(|message| self.wrong(message))?;
        self.at += length;
        Ok(character)
    }
}

fn brackets(kind: Kind) -> (u8, u8) {
    match kind {
        Kind::Object => (b'{', b'}'),
        _ => (b'[', b']'),
    }
}

/// Writes a character of a text, escaped only where that has to be: never longer than it came.
fn write_character(character: char, out: &mut Vec<u8>) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\u{8}' => out.extend_from_slice(b"\\b"),
        '\u{c}' => out.extend_from_slice(b"\\f"),
        '\0'..='\u{1f}' => {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

impl At<'_> {
    /// For tests: how many values there are within, names included.
    #[cfg(test)]
    pub fn size(self) -> u32 {
        self.part().next - self.part
    }
}
