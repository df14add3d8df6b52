//! What a worker has of the expressions of a topic's subscribers: which there are, and what waits
//! for them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::sync::{self, Arc};
use std::time::Duration;

use expr::{Expression, Value, json};
use message::Fault;
use tokio::sync::Mutex;

use super::{
    Clock, DEPTH_MAX, Evaluated, ExpressionLimits, Expressions, Fresh, Memory, Outcome, RESULT_MAX,
    Role, STEP_BYTES, Share, Texts, TimeSlice, compile, run,
};
use crate::branch::Branch;
use crate::counts::Counts;
use crate::event::{Event, EventId};
use crate::only::Group;
use crate::settings::Settings;
use crate::sse::busy;

/// How long whoever comes waits until an expression has been evaluated for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a worker has of the expressions of a topic's subscribers.
pub(crate) struct Evaluator {
    limits: ExpressionLimits,
    /// The most bytes of events that wait for one combination of expressions.
    queue_max: usize,
    result_max: usize,
    combinations: RefCell<Vec<Weak<Expressions>>>,
    /// Whether a condition of the operator has failed, which is logged once.
    has_failed: Cell<bool>,
    compiled: RefCell<Vec<sync::Weak<Expression>>>,
    /// What the last combination that had a time slice had spent then: one that has waited for
    /// nothing begins there, and cannot save up.
    floor: Cell<u64>,
    /// The document that has been read last.
    document: RefCell<Option<(EventId, Rc<Value>)>>,
    kept: Rc<Cell<usize>>,
    memory: Rc<Memory>,
    /// Whether a task works on what waits.
    is_running: Cell<bool>,
    /// Those who come have their time slices one after the other, so that together they have no
    /// more of them than those who are there.
    arrivals: Mutex<()>,
    counts: Arc<Counts>,
}

impl Evaluator {
    /// The evaluator of a topic without a subscriber. `queue_max` is its `slow.buffer`.
    pub fn new(
        (limits, queue_max): (ExpressionLimits, u64),
        settings: &Settings,
        counts: &Arc<Counts>,
    ) -> Self {
        Self {
            limits,
            queue_max: usize::try_from(queue_max).unwrap_or(usize::MAX),
            result_max: settings.body_max.min(RESULT_MAX),
            combinations: RefCell::default(),
            has_failed: Cell::new(false),
            compiled: RefCell::default(),
            floor: Cell::new(0),
            document: RefCell::default(),
            kept: Rc::default(),
            memory: Memory::new(limits.memory),
            is_running: Cell::new(false),
            arrivals: Mutex::new(()),
            counts: Arc::clone(counts),
        }
    }

    /// What all that waits for subscribers takes.
    pub fn memory(&self) -> &Rc<Memory> {
        &self.memory
    }

    /// How many different combinations there may be: of those that subscribers have sent, or of
    /// groups of callers.
    pub fn distinct_max(&self, is_asked_for: bool) -> usize {
        match is_asked_for {
            true => self.limits.distinct,
            false => self.limits.groups,
        }
    }

    /// Whether there is none, which costs nothing to find out.
    pub fn is_idle(&self) -> bool {
        self.combinations.borrow().is_empty()
    }

