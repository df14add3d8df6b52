//! The way out of everything that the process writes about itself: no secret passes it.
//!
//! Values are taken out here, where a text leaves, so that nobody who makes one has to think of
//! it. Reports, the log, the access log, `/metrics`, errors and panics come this way; faults have
//! their own in `message`.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::{self, Write};

use message::secret::{redact, redact_bytes};

/// Stderr, without secrets. Whoever writes hands over whole lines.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(&redact_bytes(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Tells why the process ends.
pub fn error(error: &anyhow::Error) {
    eprintln!("intertie: {}", redact(&format!("{error:#}")));
}

/// Has panics told without secrets.
pub fn guard_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let mut text = format!("thread '{name}' {panic}\n");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text.push_str(&format!("stack backtrace:\n{backtrace}"));
        }
        // There is nowhere else to tell it.
        let _ = Stderr.write_all(text.as_bytes());
    }));
}

/// An OpenMetrics page with secrets taken out of its quoted label values; names of metrics and
/// labels stay what they are.
pub(crate) fn metrics(page: String) -> String {
    if let Cow::Borrowed(_) = redact(&page) {
        return page;
    }
    let mut shown = String::with_capacity(page.len());
    let mut rest = page.as_str();
    while let Some((before, behind)) = rest.split_once('"') {
        let end = closing_quote(behind);
        shown.push_str(before);
        shown.push('"');
        shown.push_str(&redact(behind.get(..end).unwrap_or_default()));
        shown.push('"');
        rest = behind.get(end + 1..).unwrap_or_default();
    }
    shown.push_str(rest);
    shown
}

/// Where the quote stands that closes a label's value; the end when there is none.
fn closing_quote(text: &str) -> usize {
    let mut escaped = false;
    let closing = |byte: u8| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    };
    text.bytes().position(closing).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_shows_no_secret() {
        const NAME: &str = "shown::tests::a_panic_shows_no_secret";
        const MARK: &str = "INTERTIE_TEST_PANIC";
        if std::env::var_os(MARK).is_some() {
            guard_panics();
            message::secret::register("panicking-secret");
            panic!("no value: {:?}", Some("panicking-secret"));
        }
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", NAME, "--nocapture"]).env(MARK, "1");
        let output = own.env("RUST_BACKTRACE", "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("no value: Some(\"***\")"), "{text}");
        assert!(
            text.contains("shown.rs") && text.contains("stack backtrace:"),
            "{text}"
        );
        assert!(!text.contains("panicking-secret"), "{text}");
    }

    #[test]
    fn labels_of_metrics_hide_secrets_and_names_stay() {
        let page = "# HELP a_total Of \"all\"\na_total{flow=\"x shown\\\"y\",to=\"b\"} 1\n";
        assert_eq!(metrics(page.to_owned()), page);
        message::secret::register_all(["shown\"y", "a_total"]);
        let expected = "# HELP a_total Of \"all\"\na_total{flow=\"x ***\",to=\"b\"} 1\n";
        assert_eq!(metrics(page.to_owned()), expected);
        assert_eq!(metrics("a_total{a=\"open".into()), "a_total{a=\"open\"");
    }
}
