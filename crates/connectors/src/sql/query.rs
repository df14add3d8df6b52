//! Finds the arguments, `:name`, in the text of a statement: outside of texts, quoted names and
//! comments. Nothing else of SQL is known here.

use std::ops::Range;

use crate::sql::Dialect;

/// An argument where it stands in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// The bytes of the statement, with the colon.
    pub at: Range<usize>,
}

/// What is wrong with a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What it is.
    pub message: &'static str,
    /// What to do about it.
    pub hint: &'static str,
    /// Where it begins.
    pub at: usize,
}

/// All arguments of a statement, in their order.
///
/// # Errors
/// When something is not closed, there is nothing but comments, or there is a second statement.
pub fn arguments(text: &str, dialect: Dialect) -> Result<Vec<Argument>, Problem> {
    let mut scan = Scan {
        text,
        at: 0,
        dialect,
    };
    let (mut found, mut is_empty, mut end) = (Vec::new(), true, None);
    while let Some(byte) = scan.byte(0) {
        if byte.is_ascii_whitespace() || scan.skip_comment()? {
            scan.at += usize::from(byte.is_ascii_whitespace());
            continue;
        }
        if end.is_some() && byte != b';' && dialect != Dialect::SqlServer {
            return Err(Problem {
                message: "there is a second statement",
                hint: "write a `sql` step for each",
                at: scan.at,
            });
        }
        if byte == b';' {
            end = Some(scan.at);
            scan.at += 1;
            continue;
        }
        is_empty = false;
        if scan.skip_quoted()? {
            continue;
        }
        match scan.argument() {
            Some(argument) => {
                scan.at = argument.at.end;
                found.push(argument);
            }
            None => scan.skip_word(),
        }
    }
    if is_empty {
        return Err(Problem {
            message: "there is no statement",
            hint: "write one such as `select name from customer where id = :id`",
            at: 0,
        });
    }
    Ok(found)
}

/// The first word of a statement in small letters, past comments and brackets.
pub fn first_word(text: &str, dialect: Dialect) -> Option<String> {
    let mut scan = Scan {
        text,
        at: 0,
        dialect,
    };
    while let Some(byte) = scan.byte(0) {
        if byte.is_ascii_whitespace() || byte == b'(' {
            scan.at += 1;
        } else if !scan.skip_comment().ok()? {
            break;
        }
    }
    let word = scan.rest().bytes().take_while(|it| is_name(*it)).count();
    let word = scan.rest().get(..word)?.to_ascii_lowercase();
    Some(word).filter(|word| !word.is_empty())
}

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A word, or a number, outside of quotes.
    Word(&'a str),
    /// A text or a name in quotes.
    Quoted,
    /// Anything else.
    Symbol(char),
}

/// The pieces of a statement without comments, each with the byte at which it begins; as far as the
/// first thing that is not closed.
pub fn tokens(text: &str, dialect: Dialect) -> Vec<(usize, Token<'_>)> {
    let mut scan = Scan {
        text,
        at: 0,
        dialect,
    };
    let mut found = Vec::new();
    while let Some(next) = scan.rest().chars().next() {
        let from = scan.at;
        if next.is_ascii_whitespace() {
            scan.at += 1;
            continue;
        }
        match scan.skip_comment() {
            Ok(false) => {}
            Ok(true) => continue,
            Err(_) => break,
        }
        let token = match scan.skip_quoted() {
            Ok(true) => Token::Quoted,
            Err(_) => break,
            Ok(false) => match word_length(text, from) {
                0 => {
                    scan.at += next.len_utf8();
                    Token::Symbol(next)
                }
                length => {
                    scan.at += length;
                    Token::Word(text.get(from..scan.at).unwrap_or_default())
                }
            },
        };
        found.push((from, token));
    }
    found
}

