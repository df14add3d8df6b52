//! What endpoints see of a topic's events. Those with the same view share it on a worker: an event
//! is evaluated and written for it once, however many endpoints there are.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use expr::{Expression, Value, json, value};

use super::envelope::{self, CloudEvents};
use super::machine::Item;
use crate::document::{self, Change, Document};
use crate::event::{Content, Event, EventId};
use crate::expressions::{self, Clock, LIMITS, RESULT_MAX, STEP_BYTES, Share, TimeSlice};
use crate::frame::Kind;
use crate::view::{Mode, patched};

/// The most levels of a document.
const DEPTH_MAX: usize = 256;
/// How many bytes of events a view has in memory for those that are not far behind, and how many
/// events.
const RING_BYTES: usize = 1 << 20;
const RING_EVENTS: usize = 4096;

/// How an endpoint sees a topic.
#[derive(Clone, Debug)]
pub(crate) struct ViewPlan {
    pub mode: Mode,
    pub filter: Option<Expression>,
    pub select: Option<Expression>,
    /// What orders events among others, where the endpoint wants that.
    pub key: Option<Expression>,
    pub cloudevents: Option<CloudEvents>,
    /// What the topic is called in CloudEvents.
    pub source: Arc<str>,
    /// The most bytes of what `select` gives.
    pub result_max: usize,
    /// Whether a document that is a string is sent as the text that it has.
    pub is_text: bool,
}

impl ViewPlan {
    /// Whether both show the same.
    pub fn is_same(&self, other: &Self) -> bool {
        let forms = |it: &Self| (it.mode, it.cloudevents, it.is_text);
        forms(self) == forms(other) && self.texts() == other.texts()
    }

    /// Its expressions as they were written.
    fn texts(&self) -> [Option<&str>; 3] {
        [&self.filter, &self.select, &self.key].map(|it| it.as_ref().map(Expression::text))
    }

    /// Whether it shows every event just as it is in the topic.
    fn is_plain(&self) -> bool {
        self.filter.is_none() && self.select.is_none() && self.key.is_none()
    }

    /// What a whole document is called.
    pub fn whole_kind(&self) -> Kind {
        match self.mode {
            Mode::Event => Kind::Event,
            Mode::Snapshot | Mode::Patch => Kind::Snapshot,
        }
    }
}

/// An event as a view shows it.
#[derive(Debug)]
pub(super) struct Shown {
    pub id: EventId,
    pub at_ms: u64,
    /// The id as it is sent to all endpoints.
    id_text: OnceCell<Arc<str>>,
    key: Option<u64>,
    content: ShownContent,
}

#[derive(Debug)]
enum ShownContent {
    LeftOut,
    Document {
        whole: Body,
        /// What has changed since the event before that the view shows.
        patch: Option<Body>,
    },
    /// An expression has failed, for this reason.
    Failed(Box<str>, Bytes),
}

/// A body, and how it is sent.
#[derive(Debug)]
struct Body {
    plain: Bytes,
    sent: OnceCell<Bytes>,
}

impl Body {
    fn new(plain: Bytes) -> Self {
        Self {
            plain,
            sent: OnceCell::new(),
        }
    }
}

impl Shown {
    /// Its id in a text, which is written once for all endpoints.
    pub fn id_text(&self) -> &Arc<str> {
        self.id_text.get_or_init(|| self.id.to_string().into())
    }

    /// The same as the state machine of an endpoint sees it.
    pub fn item(&self) -> Item {
        let key = self.key;
        match &self.content {
            ShownContent::LeftOut => Item::LeftOut,
            ShownContent::Document { whole, .. } => Item::Shown {
                bytes: whole.plain.len(),
                key,
            },
            ShownContent::Failed(..) => Item::Failed { key },
        }
    }

    /// How many bytes it has as a part of a request.
    pub fn bytes(&self) -> usize {
        match self.item() {
            Item::Shown { bytes, .. } => bytes,
            Item::LeftOut | Item::Failed { .. } => 0,
        }
    }

