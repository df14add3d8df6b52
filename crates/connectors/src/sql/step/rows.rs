//! What becomes of the rows of a statement.

use expr::{Value, value};
use message::{Fault, Kind, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the result of a statement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Rows {
    /// A list of objects, one a row.
    #[default]
    Many,
    /// The object of the only row.
    One,
    /// Nothing: the body stays as it was.
    None,
    /// The number of rows that were changed.
    Count,
    /// The rows go through `steps` in batches while they come; the result is their number.
    Stream,
}

impl Rows {
    /// What becomes of the rows that came, or of the number of those that were changed.
    ///
    /// # Errors
    /// `no-row` and `many-rows`; `connection` for something that no database says.
    pub fn result(self, found: Value) -> Result<Value, Fault> {
        let odd = |found: &Value| {
            let detail = "the database's answer is none";
            let kind = value::kind(found);
            let fault = Fault::new(Kind::Connection, Origin::Upstream, detail);
            fault.with_cause(format_args!("{kind} where `rows` wants something else"))
        };
        let is_row = |it: &Value| matches!(it, Value::Obj(_));
        match (self, &found) {
            (Self::None, _) => Ok(Value::Null),
            (Self::Many | Self::Stream, Value::Arr(rows)) if rows.iter().all(is_row) => Ok(found),
            (Self::Count, Value::Num(_)) => Ok(found),
            (Self::One, Value::Obj(_)) => Ok(found),
            (Self::One, Value::Null) => Err(no_row()),
            (Self::One, Value::Arr(rows)) => match rows.as_slice() {
                [] => Err(no_row()),
                [row] if is_row(row) => Ok(row.clone()),
                rows if rows.iter().all(is_row) => {
                    let detail = "the database has several rows where one is wanted".to_owned();
                    Err(Fault::raised("many-rows", None, detail))
                }
                _ => Err(odd(&found)),
            },
            _ => Err(odd(&found)),
        }
    }
}

fn no_row() -> Fault {
    let detail = "the database has no such row".to_owned();
    Fault::raised("no-row", None, detail)
}
