//! Writes the audit stream to a file or a topic, by a thread of its own: no worker waits for a
//! disk, and a disk that is full or stands still costs events at most, which are counted.

mod file;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::topics::settings::Payload;
use ::topics::topic::{For, Publication, Topic};
use anyhow::Context;
use bytes::Bytes;
use component::audit::limiter::LimiterSettings;
use component::audit::{Audit, Event, EventKind};
use config::{ByteSize, Report};
use flow::codes::BAD_AUDIT;
use flow::{AuditSettings, AuditTarget, Fingerprints};
use message::{Fault, Kind};
use tokio::sync::{mpsc, oneshot};

use self::file::AuditFile;
use crate::load::Purpose;

/// How often counts of refusals are looked for, and what could not be written is tried again.
const TICK: Duration = Duration::from_secs(1);
/// The most lines that wait for a file or topic which cannot be written to.
const BACKLOG_MAX: usize = 4096;
/// The most events that are published at once.
const BATCH_MAX: usize = 500;
/// How long a publication may take.
const PUBLISH_TIME: Duration = Duration::from_secs(10);
/// How often it is logged that nothing can be written.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How long a reload waits until the stream has changed its place.
const SWITCH_TIME: Duration = Duration::from_secs(2);
/// How long the end of the stream may take.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// The least that `body_max` of a topic must allow: lists of names are cut at about this size.
const BODY_LEAST: usize = 256 * 1024;

/// An event as it is written.
pub(super) struct Line {
    /// What tells it from all others, so that a topic takes it once.
    key: String,
    /// One line, without its end.
    json: String,
}

/// Where the stream is written.
enum Target {
    File(AuditFile),
    Topic(Arc<Topic>),
}

impl Target {
    /// Whether another one is the same file or topic.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(own), Self::File(other)) => own.path() == other.path(),
            (Self::Topic(own), Self::Topic(other)) => own.name() == other.name(),
            _ => false,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::File(file) => file.path().display().to_string(),
            Self::Topic(topic) => format!("topic {}", topic.name()),
        }
    }
}

/// An audit stream that can begin.
pub(crate) struct PreparedAudit {
    target: Target,
    limits: LimiterSettings,
    fingerprints: Fingerprints,
}

impl PreparedAudit {
    /// Opens what the settings name. A problem is reported where they name it.
    pub fn open(settings: &AuditSettings, report: &mut Report) -> Option<Self> {
        let target = match &settings.target {
            AuditTarget::Topic(_) => Target::Topic(find_topic(settings, report)?),
            AuditTarget::File(path) => match AuditFile::open(path) {
                Ok(file) => Target::File(file),
                Err(error) => {
                    let shown = path.display();
                    let message = format!("the audit file {shown} cannot be written to: {error}");
                    report
                        .error(BAD_AUDIT, settings.span, message)
                        .hint("it is made in a folder that must be there and be writable");
                    return None;
                }
            },
        };
        Some(Self {
            target,
            limits: LimiterSettings {
                rate: settings.refusals,
                ..LimiterSettings::default()
            },
            fingerprints: settings.fingerprints.clone(),
        })
    }

    /// What the files say.
    pub fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }
}

/// Checks the settings, and opens what they name if the flows are to be run.
pub(crate) fn prepare(
    settings: Option<&AuditSettings>,
    purpose: Purpose,
    report: &mut Report,
) -> Option<PreparedAudit> {
    let settings = settings?;
    match (purpose, &settings.target) {
        (Purpose::Run, _) => PreparedAudit::open(settings, report),
        (Purpose::Check, AuditTarget::Topic(_)) => {
            drop(find_topic(settings, report));
            None
        }
        (Purpose::Check, AuditTarget::File(_)) => None,
    }
}

/// The topic that the settings name, when it can hold audit events.
fn find_topic(settings: &AuditSettings, report: &mut Report) -> Option<Arc<Topic>> {
    let AuditTarget::Topic(declaration) = &settings.target else {
        return None;
    };
    let topic: Arc<Topic> = Arc::clone(&declaration.value).downcast().ok()?;
    let name = topic.name();
    let problem = match topic.settings() {
        it if it.payload == Payload::Snapshot => Some((
            format!(
                "topic `{name}` keeps the last state only: each event would replace the others"
            ),
            "write `payload: event` in the topic".to_owned(),
        )),
        it if it.body_max < BODY_LEAST => {
            let least = ByteSize(BODY_LEAST as u64);
            Some((
                format!("the `body_max` of topic `{name}` is too small for audit events"),
                format!("leave it out, or write at least {least}"),
            ))
        }
        _ => None,
    };
    match problem {
        None => Some(topic),
        Some((message, hint)) => {
            let diagnostic = report.error(BAD_AUDIT, settings.span, message);
            diagnostic.also(declaration.span, "the topic").hint(hint);
            None
        }
    }
}

