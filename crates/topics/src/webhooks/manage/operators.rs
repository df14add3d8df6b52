//! Who manages the webhooks of everybody.

use component::access::Caller;
use component::definition::compile_expression;
use component::document::DocumentContext;
use component::scope::AUTH;
use config::Spanned;
use expr::jq::Variables;
use expr::{Expression, Value, value};

use crate::codes::BAD_WEBHOOK;
use crate::expressions::LIMITS;

/// A condition over `$auth`.
pub(super) struct Operators(Expression);

impl Operators {
    /// Reads the condition. Every problem is reported.
    pub fn read(text: &Spanned<String>, context: &mut DocumentContext<'_>) -> Option<Self> {
        let scope = context.evaluation.scope();
        let expression = compile_expression(&text.value, text.span, &scope, context.report)?;
        if expression.variables().iter().any(|slot| *slot != AUTH) {
            let message = "`operators` sees `$auth`, nothing else";
            let diagnostic = context.report.error(BAD_WEBHOOK, text.span, message);
            diagnostic.hint("such as `$auth.claims.groups | index(\"ops\")`");
            return None;
        }
        Some(Self(expression))
    }

    /// Whether a caller is one. One for whom the condition fails is none.
    pub fn has(&self, caller: &Caller, now: f64) -> bool {
        let seen = Seen {
            auth: caller.value().clone(),
            now,
        };
        let (result, _) = self.0.evaluate_counted(&Value::Null, &seen, &LIMITS);
        result.is_ok_and(|it| value::is_truthy(&it))
    }
}

struct Seen {
    auth: Value,
    now: f64,
}

impl Variables for Seen {
    fn get(&self, slot: usize) -> Value {
        match slot {
            AUTH => self.auth.clone(),
            _ => Value::Null,
        }
    }

    fn now(&self) -> f64 {
        self.now
    }
}