    /// The combinations that somebody has.
    pub fn combinations(&self) -> Vec<Rc<Expressions>> {
        let mut all = self.combinations.borrow_mut();
        all.retain(|it| it.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    fn find(&self, only: Option<&Group>, texts: Texts<'_>) -> Option<Rc<Expressions>> {
        let all = self.combinations.borrow();
        let mut live = all.iter().filter_map(Weak::upgrade);
        live.find(|it| it.is_of(only, texts))
    }

    /// The expression of this text, when somebody has it already.
    fn compiled(&self, text: &str) -> Option<Arc<Expression>> {
        let all = self.compiled.borrow();
        let mut live = all.iter().filter_map(sync::Weak::upgrade);
        live.find(|it| it.text() == text)
    }

    /// Looks whether there may be another one.
    fn check(&self, (filter, select): Texts<'_>) -> Result<(), Fault> {
        let most = self.limits.length;
        for (name, text) in [("filter", filter), ("select", select)] {
            if text.is_some_and(|text| text.len() > most) {
                let detail = format!("`{name}` has more than {most} bytes");
                return Err(Fault::invalid(detail));
            }
        }
        let is_asked_for = filter.is_some() || select.is_some();
        let mut alike = self.combinations();
        alike.retain(|it| it.is_asked_for() == is_asked_for);
        match alike.len() >= self.distinct_max(is_asked_for) {
            true => Err(too_many(is_asked_for)),
            false => Ok(()),
        }
    }

    /// The same group as others have it, so that its condition is evaluated once.
    fn group(&self, only: Option<&Group>) -> Option<Group> {
        let only = only?;
        let known = self.combinations().into_iter();
        let mut known = known.filter_map(|it| it.only.clone());
        known.find(|it| it.is(only)).or_else(|| Some(only.clone()))
    }

    fn add(&self, only: Option<&Group>, compiled: &Compiled) -> Rc<Expressions> {
        let only = self.group(only);
        let mut all = self.compiled.borrow_mut();
        all.retain(|it| it.strong_count() > 0);
        for expression in compiled.filter.iter().chain(&compiled.select) {
            if !all.iter().any(|it| it.as_ptr() == Arc::as_ptr(expression)) {
                all.push(Arc::downgrade(expression));
            }
        }
        let both = (compiled.filter.clone(), compiled.select.clone());
        let made = Rc::new(Expressions::new(only, both));
        self.combinations.borrow_mut().push(Rc::downgrade(&made));
        made
    }

    /// Has an event wait for all expressions that somebody sees the results of. Gives those for
    /// which too much waits now.
    pub fn put(&self, event: &Arc<Event>) -> Vec<Rc<Expressions>> {
        let fresh = Rc::new(Fresh::new(event, self.limits.steps, &self.kept));
        let mut full = Vec::new();
        for expressions in self.combinations() {
            if expressions.channels.get() == 0 {
                continue;
            }
            let mut queue = expressions.queue.borrow_mut();
            if queue.is_empty() {
                queue.spent = queue.spent.max(self.floor.get());
            }
            if queue.put(&fresh, self.queue_max) {
                drop(queue);
                full.push(expressions);
            }
        }
        full
    }

    /// How many bytes of events may wait for one combination of expressions.
    pub fn queue_max(&self) -> usize {
        self.queue_max
    }

    /// Which of those for which something waits has spent least: cheap expressions have their time
    /// slice whatever others cost.
    pub fn next(&self) -> Option<Rc<Expressions>> {
        let waiting = self.combinations().into_iter();
        let waiting = waiting.filter(|it| !it.queue.borrow().is_empty());
        let next = waiting.min_by_key(|it| it.queue.borrow().spent)?;
        self.floor.set(next.queue.borrow().spent);
        Some(next)
    }

    /// Whether a task has to be started for what waits; it has been then.
    pub fn start(&self) -> bool {
        !self.is_running.replace(true)
    }

    /// Notes that the task has ended.
    pub fn stop(&self) {
        self.is_running.set(false);
        *self.document.borrow_mut() = None;
    }

    /// Evaluates expressions for an event. Others have their time slices in between.
    pub async fn evaluate(
        &self,
        expressions: &Expressions,
        fresh: &Fresh,
        slice: &mut TimeSlice,
    ) -> Evaluated {
        let work = Work {
            evaluator: self,
            expressions,
            fresh,
        };
        if let Some(only) = &expressions.only {
            match work.result((&only.expression, Role::Only), slice).await {
                Ok(Outcome::Holds(true)) => {}
                Ok(_) => return Evaluated::LeftOut,
                Err(reason) => {
                    // Not even that there is such an event is for this caller to know.
                    self.note_failed(&reason);
                    return Evaluated::LeftOut;
                }
            }
        }
        if let Some(filter) = &expressions.filter {
            match work.result((filter, Role::Filter), slice).await {
                Ok(Outcome::Holds(true)) => {}
                Ok(_) => return Evaluated::LeftOut,
                Err(reason) => return Evaluated::Failed(reason),
            }
        }
        let Some(select) = &expressions.select else {
            return Evaluated::Document(fresh.document().clone());
        };
        match work.result((select, Role::Select), slice).await {
            Ok(Outcome::Selected(document)) => Evaluated::Document(document),
            Ok(_) => Evaluated::LeftOut,
            Err(reason) => Evaluated::Failed(reason),
        }
    }

    /// Logs that a condition of the operator has failed for an event, once.
    #[cold]
    fn note_failed(&self, reason: &str) {
        if !self.has_failed.replace(true) {
            tracing::warn!(target: "topics", reason, "`only` fails for some events");
        }
    }

    /// Evaluates expressions for an event for one who comes. None when that takes too long.
    pub async fn evaluate_for_one(
        &self,
        expressions: &Expressions,
        event: &Arc<Event>,
    ) -> Option<Evaluated> {
        let evaluate = async {
            let _arrival = self.arrivals.lock().await;
            let fresh = Fresh::new(event, self.limits.steps, &self.kept);
            let mut slice = TimeSlice::begin().await;
            self.evaluate(expressions, &fresh, &mut slice).await
        };
        tokio::time::timeout(PATIENCE, evaluate).await.ok()
    }

    /// Charges that what expressions have made of an event was written for a channel.
    pub async fn charge_bytes(
        &self,
        (expressions, fresh): (&Expressions, &Fresh),
        bytes: usize,
        slice: &mut TimeSlice,
    ) {
        let steps = 1 + (bytes / STEP_BYTES) as u64;
        self.charge(expressions, fresh, steps, slice).await;
    }

    /// Charges what has been done for a combination of expressions.
    async fn charge(
        &self,
        expressions: &Expressions,
        fresh: &Fresh,
        steps: u64,
        slice: &mut TimeSlice,
    ) {
        expressions.queue.borrow_mut().spend(steps);
        let share = fresh.spend(steps);
        let counts = &self.counts;
        counts.expression_steps.fetch_add(steps, Ordering::Relaxed);
        slice.spend(steps, share).await;
    }
}

/// Expressions that are about to be evaluated for an event.
struct Work<'a> {
    evaluator: &'a Evaluator,
    expressions: &'a Expressions,
    fresh: &'a Fresh,
}

impl Work<'_> {
    async fn charge(&self, steps: u64, slice: &mut TimeSlice) {
        let evaluator = self.evaluator;
        evaluator
            .charge(self.expressions, self.fresh, steps, slice)
            .await;
    }

