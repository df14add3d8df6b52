//! A row as a message, and the columns that it is marked by.

use component::intake::Incoming;
use expr::{Value, value};
use message::{Body, Fault, Headers, Request};

use super::keep::Mark;
use crate::sql::error::SqlError;
use crate::sql::session::Statement;

/// The most bytes of a batch, and of a row as JSON.
pub(super) const BYTES_MAX: u64 = 64 << 20;
/// The most bytes of what names a row in logs.
const ID_MAX: usize = 1000;

/// What there is of a row.
pub(super) enum Content<'a> {
    /// All its columns.
    Whole(&'a Value),
    /// It cannot be held, as the fault says. The columns that it is marked by are known, unless it
    /// cannot be read at all.
    Marks(Option<&'a Value>, Fault),
}

/// A row as a message.
pub(super) struct Row<'a> {
    pub mark: &'a Mark,
    pub content: Content<'a>,
    /// How many runs have begun with it.
    pub attempts: u32,
}

impl Row<'_> {
    /// The columns that it is marked by, where they are known.
    fn marks(&self) -> Option<Value> {
        let row = match self.content {
            Content::Whole(row) => Some(row),
            Content::Marks(marks, _) => marks,
        };
        marks_of(row?, self.mark).ok()
    }
}

impl Incoming for Row<'_> {
    fn id(&self) -> String {
        let mut text = Vec::new();
        let marks = self.marks();
        match marks.map(|marks| expr::json::write(&marks, ID_MAX, &mut text)) {
            Some(Ok(())) => String::from_utf8_lossy(&text).into_owned(),
            _ => "unknown".to_owned(),
        }
    }

    fn request(&mut self, attempt: u32) -> Result<Request, Fault> {
        self.attempts = attempt;
        match &self.content {
            Content::Whole(row) => request(row),
            Content::Marks(_, fault) => Err(fault.clone()),
        }
    }

    /// A row that is tried again has failed with each run before.
    fn failed_before(&self) -> u32 {
        self.attempts
    }

    fn letter(&mut self, _: u32) -> Request {
        let whole = match self.content {
            Content::Whole(row) => request(row).ok(),
            Content::Marks(..) => None,
        };
        // With the columns that it is marked by, its receiver finds it in the database.
        let letter = whole.or_else(|| request(&self.marks()?).ok());
        letter.unwrap_or_else(|| Request::of_source("ROW", Headers::new(), Body::Empty))
    }
}

/// What a flow is started with: the row as JSON.
fn request(row: &Value) -> Result<Request, Fault> {
    let mut body = Vec::with_capacity(256);
    expr::json::write(row, BYTES_MAX as usize, &mut body).map_err(Fault::expression)?;
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    Ok(Request::of_source("ROW", headers, body))
}

/// The columns of a row that it is marked by.
pub(super) fn marks_of(row: &Value, mark: &Mark) -> Result<Value, SqlError> {
    let members = match mark {
        Mark::After(statement) => {
            let values = named(statement, |name| column(row, name))?;
            statement.names.iter().cloned().zip(values).collect()
        }
        Mark::Cursor { column, .. } => vec![(column.clone(), cursor_of(row, column)?)],
    };
    Ok(value::object(members))
}

/// A column of a row: databases differ in how they write names in capitals.
pub(super) fn column(row: &Value, name: &str) -> Option<Value> {
    if let Some(found) = value::get(row, name) {
        return Some(found.clone());
    }
    let mut members = value::members(row)?;
    let same = members.find(|(key, _)| key.eq_ignore_ascii_case(name));
    same.map(|(_, value)| value.clone())
}

/// The cursor of a row.
pub(super) fn cursor_of(row: &Value, name: &str) -> Result<Value, SqlError> {
    let found = column(row, name);
    let found = found.filter(|it| matches!(it, Value::Num(_) | Value::TStr(_)));
    let missing = || {
        let message = format!("the row has no number or text `{name}` to be the cursor");
        SqlError::unsupported(message)
    };
    found.ok_or_else(missing)
}

/// The arguments of a statement, each found by its name.
pub(super) fn named(
    statement: &Statement,
    find: impl Fn(&str) -> Option<Value>,
) -> Result<Vec<Value>, SqlError> {
    let found = statement.names.iter().map(|name| {
        let missing = || SqlError::argument(name, "is no column of the row");
        find(name).ok_or_else(missing)
    });
    found.collect()
}
