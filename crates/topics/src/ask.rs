//! What a subscriber asks for: topics, forms, expressions, and where to begin.

use std::rc::Rc;
use std::sync::Arc;

use component::access::Caller;
use expr::{Value, value};
use message::{Fault, Request};

use crate::branch::Branch;
use crate::channel::ChannelKey;
use crate::endpoint::Endpoint;
use crate::expressions;
use crate::frame::{self, IdForm, Wire};
use crate::join::Start;
use crate::profile::axway;
use crate::settings::Payload;
use crate::view::{Mode, View};

/// The most topics of one stream.
pub(crate) const TOPICS_MAX: usize = 32;
/// The longest id of a stream's place.
const ID_MAX: usize = 8192;

/// What a subscriber asks for, before it is known what there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// The topics, where the path does not say.
    pub topics: Vec<String>,
    /// The form.
    pub mode: Option<Mode>,
    /// Which documents.
    pub filter: Option<String>,
    /// What of each.
    pub select: Option<String>,
    /// Where to begin: `now`, `earliest` or an event.
    pub from: Option<String>,
    /// Behind what to begin.
    pub last: Option<String>,
}

impl Ask {
    /// What the query of a request asks for, and its `Last-Event-ID` field, which wins: a client
    /// that comes again has the newer id there, and the query of its first time.
    ///
    /// # Errors
    /// `invalid` when it cannot be read.
    pub fn of(request: &Request) -> Result<Self, Fault> {
        let query = read_query(request.query.as_deref())?;
        let mut ask = Self {
            topics: all(&query, "topic"),
            mode: None,
            filter: one(&query, "filter")?,
            select: one(&query, "select")?,
            from: one(&query, "from")?,
            last: one(&query, "lastEventId")?,
        };
        if let Some(mode) = one(&query, "mode")? {
            ask.mode = Some(mode_of(&mode)?);
        }
        if let Some(last) = request.headers.get("Last-Event-ID") {
            let last = String::from_utf8_lossy(last);
            ask.last = Some(last.into_owned())
                .filter(|it| !it.is_empty())
                .or(ask.last);
        }
        if ask.last.as_ref().is_some_and(|it| it.len() > ID_MAX) {
            return Err(Fault::invalid("the id of the last event is too long"));
        }
        Ok(ask)
    }

    /// Whether it has an expression.
    pub fn has_expressions(&self) -> bool {
        self.filter.is_some() || self.select.is_some()
    }

    /// The form in which a topic is to be seen.
    ///
    /// # Errors
    /// 406 when the topic has no such form, 403 when it allows no expressions, 400 when they do not
    /// go with the form.
    pub fn mode(&self, endpoint: &Endpoint) -> Result<Mode, Fault> {
        let settings = &endpoint.settings;
        let mode = self.mode.unwrap_or(settings.mode);
        if !settings.modes.contains(&mode) {
            let names: Vec<&str> = settings.modes.iter().map(|it| it.name()).collect();
            let detail = format!(
                "the topic does not come as `{}` but as {}",
                mode.name(),
                names.join(", ")
            );
            return Err(Fault::invalid(detail).with_status(406));
        }
        if self.has_expressions() && !settings.allow_expressions {
            let detail = "the topic does not allow `filter` and `select`";
            return Err(Fault::invalid(detail).with_status(403));
        }
        if self.filter.is_some() && mode == Mode::Patch {
            let detail = "patches of a document that is not always there cannot be applied: \
                          `filter` needs `mode=snapshot`";
            return Err(Fault::invalid(detail));
        }
        Ok(mode)
    }

