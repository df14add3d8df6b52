//! `/deny` on the admin port: what is denied is listed (GET), added to (POST) and removed from
//! (DELETE).

use std::sync::Arc;

use access::deny::{Denied, Kind, NotAdded, Source};
use auth::{DENIED_MAX, Revocations};
use component::access::{Caller, decode_parameter};
use component::audit::{Audit, Event, EventKind};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::state::States;
use journal::Keyed;
use message::{Fault, Field, Kind as FaultKind, Method, Origin, Reply, Request};
use serde_json::{Value, json};
use steps::KeyedState;

use super::browsers::Hosts;
use crate::data::denied;

/// How many entries are listed when nobody says, and at most.
const LISTED: (usize, usize) = (1000, 10_000);
/// The most bytes of an entry that is added.
pub(super) const BODY_MAX: u64 = 8 * 1024;

/// What the audit stream calls the page.
const TARGET: &str = "admin deny";
/// Why a change has failed.
const NOT_WRITTEN: &str = "not_written";

/// The deny list's page.
pub(super) struct DenyPage {
    states: Arc<States>,
    hosts: Arc<Hosts>,
}

impl DenyPage {
    pub fn new(states: &Arc<States>, hosts: &Arc<Hosts>) -> Self {
        Self {
            states: Arc::clone(states),
            hosts: Arc::clone(hosts),
        }
    }

    async fn answer(&self, request: &Request) -> Result<Reply, Fault> {
        super::refuse_pages(&self.hosts, request, &Audit::of(&self.states), TARGET)?;
        let revocations = Revocations::of(&self.states);
        let keyed = KeyedState::of(&self.states).keyed().cloned();
        let Some(keyed) = keyed.filter(|_| revocations.is_on()) else {
            let detail = "there is no deny list: the settings have no `engine.deny`";
            return Err(Fault::invalid(detail).with_status(404));
        };
        let query = Query::of(request)?;
        match request.method {
            Method::Post => self.add(request, &revocations, &keyed).await,
            Method::Delete => self.remove(request, &query, &revocations, &keyed).await,
            _ => Ok(list(&query, &revocations)),
        }
    }

    /// Tells the audit stream that the list has changed, or was to and could not be written.
    fn audit(&self, kind: EventKind, request: &Request, (entry, is_written): (&Value, bool)) {
        Audit::of(&self.states).record(|| {
            let event = match is_written {
                true => Event::success(kind),
                false => Event::failure(kind, NOT_WRITTEN),
            };
            let event = event.of_request(request);
            event.with_target("deny list").with("entry", entry.clone())
        });
    }

    /// Adds an entry: it is in force at once, and the answer says that it is on the disk.
    async fn add(
        &self,
        request: &Request,
        revocations: &Revocations,
        keyed: &Keyed,
    ) -> Result<Reply, Fault> {
        // A web page may send forms and texts to any address, but JSON only where it is allowed to.
        let media_type = request.headers.view().first(Field::ContentType);
        let media_type = media_type
            .unwrap_or_default()
            .split(|it| *it == b';')
            .next();
        let media_type = media_type.unwrap_or_default().trim_ascii();
        if !media_type.eq_ignore_ascii_case(b"application/json") {
            let detail = "an entry is sent as `application/json`";
            return Err(Fault::invalid(detail).with_status(415));
        }
        let body = std::str::from_utf8(request.body.as_bytes());
        let body = body.map_err(|_| Fault::invalid("the entry is not UTF-8"))?;
        let entry = Denied::of_line(body).map_err(Fault::invalid)?;
        let _change = revocations.change().await;
        let is_known = revocations.has(Source::Journal, entry.kind, &entry.name);
        match revocations.add(entry.clone()) {
            Ok(()) => {}
            Err(NotAdded::Expired) => {
                return Err(Fault::invalid("the entry has expired already"));
            }
            Err(NotAdded::Full) => {
                let detail = format!("the deny list has {DENIED_MAX} entries already");
                return Err(Fault::invalid(detail).with_status(409));
            }
        }
        tracing::info!(
            target: "auth", kind = entry.kind.name(), name = %entry.name, peer = %request.peer,
            by = by(request), "denied"
        );
        let shown = entry.members();
        let kept = denied::keep(keyed, &entry).await;
        self.audit(EventKind::DenyAdded, request, (&shown, kept.is_ok()));
        kept.map_err(|error| {
            let detail = "the entry is in force, but it could not be written: a restart forgets it";
            not_written(detail, &error)
        })?;
        let status = if is_known { 200 } else { 201 };
        Ok(json_reply(status, &shown))
    }