    /// Whether the view does not show it.
    pub fn is_left_out(&self) -> bool {
        matches!(self.content, ShownContent::LeftOut)
    }

    /// What is sent: its kind and its body. None when the view does not show the event.
    pub fn body(&self, plan: &ViewPlan, is_whole: bool) -> Option<(Kind, Bytes)> {
        let ShownContent::Document { whole, patch } = &self.content else {
            return None;
        };
        let (kind, body) = match patch.as_ref().filter(|_| !is_whole) {
            Some(patch) => (Kind::Patch, patch),
            None => (plan.whole_kind(), whole),
        };
        let sent = match plan.cloudevents {
            Some(CloudEvents::Structured) => body
                .sent
                .get_or_init(|| envelope::structured(plan, self, (kind, &body.plain))),
            Some(CloudEvents::Binary) | None if plan.is_text => {
                body.sent.get_or_init(|| text(&body.plain))
            }
            Some(CloudEvents::Binary) | None => &body.plain,
        };
        Some((kind, sent.clone()))
    }

    /// What becomes a dead letter because an expression has failed: why, and the event.
    pub fn failed(&self) -> Option<(&str, &Bytes)> {
        match &self.content {
            ShownContent::Failed(reason, document) => Some((reason, document)),
            ShownContent::LeftOut | ShownContent::Document { .. } => None,
        }
    }

    /// How many bytes of memory it holds.
    pub fn size(&self) -> usize {
        let content = match &self.content {
            ShownContent::LeftOut => 0,
            ShownContent::Document { whole, patch } => {
                let patch = patch.as_ref().map_or(0, |it| it.plain.len());
                whole.plain.len() + patch
            }
            ShownContent::Failed(reason, document) => reason.len() + document.len(),
        };
        content + size_of::<Self>()
    }
}

#[cfg(test)]
impl Shown {
    /// An event of this number whose document has so many bytes.
    pub fn of_size(sequence: u64, size: usize) -> Rc<Self> {
        let event = Event {
            id: EventId { epoch: 1, sequence },
            at_ms: 1000,
            content: Content::Event(vec![b'1'; size].into()),
        };
        Rc::new(plain(Mode::Event, &event))
    }

    /// The same of one on which an expression has failed.
    pub fn failed_of_size(sequence: u64, size: usize) -> Rc<Self> {
        let document = Bytes::from(vec![b'1'; size]);
        Rc::new(Self {
            id: EventId { epoch: 1, sequence },
            at_ms: 1000,
            id_text: OnceCell::new(),
            key: None,
            content: ShownContent::Failed("filter".into(), document),
        })
    }
}

/// The text of a document that is a string; any other document as it is.
pub(crate) fn text(document: &Bytes) -> Bytes {
    if !document.starts_with(b"\"") {
        return document.clone();
    }
    match serde_json::from_slice::<String>(document) {
        Ok(text) => text.into(),
        Err(_) => document.clone(),
    }
}

/// Shows events of a topic one after the other.
#[derive(Debug)]
pub(super) struct Viewer {
    plan: Arc<ViewPlan>,
    /// What `select` gave for the event before, where patches are made of it.
    before: Option<Document>,
}

/// Why an event cannot be shown.
type Reason = String;

impl Viewer {
    /// One that has shown nothing: the first document is whole.
    pub fn new(plan: &Arc<ViewPlan>) -> Self {
        Self {
            plan: Arc::clone(plan),
            before: None,
        }
    }

    /// Shows events. Where expressions are evaluated, others of the worker have their turns in
    /// between.
    pub async fn show_all(&mut self, events: &[Arc<Event>]) -> Vec<Rc<Shown>> {
        if self.plan.is_plain() {
            let shown = events
                .iter()
                .map(|event| Rc::new(plain(self.plan.mode, event)));
            return shown.collect();
        }
        let mut all = Vec::with_capacity(events.len());
        let mut slice = TimeSlice::begin().await;
        for event in events {
            let (shown, steps) = self.show(event);
            all.push(Rc::new(shown));
            slice.spend(1 + steps, Share::Half).await;
        }
        all
    }

