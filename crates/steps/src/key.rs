//! Keys by which steps tell messages apart.

use component::access::Caller;
use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use component::value_template::ValueTemplate;
use config::Node;
use message::Fault;

use crate::codes::{BAD_KEY, NO_EFFECT};

/// The most bytes of a key: what a client sends decides how long it gets.
const LENGTH_MAX: usize = 16 * 1024;

/// A key, made of each message.
pub struct KeyTemplate(ValueTemplate);

/// Reads a key. One that is the same for every message is reported.
pub fn read(node: &Node, context: &mut BuildContext<'_>) -> Option<KeyTemplate> {
    let value = context.value(node)?;
    if matches!(value, ValueTemplate::Fixed(_)) {
        let message = "the key is the same for every message";
        let diagnostic = context.report.error(BAD_KEY, node.span, message);
        match node.as_str().filter(|text| text.starts_with(['.', '$'])) {
            Some(text) => diagnostic.hint(format!("write \"${{ {} }}\"", text.escape_debug())),
            None => diagnostic.hint("write a text such as \"${ .orderId }\", or a list of such"),
        };
        return None;
    }
    Some(KeyTemplate(value))
}

/// Reads `shared`: whether all callers of the flow have the same keys. One that changes nothing is
/// reported.
pub fn read_shared(node: &Node, context: &mut BuildContext<'_>) -> bool {
    let Some(entry) = node.entry("shared") else {
        return false;
    };
    let is_shared = matches!(entry.value.value, config::Value::Bool(true));
    if is_shared && !context.may_have_caller {
        let message = "`shared` has no effect: the flow has no `auth` that tells callers apart";
        let diagnostic = context.report.error(NO_EFFECT, entry.key_span, message);
        diagnostic.hint("leave it out: all messages of the flow share the keys");
    }
    is_shared
}

impl KeyTemplate {
    /// The key of this message among those of its caller, when a door has found out who that is:
    /// callers do not meet the results of others. With `is_shared` among those of all callers.
    ///
    /// # Errors
    /// As [`KeyTemplate::make`], and `forbidden` when the caller has no name.
    pub fn make_for_caller(
        &self,
        exchange: &mut Exchange,
        is_shared: bool,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        let key = self.make(exchange, services)?;
        match Caller::of(&exchange.request) {
            // No other key begins with `@`.
            Some(caller) if !is_shared => Ok(format!("@{}{key}", caller.scope()?)),
            _ => Ok(key),
        }
    }

    /// The key of this message.
    ///
    /// # Errors
    /// `invalid` when it is null, an empty text or too long, and what an expression says that
    /// fails.
    pub fn make(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<String, Fault> {
        let value = self.0.make(exchange, services)?;
        let key = match expr::value::scalar_text(&value) {
            // A text that reads like a list is not that list.
            Some(text) if text.is_empty() => String::new(),
            Some(text) => format!("={text}"),
            None if matches!(value, expr::Value::Null) => String::new(),
            None => {
                let mut text = Vec::new();
                let written = expr::json::write(&value, LENGTH_MAX, &mut text);
                written.map_err(|error| Fault::invalid(format!("the key: {error}")))?;
                String::from_utf8_lossy(&text).into_owned()
            }
        };
        if key.is_empty() {
            return Err(Fault::invalid("the key of the message is missing"));
        }
        if key.len() > LENGTH_MAX {
            return Err(Fault::invalid("the key of the message is too long"));
        }
        Ok(key)
    }

    /// Whether it needs the body in memory.
    pub fn reads_body(&self) -> bool {
        self.0.reads_body()
    }
}
