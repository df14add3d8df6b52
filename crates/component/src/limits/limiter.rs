//! One limit: its windows and the buckets of all its callers, shared by all workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::kept::KeptLimits;
use super::table::{CallerHash, Table};
use super::window::{Left, Window, WindowSettings, ticks, time};
use crate::state::{Measure, State};

/// The most windows of one limit.
pub const WINDOWS_MAX: usize = 4;

/// The callers that a limit remembers unless the engine's settings say otherwise.
pub const CALLERS_DEFAULT: usize = 1_000_000;

/// Windows of this period or longer outlive a restart.
pub const LONG: Duration = Duration::from_secs(3600);

/// How long units may wait for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// The longest wait.
    pub wait: Duration,
    /// How many may wait; without it as many as fit into the wait.
    pub queue: Option<u32>,
}

/// What a limit is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSettings {
    /// The windows, one to [`WINDOWS_MAX`].
    pub windows: Vec<WindowSettings>,
    /// How long units may wait.
    pub patience: Patience,
    /// The most callers that are remembered.
    pub callers_max: usize,
}

/// Which window is exceeded, and when there will be room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The window's place among the settings.
    pub window: usize,
    /// After this time the same units would be taken.
    pub free_in: Duration,
}

/// One limit. All workers share it.
pub struct Limiter {
    windows: Vec<Window>,
    patience: Patience,
    table: Table,
    /// The bucket of all callers for whom the table has no room.
    overflow: Mutex<[u64; WINDOWS_MAX]>,
    /// Where it is registered, and the key of the callers' hashes is.
    _kept: Arc<KeptLimits>,
    /// Ticks count from here.
    origin: (Instant, Duration),
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    waiting: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
    full: AtomicU64,
}

/// The buckets of one shard of callers as they are kept on the disk.
pub struct Snapshot {
    /// The number of the shard.
    pub shard: usize,
    /// For each bucket its hash and its arrival times, in nanoseconds since 1970, as little-endian
    /// words of eight bytes.
    pub bytes: Vec<u8>,
}

