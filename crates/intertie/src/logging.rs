//! The log on stderr, and the access log on stdout. Neither shows a secret.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use flow::{LogFormat, LogLevel, LogSettings};
use message::secret::redact_bytes;
use proxy::{AccessEntry, AccessLog};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use crate::shown::{self, Stderr};

/// How much of the access log a worker gathers before it hands it over.
const BATCH: usize = 16 * 1024;
/// How many batches may wait to be written; more are dropped and counted.
const BATCHES_MAX: usize = 256;
/// How long the end of the access log may take.
const END_WAIT: Duration = Duration::from_secs(2);

/// The log, whose level can be changed.
pub(crate) struct Log {
    format: LogFormat,
    is_json: bool,
    level: reload::Handle<LevelFilter, Registry>,
}

/// Starts the log on stderr.
pub(crate) fn start(settings: &LogSettings) -> Log {
    let is_json = match settings.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let (filter, level) = reload::Layer::new(filter(settings.level));
    let own = tracing_subscriber::filter::filter_fn(is_ours);
    let registry = tracing_subscriber::registry().with(filter).with(own);
    let color = std::io::stderr().is_terminal();
    let result = if is_json {
        let layer = fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(|| Stderr { is_json: true });
        registry.with(layer).try_init()
    } else {
        let layer = fmt::layer()
            .with_ansi(color)
            .with_writer(|| Stderr { is_json: false });
        registry.with(layer).try_init()
    };
    if let Err(error) = result {
        eprintln!("intertie: the log cannot be started: {error}");
    }
    Log {
        format: settings.format,
        is_json,
        level,
    }
}

/// Not what a client of databases calls an error or a warning: a step tells each of its failures,
/// and knows which of them are expected.
fn is_ours(metadata: &tracing::Metadata<'_>) -> bool {
    !metadata.target().starts_with("tiberius") || *metadata.level() > tracing::Level::INFO
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

impl Log {
    /// Whether lines are JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Takes changed settings over.
    pub fn change(&self, settings: &LogSettings) {
        if self
            .level
            .modify(|level| *level = filter(settings.level))
            .is_err()
        {
            tracing::warn!("the log level cannot be changed");
        }
        if settings.format != self.format {
            tracing::warn!("a new log format takes effect at the next start");
        }
    }
}

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes the access log: workers gather lines and a thread writes them, so that nobody who
/// serves requests waits for a slow reader of stdout.
pub(crate) struct AccessWriter {
    is_json: bool,
    batches: SyncSender<Vec<u8>>,
    dropped: AtomicU64,
}

/// Tells when everything has been written.
pub(crate) struct AccessEnd(Receiver<()>);

impl AccessEnd {
    /// Waits for it, once the writer is dropped. A reader of stdout that stands still is left.
    pub fn wait(self) {
        if self.0.recv_timeout(END_WAIT).is_err() {
            tracing::warn!("the end of the access log was not written");
        }
    }
}

impl AccessWriter {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(is_json: bool) -> anyhow::Result<(Self, AccessEnd)> {
        let (batches, receiver) = sync_channel::<Vec<u8>>(BATCHES_MAX);
        let (ended, end) = sync_channel(1);
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                let mut stdout = std::io::stdout();
                while let Ok(batch) = receiver.recv() {
                    let written = stdout.write_all(&redact_bytes(&batch));
                    let written = written.and_then(|()| stdout.flush());
                    if let Err(error) = written {
                        tracing::error!(%error, "the access log cannot be written and ends here");
                        break;
                    }
                }
                // Nobody waits for the end when the process stops at once.
                let _ = ended.send(());
            })
            .context("cannot start the access log")?;
        let dropped = AtomicU64::new(0);
        Ok((
            Self {
                is_json,
                batches,
                dropped,
            },
            AccessEnd(end),
        ))
    }

    fn hand_over(&self, lines: &mut Vec<u8>) {
        let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        let batch = std::mem::replace(lines, Vec::with_capacity(BATCH + 1024));
        if let Err(TrySendError::Full(_)) = self.batches.try_send(batch) {
            let dropped = self.dropped.fetch_add(count, Ordering::Relaxed) + count;
            tracing::warn!(dropped, "access log lines were dropped: stdout is too slow");
        }
    }

    fn write(&self, entry: &AccessEntry<'_>, line: &mut Vec<u8>) -> std::io::Result<()> {
        let AccessEntry {
            peer,
            method,
            target,
            status,
            microseconds,
            received,
            ..
        } = entry;
        let flow = &*shown::value(entry.flow.unwrap_or("-"));
        let (method, target) = (&*shown::value(method), &*shown::value(target));
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (seconds, millis) = (time.as_secs(), time.subsec_millis());
        if self.is_json {
            write!(
                line,
                "{{\"time\":{seconds}.{millis:03},\"peer\":\"{peer}\",\"flow\":\""
            )?;
            escape_json(flow, line);
            line.extend_from_slice(b"\",\"method\":\"");
            escape_json(method, line);
            line.extend_from_slice(b"\",\"target\":\"");
            escape_json(target, line);
            writeln!(
                line,
                "\",\"status\":{status},\"duration_us\":{microseconds},\"body_bytes\":{received}}}"
            )
        } else {
            write!(line, "{seconds}.{millis:03} {peer} ")?;
            for word in [flow, method, target] {
                escape_word(word, line);
                line.push(b' ');
            }
            writeln!(line, "{status} {microseconds}us {received}B")
        }
    }
}

