//! A subscription to a topic of another hub (sections 5 and 6 of the recommendation): when it is
//! asked for, which intents are confirmed, and when it is renewed.
//!
//! A hub verifies an intent by a request to the callback, which whoever knows the callback can
//! send. So nothing is confirmed but what has just been asked for, for exactly this topic.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::form::Form;
use crate::hub::Moment;
use crate::url::Url;

/// How long a hub has to verify an intent; then it is asked again.
const VERIFY_TIME: Duration = Duration::from_secs(60);
/// How long after a request intents are confirmed: hubs repeat a question whose answer was lost.
const CONFIRM_TIME: Duration = Duration::from_secs(600);
/// The longest wait between two requests that fail.
const BACK_OFF_MAX: Duration = Duration::from_secs(3600);
/// The shortest wait after a denial.
const DENIED_WAIT: Duration = Duration::from_secs(60);
/// The shortest time from one renewal to the next, whatever lease a hub grants.
const RENEW_MIN: Duration = Duration::from_secs(1);
/// The longest lease that is believed, in seconds.
const LEASE_MAX: u64 = 366 * 24 * 3600;
/// The longest time without a look at the time of day, which may be put forward.
const LOOK: Duration = Duration::from_secs(60);
/// The most bytes of a challenge.
const CHALLENGE_MAX: usize = 4096;

/// What is asked of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To deliver.
    Subscribe,
    /// To deliver no more.
    Unsubscribe,
}

impl Mode {
    /// The value of `hub.mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
        }
    }
}

/// What a hub has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The hub.
    pub hub: Url,
    /// The topic, as the hub knows it.
    pub topic: Url,
    /// When it was granted, since 1970.
    pub since: Duration,
    /// When it ends, since 1970.
    pub ends: Duration,
}

/// What has been asked of a hub.
#[derive(Clone, Debug)]
struct Request {
    mode: Mode,
    hub: Url,
    topic: Url,
    at: Duration,
    progress: Progress,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The hub has to answer, or to verify the intent.
    Waiting,
    /// It has not: another request follows. It may yet do so.
    GivenUp,
    /// The intent has been confirmed.
    Confirmed,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing for so long, unless something happens.
    Wait(Duration),
    /// The hub is to be asked, after [`Subscriber::begin`].
    Ask(Mode),
    /// The hub has accepted a request and not verified it: tell so, and look again.
    Unverified,
}

/// What to answer to a request to the callback that is no delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The intent is confirmed by this text.
    Confirmed(String),
    /// It is not ours.
    Refused(&'static str),
    /// The hub says that it does not deliver, for this reason.
    Denied(Option<String>),
}

/// A subscription to a topic of another hub.
#[derive(Debug)]
pub struct Subscriber {
    /// For how many seconds it is asked for.
    lease_wanted: u64,
    /// Whether there shall be a subscription.
    is_wanted: bool,
    lease: Option<Lease>,
    /// When the lease is renewed, since 1970.
    renew: Duration,
    request: Option<Request>,
    /// When the next request may be made.
    next: Duration,
    failures: u32,
}

impl Subscriber {
    /// A subscription that shall be, or not, with the lease of an earlier run.
    pub fn new(lease_wanted: u64, is_wanted: bool, lease: Option<Lease>) -> Self {
        let renew = lease.as_ref().map_or(Duration::ZERO, |it| {
            it.since + it.ends.saturating_sub(it.since) * 2 / 3
        });
        Self {
            lease_wanted,
            is_wanted,
            lease,
            renew,
            request: None,
            next: Duration::ZERO,
            failures: 0,
        }
    }

    /// Goes by other settings from now on.
    pub fn set(&mut self, lease_wanted: u64, is_wanted: bool) {
        if self.is_wanted != is_wanted {
            // What was asked for before is not meant any more, and nobody waits for its failures.
            (self.request, self.next) = (None, Duration::ZERO);
        }
        (self.lease_wanted, self.is_wanted) = (lease_wanted, is_wanted);
    }

    /// What is to be done now. `random` is a number from 0 to 1: engines that were started together
    /// do not ask together.
    pub fn step(&mut self, now: Moment, random: f64) -> Step {
        let waiting = self.request.as_mut();
        if let Some(request) = waiting.filter(|it| it.progress == Progress::Waiting) {
            if now.at < self.next {
                return Step::Wait(self.next - now.at);
            }
            request.progress = Progress::GivenUp;
            self.fail(now, random);
            return Step::Unverified;
        }
        let left = match (self.is_wanted, self.lease(now)) {
            (true, Some(_)) => self.renew.saturating_sub(now.wall),
            (true, None) | (false, Some(_)) => Duration::ZERO,
            (false, None) => return Step::Wait(LOOK),
        };
        let wait = left.max(self.next.saturating_sub(now.at));
        match (wait.is_zero(), self.is_wanted) {
            (true, true) => Step::Ask(Mode::Subscribe),
            (true, false) => Step::Ask(Mode::Unsubscribe),
            (false, _) => Step::Wait(wait.min(LOOK)),
        }
    }

    /// A hub is about to be asked: it may verify the intent before it answers.
    pub fn begin(&mut self, mode: Mode, (hub, topic): (Url, Url), now: Moment) {
        self.next = now.at + VERIFY_TIME;
        self.request = Some(Request {
            mode,
            hub,
            topic,
            at: now.at,
            progress: Progress::Waiting,
        });
    }

