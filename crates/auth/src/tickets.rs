//! Tickets and the cookies that follow them: what a door does with them, and the tables that all
//! workers share.
//!
//! Both stand for a credential that is judged again whenever they are used, so expiry, revocation,
//! scopes and conditions hold as for the credential itself. A ticket is in a table, for it is good
//! once. The cookie is a sealed value and in no table: a page whose connection breaks because the
//! engine is started again comes back with it, and nobody can fill a table with sessions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use access::credentials::Problem;
use access::sealer::{SEALING_KEY_BYTES, Sealer};
use access::tickets::{Bounds, Grant, Refusal, Secret, TICKET_LIFETIME, Tickets};
use component::access::{
    Caller, ReplyField, RequestHead, TICKET_COOKIE, TicketTarget, note_ticket_door, tickets_of,
};
use component::cookies;
use component::cors::is_same_origin;
use component::handler::Services;
use component::state::{Measure, State, StateKey, States};
use message::{Headers, Reply};

use crate::failed_checks::Guesses;
use crate::refusal;
use crate::way::Rejection;

/// How long a cookie is good for a credential that does not expire, in seconds.
const UNLIMITED: u64 = 12 * 3600;
/// The most bytes of name and value of a cookie (RFC 6265bis, section 5.6).
const COOKIE_MAX: usize = 4096;
/// The most cookies of our name that are looked at in one request.
const COOKIES_MAX: usize = 4;
/// What the sealed values are for.
const PURPOSE: &[u8] = b"intertie ticket session 1";
/// The longest origin that a ticket is bound to.
const ORIGIN_MAX: usize = 512;

/// The tickets of the process, and the key of the cookies.
pub struct TicketOffice {
    tickets: Mutex<Tickets>,
    sealer: OnceLock<Option<Sealer>>,
    is_needed: AtomicBool,
    given: AtomicU64,
    used: AtomicU64,
    wrong: AtomicU64,
    refused: AtomicU64,
}

