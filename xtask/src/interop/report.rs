//! One line for each check, and their count at the end.

use crate::command::Failure;

/// A note about what was right, or the reason of a failure; its further lines are details.
pub type Outcome = Result<String, Failure>;

/// What has been counted so far.
#[derive(Debug, Default)]
pub struct Report {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
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

    /// Prints and counts a check that cannot be made on this machine. Where the variable CI is set
    /// it has failed: CI has to have what its checks need.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.skip_unless(std::env::var_os("CI").is_some(), name, reason);
    }

    fn skip_unless(&mut self, is_ci: bool, name: &str, reason: &str) {
        if is_ci {
            let reason = format!("skipped, which CI does not allow: {reason}");
            return self.add(name, Err(Failure::new(reason)));
        }
        self.skipped += 1;
        println!("skipped {name}: {}", indented(reason));
    }

    /// Prints the count; fails when a check did.
    pub fn finish(&self) -> Result<(), Failure> {
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_check_fails_in_ci_alone() {
        let mut report = Report::default();
        report.skip_unless(false, "it", "no systemd");
        assert!((report.skipped, report.failed) == (1, 0) && report.finish().is_ok());
        report.skip_unless(true, "it", "no systemd");
        assert!((report.skipped, report.failed) == (1, 1) && report.finish().is_err());
    }
}