    /// What an expression gives for the event; evaluated once for all who have it.
    async fn result(
        &self,
        expression: (&Arc<Expression>, Role),
        slice: &mut TimeSlice,
    ) -> Result<Outcome, String> {
        if let Some(known) = self.fresh.known(expression) {
            return known;
        }
        let value = self.read(slice).await?;
        let of = (&**expression.0, expression.1);
        let now = self.fresh.event.at_ms as f64 / 1000.0;
        let result_max = self.evaluator.result_max;
        let (result, steps) = match (&self.expressions.only, expression.1) {
            (Some(only), Role::Only) => run(of, (&value, &only.variables(now)), result_max),
            _ => run(of, (&value, &Clock(now)), result_max),
        };
        self.fresh.keep(expression, &result);
        let counts = &self.evaluator.counts;
        counts.evaluations.fetch_add(1, Ordering::Relaxed);
        if self.fresh.left.get() == 0 {
            counts.late_evaluations.fetch_add(1, Ordering::Relaxed);
        }
        self.charge(steps, slice).await;
        result
    }

    /// Reads the document, unless it is the one that has been read last.
    async fn read(&self, slice: &mut TimeSlice) -> Result<Rc<Value>, String> {
        let id = self.fresh.event.id;
        let known = self.evaluator.document.borrow().clone();
        if let Some((_, value)) = known.filter(|it| it.0 == id) {
            return Ok(value);
        }
        let document = self.fresh.document();
        let value = json::parse(document, DEPTH_MAX).map(Rc::new);
        let value = value.map_err(|_| "the document cannot be read".to_owned())?;
        if self.evaluator.is_running.get() {
            *self.evaluator.document.borrow_mut() = Some((id, Rc::clone(&value)));
        }
        let steps = (document.len() / STEP_BYTES) as u64;
        self.charge(steps, slice).await;
        Ok(value)
    }
}

