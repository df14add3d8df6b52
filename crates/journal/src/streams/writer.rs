//! The thread that writes: it takes whatever waits for it, makes one frame of that, has it on the
//! disk, and answers all at once. In between it drops what is not to be kept, and gives space
//! back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use allocator::Release;
use batch_channel::Receiver;
use tokio::sync::oneshot;

use super::record::{self, EntryHead, StreamRecord};
use super::slots::Slot;
use super::state::{self, State};
use super::{
    Counts, Keep, NewEntry, STREAMS_MAX, SharedState, StreamInfo, StreamOptions, index, read,
};
use crate::asking::Answer;
use crate::backlog::Queued;
use crate::disk::Disk;
use crate::error::{OpenError, Refusal};
use crate::frame::FrameHead;
use crate::log::{Log, MOVED_WHEN_LOW, Need, Told, random};
use crate::refusals::Refusals;

/// The most bytes of a frame of several calls.
const FRAME_MAX: usize = 8 << 20;
/// The most calls that are answered together.
const ROUND_MAX: usize = 4096;
/// About how many bytes are moved at once, while others wait.
const MOVED_MAX: u64 = 2 << 20;
/// About what a file that begins says of a stream.
const STREAM_SIZE: u64 = 64;
/// The largest file: places in it are written with 32 bits, and a frame comes on top.
const SEGMENT_MAX: u64 = 1 << 30;

/// What is asked of the thread.
pub(super) enum Command {
    Append {
        entries: Vec<NewEntry>,
        place: Queued,
        answer: Answer<()>,
    },
    Declare {
        name: String,
        keep: Keep,
        place: Queued,
        answer: Answer<StreamInfo>,
    },
    Remove {
        name: String,
        place: Queued,
        answer: Answer<()>,
    },
    Close(Option<oneshot::Sender<()>>),
}

/// What comes of a frame when it is on the disk.
enum Effect {
    /// An entry; its place counts from the first record on.
    Entry(u32, u64, Slot),
    /// A stream is made: its number, name and epoch.
    Made(u32, String, u64),
    First(u32, u64),
    /// A stream has this epoch from this entry on.
    Epoch(u32, u64, u64),
    Removed(u32),
}

/// What is written next.
struct Batch {
    /// The frame, with space for its head.
    frame: Vec<u8>,
    effects: Vec<Effect>,
    /// The next entry of each stream, when all of this is on the disk.
    nexts: HashMap<u32, u64>,
    appended: Vec<(Queued, Answer<()>)>,
    declared: Vec<(String, Keep, Queued, Answer<StreamInfo>)>,
    /// The names of those that are new.
    made: HashSet<String>,
}

impl Batch {
    fn new() -> Self {
        Self {
            frame: vec![0; FrameHead::SIZE],
            effects: Vec::new(),
            nexts: HashMap::new(),
            appended: Vec::new(),
            declared: Vec::new(),
            made: HashSet::new(),
        }
    }

    /// Adds an entry with a checksum that has been made before.
    fn push(&mut self, head: &EntryHead, crc: u32, key: &[u8], body: &[u8]) {
        let at = (self.frame.len() - FrameHead::SIZE) as u64;
        // The file is not known yet.
        if let Some(slot) = state::slot(head, 0, at) {
            head.write(crc, key, body, &mut self.frame);
            let effect = Effect::Entry(head.stream, head.sequence, slot);
            self.effects.push(effect);
        }
    }
}

/// What the thread has.
pub(super) struct Writer {
    log: Log,
    state: SharedState,
    counts: Arc<Counts>,
    batch: Batch,
    /// The number of the next new stream.
    next_number: u32,
    tidy_every: Duration,
    /// When entries that are too old were last looked for.
    looked: Option<Instant>,
    /// When something was last tried that needs space.
    tidied: Option<Instant>,
    /// Whether entries are being moved out of the oldest file.
    is_moving: bool,
    /// Whether that could not be done the last time.
    is_stuck: bool,
    /// The file that has an index at its end already.
    sealed: Option<u64>,
    /// Whether the disk has not taken what was written last.
    is_failing: bool,
    /// What of that is logged.
    refusals: Refusals,
    closing: Option<Option<oneshot::Sender<()>>>,
}

