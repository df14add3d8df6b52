//! The way out of everything that the process writes about itself: no secret passes it, and no
//! value of any length.
//!
//! Values are taken out here, where a text leaves, so that nobody who makes one has to think of
//! it. Reports, the log, the access log, `/metrics`, errors and panics come this way; faults have
//! their own in `message`.

use std::backtrace::Backtrace;
use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Write};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use message::secret::{redact, redact_bytes};

/// The most bytes of one value in a line of the log, and of a whole line that is text. Longer ones
/// are cut and marked with their length: what a client sends, or a flow raises, may have any.
pub(crate) const VALUE_MAX: usize = 16 * 1024;
/// The most bytes of a line of a report.
const REPORT_LINE_MAX: usize = 2 * 1024;

/// Stderr, without secrets and with values of a bounded length. Whoever writes hands over whole
/// lines.
pub(crate) struct Stderr {
    /// Whether lines are JSON objects, which they stay when a value is cut.
    pub is_json: bool,
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Cut first, a secret could lose the part by which it is known.
        let redacted = redact_bytes(bytes);
        let shown = match self.is_json {
            true => shorten_json(&redacted, VALUE_MAX),
            false => shorten_lines(&redacted, VALUE_MAX),
        };
        io::stderr().write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Tells why the process ends.
pub fn error(error: &anyhow::Error) {
    eprintln!("intertie: {}", text(&format!("{error:#}")));
}

/// A text for people, without secrets and without endless lines: names and values in a flow file
/// may be as long as the file.
pub(crate) fn text(text: &str) -> String {
    let redacted = redact(text);
    let shown = shorten_lines(redacted.as_bytes(), REPORT_LINE_MAX);
    String::from_utf8_lossy(&shown).into_owned()
}

/// The same for JSON.
pub(crate) fn json(json: &str) -> String {
    let redacted = redact(json);
    let shown = shorten_json(redacted.as_bytes(), REPORT_LINE_MAX);
    String::from_utf8_lossy(&shown).into_owned()
}

/// The mark behind a value that was cut.
fn mark(length: usize) -> String {
    format!("... ({length} bytes)")
}

/// Text whose lines have at most `max` bytes and a mark.
fn shorten_lines(text: &[u8], max: usize) -> Cow<'_, [u8]> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let mut shown = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        if content.len() <= max {
            shown.extend_from_slice(line);
            continue;
        }
        let is_boundary = |at: &usize| content.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
        let end = (0..=max).rev().find(is_boundary).unwrap_or_default();
        shown.extend_from_slice(content.get(..end).unwrap_or_default());
        shown.extend_from_slice(mark(content.len()).as_bytes());
        shown.extend_from_slice(line.get(content.len()..).unwrap_or_default());
    }
    Cow::Owned(shown)
}

/// JSON whose strings, as they are written, have at most `max` bytes and a mark.
fn shorten_json(json: &[u8], max: usize) -> Cow<'_, [u8]> {
    if json.len() <= max {
        return Cow::Borrowed(json);
    }
    let mut shown = Vec::new();
    let mut rest = json;
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let (before, string) = rest.split_at(quote + 1);
        shown.extend_from_slice(before);
        // The end of the string, and the last place where it can be cut: between characters and
        // between escapes.
        let (mut end, mut cut) = (0, 0);
        while let Some(byte) = string.get(end).filter(|byte| **byte != b'"') {
            if end <= max && byte & 0xc0 != 0x80 {
                cut = end;
            }
            end += match (byte, string.get(end + 1)) {
                (b'\\', Some(b'u')) => 6,
                (b'\\', _) => 2,
                _ => 1,
            };
        }
        let end = end.min(string.len());
        let (value, behind) = string.split_at(end);
        if value.len() <= max {
            shown.extend_from_slice(value);
        } else {
            shown.extend_from_slice(value.get(..cut).unwrap_or_default());
            shown.extend_from_slice(mark(value.len()).as_bytes());
        }
        let closing = behind.len().min(1);
        shown.extend_from_slice(behind.get(..closing).unwrap_or_default());
        rest = behind.get(closing..).unwrap_or_default();
    }
    shown.extend_from_slice(rest);
    Cow::Owned(shown)
}

/// A value of the access log that is not escaped yet: as much of it as is shown, and its mark.
pub(crate) fn value(value: &str) -> Cow<'_, str> {
    if value.len() <= VALUE_MAX {
        return Cow::Borrowed(value);
    }
    let is_boundary = |at: &usize| value.is_char_boundary(*at);
    let end = (0..=VALUE_MAX).rev().find(is_boundary).unwrap_or_default();
    let start = value.get(..end).unwrap_or_default();
    Cow::Owned(format!("{start}{}", mark(value.len())))
}

