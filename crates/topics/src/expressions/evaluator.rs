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
    DEPTH_MAX, Evaluated, ExpressionLimits, Expressions, Fresh, Memory, Outcome, RESULT_MAX,
    STEP_BYTES, Share, TimeSlice, compile, run,
};
use crate::branch::Branch;
use crate::counts::Counts;
use crate::event::{Event, EventId};
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

    /// How many different combinations there may be.
    pub fn distinct_max(&self) -> usize {
        self.limits.distinct
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

    fn find(&self, filter: Option<&str>, select: Option<&str>) -> Option<Rc<Expressions>> {
        let all = self.combinations.borrow();
        let mut live = all.iter().filter_map(Weak::upgrade);
        live.find(|it| it.is_of(filter, select))
    }

    /// The expression of this text, when somebody has it already.
    fn compiled(&self, text: &str) -> Option<Arc<Expression>> {
        let all = self.compiled.borrow();
        let mut live = all.iter().filter_map(sync::Weak::upgrade);
        live.find(|it| it.text() == text)
    }

    /// Looks whether there may be another one.
    fn check(&self, texts: [(&str, Option<&str>); 2]) -> Result<(), Fault> {
        let most = self.limits.length;
        for (name, text) in texts {
            if text.is_some_and(|text| text.len() > most) {
                let detail = format!("`{name}` has more than {most} bytes");
                return Err(Fault::invalid(detail));
            }
        }
        match self.combinations().len() >= self.limits.distinct {
            true => Err(busy("too many different expressions of subscribers")),
            false => Ok(()),
        }
    }

    fn add(&self, compiled: &Compiled) -> Rc<Expressions> {
        let mut all = self.compiled.borrow_mut();
        all.retain(|it| it.strong_count() > 0);
        for expression in compiled.filter.iter().chain(&compiled.select) {
            if !all.iter().any(|it| it.as_ptr() == Arc::as_ptr(expression)) {
                all.push(Arc::downgrade(expression));
            }
        }
        let made = Expressions::new(compiled.filter.clone(), compiled.select.clone());
        let made = Rc::new(made);
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
        if let Some(filter) = &expressions.filter {
            match work.result((filter, true), slice).await {
                Ok(Outcome::Holds(true)) => {}
                Ok(_) => return Evaluated::LeftOut,
                Err(reason) => return Evaluated::Failed(reason),
            }
        }
        let Some(select) = &expressions.select else {
            return Evaluated::Document(fresh.document().clone());
        };
        match work.result((select, false), slice).await {
            Ok(Outcome::Selected(document)) => Evaluated::Document(document),
            Ok(_) => Evaluated::LeftOut,
            Err(reason) => Evaluated::Failed(reason),
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
        expression: (&Arc<Expression>, bool),
        slice: &mut TimeSlice,
    ) -> Result<Outcome, String> {
        if let Some(known) = self.fresh.known(expression) {
            return known;
        }
        let value = self.read(slice).await?;
        let (of, event) = ((&**expression.0, expression.1), &self.fresh.event);
        let (result, steps) = run(of, &value, event, self.evaluator.result_max);
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

/// The combination of these expressions for each of these topics. Spaces around them do not make a
/// difference.
///
/// # Errors
/// 400 for one that cannot be compiled or is too long, 503 when there are too many different ones.
pub(crate) async fn combinations(
    branches: &[Rc<Branch>],
    (filter, select): (Option<&str>, Option<&str>),
) -> Result<Vec<Rc<Expressions>>, Fault> {
    let (filter, select) = (filter.map(str::trim), select.map(str::trim));
    let mut compiled = None;
    let mut all = Vec::with_capacity(branches.len());
    for branch in branches {
        let evaluator = branch.evaluator();
        if let Some(found) = evaluator.find(filter, select) {
            all.push(found);
            continue;
        }
        evaluator.check([("filter", filter), ("select", select)])?;
        if compiled.is_none() {
            compiled = Some(compile_both(branches, (filter, select)).await?);
        }
        // Others may have come while that was waited for.
        let found = evaluator.find(filter, select);
        all.push(match (found, &compiled) {
            (Some(found), _) => found,
            (None, None) => return Err(busy("the expressions cannot be compiled now")),
            (None, Some(compiled)) => {
                evaluator.check([("filter", filter), ("select", select)])?;
                evaluator.add(compiled)
            }
        });
    }
    Ok(all)
}

/// Compiles what nobody has yet, which takes a time slice of this worker.
async fn compile_both(
    branches: &[Rc<Branch>],
    (filter, select): (Option<&str>, Option<&str>),
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
