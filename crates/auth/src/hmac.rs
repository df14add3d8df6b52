//! Bodies that their sender has signed.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::signed_body::{Check as BodyCheck, Refused, Replay, Replays, Scheme, Secrets};
use bytes::Bytes;
use component::access::{Caller, RequestHead, Settlement};
use component::definition::Surroundings;
use component::handler::Services;
use component::long_work::{AT_ONCE, beside};
use component::state::{Measure, State, StateKey};
use config::{Report, Spanned};
use expr::value::{integer, object, text};
use message::{Body, Fault, HeadersView, Kind, Origin, Reply, Request};

use crate::codes::BAD_WAY;
use crate::config::{HmacConfig, SignatureScheme};
use crate::credential::{Carrier, Credential};
use crate::failed_checks::Guesses;
use crate::timing;
use crate::way::{Check, Checked, Known, Properties, Rejection, Way};

/// How many requests of one sender are remembered: some 15 MB.
const REMEMBERED_MAX: usize = 100_000;
/// When a sender may repeat a request that is still under way.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Bodies signed by one sender.
pub(crate) struct HmacWay {
    properties: Properties,
    scheme: Scheme,
    scheme_name: &'static str,
    secrets: Arc<Secrets>,
    /// In seconds.
    tolerance: u64,
    /// How many seconds a request that was taken is remembered.
    keep: u64,
    taken: Arc<TakenRequests>,
    guesses: Arc<Guesses>,
}

impl HmacWay {
    /// Reads the way. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        config: &Spanned<HmacConfig>,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let (scheme, scheme_name) = match config.value.scheme {
            SignatureScheme::GitHub => (Scheme::GitHub, "github"),
            SignatureScheme::Stripe => (Scheme::Stripe, "stripe"),
            SignatureScheme::Slack => (Scheme::Slack, "slack"),
            SignatureScheme::StandardWebhooks => (Scheme::StandardWebhooks, "standard-webhooks"),
        };
        let range = (Duration::from_secs(1), Duration::from_secs(86_400));
        let tolerance = config.value.tolerance.as_ref();
        let tolerance = timing::time("tolerance", tolerance, range, report);
        let tolerance = tolerance.map_or(300, |it| it.as_secs());
        let texts = config.value.secret.value.to_vec();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let secrets = match Secrets::of(scheme, &texts) {
            Ok(secrets) => secrets,
            Err(problem) => {
                // The value itself must not be shown.
                let message = format!("`secret` cannot be used: {problem}");
                let diagnostic = report.error(BAD_WAY, config.value.secret.span, message);
                diagnostic.hint(match config.value.scheme {
                    SignatureScheme::StandardWebhooks => {
                        "copy it as the sender shows it: `whsec_` and Base64 of at least 16 bytes"
                    }
                    _ => {
                        "take at least 16 characters, better 32 random bytes: \
                         `openssl rand -hex 32` prints such a secret"
                    }
                });
                return None;
            }
        };
        if report.errors() > before {
            return None;
        }
        let key = StateKey {
            // Without secrets and tolerance: what has been taken stays taken when they change.
            settings: scheme_name.to_owned(),
            ..StateKey::shared(name, "auth_hmac")
        };
        let keep = match scheme.has_time() {
            true => Replays::window(tolerance),
            false => tolerance,
        };
        let replays = || Replays::for_seconds(keep, REMEMBERED_MAX);
        Some(Self {
            properties: Properties {
                passes: true,
                reads_body: true,
                ..Properties::new(name, Carrier::Signature(scheme.field()))
            },
            scheme,
            scheme_name,
            secrets: Arc::new(secrets),
            tolerance,
            keep,
            taken: surroundings
                .states
                .get(key, || TakenRequests::new(replays())),
            guesses: Guesses::of(surroundings.states),
        })
    }

    fn begin(&self, headers: HeadersView<'_>, now: u64) -> Result<BodyCheck, Refused> {
        let fields = |name: &str| {
            let is_it = |it: &[u8]| it.eq_ignore_ascii_case(name.as_bytes());
            let same = headers.iter().filter(|(_, name, _)| is_it(name));
            same.map(|(_, _, value)| value).collect()
        };
        self.scheme
            .begin(&fields, &self.secrets, now, self.tolerance)
    }

    /// Judges a body that has been hashed.
    fn end(&self, check: BodyCheck, (peer, services): (IpAddr, &dyn Services)) -> Checked {
        let caller = self.caller(&check);
        let identity = check.end().map_err(|refused| {
            // It has cost the hash of a body, and may be a guess.
            self.guesses.failed(peer, services.now());
            refuse(refused)
        })?;
        let now = services.wall().as_secs();
        let settlement = self.taken.take(identity, now, self.keep)?;
        Ok(Known {
            caller: Arc::new(caller),
            settlement: Some(settlement),
        })
    }

    fn caller(&self, check: &BodyCheck) -> Caller {
        let mut claims = vec![("scheme".to_owned(), text(self.scheme_name))];
        if let Some(id) = check.id() {
            claims.push(("id".to_owned(), text(id)));
        }
        if let Some(time) = check.signed_at().and_then(|it| i64::try_from(it).ok()) {
            claims.push(("timestamp".to_owned(), integer(time)));
        }
        let name = &self.properties.name;
        Caller::new(name, Arc::clone(name), object(claims))
    }

    async fn judge_large(
        &self,
        mut check: BodyCheck,
        body: Bytes,
        (peer, services): (IpAddr, &dyn Services),
    ) -> Checked {
        let hashed = beside(services, move |_| {
            check.update(&body);
            check
        });
        match hashed.await {
            Ok(check) => self.end(check, (peer, services)),
            Err(fault) => Err(Rejection::Answered("busy", Box::new(fault.to_reply()))),
        }
    }
}

