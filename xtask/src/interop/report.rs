//! One line for each check, and their count at the end.

use crate::command::Failure;

/// A note about what was right, or the reason of a failure; its further lines are details.
pub type Outcome = Result<String, Failure>;

/// What has been counted so far.
#[derive(Debug, Default)]
pub struct Report {
    pub passed: usize,
    pub failed: usize,
}

impl Report {
    /// Prints and counts the outcome of a check.
    pub fn add(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Ok(note) => {
                self.passed += 1;
                let note = match note.is_empty() {
                    true => note,
                    false => format!(" ({note})"),
                };
                println!("ok      {name}{note}");
            }
            Err(reason) => {
                self.failed += 1;
                println!("FAILED  {name}: {}", indented(&reason.to_string()));
            }
        }
    }

    /// Prints the count; fails when a check did.
    pub fn finish(&self) -> Result<(), Failure> {
        println!("{} passed, {} failed", self.passed, self.failed);
        match self.failed {
            0 => Ok(()),
            failed => Err(Failure::new(format!("interop: {failed} checks failed"))),
        }
    }
}

fn indented(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines.join("\n        ")
}