/// How many panics there have been.
static PANICS: AtomicU64 = AtomicU64::new(0);
/// Where there have been panics: each is told with its back-trace once, since that takes time that
/// whoever provokes a panic must not be able to take again and again.
static PLACES: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
/// The most places that are remembered.
const PLACES_MAX: usize = 64;

/// How many panics there have been since the start.
pub(crate) fn panic_count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Has panics logged, without secrets, and counted. Before there is a log they go to stderr.
pub fn guard_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let backtrace = panic.location().filter(|place| is_new(place));
        let backtrace = backtrace.map(|_| Backtrace::force_capture());
        if tracing::dispatcher::has_been_set() && !is_telling() {
            TELLING.set(true);
            let place = panic.location().map(ToString::to_string);
            let what = panic.payload_as_str().unwrap_or("no text");
            let backtrace = backtrace.map(|it| it.to_string());
            tracing::error!(target: "panic", thread = name, place, backtrace, "a panic: {what}");
            TELLING.set(false);
            return;
        }
        let mut text = format!("thread '{name}' {panic}\n");
        if let Some(backtrace) = backtrace {
            text.push_str(&format!("stack backtrace:\n{backtrace}"));
        }
        // There is nowhere else to tell it.
        let _ = Stderr { is_json: false }.write_all(text.as_bytes());
    }));
}

thread_local! {
    /// Whether a panic is being logged: one of the log itself goes to stderr.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// True when the thread's values are gone too.
fn is_telling() -> bool {
    TELLING.try_with(Cell::get).unwrap_or(true)
}

/// Whether there has been no panic at this place yet.
fn is_new(place: &Location<'_>) -> bool {
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = |(file, line): &(String, u32)| *file == place.file() && *line == place.line();
    let is_new = places.len() < PLACES_MAX && !places.iter().any(known);
    if is_new {
        places.push((place.file().to_owned(), place.line()));
    }
    is_new
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
    fn a_panic_is_logged_and_counted_and_its_back_trace_told_once() {
        const NAME: &str =
            "shown::tests::a_panic_is_logged_and_counted_and_its_back_trace_told_once";
        const MARK: &str = "INTERTIE_TEST_PANIC_LOG";
        if std::env::var_os(MARK).is_some() {
            guard_panics();
            crate::logging::start(&flow::LogSettings::default());
            message::secret::register("panicking-secret");
            for _ in 0..2 {
                let panicking = || panic!("no value: {:?}", Some("panicking-secret"));
                std::panic::catch_unwind(panicking).unwrap_err();
            }
            eprintln!("{} panics", panic_count());
            return;
        }
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", NAME, "--nocapture"]).env(MARK, "1");
        let output = own.env_remove("RUST_BACKTRACE").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            text.matches("a panic: no value: Some(").count(),
            2,
            "{text}"
        );
        assert_eq!(text.matches("\"backtrace\":").count(), 1, "{text}");
        assert!(
            text.contains("shown.rs") && text.contains("2 panics"),
            "{text}"
        );
        assert!(!text.contains("panicking-secret"), "{text}");
    }

    #[test]
    fn long_values_are_cut_and_stay_readable() {
        let value = "\u{e4}\"\\\n\u{1}".repeat(100);
        let line = serde_json::json!({ "level": "WARN", "detail": value, "n": 1, "behind": "x" });
        let text = format!("{line}\n");
        assert_eq!(shorten_json(text.as_bytes(), 10_000), text.as_bytes());
        for max in 0..200 {
            let shown = shorten_json(text.as_bytes(), max);
            assert!(shown.ends_with(b"\n"));
            let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
            // Names are cut as well.
            if max >= 6 {
                assert_eq!((&shown["level"], &shown["n"]), (&"WARN".into(), &1.into()));
                let (start, length) = shown["detail"].as_str().unwrap().split_once("...").unwrap();
                assert!(
                    value.starts_with(start) && start.len() <= max,
                    "{max}: {start}"
                );
                assert_eq!(length, " (1400 bytes)");
            }
        }
        let text = "a\n\u{e4}\u{e4}\u{e4}\nb";
        let shown = shorten_lines(text.as_bytes(), 3);
        assert_eq!(shown, "a\n\u{e4}... (6 bytes)\nb".as_bytes());
        let long = "x".repeat(VALUE_MAX + 1);
        assert_eq!(super::value("short"), "short");
        assert!(super::value(&long).ends_with("x... (16385 bytes)"));
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