impl Writer {
    pub fn open(
        disk: Box<dyn Disk>,
        options: StreamOptions,
        shared: SharedState,
        counts: Arc<Counts>,
    ) -> Result<Self, OpenError> {
        let mut state = shared.write();
        state.next_number = 1;
        let segment_max = options.segment_max.min(SEGMENT_MAX);
        let log = Log::open(disk, &record::FORMAT, segment_max, |told| match told {
            Told::File(number) => {
                let number = u32::try_from(number).map_err(|_| "it has a number too many")?;
                state.next_number = state.next_number.max(number);
                Ok(())
            }
            Told::Frame(segment, start, records) => state.apply(segment, start, records),
            Told::Index(segment, bytes) => index::apply(&mut state, segment, bytes),
        })?;
        check_all_there(&log, &state)?;
        for number in log.numbers() {
            state.segments.entry(number).or_default().file = log.file(number);
        }
        let next_number = state.next_number;
        state.begin_run(random);
        drop(state);
        let mut writer = Self {
            log,
            state: shared,
            counts,
            batch: Batch::new(),
            next_number,
            tidy_every: options.tidy_every,
            looked: None,
            tidied: None,
            is_moving: false,
            is_stuck: false,
            sealed: None,
            is_failing: false,
            refusals: Refusals::default(),
            closing: None,
        };
        writer.keep_reserve();
        writer.publish();
        Ok(writer)
    }

    pub fn tag(&self) -> u64 {
        self.log.tag
    }