    /// What these callers are to see of topics, which a worker has these branches of, on such a
    /// wire with ids of this form.
    ///
    /// # Errors
    /// As [`Ask::mode`]; 400 for an expression that cannot be compiled, 503 when there are too many
    /// different ones.
    pub async fn views(
        &self,
        (endpoints, callers): (&[Arc<Endpoint>], &[Option<Arc<Caller>>]),
        branches: &[Rc<Branch>],
        (wire, ids): (Wire, IdForm),
    ) -> Result<Vec<View>, Fault> {
        let plain = endpoints.iter().map(|it| {
            let mode = self.mode(it)?;
            let expressions = None;
            Ok(View { mode, expressions })
        });
        let mut views = plain.collect::<Result<Vec<_>, Fault>>()?;
        let groups = endpoints.iter().enumerate().map(|(at, endpoint)| {
            let caller = callers.get(at).and_then(Option::as_deref);
            let only = endpoint.access.only.as_ref();
            only.map(|only| only.group(caller))
        });
        let groups: Vec<_> = groups.collect();
        if !self.has_expressions() && groups.iter().all(Option::is_none) {
            return Ok(views);
        }
        let texts = (self.filter.as_deref(), self.select.as_deref());
        let all = expressions::combinations(branches, &groups, texts).await?;
        for (view, expressions) in views.iter_mut().zip(all) {
            view.expressions = Some(expressions);
        }
        let key = ChannelKey { wire, ids, views };
        match Branch::has_room(branches, &key) {
            true => Ok(key.views),
            false => Err(expressions::too_many(self.has_expressions())),
        }
    }

    /// Where to begin in the topics. Whoever has been there goes on from there: the query of the
    /// first time stays when a client comes again.
    ///
    /// # Errors
    /// `invalid` for what a topic cannot begin with.
    pub fn starts(&self, endpoints: &[Arc<Endpoint>], form: IdForm) -> Result<Vec<Start>, Fault> {
        let composite = self.last.as_deref().filter(|_| form == IdForm::Composite);
        let parts = composite.map(frame::read_composite);
        endpoints
            .iter()
            .map(|endpoint| {
                let epochs = endpoint.topic.epochs();
                let name = &**endpoint.topic.name();
                let last = match &parts {
                    None => self.last.as_deref(),
                    Some(None) => return Ok(Start::Unknown(self.last.clone().unwrap_or_default())),
                    Some(Some(parts)) => {
                        let found = parts.iter().find(|it| it.0 == name);
                        found.map(|it| it.1)
                    }
                };
                match last {
                    Some(text) => Ok(match frame::read_id(form, name, &epochs, text) {
                        Some(id) => Start::After(id),
                        None => Start::Unknown(text.to_owned()),
                    }),
                    None => self.first_start(endpoint, &epochs, form),
                }
            })
            .collect()
    }

    /// Where to begin without being anywhere yet.
    fn first_start(
        &self,
        endpoint: &Endpoint,
        epochs: &[u64],
        form: IdForm,
    ) -> Result<Start, Fault> {
        let is_snapshot = endpoint.topic.settings().payload == Payload::Snapshot;
        match self.from.as_deref() {
            None | Some("now") => Ok(Start::Now),
            Some("earliest") if is_snapshot && form == IdForm::Composite => Ok(Start::Now),
            Some(_) if is_snapshot => Err(Fault::invalid(
                "a topic of snapshots begins with the newest one: leave `from` out",
            )),
            Some("earliest") => Ok(Start::Earliest),
            Some(_) if form == IdForm::Composite => Err(Fault::invalid(
                "`from` of several topics is `now` or `earliest`",
            )),
            Some(text) => match frame::read_id(form, endpoint.topic.name(), epochs, text) {
                Some(id) => Ok(Start::From(id)),
                None => Err(Fault::invalid(
                    "`from` is `now`, `earliest` or the id of an event",
                )),
            },
        }
    }
}

fn mode_of(name: &str) -> Result<Mode, Fault> {
    Mode::of_name(name).ok_or_else(|| Fault::invalid("`mode` is `snapshot`, `patch` or `event`"))
}

/// The only value of a name.
fn one(query: &Value, name: &str) -> Result<Option<String>, Fault> {
    let mut values = all(query, name);
    match values.len() {
        0 | 1 => Ok(values.pop()),
        _ => Err(Fault::invalid(format!("`{name}` stands more than once"))),
    }
}

/// The values of a query.
fn read_query(query: Option<&str>) -> Result<Value, Fault> {
    let query = expr::format::from_form(query.unwrap_or_default().as_bytes());
    query.map_err(|_| Fault::invalid("the query cannot be read"))
}

