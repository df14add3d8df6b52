//! Paths of pages that are served beside flows.

use component::trigger::{PathPattern, Segment};
use config::{Code, Report, Spanned};

/// A path of unreserved characters, which has one spelling.
pub(crate) fn check(path: &Spanned<String>, code: Code, report: &mut Report) {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut segments = path.value.split('/');
    let is_sound = segments.next() == Some("")
        && segments.all(|it| !matches!(it, "" | "." | "..") && it.bytes().all(is_part));
    if !is_sound || path.value == "/" || path.value.len() > 200 {
        let message = format!("`{}` is no path for a page", path.value.escape_debug());
        let hint = "such as `/login/callback`: letters, digits, `-`, `.`, `_` and `~`";
        report.error(code, path.span, message).hint(hint);
    }
}

/// The path as a pattern of literals.
pub(crate) fn pattern(path: &str) -> PathPattern {
    let segments = path.split('/').skip(1);
    PathPattern {
        segments: segments.map(|it| Segment::Literal(it.to_owned())).collect(),
        rest: false,
    }
}
