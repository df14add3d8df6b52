//! Access control in front of a route: the head of a request is judged before anything of its body
//! is read, and the whole message where a door goes by the body, too.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use component::access::{
    Admitted, CredentialLocation, Door, Judgement, RequestHead, SUBPROTOCOL_FIELD, Settlement,
    TICKET_COOKIE, TICKET_PARAMETER, has_ticket_cookie, without_parameter,
};
use component::limits::{Admission, Gate};
use component::settings::Settings;
use message::{
    ClientCertificate, Fault, Field, FieldLine, HeadersView, Kind, Origin, RateLimit, Reply,
    Request,
};
use tokio::time::Instant;

use crate::call::{Caller, log_fault};
use crate::client::gate::{self, Refusal, Visitor};
use crate::panics;
use crate::router::{Route, Table};
use crate::upstream::request_head;
use crate::worker::Worker;

/// What a door learns of the client of a request beside the request's head.
pub(crate) struct ClientInfo {
    /// The client's address: what a trusted proxy says, else that of the connection.
    pub address: IpAddr,
    /// The trusted proxy that is connected, if one is.
    pub proxy: Option<IpAddr>,
    /// The client's certificate: what a trusted proxy says, else that of the connection.
    pub certificate: Option<Arc<ClientCertificate>>,
}

impl ClientInfo {
    /// For a request with these fields, over a connection with this peer and its certificate.
    pub fn of(
        peer: IpAddr,
        certificate: Option<&Arc<ClientCertificate>>,
        headers: HeadersView<'_>,
        settings: &Settings,
    ) -> Self {
        let proxies = settings.trusted_proxies.as_deref();
        let (address, is_proxied) = request_head::client(proxies, peer, headers);
        Self {
            address,
            proxy: is_proxied.then_some(peer),
            certificate: request_head::certificate(settings, peer, headers, certificate),
        }
    }
}

/// Asks a door about a request whose credential it may have verified before. `None`: the door has
/// to [`judge`] the request. Unlike that, this allocates no future.
pub(crate) fn recall(
    door: &Arc<dyn Door>,
    head: RequestHead<'_>,
    worker: &Rc<Worker>,
) -> Option<Result<Admitted, TurnedAway>> {
    let services = Caller::new(worker, &Rc::default());
    match panics::catch(|| door.recall(head, &services)) {
        Ok(judged) => judged.map(|it| it.map_err(TurnedAway::Reply)),
        Err(fault) => Some(Err(TurnedAway::Reply(Box::new(fault.to_reply())))),
    }
}