/// Expressions that have been compiled for topics of one request.
#[derive(Default)]
struct Compiled {
    filter: Option<Arc<Expression>>,
    select: Option<Arc<Expression>>,
}

/// The refusal of another combination.
pub(crate) fn too_many(is_asked_for: bool) -> Fault {
    busy(match is_asked_for {
        true => "too many different expressions of subscribers",
        false => "too many different groups of subscribers",
    })
}

/// The combination of these expressions for each of these topics, for a caller of these groups.
/// Spaces around them do not make a difference.
///
/// # Errors
/// 400 for one that cannot be compiled or is too long, 503 when there are too many different ones.
pub(crate) async fn combinations(
    branches: &[Rc<Branch>],
    groups: &[Option<Group>],
    (filter, select): Texts<'_>,
) -> Result<Vec<Rc<Expressions>>, Fault> {
    let texts = (filter.map(str::trim), select.map(str::trim));
    let mut compiled = None;
    let mut all = Vec::with_capacity(branches.len());
    for (at, branch) in branches.iter().enumerate() {
        let only = groups.get(at).and_then(Option::as_ref);
        let evaluator = branch.evaluator();
        if let Some(found) = evaluator.find(only, texts) {
            all.push(found);
            continue;
        }
        evaluator.check(texts)?;
        if compiled.is_none() {
            compiled = Some(match texts {
                (None, None) => Compiled::default(),
                texts => compile_both(branches, texts).await?,
            });
        }
        // Others may have come while that was waited for.
        let found = evaluator.find(only, texts);
        all.push(match (found, &compiled) {
            (Some(found), _) => found,
            (None, None) => return Err(busy("the expressions cannot be compiled now")),
            (None, Some(compiled)) => {
                evaluator.check(texts)?;
                evaluator.add(only, compiled)
            }
        });
    }
    Ok(all)
}

/// Compiles what nobody has yet, which takes a time slice of this worker.
async fn compile_both(
    branches: &[Rc<Branch>],
    (filter, select): Texts<'_>,
) -> Result<Compiled, Fault> {
    let Some(first) = branches.first() else {
        return Ok(Compiled::default());
    };
    let one = |name: &str, text: Option<&str>| {
        let Some(text) = text else {
            return Ok(None);
        };
        let mut evaluators = branches.iter().map(|it| it.evaluator());
        match evaluators.find_map(|it| it.compiled(text)) {
            Some(known) => Ok(Some(known)),
            None => compile(name, text).map(Some).map_err(Fault::invalid),
        }
    };
    let both = async {
        let _arrival = first.evaluator().arrivals.lock().await;
        let mut slice = TimeSlice::begin().await;
        let filter = one("filter", filter)?;
        slice.spend(1, Share::Half).await;
        let select = one("select", select)?;
        slice.spend(1, Share::Half).await;
        Ok(Compiled { filter, select })
    };
    let both = tokio::time::timeout(PATIENCE, both).await;
    both.unwrap_or_else(|_| Err(busy("too many expressions of subscribers are compiled")))
}