    /// Removes an entry of this API, on the disk first: what cannot be written stays denied.
    async fn remove(
        &self,
        request: &Request,
        query: &Query,
        revocations: &Revocations,
        keyed: &Keyed,
    ) -> Result<Reply, Fault> {
        let Some((kind, name)) = &query.named else {
            return Err(Fault::invalid(
                "name the entry: `?jti=`, `?sub=`, `?key=`, `?sid=` or `?login=`",
            ));
        };
        let _change = revocations.change().await;
        if !revocations.has(Source::Journal, *kind, name) {
            return Err(match revocations.has(Source::File, *kind, name) {
                true => {
                    let detail = "the entry stands in the file of the deny list: remove it there";
                    Fault::invalid(detail).with_status(409)
                }
                false => Fault::invalid("there is no such entry").with_status(404),
            });
        }
        let entry = json!({ kind.name(): name });
        let forgotten = denied::forget(keyed, *kind, name).await;
        forgotten.map_err(|error| {
            self.audit(EventKind::DenyRemoved, request, (&entry, false));
            not_written("the entry could not be removed", &error)
        })?;
        revocations.remove(*kind, name);
        tracing::info!(
            target: "auth", kind = kind.name(), name, peer = %request.peer, by = by(request),
            "denied no more"
        );
        self.audit(EventKind::DenyRemoved, request, (&entry, true));
        Ok(Reply::new(204))
    }
}

/// Who has asked, for the log: nobody where the port is open.
fn by(request: &Request) -> Option<&str> {
    Caller::of(request).map(|it| &*it.id)
}

/// What the parameters of the query say.
#[derive(Default)]
struct Query {
    named: Option<(Kind, String)>,
    limit: Option<usize>,
}

impl Query {
    fn of(request: &Request) -> Result<Self, Fault> {
        let mut query = Self::default();
        let text = request.query.as_deref().unwrap_or_default();
        for part in text.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = decode_parameter(value);
            let kind = Kind::ALL.into_iter().find(|it| it.name() == name);
            if let Some(kind) = kind.filter(|_| query.named.is_none()) {
                query.named = Some((kind, value));
            } else if name == "limit" && query.limit.is_none() {
                let limit = value.parse().ok().filter(|it| (1..=LISTED.1).contains(it));
                let limit = limit.ok_or_else(|| {
                    Fault::invalid(format!("`limit` is a number from 1 to {}", LISTED.1))
                })?;
                query.limit = Some(limit);
            } else {
                let detail = "one of `jti`, `sub`, `key`, `sid` and `login` is known, and `limit`, \
                              each once";
                return Err(Fault::invalid(detail));
            }
        }
        Ok(query)
    }
}

/// The entries, behind the one that is named.
fn list(query: &Query, revocations: &Revocations) -> Reply {
    let after = query.named.as_ref().map(|(kind, name)| (*kind, &**name));
    let limit = query.limit.unwrap_or(LISTED.0);
    let mut entries = revocations.entries(after, limit + 1);
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let entries = entries.into_iter().map(|(source, entry)| {
        let mut members = entry.members();
        let source = match source {
            Source::File => "file",
            Source::Journal => "api",
        };
        if let Value::Object(members) = &mut members {
            members.insert("source".to_owned(), source.into());
        }
        members
    });
    let entries: Vec<Value> = entries.collect();
    json_reply(200, &json!({ "entries": entries, "more": has_more }))
}

fn json_reply(status: u16, value: &Value) -> Reply {
    Reply::with_content(status, "application/json", value.to_string().into_bytes())
}

fn not_written(detail: &'static str, error: &journal::Refusal) -> Fault {
    tracing::error!(target: "auth", %error, detail, "the deny list");
    Fault::new(FaultKind::Unavailable, Origin::Engine, detail)
}

impl Handler for DenyPage {
    fn reads_body(&self) -> bool {
        true
    }

    /// What has been written to the data folder holds in memory, too, and the audit stream is told,
    /// also when the client has left.
    fn detaches(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move { self.answer(&request).await.map(Outcome::Reply) })
    }
}