enum Command {
    /// The stream goes there from now on; why its place changes, and who waits for that.
    Switch(Option<Target>, &'static str, oneshot::Sender<()>),
    /// The stream ends.
    Close(oneshot::Sender<()>),
}

/// The audit stream of the process and the thread that writes it, which is started when it is
/// needed first.
pub(crate) struct AuditStream {
    audit: Arc<Audit>,
    commands: Option<mpsc::UnboundedSender<Command>>,
}

impl AuditStream {
    /// One that is not written anywhere.
    pub fn new(audit: Arc<Audit>) -> Self {
        Self {
            audit,
            commands: None,
        }
    }

    /// Where events are recorded.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// Begins to gather what is to be written, so that nothing is missed until
    /// [`AuditStream::switch`].
    pub fn gather(&self, prepared: Option<&PreparedAudit>) {
        self.audit.set(prepared.map(|it| it.limits));
    }

    /// Writes the stream there from now on: what is recorded when this is over is written there.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub async fn switch(
        &mut self,
        prepared: Option<PreparedAudit>,
        reason: &'static str,
    ) -> anyhow::Result<()> {
        if self.commands.is_none() {
            if prepared.is_none() {
                return Ok(());
            }
            self.commands = Some(Writer::start(Arc::clone(&self.audit))?);
        }
        self.gather(prepared.as_ref());
        if let Some(commands) = &self.commands {
            let target = prepared.map(|it| it.target);
            let (done, switched) = oneshot::channel();
            // The thread ends with this alone.
            let _ = commands.send(Command::Switch(target, reason, done));
            if tokio::time::timeout(SWITCH_TIME, switched).await.is_err() {
                tracing::warn!(target: "audit", "the audit stream is slow to change its place");
            }
        }
        Ok(())
    }

    /// Ends the stream: what waits is written, unless that takes too long.
    pub async fn close(self) {
        let Some(commands) = self.commands else {
            return;
        };
        self.audit.set(None);
        let (done, closed) = oneshot::channel();
        let _ = commands.send(Command::Close(done));
        if tokio::time::timeout(CLOSE_TIME, closed).await.is_err() {
            tracing::error!(target: "audit", "the end of the audit stream was not written");
        }
    }
}

/// What the thread has.
struct Writer {
    audit: Arc<Audit>,
    target: Option<Target>,
    backlog: VecDeque<Line>,
    /// What keys of lines begin with: no other run has it.
    run: String,
    /// How many lines there have been.
    lines: u64,
    /// When it was last logged that nothing can be written; none while it can.
    failing: Option<Instant>,
}

