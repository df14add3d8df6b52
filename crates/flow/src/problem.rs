//! What a pure parser finds wrong, before it is known where in which file.

use component::text::TextError;
use config::{Code, Report, Span};

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn of_text(code: Code, error: TextError) -> Self {
        Self {
            code,
            message: error.message,
            hint: error.hint,
        }
    }

    /// Puts it into the report at a place.
    pub fn put(self, span: Span, report: &mut Report) {
        let diagnostic = report.error(self.code, span, self.message);
        if let Some(hint) = self.hint {
            diagnostic.hint(hint);
        }
    }
}
