//! What a phone shows: in a frame on a terminal, as it is for scripts.

use std::io::{self, Write};

use component::dialogue::Screen;
use menu::text::{Encoding, Limit, measure};

/// How wide the screen of a phone is.
const WIDTH: usize = 40;

/// A phone.
pub(super) struct Phone {
    /// Whether there is a terminal for a frame.
    has_screen: bool,
    has_color: bool,
    limit: usize,
}

impl Phone {
    pub fn new(has_screen: bool, limit: usize) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Self {
            has_screen,
            has_color: has_screen && !is_plain,
            limit,
        }
    }

    /// Whether somebody sits before it.
    pub fn is_interactive(&self) -> bool {
        self.has_screen
    }

    /// Shows what was typed, where nobody has seen it.
    pub fn typed(&self, text: &str) {
        if !self.has_screen {
            // A reader that has read enough is no error.
            let _ = writeln!(io::stdout(), "> {text}");
        }
    }

    /// Says something that is not on the screen.
    pub fn say(&self, text: &str) {
        let _ = match self.has_color {
            true => writeln!(io::stdout(), "\x1b[2m{text}\x1b[0m"),
            false => writeln!(io::stdout(), "{text}"),
        };
    }

    /// Shows a screen.
    ///
    /// # Errors
    /// When stdout takes nothing.
    pub fn show(&self, screen: &Screen) -> io::Result<()> {
        let text = match self.has_screen {
            true => self.framed(screen),
            false => format!("{}\n", screen.text),
        };
        io::stdout().write_all(text.as_bytes())
    }

    /// How much of a page a text takes.
    fn used(&self, text: &str) -> String {
        let (encoding, used) = measure(text);
        let most = Limit::new(self.limit).unwrap_or_default().units(encoding);
        match encoding {
            Encoding::Gsm7 => format!("{used}/{most}"),
            Encoding::Ucs2 => format!("{used}/{most} UCS-2"),
        }
    }

    fn framed(&self, screen: &Screen) -> String {
        let (bold, dim, normal) = match self.has_color {
            true => ("\x1b[1m", "\x1b[2m", "\x1b[0m"),
            false => ("", "", ""),
        };
        let mut text = format!("{dim}╭{}╮{normal}\n", "─".repeat(WIDTH + 2));
        for line in screen.text.lines().flat_map(wrapped) {
            let fill = " ".repeat(WIDTH.saturating_sub(line.chars().count()));
            text.push_str(&format!(
                "{dim}│{normal} {bold}{line}{normal}{fill} {dim}│{normal}\n"
            ));
        }
        let used = self.used(&screen.text);
        let end = if screen.ends { " end " } else { "" };
        let line = (WIDTH + 2).saturating_sub(used.chars().count() + end.len() + 3);
        text.push_str(&format!(
            "{dim}╰{end}{} {used} ─╯{normal}\n",
            "─".repeat(line)
        ));
        text
    }
}

/// The lines that a line becomes on a phone, broken between words where that is possible.
fn wrapped(line: &str) -> Vec<String> {
    let (mut lines, mut last, mut width) = (Vec::new(), String::new(), 0);
    for word in line.split_inclusive(' ') {
        if width > 0 && width + word.trim_end().chars().count() > WIDTH {
            lines.push(std::mem::take(&mut last));
            width = 0;
        }
        for character in word.chars() {
            if width == WIDTH && character != ' ' {
                lines.push(std::mem::take(&mut last));
                width = 0;
            }
            last.push(character);
            width += 1;
        }
    }
    lines.push(last);
    lines.iter().map(|it| it.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "One gigabyte for a day, and two more for the whole weekend";
        let lines = wrapped(text);
        assert_eq!(
            lines,
            [
                "One gigabyte for a day, and two more for",
                "the whole weekend"
            ]
        );
        assert_eq!(wrapped(""), [""]);
        let long = "x".repeat(95);
        let lines: Vec<usize> = wrapped(&long).iter().map(String::len).collect();
        assert_eq!(lines, [40, 40, 15]);
    }

    #[test]
    fn a_frame_tells_how_full_the_page_is() {
        let phone = Phone {
            has_screen: true,
            has_color: false,
            limit: 182,
        };
        let screen = |text: &str, ends| Screen {
            text: text.to_owned(),
            ends,
        };
        let shown = phone.framed(&screen("Airtime\n1. Buy", false));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], format!("│ Airtime{} │", " ".repeat(33)));
        assert!(lines[3].ends_with(" 14/182 ─╯"), "{shown}");
        let widths: Vec<usize> = lines.iter().map(|it| it.chars().count()).collect();
        assert_eq!(widths, [44; 4]);
        assert!(phone.framed(&screen("Цена", true)).contains(" 4/80 UCS-2 "));
    }
}
