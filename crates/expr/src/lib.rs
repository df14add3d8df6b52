//! What can be done with the content of messages, without input or output: conversions,
//! expressions and templates.

pub mod convert;
pub mod encoding;
pub mod format;
pub mod jq;
pub mod json;
mod stop;
pub mod template;
pub mod value;
pub mod xml;

pub use jq::{
    CompileError, EvalError, EvalErrorKind, Expression, Limits, Scope, Variables, function_names,
    set_stack,
};
pub use template::{Part, Template};
pub use value::Value;