/// The bytes at which the placeholders `?` of MySQL stand.
pub fn placeholders(text: &str) -> Vec<usize> {
    let tokens = tokens(text, Dialect::MySql).into_iter();
    let places = tokens.filter(|(_, token)| *token == Token::Symbol('?'));
    places.map(|(at, _)| at).collect()
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

impl<'a> Scan<'a> {
    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn open(&self, message: &'static str) -> Problem {
        Problem {
            message,
            hint: "close it",
            at: self.at,
        }
    }

    /// Passes over a comment; whether there was one.
    fn skip_comment(&mut self) -> Result<bool, Problem> {
        let rest = self.rest();
        let is_line =
            rest.starts_with("--") || (self.dialect == Dialect::MySql && rest.starts_with('#'));
        if is_line {
            self.at += rest.find('\n').map_or(rest.len(), |end| end + 1);
            return Ok(true);
        }
        if !rest.starts_with("/*") {
            return Ok(false);
        }
        let nests = matches!(self.dialect, Dialect::Postgres | Dialect::SqlServer);
        let (mut depth, mut at) = (1, 2);
        while depth > 0 {
            let behind = rest.get(at..).unwrap_or_default();
            let close = behind.find("*/");
            let Some(close) = close else {
                return Err(self.open("a comment is not closed"));
            };
            match behind.find("/*").filter(|open| nests && *open < close) {
                Some(open) => (depth, at) = (depth + 1, at + open + 2),
                None => (depth, at) = (depth - 1, at + close + 2),
            }
        }
        self.at += at;
        Ok(true)
    }

    /// Passes over a text or a quoted name; whether there was one.
    fn skip_quoted(&mut self) -> Result<bool, Problem> {
        let Some(byte) = self.byte(0) else {
            return Ok(false);
        };
        let has_brackets = matches!(self.dialect, Dialect::SqlServer | Dialect::Sqlite);
        let close = match byte {
            b'\'' | b'"' => byte,
            b'`' if matches!(self.dialect, Dialect::MySql | Dialect::Sqlite) => byte,
            b'[' if has_brackets => b']',
            b'$' if self.dialect == Dialect::Postgres => return self.skip_dollars(),
            _ => return Ok(false),
        };
        let before = self.text.as_bytes().get(..self.at).unwrap_or_default();
        let is_e = match before {
            [.., earlier, b'e' | b'E'] => !is_name(*earlier),
            before => matches!(before, [b'e' | b'E']),
        };
        let escapes = match self.dialect {
            Dialect::MySql => byte != b'`',
            Dialect::Postgres => byte == b'\'' && is_e,
            _ => false,
        };
        let mut at = 1;
        loop {
            match self.byte(at) {
                None => return Err(self.open("a text or quoted name is not closed")),
                Some(b'\\') if escapes => at += 2,
                // Twice is the character itself.
                Some(it) if it == close && self.byte(at + 1) == Some(close) => at += 2,
                Some(it) if it == close => break,
                Some(_) => at += 1,
            }
        }
        self.at += at + 1;
        Ok(true)
    }

    /// Passes over `$tag$ ... $tag$`; whether there was one.
    fn skip_dollars(&mut self) -> Result<bool, Problem> {
        let rest = self.rest();
        let behind = rest.get(1..).unwrap_or_default();
        let Some((tag, body)) = behind.split_once('$') else {
            return Ok(false);
        };
        let is_tag = tag.bytes().all(is_name) && !tag.starts_with(|it: char| it.is_ascii_digit());
        if !is_tag {
            return Ok(false);
        }
        let close = format!("${tag}$");
        match body.find(&close) {
            Some(end) => self.at += 2 * close.len() + end,
            None => return Err(self.open("a text or quoted name is not closed")),
        }
        Ok(true)
    }

    /// The argument that stands here: `:name`, but no cast `::type` and no slice `[1:n]`.
    fn argument(&self) -> Option<Argument> {
        let rest = self.rest().strip_prefix(':')?;
        let end = rest.bytes().position(|it| !is_name(it));
        let name = rest.get(..end.unwrap_or(rest.len()))?;
        let begins = |it: char| it.is_ascii_alphabetic() || it == '_';
        name.starts_with(begins).then(|| Argument {
            name: name.to_owned(),
            at: self.at..self.at + 1 + name.len(),
        })
    }

    /// Passes over a word, colons directly behind it, or one other character.
    fn skip_word(&mut self) {
        let rest = self.rest();
        let is_word = rest.bytes().next().is_some_and(is_name);
        let word = rest.bytes().take_while(|it| is_name(*it)).count();
        // A text may follow a letter: `E'...'`. A colon behind a word is no argument.
        let colons = |at: usize| {
            let behind = rest.bytes().skip(at);
            behind.take_while(|it| *it == b':').count()
        };
        let casts = colons(word);
        self.at += match (is_word, casts) {
            (true, 0) => word,
            (true, casts) => word + casts + word_length(rest, word + casts),
            (false, 2..) => casts + word_length(rest, casts),
            (false, _) => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
}

fn word_length(text: &str, from: usize) -> usize {
    let bytes = text.bytes().skip(from);
    bytes.take_while(|it| is_name(*it)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Dialect; 4] = [
        Dialect::SqlServer,
        Dialect::Postgres,
        Dialect::MySql,
        Dialect::Sqlite,
    ];

    fn names(text: &str, dialect: Dialect) -> Vec<String> {
        let found = arguments(text, dialect).unwrap_or_else(|it| panic!("{text}: {it:?}"));
        for argument in &found {
            let there = text.get(argument.at.clone());
            assert_eq!(there, Some(format!(":{}", argument.name).as_str()));
        }
        found.into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn arguments_stand_outside_of_texts_and_comments() {
        let text = "select ':a', \":b\", 'it''s :c' -- :d\n/* :e */ from t where x=:x and y in \
                    (:y,:_z1) and ü = :ü1 -- :f";
        for dialect in ALL {
            assert_eq!(
                names(text.replace(":ü1", "1").as_str(), dialect),
                ["x", "y", "_z1"]
            );
            assert_eq!(names("select :id;", dialect), ["id"]);
            assert_eq!(names("select :id ; -- end", dialect), ["id"]);
            assert_eq!(names("select 1", dialect), [""; 0]);
        }
    }

    #[test]
    fn casts_and_slices_are_no_arguments() {
        let postgres = |text| names(text, Dialect::Postgres);
        assert_eq!(postgres("select :a::text, b::int, a[1:n], (x)::y"), ["a"]);
        assert_eq!(postgres("select $$ :a $$, $t$ :b $$ $t$, $1, :c"), ["c"]);
        assert_eq!(postgres("select E'it\\'s :a', :b"), ["b"]);
        assert_eq!(postgres("select '\\', :b"), ["b"]);
        assert_eq!(postgres("select /* /* :a */ :b */ :c"), ["c"]);
        assert_eq!(names("select @x := :a, `:b` # :c", Dialect::MySql), ["a"]);
        assert_eq!(names("select '\\':a', :b", Dialect::MySql), ["b"]);
        let brackets = "select [a:b :c] from t; select :d";
        assert_eq!(names(brackets, Dialect::SqlServer), ["d"]);
    }

    #[test]
    fn what_is_open_or_twice_is_refused() {
        for text in ["select 'a", "select \"a", "select /* a", "", " -- a", ";"] {
            for dialect in ALL {
                assert!(arguments(text, dialect).is_err(), "{text}");
            }
        }
        let second = arguments("select 1; drop table t", Dialect::Postgres);
        assert_eq!(second.map_err(|it| it.at), Err(10));
        assert!(arguments("select $a$ :b", Dialect::Postgres).is_err());
    }
}
