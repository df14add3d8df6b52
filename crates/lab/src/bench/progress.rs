//! How far a run is: a bar on a terminal, a line for each sample elsewhere; on stderr.

use std::io::{IsTerminal, Write};
use std::time::Instant;

const WIDTH: usize = 24;

/// The samples of a run.
pub(crate) struct Progress {
    total: usize,
    done: usize,
    started: Instant,
    is_terminal: bool,
}

impl Progress {
    pub fn new(total: usize) -> Self {
        Self {
            total,
            done: 0,
            started: Instant::now(),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Says what is measured next.
    pub fn next(&mut self, what: &str) {
        let text = self.text(what);
        let mut out = std::io::stderr().lock();
        // Who does not listen is not told.
        let _ = match self.is_terminal {
            true => write!(out, "\r\x1b[K{text}").and_then(|()| out.flush()),
            false => writeln!(out, "{text}"),
        };
        self.done += 1;
    }

    /// Makes room for other output.
    pub fn clear(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn text(&self, what: &str) -> String {
        let total = self.total.max(1);
        let filled = (WIDTH * self.done / total).min(WIDTH);
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH - filled));
        let left = match self.done {
            0 => String::new(),
            done => {
                let each = self.started.elapsed().as_secs_f64() / done as f64;
                let seconds = each * self.total.saturating_sub(done) as f64;
                format!(
                    ", {:.0}:{:02.0} left",
                    (seconds / 60.0).floor(),
                    seconds % 60.0
                )
            }
        };
        format!("[{bar}] {}/{total}{left}: {what}", self.done + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let mut progress = Progress::new(2);
        assert_eq!(progress.text("a"), "[........................] 1/2: a");
        progress.done = 1;
        assert!(
            progress
                .text("b")
                .starts_with("[############............] 2/2, 0:00 left: b")
        );
    }
}
