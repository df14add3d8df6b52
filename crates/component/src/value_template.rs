//! A YAML value with `${ }` in its texts, which becomes a value when a message comes.

use config::{Node, Report};
use expr::Value;
use expr::template::Template;
use message::Fault;

use crate::block::needs_body;
use crate::definition::compile_text;
use crate::exchange::Exchange;
use crate::handler::Services;
use crate::scope::Scope;

/// A YAML value with `${ }` in its texts.
pub enum ValueTemplate {
    /// It is the same for every message.
    Fixed(Value),
    /// A text with expressions in it.
    Text(Template),
    /// A list.
    List(Vec<Self>),
    /// A mapping.
    Members(Vec<(String, Self)>),
}

impl ValueTemplate {
    /// Reads a YAML value. Every problem goes into the report; `None` when there was one.
    pub fn read(node: &Node, scope: &Scope, report: &mut Report) -> Option<Self> {
        Some(match &node.value {
            config::Value::Null => Self::Fixed(Value::Null),
            config::Value::Bool(value) => Self::Fixed(Value::Bool(*value)),
            config::Value::Number(number) => Self::Fixed(number_value(number)),
            config::Value::String(text) => {
                let template = compile_text(text, node.span, scope, report)?;
                match template.literal() {
                    Some(text) => Self::Fixed(expr::value::text(text)),
                    None => Self::Text(template),
                }
            }
            config::Value::Sequence(items) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|item| Self::read(item, scope, report))
                    .collect();
                Self::of_list(items.into_iter().collect::<Option<_>>()?)
            }
            config::Value::Mapping(entries) => {
                let members = entries.iter().map(|entry| {
                    let value = Self::read(&entry.value, scope, report)?;
                    Some((entry.key.clone(), value))
                });
                let members: Vec<_> = members.collect();
                Self::of_members(members.into_iter().collect::<Option<_>>()?)
            }
        })
    }

    fn of_list(items: Vec<Self>) -> Self {
        if !items.iter().all(|item| matches!(item, Self::Fixed(_))) {
            return Self::List(items);
        }
        let fixed = items.into_iter().filter_map(|item| match item {
            Self::Fixed(value) => Some(value),
            _ => None,
        });
        Self::Fixed(expr::value::array(fixed))
    }

    fn of_members(members: Vec<(String, Self)>) -> Self {
        if !members
            .iter()
            .all(|(_, value)| matches!(value, Self::Fixed(_)))
        {
            return Self::Members(members);
        }
        let fixed = members.into_iter().filter_map(|(name, value)| match value {
            Self::Fixed(value) => Some((name, value)),
            _ => None,
        });
        Self::Fixed(expr::value::object(fixed))
    }

    /// The value for this message.
    ///
    /// # Errors
    /// What an expression in it says that fails.
    pub fn make(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Value, Fault> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Text(template) => exchange.fill(template, services),
            Self::List(items) => {
                let items = items.iter().map(|item| item.make(exchange, services));
                Ok(expr::value::array(items.collect::<Result<Vec<_>, _>>()?))
            }
            Self::Members(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), value.make(exchange, services)?)));
                Ok(expr::value::object(
                    members.collect::<Result<Vec<_>, Fault>>()?,
                ))
            }
        }
    }

    /// Whether it needs the body in memory.
    pub fn reads_body(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Text(template) => needs_body(template.uses_input(), template.variables()),
            Self::List(items) => items.iter().any(Self::reads_body),
            Self::Members(members) => members.iter().any(|(_, value)| value.reads_body()),
        }
    }
}

/// A YAML number, its digits as they stand in the file where JSON has such numbers.
fn number_value(number: &config::Number) -> Value {
    match number.json_text() {
        Some(text) => expr::value::number(&text),
        None => expr::value::float(number.as_f64()),
    }
}