impl Writer {
    fn start(audit: Arc<Audit>) -> anyhow::Result<mpsc::UnboundedSender<Command>> {
        let (commands, received) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("cannot start the runtime of the audit stream")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        let writer = Self {
            audit,
            target: None,
            backlog: VecDeque::new(),
            run: format!("audit-{}-{now}", std::process::id()),
            lines: 0,
            failing: None,
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || runtime.block_on(writer.run(received)))
            .context("cannot start the audit stream")?;
        Ok(commands)
    }

    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let audit = Arc::clone(&self.audit);
        loop {
            let is_on = self.target.is_some();
            let command = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => Some(command),
                    None => return,
                },
                () = audit.wait(), if is_on => None,
                () = tokio::time::sleep(TICK), if is_on => None,
            };
            match command {
                None => self.write_out().await,
                Some(Command::Switch(target, reason, done)) => {
                    self.switch(target, reason).await;
                    // Who has waited too long waits no more.
                    let _ = done.send(());
                }
                Some(Command::Close(done)) => {
                    self.switch(None, "engine").await;
                    // Nobody may wait any more.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    /// Ends the stream where it is, and goes on there.
    async fn switch(&mut self, target: Option<Target>, reason: &'static str) {
        let is_same = match (&self.target, &target) {
            (Some(old), Some(new)) => old.is_same(new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if self.target.is_some() && !is_same {
            self.gather();
            self.add(Event::success(EventKind::AuditStopped).because(reason));
        }
        if self.target.is_some() {
            self.write_out().await;
        }
        let mut target = target;
        match (&self.target, &mut target) {
            (Some(Target::File(old)), Some(Target::File(new))) => new.go_on(old),
            (Some(Target::File(old)), _) => {
                if let Err(error) = old.sync() {
                    tracing::warn!(target: "audit", %error, "the audit file may be incomplete");
                }
            }
            _ => {}
        }
        self.target = target;
        if self.target.is_some() && !is_same {
            let event = Event::success(EventKind::AuditStarted).because(reason);
            let event = event.with("version", env!("CARGO_PKG_VERSION"));
            self.add(event.with("pid", std::process::id()));
            self.write_out().await;
        } else if self.target.is_none() && !self.backlog.is_empty() {
            let lost = self.backlog.len() as u64;
            self.audit.note_dropped(lost);
            self.backlog.clear();
            tracing::error!(target: "audit", lost, "the end of the audit stream was not written");
        }
    }

    fn add(&mut self, event: Event) {
        self.add_dated(&(SystemTime::now(), event));
    }

    fn add_dated(&mut self, (time, event): &(SystemTime, Event)) {
        self.lines += 1;
        self.backlog.push_back(Line {
            key: format!("{}-{}", self.run, self.lines),
            json: event.to_json(*time).to_string(),
        });
    }

    /// Takes what there is to write, unless so much waits that the rest has to stay in the queue,
    /// which is bounded.
    fn gather(&mut self) {
        if self.backlog.len() < BACKLOG_MAX {
            for event in &self.audit.take() {
                self.add_dated(event);
            }
        }
    }

    /// Writes what there is. What cannot be written is tried again.
    async fn write_out(&mut self) {
        self.gather();
        if self.backlog.is_empty() {
            return;
        }
        let (written, result) = match &mut self.target {
            None => return,
            Some(Target::File(file)) => {
                let (written, result) = file.append(&mut self.backlog);
                (written, result.map_err(|error| error.to_string()))
            }
            Some(Target::Topic(topic)) => publish(topic, &mut self.backlog, &self.audit).await,
        };
        self.audit.note_written(written);
        self.audit.set_failing(result.is_err());
        self.tell(result);
    }

    /// Logs that nothing can be written, now and then, and that it can be again.
    fn tell(&mut self, result: Result<(), String>) {
        let target = self.target.as_ref().map(Target::shown);
        let waiting = self.backlog.len();
        match (result, self.failing) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => {
                self.failing = None;
                tracing::info!(target: "audit", to = target, "the audit stream is written again");
            }
            (Err(_), Some(told)) if told.elapsed() < TELL_EVERY => {}
            (Err(error), _) => {
                self.failing = Some(Instant::now());
                tracing::error!(
                    target: "audit", to = target, error, waiting,
                    "the audit stream cannot be written; it is tried again"
                );
            }
        }
    }
}

/// Publishes lines and removes those that the topic has; gives their number. Each has a key of its
/// own, so that one that is tried again comes once.
async fn publish(
    topic: &Topic,
    lines: &mut VecDeque<Line>,
    audit: &Audit,
) -> (u64, Result<(), String>) {
    let mut written = 0;
    while !lines.is_empty() {
        let batch = lines.iter().take(BATCH_MAX).map(|line| Publication {
            body: Bytes::copy_from_slice(line.json.as_bytes()),
            key: Some(Bytes::copy_from_slice(line.key.as_bytes())),
        });
        let batch: Vec<Publication> = batch.collect();
        let count = batch.len();
        let publishing = topic.publish_all(For::default(), batch);
        let published = tokio::time::timeout(PUBLISH_TIME, publishing).await;
        match published {
            Ok(Ok(_)) => written += count as u64,
            Ok(Err(fault)) if fault.kind == Kind::Invalid => {
                tracing::error!(target: "audit", %fault, count, "events are lost");
                audit.note_dropped(count as u64);
            }
            Ok(Err(fault)) => return (written, Err(of_fault(&fault))),
            Err(_) => return (written, Err("the topic takes too long".to_owned())),
        }
        lines.drain(..count);
    }
    (written, Ok(()))
}

fn of_fault(fault: &Fault) -> String {
    fault.detail.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_stands_in_the_guide() {
        let guide = include_str!("../../../docs/guides/authentication.md");
        for kind in EventKind::ALL {
            let name = format!("`{}`", kind.name());
            assert!(guide.contains(&name), "{name}");
        }
    }
}