    /// The hub has accepted the request: it has its time to verify the intent, unless it has done
    /// so.
    pub fn accepted(&mut self, now: Moment) {
        let request = self.request.as_ref();
        if request.is_some_and(|it| it.progress == Progress::Waiting) {
            self.next = now.at + VERIFY_TIME;
        }
    }

    /// No hub could be found: nothing has been asked.
    pub fn not_found(&mut self, now: Moment, random: f64) {
        self.fail(now, random);
    }

    /// The hub could not be asked, or has refused, unless the intent has been verified all the
    /// same. Whether it counts.
    pub fn failed(&mut self, now: Moment, random: f64) -> bool {
        if let Some(request) = &mut self.request {
            if request.progress == Progress::Confirmed {
                return false;
            }
            // A verification that still comes is confirmed: the hub may have taken the request.
            request.progress = Progress::GivenUp;
        }
        self.fail(now, random);
        true
    }

    /// Nobody waits for the answer of the hub any more: it is asked again at once, and a
    /// verification that still comes is confirmed.
    pub fn abandoned(&mut self) {
        if let Some(request) = &mut self.request
            && request.progress == Progress::Waiting
        {
            request.progress = Progress::GivenUp;
            self.next = Duration::ZERO;
        }
    }

    fn fail(&mut self, now: Moment, random: f64) {
        let wait = Duration::from_secs(1 << self.failures.min(12)).min(BACK_OFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.next = now.at + wait.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0));
    }

    /// How many requests in a row have failed: which of several hubs is asked next goes by it.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The subscription as it is now.
    pub fn lease(&self, now: Moment) -> Option<&Lease> {
        self.lease.as_ref().filter(|it| it.ends > now.wall)
    }

    /// The last lease, over or not, for the disk.
    pub fn last_lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Whether deliveries are wanted.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// A request to the callback with this query.
    pub fn intent(&mut self, query: &str, now: Moment, random: f64) -> Intent {
        let Ok(form) = Form::parse(query.as_bytes()) else {
            return Intent::Refused("malformed");
        };
        let one = |name| form.one(name).map_err(|_| Intent::Refused("malformed"));
        let read = || Ok((one("hub.mode")?, one("hub.topic")?, one("hub.challenge")?));
        let (mode, topic, challenge) = match read() {
            Ok(read) => read,
            Err(refused) => return refused,
        };
        let Some(topic) = topic else {
            return Intent::Refused("no topic");
        };
        match mode {
            Some("denied") => self.denied(topic, &form, now, random),
            Some("subscribe") => self.confirm((Mode::Subscribe, topic, challenge), &form, now),
            Some("unsubscribe") => self.confirm((Mode::Unsubscribe, topic, challenge), &form, now),
            _ => Intent::Refused("unknown mode"),
        }
    }

    fn confirm(
        &mut self,
        (mode, topic, challenge): (Mode, &str, Option<&str>),
        form: &Form,
        now: Moment,
    ) -> Intent {
        let is_asked = |it: &&mut Request| it.mode == mode && it.at + CONFIRM_TIME > now.at;
        let Some(request) = self.request.as_mut().filter(is_asked) else {
            return Intent::Refused("not asked for");
        };
        if request.topic.as_str() != topic {
            return Intent::Refused("another topic");
        }
        let challenge = challenge.filter(|it| (1..=CHALLENGE_MAX).contains(&it.len()));
        let Some(challenge) = challenge else {
            return Intent::Refused("no challenge");
        };
        let seconds = match form.one("hub.lease_seconds") {
            Ok(seconds) => seconds.unwrap_or_default(),
            Err(_) => return Intent::Refused("malformed"),
        };
        // Hubs that name none, or no end, have granted what was asked for as far as anybody knows.
        let seconds = match (seconds, seconds.parse::<u64>()) {
            ("", _) | (_, Ok(0)) => self.lease_wanted,
            (_, Ok(seconds)) => seconds.min(LEASE_MAX),
            (_, Err(_)) => return Intent::Refused("malformed lease"),
        };
        request.progress = Progress::Confirmed;
        let (hub, topic) = (request.hub.clone(), request.topic.clone());
        self.failures = 0;
        match mode {
            Mode::Unsubscribe => self.lease = None,
            Mode::Subscribe => {
                let time = Duration::from_secs(seconds);
                self.lease = Some(Lease {
                    hub,
                    topic,
                    since: now.wall,
                    ends: now.wall + time,
                });
                self.renew = now.wall + (time * 2 / 3).max(RENEW_MIN);
                self.next = now.at + RENEW_MIN;
            }
        }
        Intent::Confirmed(challenge.to_owned())
    }

    fn denied(&mut self, topic: &str, form: &Form, now: Moment, random: f64) -> Intent {
        let asked = self.request.as_ref().map(|it| &it.topic);
        let leased = self.lease.as_ref().map(|it| &it.topic);
        if !asked
            .into_iter()
            .chain(leased)
            .any(|it| it.as_str() == topic)
        {
            return Intent::Refused("another topic");
        }
        (self.request, self.lease) = (None, None);
        self.fail(now, random);
        self.next = self.next.max(now.at + DENIED_WAIT);
        let reason = form.all("hub.reason").next();
        Intent::Denied(reason.map(str::to_owned))
    }
}
