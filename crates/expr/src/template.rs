//! Text with holes: `/orders/${ .id }`.

use std::ops::Range;

use crate::jq::{CompileError, EvalError, EvalErrorKind, Expression, Limits, Scope, Variables};
use crate::jq::{Stop, scan};
use crate::value::{self, Value};

/// A piece of a template.
#[derive(Clone, Debug)]
pub enum Part {
    /// Text as it stands.
    Text(String),
    /// An expression whose result stands in its place.
    Hole(Expression),
}

/// Text with `${ jq }` holes; `$${` stands for `${`.
#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
    slots: Vec<usize>,
}

impl Template {
    /// Compiles a text.
    ///
    /// # Errors
    /// A hole without an end, and all mistakes in its expressions, with ranges in `text`.
    pub fn compile(text: &str, scope: &dyn Scope) -> Result<Self, Vec<CompileError>> {
        let mut parts = Vec::new();
        let mut slots: Vec<usize> = Vec::new();
        let mut errors = Vec::new();
        for piece in pieces(text)? {
            match piece {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Hole(range) => {
                    let code = text.get(range.clone()).unwrap_or_default();
                    match Expression::compile(code, scope) {
                        Ok(expression) => {
                            for slot in expression.variables() {
                                if !slots.contains(slot) {
                                    slots.push(*slot);
                                }
                            }
                            parts.push(Part::Hole(expression));
                        }
                        Err(found) => errors.extend(found.into_iter().map(|mut error| {
                            error.at = error.at.start + range.start..error.at.end + range.start;
                            error
                        })),
                    }
                }
            }
        }
        match errors.is_empty() {
            true => Ok(Self { parts, slots }),
            false => Err(errors),
        }
    }

    /// Whether a text has holes.
    pub fn has_holes(text: &str) -> bool {
        match pieces(text) {
            Ok(pieces) => pieces.iter().any(|it| matches!(it, Piece::Hole(_))),
            Err(_) => true,
        }
    }

    /// The text of a template without holes.
    pub fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The expressions of its holes.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Hole(expression) => Some(expression),
        })
    }

    /// Its pieces in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The slots of the variables that it uses, each once.
    pub fn variables(&self) -> &[usize] {
        &self.slots
    }

    /// Whether a hole looks at `.`; may say so when none does.
    pub fn uses_input(&self) -> bool {
        self.expressions().any(Expression::uses_input)
    }

    /// Fills the holes. A hole that is the whole text keeps its type.
    ///
    /// # Errors
    /// When an expression fails, or when a hole within longer text is no text, number or boolean.
    pub fn evaluate(
        &self,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> Result<Value, EvalError> {
        if let [Part::Hole(expression)] = self.parts.as_slice() {
            return expression.evaluate(input, variables, limits);
        }
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Hole(expression) => {
                    let value = expression.evaluate(input, variables, limits)?;
                    match value::scalar_text(&value) {
                        Some(part) => text.push_str(&part),
                        None => return Err(not_scalar(expression, &value)),
                    }
                }
            }
            if text.len() > limits.memory {
                return Err(EvalError::new(
                    EvalErrorKind::Budget,
                    "the text is too large",
                ));
            }
        }
        Ok(value::text(text))
    }
}

fn not_scalar(expression: &Expression, value: &Value) -> EvalError {
    let found = match value::kind(value) {
        "string" => "text that is not UTF-8".to_owned(),
        kind => format!("{kind} {}", value::shown(value)),
    };
    EvalError {
        kind: EvalErrorKind::NoText,
        message: format!("text, a number or a boolean is needed within text, found {found}"),
        part: Some(format!("${{{}}}", expression.text())),
    }
}

enum Piece {
    Text(String),
    Hole(Range<usize>),
}

fn pieces(text: &str) -> Result<Vec<Piece>, Vec<CompileError>> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find("${")) {
        let start = at + found;
        let before = text.get(at..start).unwrap_or_default();
        if let Some(before) = before.strip_suffix('$') {
            plain.push_str(before);
            plain.push_str("${");
            at = start + 2;
            continue;
        }
        plain.push_str(before);
        let rest = text.get(start + 2..).unwrap_or_default();
        let Some(length) = scan(rest, Stop::Brace).end else {
            return Err(vec![CompileError {
                message: "`${` is never closed".to_owned(),
                hint: Some("`$${` stands for `${` itself".to_owned()),
                at: start..text.len(),
            }]);
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Hole(start + 2..start + 2 + length));
        at = start + 2 + length + 1;
    }
    plain.push_str(text.get(at..).unwrap_or_default());
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{integer, object, text};

    struct Nothing;

    impl Scope for Nothing {
        fn slot(&self, _: &str) -> Option<usize> {
            None
        }
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }

    impl Variables for Nothing {
        fn get(&self, _: usize) -> Value {
            Value::Null
        }
        fn now(&self) -> f64 {
            0.0
        }
    }

    fn filled(template: &str) -> Result<Value, String> {
        let input = object([
            ("a".to_owned(), integer(1)),
            ("b".to_owned(), text("x}")),
            ("c".to_owned(), object([])),
        ]);
        let template = Template::compile(template, &Nothing)
            .map_err(|errors| format!("{:?} {}", errors[0].at, errors[0]))?;
        template
            .evaluate(&input, &Nothing, &Limits::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn holes_are_filled() {
        assert_eq!(filled("${ .a }").unwrap(), integer(1));
        assert_eq!(filled("n ${ .a }!${.b}").unwrap(), text("n 1!x}"));
        assert_eq!(filled("$${ .a } $$ $").unwrap(), text("${ .a } $$ $"));
        assert_eq!(filled(r#"${ "}\({a: "}"} | .a)" }-"#).unwrap(), text("}}-"));
        assert_eq!(filled("").unwrap(), text(""));
        assert!(Template::has_holes("a ${ .a }") && !Template::has_holes("a $${ .a }"));
    }

    #[test]
    fn mistakes_name_their_place() {
        assert!(
            filled("ab ${ .a")
                .unwrap_err()
                .starts_with("3..8 `${` is never closed")
        );
        assert_eq!(
            filled("ab ${ lenght }").unwrap_err(),
            "6..12 there is no function `lenght` (did you mean `length`?)"
        );
        assert_eq!(
            filled("x${ .c }").unwrap_err(),
            "${ .c }: text, a number or a boolean is needed within text, found object {}"
        );
        assert!(filled("x${ .z }").unwrap_err().contains("found null null"));
    }
}