/// The topics that a query names.
///
/// # Errors
/// `invalid` when it cannot be read.
pub(crate) fn topics(query: Option<&str>) -> Result<Vec<String>, Fault> {
    read_query(query).map(|query| all(&query, "topic"))
}

/// All values of a name.
fn all(query: &Value, name: &str) -> Vec<String> {
    let Some(found) = value::get(query, name) else {
        return Vec::new();
    };
    let texts = match value::as_array(found) {
        Some(values) => values.iter().filter_map(value::as_text).collect(),
        None => Vec::from_iter(value::as_text(found)),
    };
    texts.into_iter().map(str::to_owned).collect()
}

/// What an `Accept` field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// Nothing that we have.
    Nothing,
    /// Events in this form, or in the topic's own.
    Events(Option<Mode>),
}

/// The media types of the profile `axway-streams`.
const VENDOR: &str = "application/vnd.axway.streams+";

/// Reads an `Accept` field (RFC 9110, section 12.5.1). `text/event-stream;mode=patch` says the form
/// too, and so do the media types of the profile where that is served.
pub(crate) fn accepted(field: Option<&[u8]>, is_axway: bool) -> Result<Accepted, Fault> {
    let text = String::from_utf8_lossy(field.unwrap_or_default()).to_ascii_lowercase();
    if text.trim().is_empty() {
        return Ok(Accepted::Events(None));
    }
    for range in text.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let mut parameters = parts.filter_map(|it| it.split_once('='));
        let is_refused = |(name, value): (&str, &str)| {
            name == "q" && value.trim_start_matches("0.").bytes().all(|it| it == b'0')
        };
        if parameters.clone().any(is_refused) {
            continue;
        }
        if is_axway && let Some(mode) = essence.strip_prefix(VENDOR) {
            match axway::mode(mode) {
                Some(mode) => return Ok(Accepted::Events(Some(mode))),
                None => continue,
            }
        }
        if matches!(essence, "text/event-stream" | "text/*" | "*/*") {
            let mode = parameters.find(|it| it.0 == "mode").map(|it| mode_of(it.1));
            return Ok(Accepted::Events(mode.transpose()?));
        }
    }
    Ok(Accepted::Nothing)
}

/// Whether gzip is accepted (RFC 9110, section 12.5.3).
pub(crate) fn accepts_gzip(field: Option<&[u8]>) -> bool {
    let text = String::from_utf8_lossy(field.unwrap_or_default()).to_ascii_lowercase();
    text.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = matches!(parts.next(), Some("gzip" | "x-gzip" | "*"));
        let is_refused = parts.any(|it| matches!(it, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        is_gzip && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_says_the_form() {
        let read = |text: &str, axway| accepted(Some(text.as_bytes()), axway).unwrap();
        let any = Accepted::Events(None);
        assert_eq!(accepted(None, false).unwrap(), any);
        assert_eq!(read("*/*", false), any);
        assert_eq!(
            read("application/json, text/event-stream;q=0.5", false),
            any
        );
        assert_eq!(read("application/json", false), Accepted::Nothing);
        assert_eq!(read("text/event-stream;q=0", false), Accepted::Nothing);
        let patch = Accepted::Events(Some(Mode::Patch));
        assert_eq!(read("text/event-stream; mode=patch", false), patch);
        let vendor = "application/vnd.axway.streams+snapshot-patch";
        assert_eq!(read(vendor, true), patch);
        assert_eq!(read(vendor, false), Accepted::Nothing);
        assert!(accepted(Some(b"*/*;mode=x"), false).is_err());
    }

    #[test]
    fn gzip_is_asked_for_or_not() {
        for (text, expected) in [
            ("gzip, deflate, br", true),
            ("br", false),
            ("gzip;q=0", false),
            ("*", true),
        ] {
            assert_eq!(accepts_gzip(Some(text.as_bytes())), expected, "{text}");
        }
        assert!(!accepts_gzip(None));
    }
}
