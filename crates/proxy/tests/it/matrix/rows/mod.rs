//! The rows, by what they are about.

mod broken;
mod clients;
mod early;
mod framing;
mod interim;
mod kept;
mod plain;

use super::row::Row;

/// All rows; a name says what happens.
pub fn all() -> Vec<Row> {
    [
        plain::rows(),
        early::rows(),
        interim::rows(),
        framing::rows(),
        broken::rows(),
        kept::rows(),
        clients::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
