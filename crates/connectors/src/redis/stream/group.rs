//! A consumer of a group: what it asks the server for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use component::handler::Services;
use message::{Fault, Of};
use redis::{Cmd, Value, cmd};

use super::StreamSource;
use super::entry::{Batch, Entry, bytes, read_all};
use crate::redis::link::{Link, Live, link};
use crate::redis::source::{Start, StreamSettings};

/// How long the server keeps a question for new entries open.
const BLOCK: Duration = Duration::from_secs(2);

/// A consumer of a group.
pub(super) struct Group<'a> {
    settings: &'a StreamSettings,
    services: &'a dyn Services,
    link: Rc<Link>,
    consumer: String,
    /// The connection that waits for entries; none before the first and after a failure.
    reader: RefCell<Option<Live>>,
    /// The last entry that was left from before and has been read again; none when all have.
    left: RefCell<Option<String>>,
    /// Where the search for entries that other consumers have left goes on.
    cursor: RefCell<String>,
    /// Whether the group has been there.
    is_made: Cell<bool>,
    /// How many entries are asked for at a time: fewer than `batch` while they are large.
    pub count: Cell<u64>,
}

/// Where a search through all pending entries begins, and what the server says at its end.
const FIRST: &str = "0-0";

/// A part of a search for entries that other consumers have left.
pub(super) struct Claimed {
    pub entries: Vec<Entry>,
    /// Whether all pending entries have been looked at.
    pub is_over: bool,
}

impl<'a> Group<'a> {
    pub fn new(source: &'a StreamSource, services: &'a dyn Services) -> Self {
        let number = services.share().number;
        let name = source.settings.consumer.clone().unwrap_or_else(machine);
        Self {
            settings: &source.settings,
            services,
            link: link(&source.server, services),
            consumer: format!("{name}-{number}"),
            reader: RefCell::default(),
            left: RefCell::default(),
            cursor: RefCell::new(FIRST.to_owned()),
            is_made: Cell::new(false),
            count: Cell::new(source.settings.batch),
        }
    }