fn refuse(refused: Refused) -> Rejection {
    Rejection::Invalid(refused.name())
}

/// The message of a request whose body has been read.
fn whole(head: RequestHead<'_>) -> Option<&Request> {
    head.message.filter(|message| !message.body.is_unread())
}

impl Way for HmacWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn check<'a>(
        &'a self,
        _: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let mut check = match self.begin(head.headers, services.wall().as_secs()) {
            Ok(check) => check,
            Err(refused) => return Check::Ready(Err(refuse(refused))),
        };
        // Before the body is read, and again before it is hashed.
        if let Err(limited) = self.guesses.look(head.peer, services.now()) {
            return Check::Ready(Err(limited));
        }
        let Some(message) = whole(head) else {
            return Check::NeedsBody;
        };
        let at = (head.peer, services);
        match &message.body {
            Body::Bytes(bytes) if bytes.len() > AT_ONCE => {
                Check::Pending(Box::pin(self.judge_large(check, bytes.clone(), at)))
            }
            body => {
                check.update(body.as_bytes());
                Check::Ready(self.end(check, at))
            }
        }
    }
}

/// The requests of one sender that have been taken, in this process.
pub(crate) struct TakenRequests {
    inner: Mutex<Inner>,
    repeated: AtomicU64,
    full: AtomicU64,
}

struct Inner {
    replays: Replays,
    /// Those of them that are under way.
    open: HashSet<Vec<u8>>,
}

impl TakenRequests {
    fn new(replays: Replays) -> Self {
        Self {
            inner: Mutex::new(Inner {
                replays,
                open: HashSet::new(),
            }),
            repeated: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request whose signature is right, and remembers it so many seconds. It stays taken
    /// if it ends with a success, for otherwise its sender may repeat it.
    fn take(
        self: &Arc<Self>,
        identity: Vec<u8>,
        now: u64,
        keep: u64,
    ) -> Result<Settlement, Rejection> {
        let mut inner = self.inner();
        // A reload may have made the tolerance greater. Not when files are loaded, for a load that
        // is refused changes nothing.
        inner.replays.keep_at_least(keep);
        match inner.replays.take(&identity, now) {
            Replay::New => {
                inner.open.insert(identity.clone());
                let taken = Arc::clone(self);
                Ok(Settlement::new(move |has_succeeded| {
                    let mut inner = taken.inner();
                    inner.open.remove(&identity);
                    if !has_succeeded {
                        inner.replays.forget(&identity);
                    }
                }))
            }
            Replay::Seen => {
                self.repeated.fetch_add(1, Ordering::Relaxed);
                let reply = match inner.open.contains(&identity) {
                    true => under_way(),
                    // Or its sender would repeat it again and again.
                    false => Reply::new(200),
                };
                Err(Rejection::Answered("repeated", Box::new(reply)))
            }
            Replay::Full => {
                self.full.fetch_add(1, Ordering::Relaxed);
                // To forget one that may still come again would be to take it twice.
                Err(Rejection::Answered("replay_memory_full", Box::new(full())))
            }
        }
    }
}

fn under_way() -> Reply {
    let detail = "the same request is under way";
    let fault = Fault::new(Kind::Invalid, Origin::Client, detail).with_status(409);
    fault.with_retry_after(RETRY_AFTER).to_reply()
}

fn full() -> Reply {
    let detail = "there is no room to remember another signed request";
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    fault.with_retry_after(RETRY_AFTER).to_reply()
}

impl State for TakenRequests {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let remembered = self.inner().replays.len();
        vec![
            Measure {
                name: "auth_remembered_requests",
                help: "Signed requests that are remembered, so that they are not taken again.",
                value: remembered as f64,
            },
            Measure::count(
                "auth_repeated_requests_total",
                "Signed requests that came again and were not taken.",
                &self.repeated,
            ),
            Measure::count(
                "auth_replay_memory_full_total",
                "Signed requests refused because there was no room to remember them.",
                &self.full,
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
