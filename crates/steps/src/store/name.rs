//! Names of stores.

use config::{Report, Spanned};

use crate::codes::BAD_STORE_NAME;

/// Checks the name of a store. What is none is reported.
pub(super) fn check(name: &Spanned<String>, report: &mut Report) {
    let text = name.value.as_str();
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_letter)
        && text.len() <= 100
    {
        return;
    }
    let (message, hint) = match text.contains("${") {
        true => (
            "a value cannot decide which store a message goes to".to_owned(),
            "write the name of one store",
        ),
        false => (
            format!("`{}` is no name of a store", text.escape_debug()),
            "a name has letters, digits, `-`, `_` and `.`, and begins with a letter or digit",
        ),
    };
    report.error(BAD_STORE_NAME, name.span, message).hint(hint);
}