    /// Works until nobody can ask any more.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let release = Release::default();
        while self.closing.is_none() {
            let wait = match self.is_moving {
                true => Duration::ZERO,
                false => self.tidy_every.max(Duration::from_millis(1)),
            };
            match commands.recv_timeout(wait) {
                Ok(command) => self.stage(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for command in commands.try_iter().take(ROUND_MAX) {
                self.stage(command);
            }
            self.commit();
            self.look_for_old();
            self.tidy();
            self.publish();
            release.look();
        }
        // Else the next start shows for a moment what has been removed, until it is told how much
        // is kept.
        if let Err(error) = self.note_first() {
            tracing::warn!(%error, "removed events may be seen again at the next start");
        }
        self.log.close();
        let closing = self.closing.take().flatten();
        // Whoever is told so may open the files at once.
        drop(self);
        if let Some(answer) = closing {
            let _ = answer.send(());
        }
    }

    fn stage(&mut self, command: Command) {
        match command {
            // What comes behind the end is not answered.
            _ if self.closing.is_some() => {}
            Command::Append {
                entries,
                place,
                answer,
            } => {
                match self.check_order(&entries) {
                    Ok(()) => {
                        self.stage_entries(&entries);
                        self.batch.appended.push((place, answer));
                    }
                    Err(refusal) => tell(answer, Err(refusal)),
                }
                if self.batch.frame.len() > FRAME_MAX {
                    self.commit();
                }
            }
            Command::Declare {
                name,
                keep,
                place,
                answer,
            } => self.stage_declare(name, keep, place, answer),
            Command::Remove {
                name,
                place,
                answer,
            } => {
                // What was asked before is done before.
                self.commit();
                let number = self.state.read().stream(&name).map(|it| it.0);
                if let Some(number) = number {
                    record::write_removed(number, &mut self.batch.frame);
                    self.batch.effects.push(Effect::Removed(number));
                }
                self.batch.appended.push((place, answer));
                self.commit_with(Need::Removal);
            }
            Command::Close(answer) => self.closing = Some(answer),
        }
    }

    /// Whether these entries are the next ones of their streams.
    fn check_order(&self, entries: &[NewEntry]) -> Result<(), Refusal> {
        self.log.check_new()?;
        let state = self.state.read();
        let mut nexts: HashMap<&str, u64> = HashMap::new();
        for entry in entries {
            let name = &*entry.stream;
            let next = match nexts.get(name) {
                Some(next) => *next,
                None => {
                    let found = state.stream(name);
                    let (number, stream) =
                        found.ok_or_else(|| Refusal::Unknown(name.to_owned()))?;
                    let staged = self.batch.nexts.get(&number).copied();
                    staged.unwrap_or_else(|| stream.next())
                }
            };
            if entry.sequence != next {
                let stream = name.to_owned();
                return Err(Refusal::OutOfOrder { stream, next });
            }
            nexts.insert(name, next + 1);
        }
        Ok(())
    }

    fn stage_entries(&mut self, entries: &[NewEntry]) {
        let state = self.state.read();
        for entry in entries {
            let Some((stream, of)) = state.stream(&entry.stream) else {
                continue;
            };
            if let Some(epoch) = of
                .coming
                .filter(|_| !self.batch.nexts.contains_key(&stream))
            {
                record::write_epoch(stream, epoch, entry.sequence, &mut self.batch.frame);
                let effect = Effect::Epoch(stream, epoch, entry.sequence);
                self.batch.effects.push(effect);
            }
            let head = EntryHead {
                stream,
                sequence: entry.sequence,
                at: entry.at_ms,
                kind: entry.kind,
                key: entry.key.len() as u16,
                body: entry.body.len() as u32,
            };
            let crc = head.crc(self.log.tag, &entry.key, &entry.body);
            self.batch.push(&head, crc, &entry.key, &entry.body);
            self.batch.nexts.insert(stream, entry.sequence + 1);
        }
    }

    fn stage_declare(
        &mut self,
        name: String,
        keep: Keep,
        place: Queued,
        answer: Answer<StreamInfo>,
    ) {
        let state = self.state.read();
        if state.stream(&name).is_none() && !self.batch.made.contains(&name) {
            if let Err(refusal) = self.log.check_new() {
                return tell(answer, Err(refusal));
            }
            if state.streams.len() + self.batch.made.len() >= STREAMS_MAX {
                return tell(answer, Err(Refusal::Full));
            }
            let (number, epoch) = (self.next_number, random());
            self.next_number = self.next_number.saturating_add(1);
            made(number, &name, epoch).write(&mut self.batch.frame);
            let effect = Effect::Made(number, name.clone(), epoch);
            self.batch.effects.push(effect);
            self.batch.made.insert(name.clone());
        }
        drop(state);
        self.batch.declared.push((name, keep, place, answer));
    }

    /// Has everything that is staged on the disk, and answers.
    fn commit(&mut self) {
        self.commit_with(Need::New);
    }

    fn commit_with(&mut self, need: Need) {
        let batch = &self.batch;
        if batch.effects.is_empty() && batch.appended.is_empty() && batch.declared.is_empty() {
            return;
        }
        let written = self.write(need);
        let Batch {
            nexts,
            appended,
            declared,
            ..
        } = std::mem::replace(&mut self.batch, Batch::new());
        let now = now();
        let mut state = self.state.write();
        if written.is_ok() {
            nexts.keys().for_each(|number| state.retain(*number, now));
        }
        let declared: Vec<_> = declared
            .into_iter()
            .map(|(name, keep, place, answer)| {
                drop(place);
                let info = written
                    .clone()
                    .and_then(|()| declare(&mut state, &name, keep, now));
                (answer, info)
            })
            .collect();
        drop(state);
        for (answer, info) in declared {
            tell(answer, info);
        }
        for (place, answer) in appended {
            drop(place);
            tell(answer, written.clone());
        }
    }

    /// Writes the frame that is staged, and does what comes of it. Space that is reserved is given
    /// up for it as far as the need goes.
    fn write(&mut self, need: Need) -> Result<(), Refusal> {
        if self.batch.effects.is_empty() {
            return self.log.check();
        }
        let started = Instant::now();
        let mut written = self.write_frame();
        while matches!(written, Err(Refusal::NoSpace(_))) && self.log.release_reserve(need) {
            written = self.write_frame();
        }
        let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.write_micros.fetch_add(took, Ordering::Relaxed);
        self.tell_failing(written.as_ref().err());
        let (segment, start) = written?;
        let mut state = self.state.write();
        let effects = std::mem::take(&mut self.batch.effects);
        for effect in effects {
            if let Err(error) = apply(&mut state, segment, start, effect) {
                // It was checked when it was staged.
                tracing::error!(error, "what has been written cannot be used");
            }
        }
        Ok(())
    }

    /// Writes the frame that is staged, with all streams before it where a file begins. Gives the
    /// file, and where the first record is that was staged.
    fn write_frame(&mut self) -> Result<(u64, u64), Refusal> {
        if self.log.is_full(self.batch.frame.len() as u64) {
            self.begin_file()?;
        }
        let mut before = 0;
        let appended = if self.log.is_last_empty() {
            let mut frame = vec![0; FrameHead::SIZE];
            self.state.read().write_streams(&mut frame);
            before = (frame.len() - FrameHead::SIZE) as u64;
            frame.extend_from_slice(self.batch.frame.get(FrameHead::SIZE..).unwrap_or_default());
            let appended = self.log.append(&mut frame, self.next_number.into());
            if appended.is_ok() {
                self.note_all();
            }
            appended
        } else {
            let next = self.next_number.into();
            self.log.append(&mut self.batch.frame, next)
        };
        appended.map(|(segment, start)| (segment, start + before))
    }

    /// What stands at the beginning of a file says where each stream begins.
    fn note_all(&mut self) {
        let mut state = self.state.write();
        for (number, first) in state.unnoted() {
            state.note(number, first);
        }
    }

    /// Ends the last file with an index, and begins another one.
    fn begin_file(&mut self) -> Result<(), Refusal> {
        let Some(last) = self.log.numbers().last() else {
            return Err(Refusal::Closed);
        };
        if self.sealed != Some(last) {
            let index = index::write(&self.state.read(), last);
            match self.log.seal(&index) {
                Ok(()) => self.sealed = Some(last),
                // A start then reads the file instead.
                Err(error) => tracing::warn!(%error, "a file of topics has no index"),
            }
        }
        self.log.roll(self.next_number.into())?;
        let mut state = self.state.write();
        for number in self.log.numbers().skip_while(|it| *it <= last) {
            state.segments.entry(number).or_default().file = self.log.file(number);
        }
        Ok(())
    }

    /// Tells the log when the disk begins to take nothing, and when that is over.
    fn tell_failing(&mut self, refusal: Option<&Refusal>) {
        self.is_failing = refusal.is_some();
        let now = Instant::now();
        match refusal {
            Some(refusal) if self.refusals.refused((), 1, now) => {
                tracing::error!(%refusal, "topics cannot be written: the disk does not take it");
            }
            Some(_) => {}
            None => {
                if let Some(refused) = self.refusals.accepted(now) {
                    tracing::info!(refused, "the disk takes what topics write again");
                }
            }
        }
    }

    /// Drops entries that are too old, from time to time.
    fn look_for_old(&mut self) {
        let at = Instant::now();
        if is_early(self.looked, at, self.tidy_every) {
            return;
        }
        self.looked = Some(at);
        let now = now();
        let state = self.state.read();
        let numbers = state.streams.keys().copied();
        let old: Vec<u32> = numbers.filter(|it| state.is_over(*it, now)).collect();
        drop(state);
        for number in old {
            self.state.write().retain(number, now);
        }
    }

    /// Gives space back: removes files of which nothing is needed, and moves what is needed out of
    /// files that hold little else.
    fn tidy(&mut self) {
        self.is_moving = false;
        if self.log.check().is_err() || self.remove_files().is_err() {
            return;
        }
        let now = Instant::now();
        if is_early(self.tidied, now, self.tidy_every) {
            return;
        }
        self.log.note_end();
        self.keep_reserve();
        if self
            .leave_last_file()
            .and_then(|()| self.remove_files())
            .is_ok()
        {
            self.keep_reserve();
        }
        let allowed = 2 * self.state.read().live() + 4 * self.log.segment_max();
        let too_large = self.log.size() > allowed;
        let is_short = self.is_short_of_space();
        let is_to_go = |it: &u64| too_large || is_short && self.live(*it) <= MOVED_WHEN_LOW;
        if let Some(oldest) = self.log.oldest().filter(is_to_go) {
            // On a full disk the file takes more than what is moved.
            let need = if is_short { Need::Removal } else { Need::New };
            let moved = self.move_some(oldest, need);
            let was_stuck = std::mem::replace(&mut self.is_stuck, moved.is_err());
            match moved {
                // Go on at once, after what waits by now.
                Ok(()) => {
                    self.is_moving = true;
                    return;
                }
                Err(error) if !was_stuck => {
                    tracing::warn!(%error, "the files of topics cannot be tidied");
                }
                Err(_) => {}
            }
        }
        self.tidied = Some(now);
    }

    fn keep_reserve(&mut self) {
        let streams = self.state.read().streams.len() as u64;
        self.log.keep_reserve(STREAM_SIZE * streams);
    }

    /// What the entries of a file take that are kept.
    fn live(&self, segment: u64) -> u64 {
        let state = self.state.read();
        state.segments.get(&segment).map_or(0, |it| it.live)
    }

    /// Whether the disk has no space, or none but what is reserved.
    fn is_short_of_space(&self) -> bool {
        self.is_failing || self.log.is_low()
    }

    /// Begins another file when space is short and the last one holds what is not kept.
    fn leave_last_file(&mut self) -> Result<(), Refusal> {
        let last = self.log.numbers().last().unwrap_or(0);
        if !self.is_short_of_space() || !self.log.is_last_to_be_left(self.live(last)) {
            return Ok(());
        }
        let mut begun = self.begin_file();
        while matches!(begun, Err(Refusal::NoSpace(_))) && self.log.release_reserve(Need::Removal) {
            begun = self.begin_file();
        }
        begun?;
        // It says which streams there are as soon as it says anything.
        let state = self.state.read();
        let one = state.streams.iter().next();
        let first = one.map(|(number, stream)| (*number, stream.first));
        drop(state);
        self.note(first.into_iter().collect())
    }

    /// Removes files from the oldest on as long as nothing in them is needed.
    fn remove_files(&mut self) -> Result<(), Refusal> {
        while let Some(oldest) = self.log.oldest() {
            let live = self.live(oldest);
            // A file says which streams there are; the next one has to say so before.
            let is_next_empty = self.log.numbers().count() == 2 && self.log.is_last_empty();
            let are_named = !is_next_empty || self.state.read().streams.is_empty();
            if live > 0 || !are_named {
                break;
            }
            self.note_first()?;
            self.log.remove_oldest()?;
            self.state.write().segments.remove(&oldest);
        }
        Ok(())
    }

    /// Has it on the disk which entries are not kept, before the files go that have them.
    fn note_first(&mut self) -> Result<(), Refusal> {
        let unnoted = self.state.read().unnoted();
        self.note(unnoted)
    }

    fn note(&mut self, firsts: Vec<(u32, u64)>) -> Result<(), Refusal> {
        if firsts.is_empty() {
            return Ok(());
        }
        for (number, first) in firsts {
            record::write_first(number, first, &mut self.batch.frame);
            self.batch.effects.push(Effect::First(number, first));
        }
        let written = self.write(Need::Removal);
        self.batch = Batch::new();
        written
    }

    /// Writes some entries of a file again, so that it can be removed.
    fn move_some(&mut self, segment: u64, need: Need) -> Result<(), Refusal> {
        let most = MOVED_MAX.min(self.log.segment_max() / 8);
        let moved = read::to_move(&self.state, segment, most)?;
        if moved.is_empty() {
            return Err(Refusal::Gone);
        }
        for (head, crc, bytes) in moved {
            let (key, body) = bytes.split_at(usize::from(head.key).min(bytes.len()));
            self.batch.push(&head, crc, key, body);
        }
        let written = self.write(need);
        self.batch = Batch::new();
        written
    }

    fn publish(&self) {
        let counts = &self.counts;
        counts.file_bytes.store(self.log.size(), Ordering::Relaxed);
        let is_poisoned = u64::from(self.log.check().is_err());
        counts.is_poisoned.store(is_poisoned, Ordering::Relaxed);
    }
}

fn is_early(last: Option<Instant>, now: Instant, every: Duration) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) < every)
}

