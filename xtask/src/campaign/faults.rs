//! The campaign of faults: kills, full and failing disks, folders that are put back or damaged,
//! clocks that jump, reloads. What was acknowledged arrives, or it is told that it is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Options;
use super::books::{Books, Ledger, lock};
use super::client::{self, SseEvent};
use super::damage;
use super::engine::Engine;
use super::random::Random;
use super::receiver::{Mode, Receiver};
use crate::command::{Failure, cargo, program};

/// How many publish at a time.
const PUBLISHERS: usize = 4;
/// How long what is there may take to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// A stream in which nothing comes for so long has nothing more.
const QUIET: Duration = Duration::from_millis(2500);
const STREAM: &str = "/topics/prices/sse";

type Round = (&'static str, fn(&mut Campaign) -> Result<(), Failure>);

const ROUNDS: [Round; 7] = [
    ("kills", Campaign::kills),
    ("receiver away", Campaign::receiver_away),
    ("full disk", Campaign::full_disk),
    ("failing disk", Campaign::failing_disk),
    ("restored folder", Campaign::restored),
    ("damaged folder", Campaign::damaged),
    ("clock and reloads", Campaign::clock_and_reloads),
];

struct Campaign {
    folder: PathBuf,
    books: Arc<Books>,
    receiver: Receiver,
    engine: Engine,
    random: Random,
    /// The last event that the subscriber has had.
    last: Option<String>,
    /// What it has had since it was last told that something is missing.
    seen: BTreeSet<u64>,
    resets: u64,
    kills: u64,
    /// Files that were damaged: told, and harmless.
    damage: (u64, u64),
    versions: u64,
}

pub fn run(root: &Path, options: &Options) -> Result<(), Failure> {
    println!("seed {}", options.seed);
    let binary = match &options.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => {
            cargo(root).args(["build", "-p", "intertie"]).run()?;
            let target = std::env::var_os("CARGO_TARGET_DIR");
            target
                .map_or(root.join("target"), PathBuf::from)
                .join("debug/intertie")
        }
    };
    let name = format!("intertie-campaign-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder)?;
    let books = Arc::new(Books::default());
    let receiver = Receiver::start(&books)?;
    let engine = Engine::new(binary, &folder, receiver.port)?;
    let mut campaign = Campaign {
        folder: folder.clone(),
        books,
        receiver,
        engine,
        random: Random::new(options.seed),
        last: None,
        seen: BTreeSet::new(),
        resets: 0,
        kills: 0,
        damage: (0, 0),
        versions: 0,
    };
    let played = campaign.play(options.time);
    campaign.engine.kill();
    let is_well = campaign.report(options.seed);
    if played.is_ok() && is_well {
        fs::remove_dir_all(&folder)?;
        return Ok(());
    }
    played?;
    let folder = folder.display();
    Err(Failure::new(format!(
        "not all is well: {folder} has the engine's folder"
    )))
}

impl Campaign {
    fn play(&mut self, time: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        self.engine.must_start()?;
        let mut number = 0;
        // All kinds at least once.
        while start.elapsed() < time || number < ROUNDS.len() {
            let at = match number < ROUNDS.len() {
                true => number,
                false => self.random.below(ROUNDS.len() as u64) as usize,
            };
            if let Some((name, round)) = ROUNDS.get(at) {
                println!("{:4} s  {name}", start.elapsed().as_secs());
                round(self)?;
            }
            number += 1;
            self.settle()?;
        }
        Ok(())
    }

    fn report(&self, seed: u64) -> bool {
        let books = &self.books;
        let counts = [&books.lost, &books.silent, &books.wrong].map(|it| lock(it).len());
        let [lost, silent, wrong] = counts;
        let (store, topic) = (lock(&books.store), lock(&books.topic));
        println!(
            "acknowledged: messages {}, events {}; kills {}, resets told {}, damage told {} and \
             harmless {}",
            store.acknowledged.len(),
            topic.acknowledged.len(),
            self.kills,
            self.resets,
            self.damage.0,
            self.damage.1
        );
        println!("seed {seed}: lost {lost}, silent loss {silent}, wrong data {wrong}");
        counts == [0; 3]
    }

    /// Has publishers work until what is given is dropped or stopped.
    fn publish(&self, padding: usize) -> Publishers {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..PUBLISHERS).map(|of| {
            let (stop, books) = (Arc::clone(&stop), Arc::clone(&self.books));
            let port = self.engine.port;
            thread::spawn(move || {
                let mut at = of;
                while !stop.load(Ordering::SeqCst) {
                    publish_one(&books, port, at % 2 == 0, padding);
                    at += 1;
                }
            })
        });
        Publishers {
            threads: threads.collect(),
            stop,
        }
    }

    fn pause(&mut self, least: u64, most: u64) {
        let wait = least + self.random.below(most - least);
        thread::sleep(Duration::from_millis(wait));
    }

    fn kills(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(0);
        for _ in 0..1 + self.random.below(4) {
            self.pause(50, 1500);
            self.engine.kill();
            self.kills += 1;
            self.engine.must_start()?;
        }
        self.pause(50, 500);
        publishers.stop();
        Ok(())
    }

    fn receiver_away(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(0);
        for mode in [Mode::Refuses, Mode::Drops, Mode::Slow] {
            self.receiver.set(mode);
            self.pause(100, 800);
            if self.random.below(2) == 0 {
                self.engine.kill();
                self.kills += 1;
                self.engine.must_start()?;
            }
        }
        publishers.stop();
        self.receiver.set(Mode::Up);
        Ok(())
    }

    /// Clients fill the disk; all that was taken is delivered while they go on.
    fn full_disk(&mut self) -> Result<(), Failure> {
        let small = self.folder.join("small");
        fs::create_dir_all(&small)?;
        let at = small.display().to_string();
        let size = format!("size={}m", 8 + self.random.below(12));
        let mounted = program("mount")
            .args(["-t", "tmpfs", "-o", &size, "none", &at])
            .run();
        if let Err(failure) = mounted {
            println!("        left out, no file system can be mounted: {failure}");
            return Ok(());
        }
        let played = self.on_full_disk(&small);
        self.engine.kill();
        self.engine.data = self.folder.join("data");
        program("umount").args([&at]).run()?;
        let delivered = played?;
        if !delivered.is_empty() {
            let count = delivered.len();
            self.books
                .lost(format!("{count} messages on a full disk are not delivered"));
        }
        // The topic of that folder is another one.
        lock(&self.books.topic).acknowledged.clear();
        self.last = None;
        self.engine.must_start()
    }

    fn on_full_disk(&mut self, small: &Path) -> Result<Vec<u64>, Failure> {
        self.settle()?;
        self.engine.stop()?;
        self.engine.data = small.join("data");
        self.engine.must_start()?;
        self.receiver.set(Mode::Refuses);
        let publishers = self.publish(3000);
        let is_full = wait(DRAIN_MAX, || {
            let number = self.books.next();
            let reply = client::ask(self.engine.port, "POST", "/orders", &body(number, 3000));
            match reply {
                Ok(reply) if reply.status == 202 => {
                    lock(&self.books.store).acknowledged.insert(number);
                    false
                }
                reply => reply.is_ok_and(|it| it.status == 503),
            }
        });
        if !is_full {
            return Err(Failure::new("the disk is not full"));
        }
        self.pause(100, 2000);
        if self.random.below(2) == 0 {
            self.engine.kill();
            self.kills += 1;
            self.engine.must_start()?;
        }
        let waiting = lock(&self.books.store).acknowledged.clone();
        self.receiver.set(Mode::Up);
        let books = Arc::clone(&self.books);
        let left = || -> Vec<u64> {
            let store = lock(&books.store);
            waiting.difference(&store.arrived).copied().collect()
        };
        wait(DRAIN_MAX, || left().is_empty());
        publishers.stop();
        wait(DRAIN_MAX, || lock(&self.books.store).missing().is_empty());
        Ok(left())
    }

    /// An `fsync` that fails is told by those whom supervisors ask, and nothing is lost.
    fn failing_disk(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(0);
        self.pause(100, 600);
        fs::write(self.engine.fail_file(), "")?;
        let (port, admin) = (self.engine.port, self.engine.admin);
        let is_told = wait(Duration::from_secs(10), || {
            let number = self.books.next();
            let _ = client::ask(port, "POST", "/orders", &body(number, 0));
            let is_503 =
                |path| client::ask(admin, "GET", path, "").is_ok_and(|it| it.status == 503);
            is_503("/health") && is_503("/ready")
        });
        if !is_told {
            self.books
                .silent("a failed fsync is not told by /health and /ready".to_owned());
        }
        publishers.stop();
        self.engine.kill();
        self.kills += 1;
        fs::remove_file(self.engine.fail_file())?;
        self.engine.must_start()
    }

    /// An older copy of the folder is put back: what came after it is gone, which subscribers are
    /// told, and no id is given twice.
    fn restored(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(0);
        self.pause(200, 800);
        publishers.stop();
        self.settle()?;
        match self.random.below(2) {
            0 => self.engine.stop()?,
            _ => self.engine.kill(),
        }
        let copy = self.folder.join("copy");
        damage::copy(&self.engine.data, &copy)?;
        let before = (
            lock(&self.books.store).clone(),
            lock(&self.books.topic).clone(),
        );
        self.engine.must_start()?;
        let publishers = self.publish(0);
        self.pause(300, 1000);
        publishers.stop();
        self.settle()?;
        let newest = self.last.clone();
        self.engine.kill();
        damage::copy(&copy, &self.engine.data)?;
        self.forget(&before);
        self.engine.must_start()?;
        // The log grows past the place of the subscriber.
        let publishers = self.publish(0);
        self.pause(100, 2500);
        publishers.stop();
        let resets = self.resets;
        self.catch_up(true)?;
        let has_more = newest != before_last(&before, &newest);
        if has_more && self.resets == resets {
            self.books.silent(format!(
                "a subscriber at {newest:?} is not told of the older copy"
            ));
        }
        Ok(())
    }

    /// What was acknowledged after a copy is not there.
    fn forget(&mut self, (store, topic): &(Ledger, Ledger)) {
        lock(&self.books.store)
            .acknowledged
            .clone_from(&store.acknowledged);
        lock(&self.books.topic)
            .acknowledged
            .clone_from(&topic.acknowledged);
        self.seen.clear();
    }

    /// Each file in turn is removed, emptied, cut, or has another bit: the engine refuses to start,
    /// or says what is missing, or nothing is.
    fn damaged(&mut self) -> Result<(), Failure> {
        self.receiver.set(Mode::Refuses);
        let publishers = self.publish(200);
        self.pause(300, 1000);
        publishers.stop();
        self.engine.stop()?;
        let whole = self.folder.join("whole");
        damage::copy(&self.engine.data, &whole)?;
        let files = damage::files(&whole)?;
        for file in files {
            let inside = file.strip_prefix(&whole).unwrap_or(&file).to_owned();
            for how in damage::ATTACKS {
                damage::copy(&whole, &self.engine.data)?;
                let at = self.engine.data.join(&inside);
                let what = damage::attack(&at, how, &mut self.random)?;
                self.judge(&what)?;
            }
        }
        damage::copy(&whole, &self.engine.data)?;
        self.receiver.set(Mode::Up);
        self.last = None;
        self.seen.clear();
        self.engine.must_start()
    }

    /// Starts on a folder that is damaged.
    fn judge(&mut self, what: &str) -> Result<(), Failure> {
        if !self.engine.start()? {
            let log = self.engine.log();
            let names = [
                "missing",
                "damaged",
                "format",
                "cannot be used",
                "manifest",
                "empty",
            ];
            match names.iter().any(|it| log.contains(it)) {
                true => self.damage.0 += 1,
                false => self
                    .books
                    .silent(format!("{what}: refused without a reason: {log}")),
            }
            return Ok(());
        }
        let arrived = {
            let (mut store, mut topic) = (lock(&self.books.store), lock(&self.books.topic));
            let arrived = (store.arrived.clone(), topic.arrived.clone());
            // They have to arrive from this folder.
            let waiting: BTreeSet<u64> = store.missing().into_iter().collect();
            store.arrived = store.acknowledged.difference(&waiting).copied().collect();
            let waiting: BTreeSet<u64> = topic.missing().into_iter().collect();
            topic.arrived = topic.acknowledged.difference(&waiting).copied().collect();
            arrived
        };
        self.receiver.set(Mode::Up);
        let books = Arc::clone(&self.books);
        let has_all =
            || lock(&books.store).missing().is_empty() && lock(&books.topic).missing().is_empty();
        let is_harmless = wait(Duration::from_secs(8), has_all) && self.has_all_events();
        self.receiver.set(Mode::Refuses);
        let log = self.engine.log();
        let is_told = ["WARN", "ERROR"].iter().any(|it| log.contains(it));
        match (is_harmless, is_told) {
            (true, _) => self.damage.1 += 1,
            (false, true) => self.damage.0 += 1,
            (false, false) => {
                let counts = (
                    lock(&books.store).missing().len(),
                    lock(&books.topic).missing().len(),
                );
                self.books
                    .silent(format!("{what}: (messages, events) missing: {counts:?}"));
            }
        }
        self.engine.kill();
        (lock(&books.store).arrived, lock(&books.topic).arrived) = arrived;
        Ok(())
    }

    /// Whether all events are there for somebody who begins with the oldest.
    fn has_all_events(&self) -> bool {
        let mut left = lock(&self.books.topic).acknowledged.clone();
        let read = client::subscribe(self.engine.port, STREAM, None, QUIET, |event| {
            let number = self.books.number(&event.data);
            if let Some(number) = number {
                left.remove(&number);
            }
            left.is_empty()
        });
        read.is_ok() && left.is_empty()
    }

    fn clock_and_reloads(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(0);
        for _ in 0..3 {
            let days = self.random.below(80) as i64 - 40;
            // The clock of a machine without a battery.
            let offset = if self.random.below(4) == 0 {
                -1_700_000_000
            } else {
                days * 86_400
            };
            fs::write(self.engine.clock_file(), offset.to_string())?;
            self.receiver.set(Mode::Refuses);
            self.pause(100, 600);
            match self.random.below(2) {
                0 => {
                    self.engine.kill();
                    self.kills += 1;
                    self.engine.must_start()?;
                }
                _ => {
                    self.versions += 1;
                    self.engine.write_flows(self.receiver.port, self.versions)?;
                    self.engine.signal("HUP")?;
                }
            }
            self.receiver.set(Mode::Up);
            self.pause(100, 600);
        }
        publishers.stop();
        fs::write(self.engine.clock_file(), "0")?;
        Ok(())
    }

    /// Waits until all that was acknowledged has arrived, at the receiver and the subscriber.
    fn settle(&mut self) -> Result<(), Failure> {
        self.receiver.set(Mode::Up);
        let books = Arc::clone(&self.books);
        for (name, ledger) in [
            ("messages", &books.store),
            ("events for a flow", &books.topic),
        ] {
            if !wait(DRAIN_MAX, || lock(ledger).missing().is_empty()) {
                let missing = lock(ledger).missing();
                let few: Vec<_> = missing.iter().take(5).collect();
                let log = self.engine.log();
                let tail: Vec<&str> = log.lines().rev().take(5).collect();
                let count = missing.len();
                books.lost(format!(
                    "{count} {name}, such as {few:?}; the log ends: {tail:?}"
                ));
                // They are told once.
                let mut ledger = lock(ledger);
                let arrived = ledger.arrived.clone();
                ledger.acknowledged.retain(|it| arrived.contains(it));
            }
        }
        self.catch_up(false)
    }

    /// Has the subscriber come back, who must get every event once and in order, or a `reset`.
    fn catch_up(&mut self, may_reset: bool) -> Result<(), Failure> {
        let port = self.engine.port;
        let mut left = lock(&self.books.topic).acknowledged.clone();
        left.retain(|it| !self.seen.contains(it));
        if left.is_empty() && !may_reset {
            return Ok(());
        }
        let last = self.last.clone();
        let books = Arc::clone(&self.books);
        let (mut seen, mut newest) = (std::mem::take(&mut self.seen), last.clone());
        let (mut resets, mut twice) = (0, 0);
        let is_new = last.is_none();
        client::subscribe(port, STREAM, last.as_deref(), QUIET, |event: SseEvent| {
            if event.kind == "reset" {
                resets += 1;
                seen.clear();
                return false;
            }
            if !event.id.is_empty() {
                newest = Some(event.id.clone());
            }
            if let Some(number) = books.number(&event.data) {
                books.identify(&books.topic, &event.id, number);
                twice += u64::from(!seen.insert(number));
                left.remove(&number);
            }
            left.is_empty()
        })
        .map_err(|error| Failure::new(format!("the topic cannot be read: {error}")))?;
        self.resets += resets;
        (self.seen, self.last) = (seen, newest);
        if !left.is_empty() {
            let count = left.len();
            books.silent(format!(
                "{count} events do not come to a subscriber at {last:?}"
            ));
            self.seen.extend(left);
        }
        if twice > 0 && !is_new {
            books.wrong(format!(
                "{twice} events came twice to a subscriber at {last:?}"
            ));
        }
        if resets > 0 && !may_reset {
            books.wrong(format!(
                "a reset without a reason for a subscriber at {last:?}"
            ));
        }
        Ok(())
    }
}

/// The place of a subscriber whose newest event was there before a copy was made.
fn before_last((_, topic): &(Ledger, Ledger), newest: &Option<String>) -> Option<String> {
    newest.clone().filter(|id| topic.has_id(id))
}

struct Publishers {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Publishers {
    /// Ends them, and waits until all is noted that they were told.
    fn stop(self) {
        drop(self);
    }
}

impl Drop for Publishers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn body(number: u64, padding: usize) -> String {
    format!("{{\"n\":{number},\"p\":\"{}\"}}", "x".repeat(padding))
}

fn publish_one(books: &Books, port: u16, is_message: bool, padding: usize) {
    let (path, ledger) = match is_message {
        true => ("/orders", &books.store),
        false => ("/topics/prices", &books.topic),
    };
    let number = books.next();
    match client::ask(port, "POST", path, &body(number, padding)) {
        Ok(reply) if reply.status < 300 => {
            let id = reply.body.split('"').nth(3).unwrap_or_default().to_owned();
            books.identify(ledger, &id, number);
            lock(ledger).acknowledged.insert(number);
        }
        // The engine is away, or refuses.
        _ => thread::sleep(Duration::from_millis(5)),
    }
}

/// Looks until something holds; false when the time is over.
fn wait(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < most {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}
