//! The text of an expression becomes jaq's syntax tree.

use std::ops::Range;

use jaq_core::load::lex::{self, Token};
use jaq_core::load::parse::{self, Term};
use jaq_core::load::{Lexer, Parser};

use super::error::CompileError;
use super::scan::{Stop, scan};

/// The longest expression, in bytes.
const LENGTH_MAX: usize = 256 * 1024;
/// The deepest that the parser may have to go; it runs on a stack that is made for it.
const DEPTH_MAX: usize = 20_000;
/// Up to this depth any thread's stack is enough.
const DEPTH_EASY: usize = 200;
/// The stack for an expression of the greatest depth, in bytes. Only what is used costs memory.
const STACK: usize = 512 * 1024 * 1024;

/// Runs what goes as deep as the expression does, on a stack that is large enough for it.
pub(super) fn with_stack<T: Send>(
    code: &str,
    run: impl FnOnce() -> Result<T, Vec<CompileError>> + Send,
) -> Result<T, Vec<CompileError>> {
    let refuse = |message: &str| {
        Err(vec![CompileError {
            message: message.to_owned(),
            hint: None,
            at: 0..code.len(),
        }])
    };
    if code.len() > LENGTH_MAX {
        return refuse("the expression is longer than 256 KiB");
    }
    let depth = scan(code, Stop::End).depth;
    if depth <= DEPTH_EASY {
        return run();
    }
    if depth > DEPTH_MAX {
        return refuse("the expression is nested too deep");
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let result = thread.spawn_scoped(scope, run).map(|it| it.join());
        match result {
            Ok(Ok(result)) => result,
            _ => refuse("the expression is too large for this machine"),
        }
    })
}

/// Reads an expression.
pub(super) fn parse(code: &str) -> Result<Term<&str>, Vec<CompileError>> {
    let tokens = Lexer::new(code).lex().map_err(|errors| {
        let errors = errors.into_iter().map(|error| lex_error(code, &error));
        errors.take(5).collect::<Vec<_>>()
    })?;
    Parser::new(&tokens)
        .parse(|parser| parser.term())
        .map_err(|errors| {
            let errors = errors.into_iter();
            errors.take(5).map(|it| parse_error(code, &it)).collect()
        })
}

/// Where a part of the code lies in it.
pub(super) fn span(code: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(code.as_ptr() as usize);
    match start.checked_add(part.len()) {
        Some(end) if end <= code.len() => start..end,
        _ => 0..code.len(),
    }
}

fn lex_error(code: &str, (expected, rest): &lex::Error<&str>) -> CompileError {
    let start = span(code, rest).start;
    let length = rest.chars().next().map_or(0, char::len_utf8);
    let found = match rest.chars().next() {
        Some('\'') => "`'`".to_owned(),
        Some(character) => format!("`{}`", character.escape_debug()),
        None => "the end".to_owned(),
    };
    let (message, hint) = match expected {
        lex::Expect::Delim(open) => {
            let at = span(code, open);
            return CompileError {
                message: format!("`{}` is never closed", open.escape_debug()),
                hint: None,
                at,
            };
        }
        lex::Expect::Token if rest.starts_with('\'') => (
            format!("{found} begins nothing"),
            Some("texts stand in double quotes".to_owned()),
        ),
        lex::Expect::Token => (format!("{found} begins nothing"), None),
        other => (format!("{} expected, found {found}", other.as_str()), None),
    };
    CompileError {
        message,
        hint,
        at: start..start + length,
    }
}

fn parse_error(
    code: &str,
    (expected, found): &parse::Error<&str, Option<&Token<&str>>>,
) -> CompileError {
    let part = Token::opt_as_str(*found, code);
    let at = span(code, part);
    let shown = match part {
        "" => "the end".to_owned(),
        part => {
            let cut: String = part.chars().take(20).collect();
            format!("`{}`", cut.escape_debug())
        }
    };
    if matches!(expected, parse::Expect::Nothing) {
        return CompileError {
            message: format!("{shown} does not belong here"),
            hint: hint_before(code, at.start),
            at,
        };
    }
    let expected = match expected {
        parse::Expect::Just(word) => format!("`{word}`"),
        other => other.as_str().to_owned(),
    };
    CompileError {
        message: format!("{expected} expected, found {shown}"),
        hint: hint_before(code, at.start),
        at,
    }
}

/// Words that other languages have, and modules.
fn hint_before(code: &str, at: usize) -> Option<String> {
    let before = code.get(..at).unwrap_or_default().trim_end();
    let rest = code.get(at..).unwrap_or_default();
    if before.ends_with("include") || before.ends_with("import") {
        return Some("modules are not available".to_owned());
    }
    if rest.starts_with("&&") || rest.starts_with("||") {
        return Some("write `and`, `or`".to_owned());
    }
    None
}