/// Has a door judge a request; `None` when it has to be judged again with its body. A judgement
/// that the door has to wait for ends when the client leaves, and moves `now` on.
///
/// # Errors
/// What becomes of one that may not come in.
pub(crate) async fn judge(
    door: &Arc<dyn Door>,
    head: RequestHead<'_>,
    worker: &Rc<Worker>,
    (now, mut has_left): (&mut Instant, impl FnMut(&mut Context<'_>) -> bool),
) -> Result<Option<Admitted>, TurnedAway> {
    let services = Caller::new(worker, &Rc::default());
    let failed = |fault: Fault| TurnedAway::Reply(Box::new(fault.to_reply()));
    let judgement = match panics::catch(|| door.judge(head, &services)).map_err(failed)? {
        // Most know at once, and need no future.
        Judgement::Ready(judged) => return judged.map(Some).map_err(TurnedAway::Reply),
        judgement => judgement,
    };
    let judged = panics::caught(|| Box::pin(async { Ok(judgement.end().await) }));
    let mut has_waited = false;
    let judged = gate::until_gone(judged, |context| {
        has_waited = true;
        has_left(context)
    });
    let judged = judged.await;
    if has_waited {
        *now = Instant::now();
    }
    match judged {
        None => Err(TurnedAway::Gone),
        Some(Ok(judged)) => judged.map_err(TurnedAway::Reply),
        Some(Err(fault)) => Err(failed(fault)),
    }
}

/// Has a door judge a message whose body has been read, and lets it in.
async fn judge_message(
    door: &Arc<dyn Door>,
    request: &mut Request,
    worker: &Rc<Worker>,
    has_left: impl FnMut(&mut Context<'_>) -> bool,
) -> Result<Option<Settlement>, TurnedAway> {
    let head = RequestHead::of(request);
    // The session reads the clock when the message has been served.
    let judged = judge(door, head, worker, (&mut Instant::now(), has_left)).await?;
    let undecided = || TurnedAway::Reply(Box::new(undecided().to_reply()));
    let mut admitted = judged.ok_or_else(undecided)?;
    let settlement = admitted.settlement.take();
    admitted.enter(request);
    Ok(settlement)
}

/// The door that has yet to judge a message by its body, if there is one, and the limits that hold
/// for whoever it lets in: who is not known counts against nobody's.
#[derive(Default)]
pub(crate) struct BodyDoor<'a> {
    door: Option<&'a Arc<dyn Door>>,
    gate: Option<&'a Gate>,
    settlement: Cell<Option<Settlement>>,
    admission: Option<Admission>,
}

impl<'a> BodyDoor<'a> {
    /// The door of a route whose request has been let in by its head, or not yet.
    pub fn of(route: &'a Route, is_admitted: bool) -> Self {
        match &route.door {
            Some(door) if !is_admitted => Self {
                door: Some(door),
                gate: route.gate.as_deref(),
                settlement: Cell::default(),
                admission: None,
            },
            _ => Self::default(),
        }
    }

    /// Whether the body has to be read for it.
    pub fn reads_body(&self) -> bool {
        self.door.is_some()
    }

    /// Lets in a message whose body has been read, if the door and the limits do. Gives what the
    /// reply tells of the limits.
    pub async fn pass(
        &mut self,
        request: &mut Request,
        worker: &Rc<Worker>,
        has_left: impl FnMut(&mut Context<'_>) -> bool,
    ) -> Result<Option<Box<RateLimit>>, TurnedAway> {
        match self.door {
            None => Ok(None),
            Some(door) => Box::pin(self.judge(door, request, worker, has_left)).await,
        }
    }

    async fn judge(
        &mut self,
        door: &Arc<dyn Door>,
        request: &mut Request,
        worker: &Rc<Worker>,
        mut has_left: impl FnMut(&mut Context<'_>) -> bool,
    ) -> Result<Option<Box<RateLimit>>, TurnedAway> {
        // Dropped, which means that the message was not taken, unless the limits let it in.
        let settlement = judge_message(door, request, worker, &mut has_left).await?;
        let Some(gate) = self.gate else {
            self.settlement.set(settlement);
            return Ok(None);
        };
        let visitor = Visitor {
            gate,
            worker,
            now: std::time::Instant::now(),
            request: request.clone(),
            has_left,
        };
        match visitor.pass().await {
            Ok(passed) => {
                self.settlement.set(settlement);
                self.admission = passed.admission;
                Ok(passed.fields)
            }
            Err(Refusal::Gone) => Err(TurnedAway::Gone),
            Err(Refusal::Fault(fault)) => {
                log_fault(&fault);
                Err(TurnedAway::Reply(Box::new(fault.to_reply())))
            }
        }
    }

    /// The plan of whoever it has let in.
    pub fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// What wants to know how the message ends, for work that goes on when the client has left.
    pub fn settlement(&self) -> &Cell<Option<Settlement>> {
        &self.settlement
    }

    /// The message has been served with this status; 0 when its client has disconnected.
    pub fn settle(self, status: u16) {
        if let Some(settlement) = self.settlement.take() {
            settlement.settle(is_success(status));
        }
    }
}

/// Whether a message that was answered with this status has been taken.
pub(crate) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// What becomes of a message that is not let in.
pub(crate) enum TurnedAway {
    /// It gets this reply.
    Reply(Box<Reply>),
    /// Its client has disconnected.
    Gone,
}

/// A request that its door has not let in goes nowhere.
pub(crate) fn undecided() -> Fault {
    let detail = "access control has not decided";
    Fault::new(Kind::Internal, Origin::Engine, detail)
}

/// What is taken out of a request that is forwarded as it lies in the client's buffer.
#[derive(Debug)]
pub(crate) struct Stripped {
    /// What is left out of the lines.
    pub lines: Vec<StrippedLines>,
    /// The query as it goes on, when it is not the client's.
    pub query: Option<Option<String>>,
}

/// What is left out of the lines of a request.
#[derive(Debug)]
pub(crate) enum StrippedLines {
    /// `Authorization`.
    Authorization,
    /// Those of this name.
    Field(Arc<str>),
    /// These cookies.
    Cookies(Vec<Arc<str>>),
}

impl StrippedLines {
    /// Whether something is left out of this line.
    pub fn concerns(&self, line: &FieldLine<'_>) -> bool {
        match self {
            Self::Authorization => line.field() == Field::Authorization,
            Self::Field(field) => line.name().eq_ignore_ascii_case(field.as_bytes()),
            Self::Cookies(_) => line.name().eq_ignore_ascii_case(b"cookie"),
        }
    }
}

impl Stripped {
    /// What a request goes on without, if that is anything. The cookie of a ticket goes nowhere,
    /// whatever its door is, and where there is none.
    pub fn of(
        admitted: Option<&Admitted>,
        query: Option<&[u8]>,
        headers: HeadersView<'_>,
    ) -> Option<Box<Self>> {
        let strip = admitted.and_then(|it| it.strip.as_ref());
        let implied = admitted.and_then(|it| it.implied.as_deref());
        let has_ticket = has_ticket_cookie(headers);
        if strip.is_none() && implied.is_none() && !has_ticket {
            return None;
        }
        let mut stripped = Self {
            lines: Vec::new(),
            query: None,
        };
        let mut cookies: Vec<Arc<str>> = Vec::new();
        if has_ticket {
            cookies.push(TICKET_COOKIE.into());
        }
        let query = || String::from_utf8_lossy(query.unwrap_or_default());
        for place in strip.into_iter().chain(implied.into_iter().flatten()) {
            let lines = &mut stripped.lines;
            match place {
                CredentialLocation::Authorization => lines.push(StrippedLines::Authorization),
                CredentialLocation::Field(name) => {
                    lines.push(StrippedLines::Field(Arc::clone(name)))
                }
                CredentialLocation::Cookie(name) => cookies.push(Arc::clone(name)),
                CredentialLocation::Dpop => {
                    lines.extend(
                        CredentialLocation::DPOP_FIELDS.map(|it| StrippedLines::Field(it.into())),
                    );
                }
                CredentialLocation::Query(name) => {
                    stripped.query = Some(without_parameter(&query(), name))
                }
                // Only of doors that rewrite fields, which are on the message path.
                CredentialLocation::Subprotocol => {
                    lines.push(StrippedLines::Field(SUBPROTOCOL_FIELD.into()))
                }
                // Its cookie is left out of every request.
                CredentialLocation::Ticket => {
                    stripped.query = Some(without_parameter(&query(), TICKET_PARAMETER));
                }
            }
        }
        if !cookies.is_empty() {
            stripped.lines.push(StrippedLines::Cookies(cookies));
        }
        Some(Box::new(stripped))
    }
}

/// What logs show in place of a credential.
const MASK: &str = "***";

/// A target for logs, in which no credential stands: of a request that this route takes, or none
/// of the table.
pub(crate) fn masked(target: &str, route: Option<&Route>, table: &Table) -> Option<String> {
    let (path, query) = target.split_once('?')?;
    let names = match route {
        Some(route) => Cow::Owned(route.secret_parameters()),
        None => Cow::Borrowed(table.secret_parameters()),
    };
    if names.is_empty() {
        return None;
    }
    // Also where a client got the name nearly right (another case, `;` for `&`): it is refused, but
    // what it has sent is a credential.
    let is_secret = |name: &str| names.iter().any(|it| it.eq_ignore_ascii_case(name));
    let mask = |parameter: &str| {
        let mut start = 0;
        for part in parameter.split_inclusive(';') {
            let name = component::access::parameter_name(part);
            let before = parameter.get(..start).unwrap_or_default();
            if is_secret(&name) {
                return format!("{before}{name}={MASK}");
            }
            start += part.len();
        }
        parameter.to_owned()
    };
    let parts: Vec<String> = query.split('&').map(mask).collect();
    Some(format!("{path}?{}", parts.join("&")))
}

#[cfg(test)]
mod tests;
