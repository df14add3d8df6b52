//! Tokens that only their holder can use (RFC 7800): they are bound to a client certificate (RFC
//! 8705), or to a key with which the client signs a proof for each request (DPoP, RFC 9449).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::jwt::{BadProof, Holder, Presented, Proof, Target, verify_proof};
use access::signed_body::{Replay, Replays};
use component::access::RequestHead;
use component::definition::Surroundings;
use component::handler::Services;
use component::state::{Measure, State, StateKey};
use message::{Fault, Field, Kind, Origin, Reply};

use crate::config::DpopConfig;
use crate::credential::Credential;
use crate::failed_checks::Guesses;
use crate::shown_certificate::ShownCertificate;
use crate::way::Rejection;

/// By how many seconds the time of a proof may differ from ours.
const TOLERANCE: u64 = 60;
/// Proofs are remembered in so many parts, each with a lock and room of its own: the holder of one
/// key can fill one of them.
const PARTS: usize = 8;
/// How many proofs each part remembers: all of a client that sends 1,000 requests a second. All
/// parts together take some 150 MB when they are full.
const PROOFS_MAX: usize = 131_072;

/// Whether a way takes tokens with proofs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dpop {
    /// Nobody looks for them.
    #[default]
    Ignored,
    /// It does, beside tokens of bearers.
    Taken,
    /// It takes nothing else.
    Required,
}

/// What the holder of a token of one way has to show.
pub(crate) struct Possession {
    /// Whether there may be proofs.
    pub dpop: Dpop,
    seen: Option<Arc<SeenProofs>>,
    guesses: Arc<Guesses>,
}

impl Possession {
    /// That of the way of this name.
    pub fn of(name: &str, config: Option<&DpopConfig>, surroundings: &Surroundings<'_>) -> Self {
        let dpop = config.map_or(Dpop::Ignored, DpopConfig::mode);
        let key = || StateKey::shared(name, "auth_dpop");
        let states = surroundings.states;
        let seen = (dpop != Dpop::Ignored).then(|| states.get(key(), SeenProofs::default));
        Self {
            dpop,
            seen,
            guesses: Guesses::of(states),
        }
    }

    /// Checks that the sender of the request is the holder of the token. Call it when the token is
    /// known to be good, so that only holders cost the check of a proof.
    ///
    /// # Errors
    /// Why it does not.
    pub fn confirm(
        &self,
        holder: Holder,
        credential: &Credential<'_>,
        (head, services): (RequestHead<'_>, &dyn Services),
    ) -> Result<(), Rejection> {
        // Nothing else is read for the tokens of bearers.
        let certificate = holder.certificate.and_then(|_| {
            let shown = ShownCertificate::of(head)?;
            shown.fingerprint()
        });
        let invalid = Rejection::Invalid("confirmation");
        let Some(proof) = credential.proof else {
            if self.dpop == Dpop::Required {
                return Err(Rejection::Invalid("no_proof"));
            }
            let presented = Presented::Bearer { certificate };
            return holder.confirm(presented).map_err(|_| invalid);
        };
        let Some(seen) = &self.seen else {
            return Err(Rejection::Proof("not_taken"));
        };
        let now = services.wall().as_secs();
        let Proof { key, identity } = self
            .verify(proof, credential, head, now)
            .map_err(|bad| self.refuse(bad, (head.peer, services)))?;
        let presented = Presented::Dpop { key, certificate };
        holder.confirm(presented).map_err(|_| invalid)?;
        // The last: nobody else's proof is remembered.
        seen.take(&key, &identity, now)
    }

    fn verify(
        &self,
        proof: &[u8],
        credential: &Credential<'_>,
        head: RequestHead<'_>,
        now: u64,
    ) -> Result<Proof, BadProof> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| BadProof::Target);
        // Of two values nobody knows which one the client has used: none of them is right.
        let forwarded = |wanted: Field| {
            let fields = head.headers.iter().filter(|_| head.proxy.is_some());
            let mut values = fields.filter(|(field, ..)| *field == wanted);
            let (_, _, value) = values.next()?;
            Some(values.next().map_or(value, |_| b""))
        };
        let own = match head.is_secure {
            true => &b"https"[..],
            false => b"http",
        };
        let host = forwarded(Field::XForwardedHost).or(head.headers.first(Field::Host));
        let target = Target {
            method: head.method,
            scheme: text(forwarded(Field::XForwardedProto).unwrap_or(own))?,
            authority: text(host.unwrap_or_default())?,
            path: text(head.path)?,
        };
        verify_proof(proof, &credential.value, &target, now, TOLERANCE)
    }

    /// Notes what has cost a check.
    fn refuse(&self, bad: BadProof, (peer, services): (IpAddr, &dyn Services)) -> Rejection {
        if bad == BadProof::Signature {
            self.guesses.failed(peer, services.now());
        }
        Rejection::Proof(bad.name())
    }
}

/// The proofs of one way that have been taken, for all workers.
pub(crate) struct SeenProofs {
    parts: [Mutex<Replays>; PARTS],
    repeated: AtomicU64,
    full: AtomicU64,
}

impl Default for SeenProofs {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(Replays::new(TOLERANCE, PROOFS_MAX))),
            repeated: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }
}

impl SeenProofs {
    /// Takes a proof by this key, unless it came before.
    fn take(&self, key: &[u8; 32], identity: &[u8], now: u64) -> Result<(), Rejection> {
        let [first, ..] = key;
        let Some(part) = self.parts.get(usize::from(*first) % PARTS) else {
            return Err(Rejection::Unavailable("proofs"));
        };
        let mut replays = part.lock().unwrap_or_else(PoisonError::into_inner);
        match replays.take(identity, now) {
            Replay::New => Ok(()),
            Replay::Seen => {
                self.repeated.fetch_add(1, Ordering::Relaxed);
                Err(Rejection::Proof("repeated"))
            }
            Replay::Full => {
                self.full.fetch_add(1, Ordering::Relaxed);
                // To forget one that may still come again would be to take it twice.
                Err(Rejection::Answered("proof_memory_full", Box::new(full())))
            }
        }
    }
}

fn full() -> Reply {
    let detail = "there is no room to remember another proof";
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    fault.with_retry_after(Duration::from_secs(5)).to_reply()
}

impl State for SeenProofs {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let count = |part: &Mutex<Replays>| {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.len()
        };
        let remembered: usize = self.parts.iter().map(count).sum();
        vec![
            Measure {
                name: "auth_remembered_proofs",
                help: "DPoP proofs that are remembered, so that they are not taken again.",
                value: remembered as f64,
            },
            Measure::count(
                "auth_repeated_proofs_total",
                "DPoP proofs that came again and were not taken.",
                &self.repeated,
            ),
            Measure::count(
                "auth_proof_memory_full_total",
                "DPoP proofs refused because there was no room to remember them.",
                &self.full,
            ),
        ]
    }
}