/// Appends a text that stands between the quotes of a JSON string (RFC 8259, section 7). The writer
/// escapes every value itself: a request that is refused is logged too, with whatever is in it.
fn escape_json(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 | 0x7f => {
                let [high, low] = hex(byte);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            byte => out.push(byte),
        }
    }
}

/// Appends a text as one word of a line: blanks, control characters, and the backslash itself
/// become `\xHH`. An empty text becomes `-`, so that words keep their positions.
fn escape_word(text: &str, out: &mut Vec<u8>) {
    if text.is_empty() {
        out.push(b'-');
    }
    for byte in text.bytes() {
        match byte {
            0..=0x20 | 0x7f | b'\\' => {
                let [high, low] = hex(byte);
                out.extend_from_slice(&[b'\\', b'x', high, low]);
            }
            byte => out.push(byte),
        }
    }
}

/// Both hexadecimal digits of a byte.
fn hex(byte: u8) -> [u8; 2] {
    let digit = |value: u8| {
        if value < 10 {
            b'0' + value
        } else {
            b'a' + value - 10
        }
    };
    [digit(byte >> 4), digit(byte & 15)]
}

impl AccessLog for AccessWriter {
    fn log(&self, entry: &AccessEntry<'_>) {
        LINES.with_borrow_mut(|lines| {
            if self.write(entry, lines).is_ok() && lines.len() >= BATCH {
                self.hand_over(lines);
            }
        });
    }

    fn flush(&self) {
        LINES.with_borrow_mut(|lines| {
            if !lines.is_empty() {
                self.hand_over(lines);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(is_json: bool, method: &str, target: &str) -> String {
        let (batches, _receiver) = sync_channel(1);
        let writer = AccessWriter {
            is_json,
            batches,
            dropped: AtomicU64::new(0),
        };
        let entry = AccessEntry {
            flow: None,
            peer: [127, 0, 0, 1].into(),
            method,
            target,
            status: 400,
            microseconds: 7,
            received: 0,
        };
        let mut line = Vec::new();
        writer.write(&entry, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn no_value_of_a_request_becomes_a_field_of_its_line() {
        let forged = "/x\",\"status\":200,\"flow\":\"payments";
        for target in [forged, "/\\", "/\n{}", "/\u{7f}\u{fffd}\t", ""] {
            let text = line(true, "GE\"T", target);
            let entry: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(entry["target"], *target, "{text}");
            assert_eq!(
                (&entry["status"], &entry["flow"]),
                (&400.into(), &"-".into())
            );
            assert_eq!(entry["method"], "GE\"T");
            assert_eq!(text.matches('\n').count(), 1);
        }
    }

    #[test]
    fn every_value_is_one_word_of_a_line_of_text() {
        for target in ["/a b 200 1us 5B", "/a\n1.000 ::1 forged", "/\\x20\r", ""] {
            let text = line(false, "GET", target);
            assert_eq!(text.split_whitespace().count(), 8, "{text}");
            assert_eq!(text.matches('\n').count(), 1);
        }
        assert!(line(false, "GET", "/a b\\").contains(" GET /a\\x20b\\x5c 400 7us 0B\n"));
    }
}