impl Default for TicketOffice {
    fn default() -> Self {
        Self {
            tickets: Mutex::new(Tickets::new(Bounds::default())),
            sealer: OnceLock::new(),
            is_needed: AtomicBool::new(false),
            given: AtomicU64::new(0),
            used: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl TicketOffice {
    /// That of the process.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "tickets"), Self::default)
    }

    /// Whether a door that takes tickets has been read, and there is no key yet.
    pub fn needs_key(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed) && self.sealer.get().is_none()
    }

    /// Seals cookies with this key: one that outlives the process lets pages come again after a
    /// restart. Without it the first cookie is sealed with a random one.
    pub fn set_key(&self, key: &[u8; SEALING_KEY_BYTES]) {
        self.sealer.get_or_init(|| Sealer::new(key));
    }

    fn sealer(&self) -> Option<&Sealer> {
        self.sealer.get_or_init(Sealer::random).as_ref()
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new key for [`TicketOffice::set_key`]; `None` when the system has no random bytes.
pub fn new_ticket_key() -> Option<[u8; SEALING_KEY_BYTES]> {
    Sealer::random_key()
}

impl State for TicketOffice {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let held = self.tickets().len() as f64;
        vec![
            Measure::count("tickets_given_total", "Tickets given.", &self.given),
            Measure::count("tickets_used_total", "Tickets used.", &self.used),
            Measure::count(
                "tickets_wrong_total",
                "Tickets that were unknown, used, too late or for another address or page.",
                &self.wrong,
            ),
            Measure::count(
                "tickets_refused_total",
                "Tickets not given: the caller or all callers had too many.",
                &self.refused,
            ),
            Measure {
                name: "tickets",
                help: "Tickets of the last 30 seconds.",
                value: held,
            },
        ]
    }
}

/// What a door has for tickets.
pub(crate) struct TicketDesk {
    target: TicketTarget,
    office: Arc<TicketOffice>,
    guesses: Arc<Guesses>,
}

/// What a request has presented in place of a credential: a ticket, or the cookie that follows one.
pub(crate) struct PresentedTicket {
    pub grant: Grant,
    /// Whether it was a ticket, which is used up now, and not the cookie.
    pub is_ticket: bool,
}

impl TicketDesk {
    /// That of a door.
    pub fn new(target: TicketTarget, office: &Arc<TicketOffice>, guesses: &Arc<Guesses>) -> Self {
        office.is_needed.store(true, Ordering::Relaxed);
        note_ticket_door();
        Self {
            target,
            office: Arc::clone(office),
            guesses: Arc::clone(guesses),
        }
    }

    /// Finds what stands for a credential in a request without one. A ticket that is not good is
    /// refused, unless a cookie comes with it: a page's `EventSource` connects again to the same
    /// URL, with the ticket that it has used.
    ///
    /// `EventSource` and `WebSocket` send GET (RFC 6455, section 4.1), and nothing else is what
    /// tickets and cookies are for: a page that has one may read, not change anything. HEAD is
    /// let in by the cookie, as GET is; a ticket is not accepted for it and stays valid.
    ///
    /// # Errors
    /// When the ticket is wrong or there are several origins.
    pub fn find(
        &self,
        head: RequestHead<'_>,
        ticket: Option<&str>,
        services: &dyn Services,
    ) -> Result<Option<PresentedTicket>, Rejection> {
        let is_get = head.method == "GET";
        if !is_get && head.method != "HEAD" {
            return match ticket {
                Some(_) => Err(Rejection::Invalid("ticket_for_method")),
                None => Ok(None),
            };
        }
        let path = head.message.and_then(|it| self.target.of(&it.path));
        if let (Some(ticket), Some(path), true) = (ticket, path, is_get) {
            if has_several_origins(head) {
                return Err(several_origins());
            }
            let mut tickets = self.office.tickets();
            let taken = tickets.take(ticket.as_bytes(), path, services.now());
            drop(tickets);
            if let Ok(grant) = taken {
                if !is_from(grant.origin.as_deref(), head) {
                    return Err(self.wrong(head, services));
                }
                self.office.used.fetch_add(1, Ordering::Relaxed);
                let is_ticket = true;
                return Ok(Some(PresentedTicket { grant, is_ticket }));
            }
        }
        let session = path.and_then(|path| self.session(path, head, services));
        match (session, ticket) {
            (Some(_), _) if has_several_origins(head) => Err(several_origins()),
            (Some(grant), _) => Ok(Some(PresentedTicket {
                grant,
                is_ticket: false,
            })),
            // It has not been looked at, so nothing was guessed.
            (None, Some(_)) if !is_get => Err(Rejection::Invalid("ticket_for_method")),
            (None, Some(_)) => Err(self.wrong(head, services)),
            (None, None) => Ok(None),
        }
    }

    fn wrong(&self, head: RequestHead<'_>, services: &dyn Services) -> Rejection {
        self.office.wrong.fetch_add(1, Ordering::Relaxed);
        if let Err(limited) = self.guesses.look(head.peer, services.now()) {
            return limited;
        }
        self.guesses.failed(head.peer, services.now());
        Rejection::Invalid("ticket")
    }

    /// The first cookie that is good here.
    fn session(&self, path: &str, head: RequestHead<'_>, services: &dyn Services) -> Option<Grant> {
        let ours = cookies::pairs(head.headers).filter(|it| it.0 == TICKET_COOKIE.as_bytes());
        let values = ours.map(|(_, value)| value).take(COOKIES_MAX);
        let now = services.wall().as_secs();
        let mut grants = values.filter_map(|value| {
            let sealed = std::str::from_utf8(value).ok()?;
            Grant::decode(&self.office.sealer()?.open_text(PURPOSE, sealed)?)
        });
        grants.find(|grant| grant.until > now && fits(grant, path, head))
    }

    /// The value of `Cookie` that stands for a grant, and the field of the reply that has a browser
    /// keep it: none where it is longer than browsers keep.
    pub fn cookie(
        &self,
        grant: &Grant,
        caller: &Caller,
        (is_secure, services): (bool, &dyn Services),
    ) -> Option<(String, Option<ReplyField>)> {
        let now = services.wall().as_secs();
        let until = caller.expires.unwrap_or(u64::MAX).min(now + UNLIMITED);
        let grant = Grant {
            until,
            ..grant.clone()
        };
        let value = self.office.sealer()?.seal_text(PURPOSE, &grant.encode())?;
        let pair = format!("{TICKET_COOKIE}={value}");
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b';';
        let is_kept = pair.len() <= COOKIE_MAX && grant.path.bytes().all(is_plain);
        let field = is_kept.then(|| {
            // Behind a proxy that ends TLS only the page knows of it.
            let origin = grant.origin.as_deref().unwrap_or_default();
            let is_secure = is_secure || origin.starts_with("https://");
            let secure = if is_secure { "; Secure" } else { "" };
            let age = until.saturating_sub(now);
            let path = &grant.path;
            let attributes = format!("Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict");
            ("set-cookie", format!("{pair}; {attributes}{secure}"))
        });
        Some((pair, field))
    }

    /// Gives a ticket for a credential that has let its caller in.
    ///
    /// # Errors
    /// Why there is none, in a word, and the reply.
    pub fn give(
        &self,
        caller: &Caller,
        (carrier, credential): (String, Vec<u8>),
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Result<Box<Reply>, (&'static str, Box<Reply>)> {
        let path = head.message.map(|it| it.path.clone()).unwrap_or_default();
        if has_several_origins(head) {
            return Err((SEVERAL_ORIGINS, refusal::several_origins()));
        }
        let origin = head.headers.get("Origin");
        let origin = origin.map(|it| String::from_utf8_lossy(it).into_owned());
        if origin.as_ref().is_some_and(|it| it.len() > ORIGIN_MAX) {
            return Err(("bad_origin", refusal::bad_origin()));
        }
        let grant = Grant {
            path: match &self.target {
                TicketTarget::Path => path,
                TicketTarget::Topic(base) => base.to_string(),
            },
            origin,
            carrier,
            credential,
            until: 0,
        };
        let no_randomness = || ("no_randomness", refusal::unavailable());
        let secret = Secret::random().ok_or_else(no_randomness)?;
        let who = (&*caller.way, &*caller.id);
        let given = self
            .office
            .tickets()
            .give(&secret, who, grant, services.now());
        if let Err(refusal) = given {
            self.office.refused.fetch_add(1, Ordering::Relaxed);
            return Err(match refusal {
                Refusal::Caller(wait) => ("too_many_tickets", refusal::too_many_tickets(wait)),
                Refusal::Full => ("tickets_full", refusal::unavailable()),
            });
        }
        self.office.given.fetch_add(1, Ordering::Relaxed);
        let seconds = TICKET_LIFETIME.as_secs();
        let body = format!(r#"{{"ticket":"{}","expires_in":{seconds}}}"#, secret.text()) + "\n";
        let mut reply = Reply::with_content(200, "application/json", body.into_bytes());
        no_store(&mut reply.headers);
        Ok(Box::new(reply))
    }
}

fn no_store(headers: &mut Headers) {
    headers.set("Cache-Control", "no-store");
}

/// The only ticket of a request.
///
/// # Errors
/// When there are several.
pub(crate) fn presented(head: RequestHead<'_>) -> Result<Option<String>, Problem> {
    let Some(query) = head.message.and_then(|it| it.query.as_deref()) else {
        return Ok(None);
    };
    let mut tickets = tickets_of(query);
    match (tickets.next(), tickets.next()) {
        (_, Some(_)) => Err(Problem::SeveralCredentials),
        (ticket, None) => Ok(ticket),
    }
}

/// Whether a request says several origins: nobody could tell which page has sent it. Browsers send
/// one (Fetch standard, section 3.2).
fn has_several_origins(head: RequestHead<'_>) -> bool {
    let fields = head.headers.iter();
    let origins = fields.filter(|it| it.1.eq_ignore_ascii_case(b"Origin"));
    origins.take(2).count() > 1
}

/// Why a request is refused that says several.
const SEVERAL_ORIGINS: &str = "several_origins";

fn several_origins() -> Rejection {
    Rejection::Answered(SEVERAL_ORIGINS, refusal::several_origins())
}

/// Whether a grant is for this path, and for the page that asks.
fn fits(grant: &Grant, path: &str, head: RequestHead<'_>) -> bool {
    grant.path == path && is_from(grant.origin.as_deref(), head)
}

/// Whether a request comes from a page of this origin, or from a program where there is none.
///
/// Browsers say the origin with every WebSocket handshake and whenever a page asks another origin
/// than its own (Fetch standard, section 3.2). Without it the page must be of the host that is
/// asked, which browsers confirm by `Sec-Fetch-Site` (Fetch Metadata), or the request comes from a
/// link, an image or a form of a page that has not asked for the ticket.
fn is_from(origin: Option<&str>, head: RequestHead<'_>) -> bool {
    let Some(origin) = origin else {
        return head.headers.get("Origin").is_none();
    };
    if let Some(shown) = head.headers.get("Origin") {
        return shown.eq_ignore_ascii_case(origin.as_bytes());
    }
    if head.headers.get("Upgrade").is_some() {
        return false;
    }
    let site = head.headers.get("Sec-Fetch-Site");
    let is_own = site.is_none_or(|site| site.eq_ignore_ascii_case(b"same-origin"));
    is_own && is_own_host(origin, head)
}

/// Whether the host of an origin is the one that is asked. The message has no `X-Forwarded-Host` of
/// a proxy that is not trusted.
fn is_own_host(origin: &str, head: RequestHead<'_>) -> bool {
    let Some(message) = head.message else {
        return false;
    };
    let mut headers = Headers::new();
    headers.append("Origin", origin);
    for name in ["Host", "X-Forwarded-Host"] {
        if let Some(value) = message.headers.get(name) {
            headers.append(name, value);
        }
    }
    is_same_origin(headers.view(), head.is_secure, true)
}

#[cfg(test)]
mod tests;