    /// Shows an event, and tells how many steps that took.
    fn show(&mut self, event: &Event) -> (Shown, u64) {
        let document = expressions::document(event);
        let mut evaluation = Evaluation {
            clock: Clock(event.at_ms as f64 / 1000.0),
            steps: (document.len() / STEP_BYTES) as u64,
        };
        let (key, content) = match self.evaluate(event, &mut evaluation) {
            Ok((key, content)) => (key, content),
            Err(reason) => {
                self.before = None;
                let failed = ShownContent::Failed(reason.into(), document.clone());
                (None, failed)
            }
        };
        let shown = Shown {
            id: event.id,
            at_ms: event.at_ms,
            id_text: OnceCell::new(),
            key,
            content,
        };
        (shown, evaluation.steps)
    }

    fn evaluate(
        &mut self,
        event: &Event,
        evaluation: &mut Evaluation,
    ) -> Result<(Option<u64>, ShownContent), Reason> {
        let plan = Arc::clone(&self.plan);
        let document = expressions::document(event);
        let input = json::parse(document, DEPTH_MAX);
        let input = input.map_err(|_| "the document cannot be read".to_owned())?;
        if let Some(filter) = &plan.filter
            && !value::is_truthy(&evaluation.run("filter", filter, &input)?)
        {
            return Ok((None, ShownContent::LeftOut));
        }
        let key = match &plan.key {
            Some(key) => hash(&evaluation.run("key", key, &input)?)?,
            None => None,
        };
        let Some(select) = &plan.select else {
            // A patch applies to the event before, which a filter may have left out.
            let content = match plan.filter {
                Some(_) => self.changed(document.clone()),
                None => plain(plan.mode, event).content,
            };
            return Ok((key, content));
        };
        let selected = evaluation.run("select", select, &input)?;
        let mut out = Vec::new();
        let written = json::write(&selected, plan.result_max.min(RESULT_MAX), &mut out);
        written.map_err(|error| format!("select: {error}"))?;
        evaluation.steps += (out.len() / STEP_BYTES) as u64;
        Ok((key, self.changed(out.into())))
    }

    /// A document that is not the topic's own, as what has changed in it where that is wanted.
    fn changed(&mut self, document: Bytes) -> ShownContent {
        let whole = |patch| ShownContent::Document {
            whole: Body::new(document.clone()),
            patch,
        };
        if self.plan.mode != Mode::Patch {
            return whole(None);
        }
        let after = patched(&document);
        let before = std::mem::replace(&mut self.before, after.clone());
        match (before, after) {
            (Some(before), Some(after)) => match document::diff(&before, &after) {
                Change::Nothing => ShownContent::LeftOut,
                Change::Patch(patch) => whole(Some(Body::new(patch))),
                Change::Whole => whole(None),
            },
            _ => whole(None),
        }
    }
}

/// Expressions that are evaluated for one event.
struct Evaluation {
    clock: Clock,
    steps: u64,
}

impl Evaluation {
    fn run(&mut self, name: &str, text: &Expression, input: &Value) -> Result<Value, Reason> {
        let (result, steps) = text.evaluate_counted(input, &self.clock, &LIMITS);
        self.steps += 1 + steps;
        result.map_err(|error| format!("{name}: {error}"))
    }
}

/// What stands for a key. Two keys with one hash are kept in order too, which does no harm.
fn hash(key: &Value) -> Result<Option<u64>, Reason> {
    if matches!(key, Value::Null) {
        return Ok(None);
    }
    let mut out = Vec::new();
    let written = json::write(key, RESULT_MAX, &mut out);
    written.map_err(|error| format!("key: {error}"))?;
    let mut hasher = DefaultHasher::new();
    out.hash(&mut hasher);
    Ok(Some(hasher.finish()))
}

