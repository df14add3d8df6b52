//! What steps of this crate name: the connection that they use, and texts that are the same for
//! every message.

use std::any::Any;
use std::sync::Arc;

use component::connection::{Connection, Connections};
use component::definition::BuildContext;
use config::{Report, Spanned};
use expr::template::Template;

use crate::codes::{NO_CONNECTION, NOT_FIXED};

/// The connection that `to` of a step names, when it is of this type. Every problem is reported.
pub(crate) fn connection<T: Any + Send + Sync>(
    to: &Spanned<String>,
    kinds: &[&str],
    context: &mut BuildContext<'_>,
) -> Option<Arc<T>> {
    find(to, kinds, (context.connections, &mut *context.report))
}

/// The same for whatever else uses connections.
pub(crate) fn find<T: Any + Send + Sync>(
    to: &Spanned<String>,
    kinds: &[&str],
    (connections, report): (&Connections, &mut Report),
) -> Option<Arc<T>> {
    let wanted = kinds.join("`, `");
    let shown = to.value.escape_debug();
    let Some(found) = connections.get(&to.value) else {
        let usable = |it: &&Connection| kinds.contains(&it.kind);
        let usable = connections.iter().filter(usable);
        let near = config::suggest(&to.value, usable.map(|it| it.name.as_str()));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("declare it under `use:`, as one of `{wanted}`"),
        };
        let message = format!("there is no connection `{shown}`");
        report.error(NO_CONNECTION, to.span, message).hint(hint);
        return None;
    };
    let value = Arc::clone(&found.value).downcast::<T>().ok();
    if value.is_none() {
        let message = format!("`{shown}` is no connection that can be used here");
        report
            .error(NO_CONNECTION, to.span, message)
            .also(found.span, format!("it is `{}`", found.kind))
            .hint(format!("name one of `{wanted}`"));
    }
    value
}

/// Refuses `${ }` in a text that is the same for every message; whether there was none.
pub(crate) fn is_fixed(
    what: &str,
    hint: &str,
    text: &Spanned<String>,
    context: &mut BuildContext<'_>,
) -> bool {
    // Told here, with a better reason than that nobody reads it.
    context.compiled.push(text.span);
    if !Template::has_holes(&text.value) {
        return true;
    }
    let message = format!("`{what}` is the same for every message: it has no `${{ }}`");
    context
        .report
        .error(NOT_FIXED, text.span, message)
        .hint(hint);
    false
}