fn made(number: u32, name: &str, epoch: u64) -> StreamRecord<'_> {
    StreamRecord {
        number,
        epoch,
        first: 1,
        next: 1,
        name,
    }
}

fn apply(state: &mut State, segment: u64, start: u64, effect: Effect) -> Result<(), &'static str> {
    match effect {
        Effect::Entry(number, sequence, mut slot) => {
            let place = u32::try_from(segment).ok();
            let offset = u32::try_from(start).ok();
            let offset = offset.and_then(|start| start.checked_add(slot.offset));
            (slot.segment, slot.offset) = place.zip(offset).ok_or("the file is too large")?;
            state.place(number, sequence, slot)
        }
        Effect::Made(number, name, epoch) => state.enter(&made(number, &name, epoch)),
        Effect::First(number, first) => {
            state.note(number, first);
            Ok(())
        }
        Effect::Epoch(number, epoch, start) => state.begin_epoch(number, epoch, start),
        Effect::Removed(number) => {
            state.remove(number);
            Ok(())
        }
    }
}

fn declare(state: &mut State, name: &str, keep: Keep, now: u64) -> Result<StreamInfo, Refusal> {
    let gone = || Refusal::Unknown(name.to_owned());
    let number = state.stream(name).map(|it| it.0).ok_or_else(gone)?;
    if let Some(stream) = state.streams.get_mut(&number) {
        stream.keep = Some(keep);
    }
    state.retain(number, now);
    state.stream(name).map(|it| it.1.info()).ok_or_else(gone)
}

/// Entries go only when the disk has noted so: what is missing has been taken away.
fn check_all_there(log: &Log, state: &State) -> Result<(), OpenError> {
    let Some((stream, sequence)) = state.missing() else {
        return Ok(());
    };
    tracing::error!(stream, sequence, "an entry is in no file");
    let first = log.numbers().next().unwrap_or(1);
    let why = "a file before it is missing that holds entries which are kept";
    Err(OpenError::Corrupt(record::FORMAT.folder, first, 0, why))
}

/// The time of day, in milliseconds since 1970 began.
fn now() -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    wall.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
}

/// Whoever asked may have gone away.
fn tell<T>(answer: Answer<T>, result: Result<T, Refusal>) {
    let _ = answer.send(result);
}