/// An event as it is in the topic.
fn plain(mode: Mode, event: &Event) -> Shown {
    let (whole, patch) = match &event.content {
        Content::Event(body) => (body, None),
        Content::Snapshot { whole, patch } => (whole, patch.as_ref()),
    };
    let patch = patch.filter(|_| mode == Mode::Patch);
    Shown {
        id: event.id,
        at_ms: event.at_ms,
        id_text: OnceCell::new(),
        key: None,
        content: ShownContent::Document {
            whole: Body::new(whole.clone()),
            patch: patch.map(|it| Body::new(it.clone())),
        },
    }
}

/// The last events as a view shows them.
#[derive(Default)]
pub(super) struct Ring {
    shown: VecDeque<Rc<Shown>>,
    /// The number of the event behind the last one; 0 before there is one.
    end: u64,
    bytes: usize,
}

impl Ring {
    /// An empty one, before the event of this number.
    pub fn at(end: u64) -> Self {
        Self {
            end,
            ..Self::default()
        }
    }

    /// The number of the event that comes next.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The event of this number, if it is there.
    pub fn get(&self, number: u64) -> Option<&Rc<Shown>> {
        let first = self.shown.front()?.id.sequence;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.shown.get(at)
    }

    /// Adds events that follow. Those that do not are left out.
    pub fn extend(&mut self, shown: Vec<Rc<Shown>>) {
        for one in shown {
            if one.id.sequence == self.end {
                self.end += 1;
                self.bytes += one.size();
                self.shown.push_back(one);
            }
        }
        while self.shown.len() > 1 && (self.bytes > RING_BYTES || self.shown.len() > RING_EVENTS) {
            if let Some(oldest) = self.shown.pop_front() {
                self.bytes -= oldest.size();
            }
        }
    }

