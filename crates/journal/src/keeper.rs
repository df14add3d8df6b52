//! The thread that writes: it takes whatever waits for it, makes one frame of that, has it on the
//! disk, and answers all at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use allocator::Release;
use batch_channel::{Receiver, Sender};
use bytes::Bytes;

use crate::asking::Answer;
use crate::backlog::Queued;
use crate::disk::Disk;
use crate::error::{OpenError, Refusal};
use crate::frame::FrameHead;
use crate::index::{Counts, Entry, Index, WAIT_MAX};
use crate::log::{Log, MOVED_WHEN_LOW, Need, Told, random};
use crate::outbox::{Delivery, Listed, Options, Order, Room, Settle, SharedStats};
use crate::record::{self, Due, Place, Put, Reader, Record};
use crate::refusals::Refusals;

/// The most bytes of a frame of several messages.
const FRAME_MAX: usize = 8 << 20;
/// The most requests that are answered together.
const ROUND_MAX: usize = 4096;
/// The most messages, and about how many bytes, that somebody gets at once: others want some too.
const TAKEN_MAX: (usize, u64) = (16, 16 << 20);
/// How long the thread sleeps at most.
const SLEEP: Duration = Duration::from_secs(5);
/// What the note takes on the disk that a message is done, when it is written alone.
const REMOVAL_SIZE: u64 = 32;
/// The most bytes of a reason.
const WHY_MAX: usize = 1024;

/// What is asked of the thread.
pub(crate) enum Command {
    Append {
        queue: String,
        key: Bytes,
        body: Bytes,
        room: Room,
        place: Queued,
        answer: Answer<u64>,
    },
    Take {
        queue: String,
        order: Order,
        most: usize,
        commands: Sender<Command>,
        answer: Answer<Vec<Delivery>>,
    },
    Settle {
        id: u64,
        lease: u64,
        how: Settle,
        answer: Answer<()>,
    },
    Release {
        id: u64,
        lease: u64,
    },
    List {
        queue: String,
        is_dead: bool,
        answer: Answer<Vec<Listed>>,
    },
    Read {
        queue: String,
        id: u64,
        answer: Answer<(Listed, Bytes)>,
    },
    Dead {
        queue: String,
        ids: Vec<u64>,
        revive: bool,
        answer: Answer<usize>,
    },
    Close,
}

/// Somebody who waits for messages.
struct Taker {
    queue: usize,
    most: usize,
    commands: Sender<Command>,
    answer: Answer<Vec<Delivery>>,
}

/// What is written next.
#[derive(Default)]
struct Batch {
    puts: Vec<u8>,
    stored: Vec<(u64, Queued, Answer<u64>)>,
    /// What is said of messages that are there and stay: it needs hardly any space.
    notes: Vec<u8>,
    noted: Vec<(usize, Outcome, Answer<()>)>,
    revived: Vec<(usize, Answer<usize>)>,
    /// Which messages are not needed any more.
    removals: Vec<u8>,
    removed: Vec<(usize, Answer<()>)>,
    dropped: Vec<(usize, Answer<usize>)>,
    /// How much each queue gets: its number, messages, bytes.
    added: Vec<(usize, u64, u64)>,
}

/// What has become of a message that stays.
#[derive(Clone, Copy)]
enum Outcome {
    Back,
    Buried,
}

/// What the thread has.
pub(crate) struct Keeper {
    log: Log,
    index: Index,
    batch: Batch,
    takers: VecDeque<Taker>,
    /// A random number: no other run gives the same numbers to messages, whatever copy of the
    /// files it has.
    epoch: u64,
    stats: SharedStats,
    has_failed: Arc<AtomicBool>,
    /// The same moment by both clocks. The time of day goes on from there evenly.
    started: (Instant, u64),
    /// When something was last tried that needs space.
    tidied: Option<Instant>,
    tidy_every: Duration,
    /// Whether the disk has not taken what was written last.
    is_failing: bool,
    /// What of that is logged.
    refusals: Refusals,
    is_closed: bool,
}

