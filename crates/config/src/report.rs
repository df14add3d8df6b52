//! What is wrong with the files, collected before anything is done about it.

use std::ops::Range;

use crate::codes::Code;
use crate::source::Span;

/// How bad a problem is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The files cannot be used.
    Error,
    /// The files can be used; something is likely not meant.
    Warning,
}

/// One problem.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub(crate) severity: Severity,
    pub(crate) code: Code,
    pub(crate) span: Option<Span>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) related: Vec<(Span, String)>,
    /// The part of the text that stands at `span`, in bytes of what the text means.
    pub(crate) within: Option<Range<usize>>,
}

impl Diagnostic {
    /// Says what to do about it.
    pub fn hint(&mut self, hint: impl Into<String>) -> &mut Self {
        self.hint = Some(hint.into());
        self
    }

    /// Points at another place that matters.
    pub fn also(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        self.related.push((span, label.into()));
        self
    }

    /// Narrows the place down to a part of the text that stands there: bytes of the text as it is
    /// meant, without quotes, escapes and indentation.
    pub fn within(&mut self, part: Range<usize>) -> &mut Self {
        self.within = Some(part);
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The place, if it has one.
    pub fn span(&self) -> Option<Span> {
        self.span
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// All problems found so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    diagnostics: Vec<Diagnostic>,
    /// How many of them are errors: whoever reads a document or a step asks before and after.
    errors: usize,
}

impl Report {
    /// Adds an error at a place.
    pub fn error(&mut self, code: Code, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, code, Some(span), message.into())
    }

    /// Adds a warning at a place.
    pub fn warning(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.add(Severity::Warning, code, Some(span), message.into())
    }

    /// Adds an error that has no place.
    pub fn global(&mut self, code: Code, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, code, None, message.into())
    }

    /// How many errors there are.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All problems in the order they were found.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Keeps only the problems that meet a condition.
    pub fn retain(&mut self, keep: impl FnMut(&Diagnostic) -> bool) {
        self.diagnostics.retain(keep);
        let errors = self.diagnostics.iter();
        self.errors = errors.filter(|it| it.severity == Severity::Error).count();
    }

    /// Hides what messages at these places quote (between backquotes) of a secret that stands
    /// there. The whole value is redacted wherever it is shown; a part of it, such as the port of
    /// a URL, would not be known again.
    pub fn mask(&mut self, places: &[(Span, String)]) {
        for diagnostic in &mut self.diagnostics {
            for (span, secret) in places {
                let touches = |at: Span| at.is_within(*span) || span.is_within(at);
                if diagnostic.span.is_some_and(touches) {
                    diagnostic.message = masked(&diagnostic.message, secret);
                    let hint = diagnostic.hint.take();
                    diagnostic.hint = hint.map(|hint| masked(&hint, secret));
                }
            }
        }
    }

    /// Takes over the problems of another report.
    pub(crate) fn append(&mut self, other: Self) {
        self.diagnostics.extend(other.diagnostics);
        self.errors += other.errors;
    }

    fn add(
        &mut self,
        severity: Severity,
        code: Code,
        span: Option<Span>,
        message: String,
    ) -> &mut Diagnostic {
        let at = self.diagnostics.len();
        self.errors += usize::from(severity == Severity::Error);
        self.diagnostics.push(Diagnostic {
            severity,
            code,
            span,
            message,
            hint: None,
            related: Vec::new(),
            within: None,
        });
        &mut self.diagnostics[at]
    }
}

/// The text without what it quotes of a secret, escaped or cut as it may be.
fn masked(text: &str, secret: &str) -> String {
    let secrets = [
        secret.to_owned(),
        secret.escape_debug().to_string(),
        secret.to_lowercase(),
    ];
    let is_part = |quoted: &str| {
        let quoted = quoted.trim_end_matches(['.', '\u{2026}']);
        // One character tells nothing, and hints speak of `/` and `@`.
        quoted.chars().nth(1).is_some() && secrets.iter().any(|secret| secret.contains(quoted))
    };
    let parts = text.split('`').enumerate().map(|(at, part)| {
        let is_hidden = at % 2 == 1 && is_part(part);
        if is_hidden { "***" } else { part }
    });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_of_a_secret_is_hidden() {
        let secret = "amqp://Me:pass@host:99999/\"x";
        for (text, shown) in [
            ("`99999` is no port", "`***` is no port"),
            ("`pass@ho...` is `no` host", "`***` is `no` host"),
            ("unknown scheme `amqp`", "unknown scheme `***`"),
            ("`\\\"x` is not allowed", "`***` is not allowed"),
            ("unknown user `me`", "unknown user `***`"),
            ("write `http://127.0.0.1/`", "write `http://127.0.0.1/`"),
            ("nothing is quoted", "nothing is quoted"),
        ] {
            assert_eq!(masked(text, secret), shown);
        }
    }
}