    /// The next entries: first those that this consumer has been given before and not acknowledged,
    /// then new ones. None when there were none for a while.
    pub async fn read(&self) -> Result<Vec<Entry>, Fault> {
        // Taken out while it is used: what a question was answered with is unknown when it is given
        // up.
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.begin().await?,
        };
        let left = self.left.borrow().clone();
        let question = self.question(left.as_deref());
        let time = BLOCK + self.link.timeout();
        let answer = reader.command(&question, time, self.services).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return Err(self.without_group(fault)),
        };
        let batch = entries_of(answer, left.is_some());
        // Nothing that a flow could see is left of them, and nobody else would acknowledge them.
        self.acknowledge(&batch.deleted).await?;
        if left.is_some() {
            *self.left.borrow_mut() = batch.last;
        }
        *self.reader.borrow_mut() = Some(reader);
        Ok(batch.entries)
    }

    fn question(&self, left: Option<&str>) -> Cmd {
        let mut question = cmd("XREADGROUP");
        let settings = self.settings;
        question
            .arg("GROUP")
            .arg(&settings.group)
            .arg(&self.consumer);
        question.arg("COUNT").arg(self.count.get());
        if left.is_none() {
            question.arg("BLOCK").arg(BLOCK.as_millis() as u64);
        }
        question
            .arg("STREAMS")
            .arg(&settings.stream)
            .arg(left.unwrap_or(">"));
        question
    }

    /// A new connection, and the group when it is not there. What was left is read again.
    async fn begin(&self) -> Result<Live, Fault> {
        let reader = self.link.open(self.services).await?;
        // A stream that has gone while we were reading has nothing in it that we have seen.
        let start = match (self.settings.start, self.is_made.get()) {
            (Start::New, false) => "$",
            (Start::All, _) | (_, true) => "0",
        };
        let mut make = cmd("XGROUP");
        make.arg("CREATE")
            .arg(&self.settings.stream)
            .arg(&self.settings.group);
        make.arg(start).arg("MKSTREAM");
        let made = reader
            .command(&make, self.link.timeout(), self.services)
            .await;
        if let Err(fault) = made
            && !says(&fault, "BUSYGROUP")
        {
            return Err(fault);
        }
        self.is_made.set(true);
        *self.left.borrow_mut() = Some("0".to_owned());
        Ok(reader)
    }

    /// The failure of a question; the reader is gone and the next one looks for the group.
    fn without_group(&self, fault: Fault) -> Fault {
        *self.left.borrow_mut() = None;
        fault
    }

    /// Tells the server that entries are still in work.
    pub async fn keep(&self, ids: &[String]) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut keep = self.about("XCLAIM");
        keep.arg(&self.consumer).arg(0).arg(ids).arg("JUSTID");
        self.ignore_no_group(self.link.command(&keep, self.services).await)
            .map(drop)
    }

    /// Takes over entries that nobody has acknowledged for too long: looks at pending entries from
    /// where the last search ended until some are found or all have been looked at.
    pub async fn claim(&self) -> Result<Claimed, Fault> {
        loop {
            // The server looks at up to ten times as many entries as it may give.
            let mut claim = self.about("XAUTOCLAIM");
            claim
                .arg(&self.consumer)
                .arg(self.settings.idle.as_millis() as u64)
                .arg(&*self.cursor.borrow())
                .arg("COUNT")
                .arg(self.count.get());
            let answer = self.link.command(&claim, self.services).await;
            let (next, batch) = claimed_of(self.ignore_no_group(answer)?);
            // Servers from 7.0 on have acknowledged deleted entries by themselves.
            self.acknowledge(&batch.deleted).await?;
            let is_over = next == FIRST;
            *self.cursor.borrow_mut() = next;
            if is_over || !batch.entries.is_empty() {
                let entries = batch.entries;
                return Ok(Claimed { entries, is_over });
            }
        }
    }

    /// An entry that this consumer has been given, once more, and without counting as a delivery;
    /// `None` when it has been deleted.
    pub async fn again(&self, id: &str) -> Result<Option<Entry>, Fault> {
        let mut ask = cmd("XRANGE");
        ask.arg(&self.settings.stream).arg(id).arg(id);
        let answer = self.link.command(&ask, self.services).await?;
        Ok(read_all(answer, false).entries.pop())
    }

    /// The entries are done.
    pub async fn acknowledge(&self, ids: &[String]) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut done = self.about("XACK");
        done.arg(ids);
        self.link.command(&done, self.services).await.map(drop)
    }

    /// How often an entry has been given to somebody.
    pub async fn deliveries(&self, id: &str) -> Result<u64, Fault> {
        let mut ask = self.about("XPENDING");
        ask.arg(id).arg(id).arg(1);
        let answer = self.ignore_no_group(self.link.command(&ask, self.services).await)?;
        // Of one entry: id, consumer, time, count.
        let entry = match answer {
            Value::Array(mut entries) => entries.pop(),
            _ => None,
        };
        let count = match entry {
            Some(Value::Array(parts)) => parts.into_iter().nth(3),
            _ => None,
        };
        match count {
            Some(Value::Int(count)) => Ok(u64::try_from(count).unwrap_or_default()),
            // Somebody else has acknowledged it.
            _ => Ok(0),
        }
    }

    /// Adds an entry to the stream for dead letters. It is acknowledged in a command of its own: in
    /// a transaction it would be acknowledged even if it could not be added, for the server goes on
    /// after a command that fails.
    pub async fn add_dead_letter(
        &self,
        entry: &Entry,
        target: &str,
        (reason, failed): (&str, u32),
    ) -> Result<(), Fault> {
        let mut add = cmd("XADD");
        add.arg(target).arg("*");
        for (name, value) in &entry.fields {
            add.arg(name.as_slice()).arg(value.as_slice());
        }
        add.arg("dead-letter-stream").arg(&self.settings.stream);
        add.arg("dead-letter-id").arg(&entry.id);
        add.arg("dead-letter-reason").arg(reason);
        add.arg("dead-letter-attempts").arg(failed);
        self.link.command(&add, self.services).await.map(drop)
    }

    /// A command about the group.
    fn about(&self, command: &str) -> Cmd {
        let mut made = cmd(command);
        made.arg(&self.settings.stream).arg(&self.settings.group);
        made
    }

    /// A group that is not there has nothing to keep, and the reader makes it.
    fn ignore_no_group(&self, answer: Result<Value, Fault>) -> Result<Value, Fault> {
        match answer {
            Err(fault) if says(&fault, "NOGROUP") => Ok(Value::Nil),
            other => other,
        }
    }
}

/// Whether the server has said this.
fn says(fault: &Fault, code: &str) -> bool {
    let is_answer = matches!(&fault.of, Of::Type(names) if names.0 == "redis-error");
    is_answer
        && fault
            .cause
            .as_deref()
            .is_some_and(|cause| cause.contains(code))
}

/// The entries of an answer about one stream.
fn entries_of(answer: Value, is_left: bool) -> Batch {
    let stream = match answer {
        Value::Array(streams) => streams.into_iter().next(),
        _ => None,
    };
    let entries = match stream {
        Some(Value::Array(parts)) => parts.into_iter().nth(1),
        _ => None,
    };
    read_all(entries.unwrap_or(Value::Nil), is_left)
}

/// Where a search goes on, and what it has found. Without a group it is over.
fn claimed_of(answer: Value) -> (String, Batch) {
    let parts = match answer {
        Value::Array(parts) => parts,
        _ => Vec::new(),
    };
    let mut parts = parts.into_iter();
    let cursor = parts.next().and_then(bytes).map(String::from_utf8);
    let entries = parts.next().unwrap_or(Value::Nil);
    let cursor = match cursor {
        Some(Ok(cursor)) => cursor,
        _ => FIRST.to_owned(),
    };
    (cursor, read_all(entries, true))
}

/// The name of the machine.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "intertie".to_owned(),
        name => name.to_owned(),
    }
}