impl Keeper {
    pub fn open(
        disk: Box<dyn Disk>,
        options: Options,
        stats: SharedStats,
    ) -> Result<Self, OpenError> {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall = wall.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let started = (Instant::now(), wall);
        let mut index = Index::new(started.0, wall);
        let log = Log::open(disk, &record::FORMAT, options.segment_max, |told| {
            match told {
                Told::File(id) => index.next_id = index.next_id.max(id),
                Told::Frame(segment, start, records) => {
                    let mut reader = Reader::new(records);
                    while let Some(record) = reader.next() {
                        let (record, body) = record.map_err(|()| "a record cannot be read")?;
                        index.apply(&record, record::place(segment, start, body, &record));
                    }
                }
                // There is none: the format says so.
                Told::Index(..) => {}
            }
            Ok(())
        })?;
        let mut keeper = Self {
            log,
            index,
            batch: Batch::default(),
            takers: VecDeque::new(),
            epoch: random().max(1),
            stats,
            has_failed: Arc::default(),
            started,
            tidied: None,
            tidy_every: options.tidy_every,
            is_failing: false,
            refusals: Refusals::default(),
            is_closed: false,
        };
        keeper.keep_reserve();
        keeper.publish();
        Ok(keeper)
    }

    /// Whether the disk has failed, for everybody.
    pub fn has_failed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_failed)
    }

    /// How the names of messages begin that this run stores.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A message's number as the world sees it.
    fn name(&self, id: u64, epoch: u64) -> String {
        match epoch {
            0 => name(self.log.tag, id),
            epoch => name(epoch, id),
        }
    }

    /// Works until nobody can ask any more.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let release = Release::default();
        while !self.is_closed {
            match commands.recv_timeout(self.sleep()) {
                Ok(command) => self.stage(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for command in commands.try_iter().take(ROUND_MAX) {
                self.stage(command);
            }
            self.commit();
            self.serve();
            self.tidy();
            self.publish();
            release.look();
        }
        self.log.close();
    }

    /// How long nothing happens by itself.
    fn sleep(&self) -> Duration {
        let due = self
            .takers
            .iter()
            .filter_map(|it| self.index.next_due(it.queue));
        let now = Instant::now();
        let wait = due.min().map(|due| due.saturating_duration_since(now));
        wait.unwrap_or(SLEEP).min(SLEEP)
    }

    fn stage(&mut self, command: Command) {
        match command {
            Command::Append {
                queue,
                key,
                body,
                room,
                place,
                answer,
            } => {
                let staged = self.stage_put(&queue, &key, &body, room);
                match staged {
                    Ok(id) => self.batch.stored.push((id, place, answer)),
                    Err(refusal) => tell(answer, Err(refusal)),
                }
                if self.batch.puts.len() > FRAME_MAX {
                    self.commit();
                }
            }
            Command::Take {
                queue,
                order,
                most,
                commands,
                answer,
            } => {
                let queue = self.index.queue(&queue);
                self.index.set_order(queue, order);
                self.takers.push_back(Taker {
                    queue,
                    most,
                    commands,
                    answer,
                });
            }
            Command::Settle {
                id,
                lease,
                how,
                answer,
            } => self.stage_settle(id, lease, &how, answer),
            Command::Release { id, lease } => self.index.release(id, lease),
            Command::List {
                queue,
                is_dead,
                answer,
            } => {
                let listed = self.list(&queue, is_dead);
                tell(answer, Ok(listed));
            }
            Command::Read { queue, id, answer } => {
                let read = self.read(&queue, id);
                tell(answer, read);
            }
            Command::Close => self.is_closed = true,
            Command::Dead {
                queue,
                ids,
                revive,
                answer,
            } => self.stage_dead(&queue, &ids, revive, answer),
        }
    }

    fn stage_put(
        &mut self,
        queue: &str,
        key: &[u8],
        body: &[u8],
        room: Room,
    ) -> Result<u64, Refusal> {
        self.log.check_new()?;
        let size = body.len() as u64;
        if size > u64::from(u32::MAX) / 2 {
            return Err(Refusal::Full);
        }
        let number = self.index.queue(queue);
        let stats = self.index.stats(number);
        let of_queue = self.batch.added.iter_mut().find(|it| it.0 == number);
        let (count, bytes) = of_queue.as_ref().map_or((0, 0), |it| (it.1, it.2));
        let count = stats.waiting + stats.dead + count;
        if count >= room.count || stats.bytes + bytes + size > room.bytes {
            return Err(Refusal::Full);
        }
        match of_queue {
            Some(added) => (added.1, added.2) = (added.1 + 1, added.2 + size),
            None => self.batch.added.push((number, 1, size)),
        }
        let id = self.index.next_id;
        self.index.next_id += 1;
        let put = Put {
            id,
            epoch: self.epoch,
            stored: self.wall(),
            due: Due::default(),
            attempts: 0,
            queue,
            key,
            dead: None,
            body,
            crc: None,
        };
        Record::Put(put).write(&mut self.batch.puts);
        Ok(id)
    }

    fn stage_settle(&mut self, id: u64, lease: u64, how: &Settle, answer: Answer<()>) {
        let now = self.wall();
        let entry = self.index.entries.get(&id);
        let entry = entry.filter(|_| self.index.is_leased(id, lease));
        let Some((queue, attempts)) = entry.map(|it| (it.queue, it.attempts + 1)) else {
            return tell(answer, Err(Refusal::Gone));
        };
        let (record, outcome) = match how {
            Settle::Done => {
                Record::Done(id).write(&mut self.batch.removals);
                return self.batch.removed.push((queue, answer));
            }
            Settle::Back(wait) => {
                let wait = u32::try_from((*wait).min(WAIT_MAX).as_millis()).unwrap_or(0);
                let at = now + u64::from(wait);
                (Record::Back(id, Due { at, wait }, attempts), Outcome::Back)
            }
            Settle::Bury(why) => {
                let end = why.floor_char_boundary(WHY_MAX);
                let why = why.get(..end).unwrap_or_default();
                (Record::Bury(id, attempts, why), Outcome::Buried)
            }
        };
        record.write(&mut self.batch.notes);
        self.batch.noted.push((queue, outcome, answer));
    }

    fn stage_dead(&mut self, queue: &str, ids: &[u64], revive: bool, answer: Answer<usize>) {
        let queue = self.index.known(queue);
        let dead = queue
            .and_then(|it| self.index.queues.get(it))
            .map(|it| &it.dead);
        let mut count = 0;
        for id in ids
            .iter()
            .filter(|id| dead.is_some_and(|dead| dead.contains(id)))
        {
            match revive {
                // As good as new.
                true => Record::Revive(*id).write(&mut self.batch.puts),
                false => Record::Done(*id).write(&mut self.batch.removals),
            };
            count += 1;
        }
        match revive {
            true => self.batch.revived.push((count, answer)),
            false => self.batch.dropped.push((count, answer)),
        }
    }

    /// Has everything that is staged on the disk, and answers.
    fn commit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let all = self.write(&[&batch.puts, &batch.notes, &batch.removals], Need::New);
        let (mut noted, mut removed) = (all.clone(), all.clone());
        if let Err(Refusal::NoSpace(_)) = &all {
            // What is done must not come again because there is no space for what is new.
            (noted, removed) = self.write_without_puts(&batch);
        }
        if all.is_ok() {
            for (queue, count, _) in &batch.added {
                self.count(*queue, |counts| counts.stored += count);
            }
        }
        self.count_settled(&batch, noted.is_ok(), removed.is_ok());
        // Whoever is answered and looks sees what has been done.
        self.publish();
        for (id, place, answer) in batch.stored {
            drop(place);
            tell(answer, all.clone().map(|()| id));
        }
        for (.., answer) in batch.noted {
            tell(answer, noted.clone());
        }
        for (_, answer) in batch.removed {
            tell(answer, removed.clone());
        }
        for (count, answer) in batch.revived {
            tell(answer, all.clone().map(|()| count));
        }
        for (count, answer) in batch.dropped {
            tell(answer, removed.clone().map(|()| count));
        }
    }

    fn count_settled(&mut self, batch: &Batch, has_noted: bool, has_removed: bool) {
        for (queue, outcome, _) in batch.noted.iter().filter(|_| has_noted) {
            self.count(*queue, |counts| match outcome {
                Outcome::Back => counts.retried += 1,
                Outcome::Buried => counts.buried += 1,
            });
        }
        for (queue, _) in batch.removed.iter().filter(|_| has_removed) {
            self.count(*queue, |counts| counts.delivered += 1);
        }
    }

    fn count(&mut self, queue: usize, change: impl FnOnce(&mut Counts)) {
        if let Some(queue) = self.index.queues.get_mut(queue) {
            change(&mut queue.counts);
        }
    }

    /// Writes what became of messages when there is no space for new ones. Gives what came of notes
    /// and of removals.
    fn write_without_puts(&mut self, batch: &Batch) -> (Result<(), Refusal>, Result<(), Refusal>) {
        let written = match batch.notes.is_empty() {
            true => self.write(&[&batch.removals], Need::Removal),
            false => self.write(&[&batch.notes, &batch.removals], Need::Note),
        };
        if !matches!(written, Err(Refusal::NoSpace(_))) || batch.notes.is_empty() {
            return (written.clone(), written);
        }
        let removed = self.write(&[&batch.removals], Need::Removal);
        if removed
            .as_ref()
            .is_err_and(|it| !matches!(it, Refusal::NoSpace(_)))
        {
            return (removed.clone(), removed);
        }
        // The rest is for removals. What is noted in memory alone is forgotten by a crash, and the
        // message then has some tries more.
        self.apply((0, 0), &batch.notes);
        (Ok(()), removed)
    }

    /// Writes a frame and does what it says. Space that is reserved is given up for it as far as
    /// the need goes.
    fn write(&mut self, parts: &[&[u8]], need: Need) -> Result<(), Refusal> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size == 0 {
            return self.log.check();
        }
        let mut frame = Vec::with_capacity(FrameHead::SIZE + size);
        frame.resize(FrameHead::SIZE, 0);
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        let mut appended = self.log.append(&mut frame, self.index.next_id);
        while matches!(appended, Err(Refusal::NoSpace(_))) && self.log.release_reserve(need) {
            appended = self.log.append(&mut frame, self.index.next_id);
        }
        self.tell_failing(appended.as_ref().err());
        let place = appended?;
        self.apply(place, frame.get(FrameHead::SIZE..).unwrap_or_default());
        Ok(())
    }

    /// Does what records say that begin there in a file.
    fn apply(&mut self, (segment, start): (u64, u64), records: &[u8]) {
        let mut reader = Reader::new(records);
        while let Some(Ok((record, body))) = reader.next() {
            let place = record::place(segment, start, body, &record);
            self.index.apply(&record, place);
        }
    }

    /// Tells the log when the disk begins to take nothing, and when that is over.
    fn tell_failing(&mut self, refusal: Option<&Refusal>) {
        self.is_failing = refusal.is_some();
        let now = Instant::now();
        match refusal {
            Some(refusal) if self.refusals.refused((), 1, now) => {
                tracing::error!(%refusal, "nothing can be stored: the disk does not take it");
            }
            Some(_) => {}
            None => {
                if let Some(refused) = self.refusals.accepted(now) {
                    tracing::info!(refused, "the disk takes what is stored again");
                }
            }
        }
    }

    /// Hands messages that are due to those who wait for them.
    fn serve(&mut self) {
        let now = Instant::now();
        for _ in 0..self.takers.len() {
            let Some(taker) = self.takers.pop_front() else {
                return;
            };
            if taker.answer.is_closed() {
                continue;
            }
            if let Err(refusal) = self.log.check() {
                // What is delivered now could not be marked as done.
                tell(taker.answer, Err(refusal));
                continue;
            }
            let taken = self.take(&taker, now);
            match taken.is_empty() {
                true => self.takers.push_back(taker),
                // Whoever has gone away gives them back by dropping them.
                false => tell(taker.answer, Ok(taken)),
            }
        }
    }

    fn take(&mut self, taker: &Taker, now: Instant) -> Vec<Delivery> {
        let (count_max, bytes_max) = TAKEN_MAX;
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < taker.most.min(count_max) && bytes < bytes_max {
            let Some((id, lease)) = self.index.take(taker.queue, now) else {
                break;
            };
            let Some(entry) = self.index.entries.get(&id) else {
                continue;
            };
            let (place, about) = (entry.place, (entry.attempts, entry.stored));
            let epoch = entry.epoch;
            bytes += u64::from(place.size);
            let body = self.log.read(place).map(|(_, body)| body);
            let commands = taker.commands.clone();
            let name = self.name(id, epoch);
            taken.push(Delivery::new((id, lease, name), about, body, commands));
        }
        taken
    }

    /// Gives space back: removes files of which nothing is needed, and moves what is needed out of
    /// files that hold little else.
    fn tidy(&mut self) {
        if self.log.check().is_err() {
            return;
        }
        let Ok(has_removed) = self.remove_files() else {
            return;
        };
        let now = Instant::now();
        let is_early = |at: Instant| now.saturating_duration_since(at) < self.tidy_every;
        if !has_removed && self.tidied.is_some_and(is_early) {
            return;
        }
        self.log.note_end();
        self.keep_reserve();
        if self.leave_last_file().and_then(|()| self.remove_files()) == Ok(true) {
            self.keep_reserve();
        }
        let allowed = 2 * self.index.live_of_all() + 4 * self.log.segment_max();
        let too_large = self.log.size() > allowed;
        let is_short = self.is_short_of_space();
        let is_to_go = |it: &u64| too_large || is_short && self.index.live(*it) <= MOVED_WHEN_LOW;
        if let Some(oldest) = self.log.oldest().filter(is_to_go) {
            match self.move_out(oldest) {
                // The next one at once.
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the store's files cannot be tidied"),
            }
        }
        self.tidied = Some(now);
    }

    /// Removes files from the oldest on as long as nothing in them is needed. Whether there was
    /// one.
    fn remove_files(&mut self) -> Result<bool, Refusal> {
        let mut has_removed = false;
        while let Some(oldest) = self.log.oldest().filter(|it| self.index.live(*it) == 0) {
            self.log.remove_oldest()?;
            self.index.forget_segment(oldest);
            has_removed = true;
        }
        Ok(has_removed)
    }

    /// Whether the disk has no space, or none but what is reserved.
    fn is_short_of_space(&self) -> bool {
        self.is_failing || self.log.is_low()
    }

    /// Begins another file when space is short and the last one holds what is not needed.
    fn leave_last_file(&mut self) -> Result<(), Refusal> {
        let last = self.log.numbers().last().unwrap_or(0);
        if !self.is_short_of_space() || !self.log.is_last_to_be_left(self.index.live(last)) {
            return Ok(());
        }
        let mut begun = self.log.roll(self.index.next_id);
        while matches!(begun, Err(Refusal::NoSpace(_))) && self.log.release_reserve(Need::Removal) {
            begun = self.log.roll(self.index.next_id);
        }
        begun
    }

    fn keep_reserve(&mut self) {
        let messages = self.index.entries.len() as u64;
        self.log.keep_reserve(REMOVAL_SIZE * messages);
    }

    /// Writes the messages of a file again, so that it can be removed.
    fn move_out(&mut self, segment: u64) -> Result<(), Refusal> {
        let mut puts = Vec::new();
        for id in self.index.of_segment(segment) {
            let Some(entry) = self.index.entries.get(&id) else {
                continue;
            };
            let (key, body) = self.as_is(id, entry.place);
            let queue = self.index.queues.get(entry.queue);
            let put = Put {
                id,
                epoch: entry.epoch,
                stored: entry.stored,
                due: entry.due_wall,
                attempts: entry.attempts,
                queue: queue.map_or("", |queue| &queue.name),
                key: &key,
                dead: entry.dead.as_deref(),
                body: &body,
                crc: Some(entry.place.crc),
            };
            Record::Put(put).write(&mut puts);
            if puts.len() > FRAME_MAX {
                self.write(&[&puts], Need::Removal)?;
                puts.clear();
            }
        }
        // The file takes more than what is moved.
        self.write(&[&puts], Need::Removal)
    }

    /// A message to be moved: one that is damaged stays so, by its checksum, and holds up no other.
    fn as_is(&self, id: u64, place: Place) -> (Bytes, Bytes) {
        self.log.read_as_is(place).unwrap_or_else(|refusal| {
            tracing::error!(id, %refusal, "a stored message is lost");
            let zeros = |size: u32| Bytes::from(vec![0; size as usize]);
            (zeros(place.key), zeros(place.size))
        })
    }

    fn list(&self, queue: &str, is_dead: bool) -> Vec<Listed> {
        let Some(number) = self.index.known(queue) else {
            return Vec::new();
        };
        let entries = self.index.entries.iter();
        let mut listed: Vec<Listed> = entries
            .filter(|(_, entry)| entry.queue == number && entry.dead.is_some() == is_dead)
            .map(|(id, entry)| self.listed(*id, entry))
            .collect();
        listed.sort_unstable_by_key(|it| it.id);
        listed
    }

    fn read(&mut self, queue: &str, id: u64) -> Result<(Listed, Bytes), Refusal> {
        let queue = self.index.known(queue).ok_or(Refusal::Gone)?;
        let entry = self.index.entries.get(&id);
        let entry = entry.filter(|it| it.queue == queue).ok_or(Refusal::Gone)?;
        let (_, body) = self.log.read(entry.place)?;
        Ok((self.listed(id, entry), body))
    }

    fn listed(&self, id: u64, entry: &Entry) -> Listed {
        Listed {
            id,
            name: self.name(id, entry.epoch),
            stored: entry.stored,
            due: entry.due_wall.at,
            attempts: entry.attempts,
            size: entry.place.size,
            dead: entry.dead.as_deref().map(str::to_owned),
        }
    }

    fn publish(&self) {
        self.has_failed
            .store(self.log.check().is_err(), Ordering::Relaxed);
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, queue) in self.index.queues.iter().enumerate() {
            let now = self.index.stats(number);
            match stats.get_mut(&queue.name) {
                Some(before) => *before = now,
                None => drop(stats.insert(queue.name.clone(), now)),
            }
        }
    }

    /// The time of day, in milliseconds since 1970 began.
    fn wall(&self) -> u64 {
        let (instant, wall) = self.started;
        wall + u64::try_from(instant.elapsed().as_millis()).unwrap_or(0)
    }
}

/// A message's number as the world sees it: no other message has it, of no other run either.
pub(crate) fn name(epoch: u64, id: u64) -> String {
    format!("{epoch:016x}-{id}")
}

/// Whoever asked may have gone away.
fn tell<T>(answer: Answer<T>, result: Result<T, Refusal>) {
    let _ = answer.send(result);
}
