//! Contents that outlive their message: made independent of its head, and weighed.

use component::content::Content;
use component::exchange::Exchange;
use expr::Value;
use message::Fault;

/// What an entry of a table takes beside its key and its content.
pub(crate) const ENTRY: usize = 256;

/// The content of a message as it can be kept, and about how many bytes it takes. `None` when it
/// has not been read or its bytes are more than `body_max`.
///
/// # Errors
/// `expression` when the content is a value that cannot be written.
pub(crate) fn of(
    exchange: &mut Exchange,
    body_max: usize,
) -> Result<Option<(Content, usize)>, Fault> {
    if exchange.content.is_unread() {
        return Ok(None);
    }
    let (body, _) = exchange.body()?;
    let length = body.as_bytes().len();
    if length > body_max {
        return Ok(None);
    }
    let content = match exchange.content.head() {
        Some(_) => exchange.content.clone(),
        // The head of this message describes it, and the next message has another one.
        None => Content::of_reply(&exchange.take_reply(200)?).in_format(exchange.context.decode),
    };
    let weight = length + weight(content.decoded());
    Ok(Some((content.detached(), weight)))
}

/// About how many bytes a value takes.
fn weight(value: &Value) -> usize {
    const WORD: usize = 32;
    match value {
        Value::Null | Value::Bool(_) | Value::Num(_) => WORD,
        Value::TStr(bytes) | Value::BStr(bytes) => WORD + bytes.len(),
        Value::Arr(items) => WORD + items.iter().map(weight).sum::<usize>(),
        Value::Obj(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| 2 * WORD + weight(key) + weight(value));
            WORD + members.sum::<usize>()
        }
    }
}
