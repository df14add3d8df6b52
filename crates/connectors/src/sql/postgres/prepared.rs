//! The prepared statements of one connection: the least used goes when there are too many.

use std::collections::HashMap;
use std::rc::Rc;

use tokio_postgres::Statement;

use crate::sql::error::SqlError;
use crate::sql::session::Columns;

/// The most statements that a connection keeps prepared.
const MOST: usize = 256;

/// A statement that the server has prepared.
pub(super) struct Prepared {
    pub statement: Statement,
    pub columns: Columns,
}

impl Prepared {
    pub fn new(statement: Statement) -> Result<Self, SqlError> {
        let names = statement.columns().iter().map(|column| column.name());
        let columns = Columns::new(names).map_err(SqlError::without_effect)?;
        Ok(Self { statement, columns })
    }
}

/// All of a connection.
#[derive(Default)]
pub(super) struct Cache {
    entries: HashMap<String, (Rc<Prepared>, u64)>,
    uses: u64,
}

impl Cache {
    pub fn get(&mut self, text: &str) -> Option<Rc<Prepared>> {
        self.uses += 1;
        let (prepared, used) = self.entries.get_mut(text)?;
        *used = self.uses;
        Some(Rc::clone(prepared))
    }

    pub fn put(&mut self, text: &str, prepared: &Rc<Prepared>) {
        if self.entries.len() >= MOST {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(text, _)| text.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = (Rc::clone(prepared), self.uses);
        self.entries.insert(text.to_owned(), entry);
    }

    pub fn forget(&mut self, text: &str) {
        self.entries.remove(text);
    }
}