    /// Goes on before the event of this number, with nothing.
    pub fn restart(&mut self, end: u64) {
        *self = Self::at(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(mode: Mode, [filter, select, key]: [&str; 3]) -> Arc<ViewPlan> {
        let compile = |text: &str| {
            let scope = component::scope::Scope::default();
            (!text.is_empty()).then(|| Expression::compile(text, &scope).unwrap())
        };
        Arc::new(ViewPlan {
            mode,
            filter: compile(filter),
            select: compile(select),
            key: compile(key),
            cloudevents: None,
            source: "/topics/t".into(),
            result_max: 1 << 20,
            is_text: false,
        })
    }

    fn event(sequence: u64, content: Content) -> Arc<Event> {
        Arc::new(Event {
            id: EventId { epoch: 1, sequence },
            at_ms: 1000,
            content,
        })
    }

    fn snapshot(sequence: u64, whole: &'static str, patch: Option<&'static str>) -> Arc<Event> {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let (whole, patch) = (bytes(whole), patch.map(bytes));
        event(sequence, Content::Snapshot { whole, patch })
    }

    async fn shown(plan: &Arc<ViewPlan>, events: &[Arc<Event>]) -> Vec<String> {
        let all = Viewer::new(plan).show_all(events).await;
        let text = |it: &Rc<Shown>| match it.body(plan, false) {
            Some((kind, body)) => format!("{} {}", kind.name(), String::from_utf8_lossy(&body)),
            None => format!("{:?}", it.item()),
        };
        all.iter().map(text).collect()
    }

    #[test]
    fn views_are_shared_when_they_show_the_same() {
        let all = [
            plan(Mode::Patch, ["", "", ""]),
            plan(Mode::Snapshot, ["", "", ""]),
            plan(Mode::Patch, [".a", "", ""]),
            plan(Mode::Patch, ["", ".a", ""]),
            plan(Mode::Patch, ["", "", ".a"]),
        ];
        for (at, one) in all.iter().enumerate() {
            let same: Vec<usize> = (0..all.len()).filter(|it| all[*it].is_same(one)).collect();
            assert_eq!(same, [at]);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn plain_views_show_bodies_as_they_are() {
        let body = Bytes::from_static(b"{\"a\":1}");
        let all = [event(1, Content::Event(body.clone()))];
        let plan_of_events = plan(Mode::Event, ["", "", ""]);
        let one = Viewer::new(&plan_of_events).show_all(&all).await.remove(0);
        let (_, sent) = one.body(&plan_of_events, true).unwrap();
        assert_eq!(sent.as_ptr(), body.as_ptr(), "the event's own bytes");
        let patches = [
            snapshot(1, "{\"a\":1}", None),
            snapshot(2, "{\"a\":2}", Some("[p]")),
        ];
        let plan = plan(Mode::Patch, ["", "", ""]);
        assert_eq!(
            shown(&plan, &patches).await,
            ["snapshot {\"a\":1}", "patch [p]"]
        );
        let all = Viewer::new(&plan).show_all(&patches).await;
        assert_eq!(&all[1].body(&plan, true).unwrap().1[..], b"{\"a\":2}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn filters_leave_out_and_patches_apply_to_what_was_shown_before() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let long = "x".repeat(200);
                let long: &'static str = Box::leak(long.into_boxed_str());
                let text = |a: u32| -> &'static str {
                    Box::leak(format!("{{\"a\":{a},\"l\":\"{long}\"}}").into_boxed_str())
                };
                let all = [
                    snapshot(1, text(1), None),
                    snapshot(2, text(2), Some("[1 to 2]")),
                    snapshot(3, text(3), Some("[2 to 3]")),
                    snapshot(4, text(3), Some("[nothing]")),
                ];
                let odd = plan(Mode::Patch, [".a % 2 == 1", "", ".a"]);
                let shown = shown(&odd, &all).await;
                assert!(shown[0].starts_with("snapshot"), "{shown:?}");
                assert_eq!(shown[1], "LeftOut");
                assert_eq!(
                    shown[2],
                    "patch [{\"op\":\"replace\",\"path\":\"/a\",\"value\":3}]"
                );
                assert_eq!(shown[3], "LeftOut", "nothing has changed");
                let keys = Viewer::new(&odd).show_all(&all).await;
                assert!(keys[0].key.is_some() && keys[0].key != keys[2].key);
            })
            .await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_expression_that_fails_tells_why() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let all = [event(1, Content::Event(Bytes::from_static(b"{\"a\":1}")))];
                for (texts, begins) in [
                    ([".a | error", "", ""], "filter: "),
                    (["", ".a | keys", ""], "select: "),
                    (["", "", ".a | keys"], "key: "),
                ] {
                    let plan = plan(Mode::Event, texts);
                    let one = Viewer::new(&plan).show_all(&all).await.remove(0);
                    let (reason, document) = one.failed().unwrap();
                    assert!(reason.starts_with(begins), "{reason}");
                    assert_eq!(&document[..], b"{\"a\":1}");
                }
            })
            .await;
    }

    #[test]
    fn a_ring_has_the_last_events_without_a_gap() {
        let mut ring = Ring::at(3);
        let one = |number: u64, size: usize| {
            let body = Bytes::from(vec![b'1'; size]);
            Rc::new(plain(Mode::Event, &event(number, Content::Event(body))))
        };
        ring.extend(vec![one(3, 10), one(4, 10), one(6, 10)]);
        assert_eq!(ring.end(), 5);
        assert!(ring.get(2).is_none() && ring.get(5).is_none());
        assert_eq!(ring.get(4).unwrap().id.sequence, 4);
        ring.extend((5..9).map(|number| one(number, RING_BYTES / 3)).collect());
        assert_eq!(ring.end(), 9);
        assert!(ring.get(5).is_none() && ring.get(8).is_some());
        ring.extend(vec![one(9, 2 * RING_BYTES)]);
        assert!(ring.get(8).is_none() && ring.get(9).is_some(), "one stays");
        ring.restart(20);
        assert!(ring.get(9).is_none() && ring.end() == 20);
    }
}
