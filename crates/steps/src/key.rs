//! Keys by which steps tell messages apart.

use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use component::value_template::ValueTemplate;
use config::Node;
use message::Fault;

use crate::codes::BAD_KEY;

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

impl KeyTemplate {
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