impl Limiter {
    /// One that nobody has used.
    pub(crate) fn new(settings: &LimiterSettings, kept: &Arc<KeptLimits>) -> Self {
        let windows = settings.windows.iter().take(WINDOWS_MAX);
        let windows: Vec<Window> = windows.copied().map(Window::new).collect();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            table: Table::new(windows.len(), settings.callers_max),
            windows,
            patience: settings.patience,
            overflow: Mutex::default(),
            _kept: Arc::clone(kept),
            origin: (Instant::now(), wall.unwrap_or_default()),
            counts: Counts::default(),
        }
    }

    /// Takes units of a caller, or says which window they exceed. They have to wait for so long,
    /// and are given back by [`Limiter::give_back`] when they are not used.
    ///
    /// # Errors
    /// When the wait is longer than the limit allows; then nothing has been taken.
    #[inline]
    pub fn take(&self, caller: CallerHash, units: u64, now: Instant) -> Result<Duration, Exceeded> {
        let now = self.ticks(now);
        let work = |arrivals: &mut [u64]| self.take_from(arrivals, units, now);
        match self.table.with(caller, now, work) {
            Ok(Ok(0)) => Ok(Duration::ZERO),
            Ok(result) => self.delayed(result),
            Err(work) => {
                self.counts.full.fetch_add(1, Ordering::Relaxed);
                self.delayed(work(&mut *self.overflow()))
            }
        }
    }

    /// Counts what does not pass at once.
    #[cold]
    fn delayed(&self, taken: Result<u64, Exceeded>) -> Result<Duration, Exceeded> {
        let counter = match taken {
            Ok(0) => return Ok(Duration::ZERO),
            Ok(_) => &self.counts.delayed,
            Err(_) => &self.counts.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        taken.map(time)
    }

    /// Takes units of all windows or of none.
    #[inline(always)]
    fn take_from(&self, arrivals: &mut [u64], units: u64, now: u64) -> Result<u64, Exceeded> {
        if let ([window], [arrival]) = (self.windows.as_slice(), &mut *arrivals) {
            let (after, wait) = window.after(*arrival, now, units);
            if wait > 0 && !self.may_wait(window, wait) {
                return Err(self.exceeded(0, wait));
            }
            *arrival = after;
            return Ok(wait);
        }
        let mut after = [0; WINDOWS_MAX];
        let mut longest = 0;
        let each = self.windows.iter().zip(arrivals.iter()).zip(&mut after);
        for (at, ((window, &arrival), after)) in each.enumerate() {
            let (then, wait) = window.after(arrival, now, units);
            if wait > 0 && !self.may_wait(window, wait) {
                return Err(self.exceeded(at, wait));
            }
            *after = then;
            longest = longest.max(wait);
        }
        for (arrival, then) in arrivals.iter_mut().zip(after) {
            *arrival = then;
        }
        Ok(longest)
    }

    fn may_wait(&self, window: &Window, wait: u64) -> bool {
        let Patience { wait: most, queue } = self.patience;
        wait <= ticks(most) && queue.is_none_or(|queue| window.queue_place(wait) <= queue.into())
    }

    #[cold]
    fn exceeded(&self, at: usize, wait: u64) -> Exceeded {
        let ahead = match (self.patience.queue, self.windows.get(at)) {
            (Some(queue), Some(window)) => ticks(self.patience.wait).min(window.span(queue.into())),
            _ => ticks(self.patience.wait),
        };
        Exceeded {
            window: at,
            free_in: time(wait.saturating_sub(ahead).max(1)),
        }
    }

    /// Gives back what has been taken and is not used.
    pub fn give_back(&self, caller: CallerHash, units: u64) {
        let give = |arrivals: &mut [u64]| {
            for (window, arrival) in self.windows.iter().zip(arrivals) {
                *arrival = window.before(*arrival, units);
            }
        };
        if self.table.get(caller, give).is_none() {
            give(&mut *self.overflow());
        }
    }

    /// What is left to a caller, for each window.
    pub(crate) fn left(&self, caller: CallerHash, now: Instant) -> impl Iterator<Item = Left> {
        let now = self.ticks(now);
        let mut arrivals = [0; WINDOWS_MAX];
        let known = self.table.get(caller, |known| {
            for (arrival, known) in arrivals.iter_mut().zip(known) {
                *arrival = *known;
            }
        });
        let arrivals = match known {
            Some(()) => arrivals,
            None => *self.overflow(),
        };
        let windows = self.windows.iter().zip(arrivals);
        windows.map(move |(window, arrival)| window.left(arrival, now))
    }

    /// The settings of the windows.
    pub fn windows(&self) -> impl Iterator<Item = WindowSettings> {
        self.windows.iter().map(|it| it.settings)
    }

    /// Counts one that waits, for as long as this lives.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.counts.waiting)
    }

    /// Whether it outlives a restart.
    pub fn is_long(&self) -> bool {
        self.windows.iter().any(|it| it.settings.per >= LONG)
    }

    fn overflow(&self) -> MutexGuard<'_, [u64; WINDOWS_MAX]> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ticks(&self, now: Instant) -> u64 {
        ticks(now.saturating_duration_since(self.origin.0))
    }

    /// The shards that have changed since the last time, as they are kept on the disk.
    pub fn changed(&self) -> Vec<Snapshot> {
        let stride = 2 + self.windows.len();
        let changed = self.table.take_changed(self.ticks(Instant::now()));
        let changed = changed.into_iter().map(|(shard, words)| {
            let mut bytes = Vec::with_capacity(words.len() * 8);
            for slot in words.chunks_exact(stride) {
                let (hash, arrivals) = slot.split_at(2);
                let arrivals = arrivals.iter().map(|&it| self.to_wall(it));
                for word in hash.iter().copied().chain(arrivals) {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
            Snapshot { shard, bytes }
        });
        changed.collect()
    }

    /// Notes that these shards could not be written.
    pub fn not_written(&self, shards: impl Iterator<Item = usize>) {
        self.table.mark_changed(shards);
    }

    /// Takes over what [`Limiter::changed`] gave in an earlier life. False when the bytes are none
    /// of this limit.
    #[must_use]
    pub fn restore(&self, bytes: &[u8]) -> bool {
        let now = self.ticks(Instant::now());
        let size = 8 * (2 + self.windows.len());
        if !bytes.len().is_multiple_of(size) {
            return false;
        }
        for slot in bytes.chunks_exact(size) {
            let word = |at: usize| {
                let bytes = slot.get(at * 8..at * 8 + 8)?;
                bytes.try_into().ok().map(u64::from_le_bytes)
            };
            let (Some(low), Some(high)) = (word(0), word(1)) else {
                return false;
            };
            let put = |arrivals: &mut [u64]| {
                for (at, (arrival, window)) in arrivals.iter_mut().zip(&self.windows).enumerate() {
                    let kept = self.of_wall(word(2 + at).unwrap_or_default());
                    // A clock that was ahead must not close the limit for longer than a burst does.
                    *arrival = (*arrival).max(kept.min(window.latest(now)));
                }
            };
            // One for whom there is no room is as one that has not been kept.
            let _ = self.table.with(CallerHash(low, high), now, put);
        }
        true
    }

    /// An arrival time in nanoseconds since 1970.
    fn to_wall(&self, arrival: u64) -> u64 {
        let wall = self.origin.1 + time(arrival);
        u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
    }

    fn of_wall(&self, nanos: u64) -> u64 {
        let wall = Duration::from_nanos(nanos);
        ticks(wall.saturating_sub(self.origin.1))
    }
}

/// One that waits for its turn.
pub(crate) struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State for Limiter {
    fn measures(&self, _now: Instant) -> Vec<Measure> {
        let (callers, bytes) = self.table.size();
        let waiting = self.counts.waiting.load(Ordering::Relaxed) as f64;
        let gauge = |name, help, value| Measure { name, help, value };
        let counts = &self.counts;
        vec![
            gauge(
                "throttle_waiting",
                "Requests that wait for their turn.",
                waiting,
            ),
            gauge(
                "limits_callers",
                "Callers that are remembered.",
                callers as f64,
            ),
            gauge("limits_bytes", "Memory of the callers.", bytes as f64),
            Measure::count(
                "throttle_delayed_total",
                "Requests that had to wait.",
                &counts.delayed,
            ),
            Measure::count(
                "throttle_refused_total",
                "Requests refused.",
                &counts.refused,
            ),
            Measure::count(
                "limits_table_full_total",
                "Requests of new callers while no more could be remembered.",
                &counts.full,
            ),
        ]
    }
}
