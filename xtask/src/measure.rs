//! To be written below.
use crate::command::Failure;
use std::path::Path;
/// Nothing yet.
pub fn run(_: &Path, _: &[String]) -> Result<(), Failure> {
    Err(Failure::new("no"))
}
