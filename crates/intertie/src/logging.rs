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

use crate::shown::Stderr;

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
            .with_writer(|| Stderr);
        registry.with(layer).try_init()
    } else {
        registry
            .with(fmt::layer().with_ansi(color).with_writer(|| Stderr))
            .try_init()
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
        let flow = entry.flow.unwrap_or("-");
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (seconds, millis) = (time.as_secs(), time.subsec_millis());
        if self.is_json {
            // Targets, methods and flow names have been checked: none needs escaping.
            writeln!(
                line,
                "{{\"time\":{seconds}.{millis:03},\"peer\":\"{peer}\",\"flow\":\"{flow}\",\
                 \"method\":\"{method}\",\"target\":\"{target}\",\"status\":{status},\
                 \"duration_us\":{microseconds},\"body_bytes\":{received}}}"
            )
        } else {
            writeln!(
                line,
                "{seconds}.{millis:03} {peer} {flow} {method} {target} {status} \
                 {microseconds}us {received}B"
            )
        }
    }
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
