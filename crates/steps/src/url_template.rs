//! A target with `${ }` in its path and query. Values never become structure: each is
//! percent-encoded as a part of one path segment or one query value (RFC 3986, section 2).

use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use config::{Report, Span, Spanned};
use expr::jq::Expression;
use expr::template::{Part, Template};
use message::{Fault, Method};

use crate::codes::BAD_TARGET;
use crate::fields::reads_body;
use crate::target::{Target, parse_short, parse_target};

/// Stands for a `${ }` while a target is checked as one without any.
const MARK: &str = "-intertie-hole-";

/// Path and query of a target, with expressions in them.
pub(crate) struct UrlTemplate {
    template: Template,
    /// What the path begins with that the connection says.
    base: String,
    path: Vec<Piece>,
    query: Vec<Piece>,
}

/// A piece of a path or query.
enum Piece {
    Text(String),
    /// The expression with this number.
    Hole(usize),
}

/// A target as it is checked: its method, where it lies, and path and query to be filled.
pub(crate) struct Parsed {
    pub method: Option<Method>,
    pub target: Target,
    pub url: UrlTemplate,
}

/// Reads a target, with a method before it when `is_short`. Every problem is reported.
pub(crate) fn read(
    text: &Spanned<String>,
    is_short: bool,
    context: &mut BuildContext<'_>,
) -> Option<Parsed> {
    let template = context.template(text)?;
    let mut marked = String::new();
    let mut count = 0;
    for part in template.parts() {
        match part {
            Part::Text(text) => marked.push_str(text),
            Part::Hole(_) => {
                marked.push_str(&format!("{MARK}{count}-"));
                count += 1;
            }
        }
    }
    if before_path(&marked).contains(MARK) {
        refuse_outside(text.span, context.report);
        return None;
    }
    let parsed = match is_short {
        true => parse_short(&marked),
        false => parse_target(&marked).map(|target| (None, target)),
    };
    let (method, target) = match parsed {
        Ok(parsed) => parsed,
        Err(problems) => {
            for problem in problems {
                problem.put(text.span, context.report);
            }
            return None;
        }
    };
    let (path, query) = match &target {
        Target::Url(url) => (&url.path, &url.query),
        Target::Named { path, query, .. } => (path, query),
    };
    let url = UrlTemplate {
        path: pieces(path),
        query: pieces(query.as_deref().unwrap_or_default()),
        base: String::new(),
        template,
    };
    Some(Parsed {
        method,
        target,
        url,
    })
}

/// What stands before the path of a target: method, scheme, host and port, or a connection's name.
fn before_path(text: &str) -> &str {
    let ends = ['/', '?', '#'];
    let end = text.find(ends).unwrap_or(text.len());
    let (before, rest) = text.split_at(end);
    let Some(authority) = rest.strip_prefix("//").filter(|_| before.ends_with(':')) else {
        return before;
    };
    let length = authority.find(ends).unwrap_or(authority.len());
    text.get(..end + 2 + length).unwrap_or(text)
}

/// Refuses a `${ }` where the host would be a value.
pub(crate) fn refuse_outside(span: Span, report: &mut Report) {
    report
        .error(
            BAD_TARGET,
            span,
            "a value cannot decide which host is asked",
        )
        .hint(
            "`${ }` can stand in the path and the query; declare each host under `use:`, or let \
             `http` call a URL that is one value: `{ to: \"${ .url }\", egress: guarded }`",
        );
}

/// Whether a target is one value, which can only be a URL.
pub(crate) fn is_one_value(text: &Spanned<String>) -> bool {
    let inner = text.value.trim().strip_prefix("${");
    let inner = inner.and_then(|inner| inner.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains("${"))
}

/// Splits a text at its marks.
fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(MARK) {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let (number, after) = behind.split_once('-').unwrap_or((behind, ""));
        pieces.extend(number.parse().ok().map(Piece::Hole));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    pieces
}

impl UrlTemplate {
    /// The same behind a connection's own path.
    pub fn behind(mut self, base: String) -> Self {
        self.base = base;
        self
    }

    /// Whether an expression needs the body in memory.
    pub fn reads_body(&self) -> bool {
        reads_body(&self.template)
    }

    /// The path, and the query without `?`.
    ///
    /// # Errors
    /// `invalid` when a value would change which path is meant, is empty, or is no text, number or
    /// boolean.
    pub fn make(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(String, Option<String>), Fault> {
        let mut path = self.base.clone();
        self.fill(&self.path, &mut path, exchange, services)?;
        let has_holes = self
            .path
            .iter()
            .any(|piece| matches!(piece, Piece::Hole(_)));
        let is_dots = |segment: &str| matches!(segment, "." | "..");
        if has_holes && path.split('/').any(is_dots) {
            let detail = "a value of `.` or `..` cannot stand in a path";
            return Err(Fault::invalid(detail));
        }
        if self.query.is_empty() {
            return Ok((path, None));
        }
        let mut query = String::new();
        self.fill(&self.query, &mut query, exchange, services)?;
        Ok((path, Some(query)))
    }

    fn fill(
        &self,
        pieces: &[Piece],
        out: &mut String,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Hole(at) => {
                    let expression: Option<&Expression> = self.template.expressions().nth(*at);
                    let Some(expression) = expression else {
                        continue;
                    };
                    let value = exchange.evaluate(expression, services)?;
                    push_encoded(&scalar(&value, expression)?, out);
                }
            }
        }
        Ok(())
    }
}

/// A value as the text of a URL. An empty one in a path would name another resource.
fn scalar(value: &expr::Value, expression: &Expression) -> Result<String, Fault> {
    let text = expr::value::scalar_text(value);
    let text = text.filter(|text| !text.is_empty());
    text.map(std::borrow::Cow::into_owned).ok_or_else(|| {
        let kind = match expr::value::as_text(value) {
            Some(_) => "an empty text",
            None => expr::value::kind(value),
        };
        let shown = expression.text().trim();
        let detail = format!("a value in a URL is a text, a number or a boolean, not {kind}");
        Fault::unfit(detail, format_args!("`{shown}` gave {kind}"))
    })
}

/// Writes a text with everything but unreserved characters percent-encoded (RFC 3986, section 2.3).
pub fn push_encoded(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests;
