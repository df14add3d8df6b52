//! The state of one message on its way through a flow: the request that it came with, its content
//! in whatever form it is needed, and the values of names.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use expr::Value;
use expr::jq::{EvalError, EvalErrorKind, Expression, Limits};
use expr::template::Template;
use message::{Body, Fault, Field, Headers, Reply, Request};

use crate::content::{Content, Format};
use crate::handler::Services;
use crate::long_work::{
    self, AT_ONCE, Attempt, DeferredResult, LargeValues, LongWork, Snapshot, beside,
};
use crate::scope;
use crate::variables::{Variables, request_value};

/// Of how many copies it is told where they were when their time was over.
const STOPPED_MAX: usize = 10;

/// What all messages of a flow share.
#[derive(Debug)]
pub struct FlowContext {
    /// The flow's name.
    pub name: Arc<str>,
    /// The values of `$env`.
    pub env: Value,
    /// The values of `$secret`.
    pub secrets: Value,
    /// What one evaluation may cost.
    pub limits: Limits,
    /// How many slots names need.
    pub slots: usize,
    /// Whether an expression asks for `$in`.
    pub keeps_original: bool,
    /// The format of bodies that come in, when the flow does not go by their `Content-Type`.
    pub decode: Option<Format>,
    /// The most bytes of a body that the flow makes.
    pub body_max: usize,
}

impl FlowContext {
    /// A flow of this name without anything else.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            env: Value::Null,
            secrets: Value::Null,
            limits: Limits::default(),
            slots: scope::BUILT_IN.len(),
            keeps_original: false,
            decode: None,
            body_max: 64 * 1024 * 1024,
        }
    }
}

/// Status and header fields of a reply of another system.
#[derive(Debug)]
pub struct ReplyHead {
    /// The status.
    pub status: u16,
    /// The header fields.
    pub headers: Headers,
    /// The content.
    pub content: Content,
}

/// What steps add to a message while others run within them: see [`Exchange::checkpoint`].
#[derive(Debug)]
pub struct Checkpoint {
    deadline: Option<Instant>,
    fault: Option<Rc<Fault>>,
    held: usize,
}

/// The original message, kept for `$in`.
#[derive(Debug)]
pub(crate) struct Original {
    request: Request,
    content: Content,
    value: OnceCell<Value>,
}

/// The state of one message on its way through a flow. A copy is cheap: contents are shared.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What all messages of the flow share.
    pub context: Arc<FlowContext>,
    /// The head of the request as it came in. Its body is in `content`.
    pub request: Request,
    /// The content, which expressions call `.`.
    pub content: Content,
    /// The head of the last reply of another system.
    pub reply: Option<Rc<ReplyHead>>,
    /// The failure that is being handled.
    pub fault: Option<Rc<Fault>>,
    /// What logs call the step that runs.
    pub at: Arc<str>,
    /// When the time of the steps that run is over: the earliest of the flow's `limits.time` and of
    /// the time-outs of all steps around them.
    pub deadline: Option<Instant>,
    /// How many flows have called each other to get here.
    pub depth: u16,
    /// What steps around the one that runs hold for it, such as an open transaction. Copies share
    /// it; one that goes on when the message has gone has to leave it.
    pub held: Vec<Rc<dyn Any>>,
    /// Where copies were when their time was over; copies share it.
    stopped: Option<Rc<RefCell<Vec<Arc<str>>>>>,
    /// The attempt at the work that runs, and what of it is done beside the worker.
    pub(crate) attempt: Attempt,
    /// The values of names, by slot; those of every flow are not among them.
    pub(crate) slots: Vec<Value>,
    pub(crate) original: Option<Rc<Original>>,
    /// Dropped behind all that shares them.
    pub(crate) large: LargeValues,
}

impl Exchange {
    /// A message that has just come in.
    pub fn new(context: &Arc<FlowContext>, mut request: Request) -> Self {
        let body = std::mem::take(&mut request.body);
        let content = Content::of_body(body, context.decode);
        let original = context.keeps_original.then(|| {
            Rc::new(Original {
                request: request.clone(),
                content: content.clone(),
                value: OnceCell::new(),
            })
        });
        Self {
            context: Arc::clone(context),
            request,
            content,
            reply: None,
            fault: None,
            at: Arc::clone(&context.name),
            deadline: None,
            depth: 0,
            held: Vec::new(),
            stopped: None,
            attempt: Attempt::default(),
            slots: Vec::new(),
            original,
            large: LargeValues::default(),
        }
    }

    /// Has copies that are made from now on tell where they stop.
    pub fn follow_copies(&mut self) {
        self.stopped.get_or_insert_default();
    }

    /// How the message is before steps that may be dropped half-way: then they do not take back
    /// themselves what holds only within them.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            deadline: self.deadline,
            fault: self.fault.clone(),
            held: self.held.len(),
        }
    }

    /// Restores the deadline, the failure that is handled, and what is held, such as transactions.
    pub fn roll_back(&mut self, before: Checkpoint) {
        self.deadline = before.deadline;
        self.fault = before.fault;
        self.held.truncate(before.held);
    }

    /// Moves the deadline to this time, if it is not earlier already. Gives the one before, to be
    /// put back.
    pub fn cap(&mut self, at: Instant) -> Option<Instant> {
        let outer = self.deadline;
        self.deadline = Some(outer.map_or(at, |outer| outer.min(at)));
        outer
    }

    /// Whether the time is over: what is given up now says nothing about other systems.
    pub fn is_out_of_time(&self, services: &dyn Services) -> bool {
        self.deadline.is_some_and(|at| at <= services.now())
    }

    /// Notes, for the log, that a copy is given up where it is, if its time is over.
    pub fn stop_here(&self, services: &dyn Services) {
        let is_late = self.is_out_of_time(services);
        if let Some(stopped) = self.stopped.as_ref().filter(|_| is_late) {
            let mut stopped = stopped.borrow_mut();
            if stopped.len() < STOPPED_MAX && !stopped.contains(&self.at) {
                stopped.push(Arc::clone(&self.at));
            }
        }
    }

    /// What the log says of work that took longer than this: where copies were then, too.
    pub fn longer_than(&mut self, time: Duration) -> String {
        let stopped = self
            .stopped
            .as_ref()
            .map(|it| std::mem::take(&mut *it.borrow_mut()));
        match stopped.filter(|it| !it.is_empty()) {
            Some(stopped) => format!("longer than {time:?}, under way: {}", stopped.join(", ")),
            None => format!("longer than {time:?}"),
        }
    }

    /// Does work on the message whose long parts, such as a costly expression or a large body, are
    /// done beside the worker. The work is attempted again after each of them: it has no effect on
    /// others before it is done, and leaves the message as it was when it fails.
    ///
    /// # Errors
    /// Those of the work; `unavailable` when too much waits to be done beside the workers.
    pub async fn preemptible<T>(
        &mut self,
        services: &dyn Services,
        mut work: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.attempt.clear();
        match self.attempt(&mut work) {
            Ok(result) => result,
            // On the heap: few need it, and every message would pay for its size.
            Err(deferred) => Box::pin(self.attempt_again(deferred, services, work)).await,
        }
    }

    async fn attempt_again<T>(
        &mut self,
        mut deferred: (u32, LongWork),
        services: &dyn Services,
        mut work: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        loop {
            self.run_deferred(deferred, services).await?;
            match self.attempt(&mut work) {
                Ok(result) => return result,
                Err(next) => deferred = next,
            }
        }
    }

    /// Attempts work on the worker: its result, or the part of it that has to be done first by
    /// [`Exchange::run_deferred`]. Then all that the attempt did is void.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Result<T, Fault>, (u32, LongWork)> {
        let guard = self.attempt.begin();
        let result = work(self);
        drop(guard);
        match self.attempt.end() {
            None => Ok(result),
            Some(deferred) => Err(deferred),
        }
    }

    /// Does beside the worker what exceeded its time slice on it.
    pub(crate) async fn run_deferred(
        &mut self,
        (operation, work): (u32, LongWork),
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let result = beside(services, |_| work()).await?;
        if let DeferredResult::Evaluated(Ok(value)) | DeferredResult::Decoded(Ok(value)) = &result {
            self.large.hold(value);
        }
        self.attempt.keep(operation, result);
        Ok(())
    }

    /// The content as a value, decoded when nobody has asked before.
    ///
    /// # Errors
    /// `invalid` when it is not what its media type says.
    pub fn value(&mut self) -> Result<&Value, Fault> {
        self.attempt.operation();
        self.decode()?;
        Ok(self.content.decoded())
    }

    /// Decodes the content, when nobody has asked before.
    fn decode(&mut self) -> Result<(), Fault> {
        let headers = self.request.headers.view();
        if !self.content.is_long_to_decode() {
            let size = self.content.undecoded();
            if size >= long_work::ROUND_BYTES {
                expr::jq::count_rounds((size / long_work::ROUND_BYTES) as u64);
            }
            return self.content.value(headers).map(|_| ());
        }
        if !long_work::may_defer() {
            self.large.hold(self.content.value(headers)?);
            return Ok(());
        }
        match self
            .attempt
            .result(|it| matches!(it, DeferredResult::Decoded(_)))
        {
            Some(DeferredResult::Decoded(value)) => {
                self.content.set_decoded(value?);
                Ok(())
            }
            _ => {
                let decoder = self.content.decoder(headers);
                Err(self
                    .attempt
                    .defer(Box::new(|| DeferredResult::Decoded(decoder()))))
            }
        }
    }

    /// Writes the content as bytes, when nobody has asked before.
    fn encode(&mut self) -> Result<Body, Fault> {
        let size_max = self.context.body_max;
        if !long_work::may_defer() || self.content.encode_at_once(size_max) {
            return self.content.body(size_max);
        }
        match self
            .attempt
            .result(|it| matches!(it, DeferredResult::Encoded(_)))
        {
            Some(DeferredResult::Encoded(body)) => {
                let body = body?;
                self.content.set_encoded(body.clone());
                Ok(body)
            }
            _ => {
                let mut content = self.content.clone();
                let encode = move || DeferredResult::Encoded(content.body(size_max));
                Err(self.attempt.defer(Box::new(encode)))
            }
        }
    }

    /// Writes a value in another format than [`Exchange::body`] does. `write` gets the value and
    /// the most bytes of the result, which are those of a body of the flow.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write(
        &mut self,
        value: &Value,
        write: impl Fn(&Value, usize) -> Result<Vec<u8>, Fault> + Send + 'static,
    ) -> Result<Body, Fault> {
        self.attempt.operation();
        let size_max = self.context.body_max;
        if !long_work::may_defer() {
            return write(value, size_max).map(Body::from);
        }
        if let Some(DeferredResult::Encoded(body)) = self
            .attempt
            .result(|it| matches!(it, DeferredResult::Encoded(_)))
        {
            return body;
        }
        match write(value, size_max.min(AT_ONCE)) {
            Ok(bytes) => Ok(Body::from(bytes)),
            Err(fault) if size_max <= AT_ONCE => Err(fault),
            // The beginning was too long for the worker, or the failure comes again.
            Err(_) => {
                let value = value.clone();
                let write =
                    move || DeferredResult::Encoded(write(&value, size_max).map(Body::from));
                Err(self.attempt.defer(Box::new(write)))
            }
        }
    }

    /// Makes a value the content that took long to make, and takes long to drop.
    pub fn set_large_value(&mut self, value: Value) {
        self.large.hold(&value);
        self.set_value(value);
    }

    /// Has a value that took long to make dropped beside the worker when it is used no more.
    pub fn hold_large(&mut self, value: &Value) {
        self.large.hold(value);
    }

    /// Makes a value the content.
    pub fn set_value(&mut self, value: Value) {
        self.content = Content::of_value(value);
    }

    /// The content as bytes and its media type, written when it is a value.
    ///
    /// # Errors
    /// `expression` when the value cannot be written as JSON.
    pub fn body(&mut self) -> Result<(Body, Option<Bytes>), Fault> {
        self.attempt.operation();
        let body = self.encode()?;
        Ok((body, self.content_type()))
    }

    /// The `Content-Type` of the content.
    pub fn content_type(&self) -> Option<Bytes> {
        match self.content.head() {
            Some(head) => head.content_type.clone(),
            None => self.request_field(Field::ContentType),
        }
    }

    /// The `Content-Encoding` of the content.
    pub fn content_encoding(&self) -> Option<Bytes> {
        match self.content.head() {
            Some(head) => head.content_encoding.clone(),
            None => self.request_field(Field::ContentEncoding),
        }
    }

    fn request_field(&self, field: Field) -> Option<Bytes> {
        let value = self.request.headers.view().first(field)?;
        Some(Bytes::copy_from_slice(value))
    }

    /// The value of a name, by its slot.
    pub fn slot(&self, slot: usize) -> Value {
        let at = slot.wrapping_sub(scope::BUILT_IN.len());
        self.slots.get(at).cloned().unwrap_or_default()
    }

    /// Gives a name, by its slot, a value.
    pub fn set_slot(&mut self, slot: usize, value: Value) {
        self.replace_slot(slot, value);
    }

    /// Gives a name, by its slot, a value. The one that it had before.
    pub fn replace_slot(&mut self, slot: usize, value: Value) -> Value {
        let Some(at) = slot.checked_sub(scope::BUILT_IN.len()) else {
            return Value::Null;
        };
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Value::Null);
        }
        let place = self.slots.get_mut(at);
        place
            .map(|place| std::mem::replace(place, value))
            .unwrap_or_default()
    }

    /// What an expression gives here.
    ///
    /// # Errors
    /// `expression` when it fails, `invalid` when the content that it asks for cannot be decoded.
    pub fn evaluate(
        &mut self,
        expression: &Expression,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        self.attempt.operation();
        self.evaluate_here(expression, services)
    }

    fn evaluate_here(
        &mut self,
        expression: &Expression,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        self.prepare(expression.uses_input(), expression.variables())?;
        if let Some(result) = self.evaluated(expression.text()) {
            return result;
        }
        let limits = self.limits(services);
        let result = {
            let variables = Variables::new(self, services);
            expression.evaluate(self.content.decoded(), &variables, &limits)
        };
        if let Ok(value) = &result {
            self.large.hold_derived(value);
        }
        result.map_err(|error| {
            let copy = expression.clone();
            let evaluate = move |input: &Value, variables: &Snapshot, limits: &Limits| {
                copy.evaluate(input, variables, limits)
            };
            let slots = expression.variables();
            self.failed(expression.text(), &error, slots, evaluate, services)
        })
    }

    /// What an evaluation gave that was deferred.
    fn evaluated(&mut self, text: &str) -> Option<Result<Value, Fault>> {
        match self
            .attempt
            .result(|it| matches!(it, DeferredResult::Evaluated(_)))?
        {
            DeferredResult::Evaluated(result) => {
                Some(result.map_err(|error| expression_fault(text, &error)))
            }
            _ => None,
        }
    }

    /// What an expression may cost here: one that exceeds its time slice is begun again elsewhere
    /// where that is possible, else it has no more time than the steps that run have left.
    fn limits(&self, services: &dyn Services) -> Limits {
        let at_once = long_work::may_defer();
        let deadline = self.deadline.filter(|_| !at_once);
        Limits {
            until: deadline.map(|at| services.system_time(at)),
            at_once,
            ..self.context.limits
        }
    }

    /// Makes what an expression gives the content.
    ///
    /// # Errors
    /// As [`Exchange::evaluate`].
    pub fn map(&mut self, expression: &Expression, services: &dyn Services) -> Result<(), Fault> {
        self.attempt.operation();
        self.content = match self.project(expression)? {
            Some(content) => content,
            None => Content::of_value(self.evaluate_here(expression, services)?),
        };
        Ok(())
    }

    /// What an expression makes of a text without decoding it; see [`Content::project`].
    fn project(&mut self, expression: &Expression) -> Result<Option<Content>, Fault> {
        let headers = self.request.headers.view();
        let is_long = self.content.is_long_to_decode() && expression.is_projection();
        if !is_long || !long_work::may_defer() {
            let limits = &self.context.limits;
            return Ok(self.content.project(expression, limits, headers));
        }
        match self
            .attempt
            .result(|it| matches!(it, DeferredResult::Projected(_)))
        {
            Some(DeferredResult::Projected(content)) => Ok(content),
            _ => {
                let (content, expression) = (self.content.clone(), expression.clone());
                let (headers, limits) = (self.request.headers.clone(), self.context.limits);
                Err(self.attempt.defer(Box::new(move || {
                    DeferredResult::Projected(content.project(&expression, &limits, headers.view()))
                })))
            }
        }
    }

    /// Whether a condition holds here: `false` and `null` do not.
    ///
    /// # Errors
    /// As [`Exchange::evaluate`].
    pub fn holds(
        &mut self,
        condition: &Expression,
        services: &dyn Services,
    ) -> Result<bool, Fault> {
        Ok(expr::value::is_truthy(&self.evaluate(condition, services)?))
    }

    /// What a text with `${ }` in it gives here.
    ///
    /// # Errors
    /// As [`Exchange::evaluate`].
    pub fn fill(&mut self, template: &Template, services: &dyn Services) -> Result<Value, Fault> {
        if let Some(text) = template.literal() {
            return Ok(expr::value::text(text));
        }
        self.attempt.operation();
        self.prepare(template.uses_input(), template.variables())?;
        if let Some(result) = self.evaluated("${ }") {
            return result;
        }
        let limits = self.limits(services);
        let result = {
            let variables = Variables::new(self, services);
            template.evaluate(self.content.decoded(), &variables, &limits)
        };
        result.map_err(|error| {
            let copy = template.clone();
            let evaluate = move |input: &Value, variables: &Snapshot, limits: &Limits| {
                copy.evaluate(input, variables, limits)
            };
            self.failed("${ }", &error, template.variables(), evaluate, services)
        })
    }

    /// What a text with `${ }` in it gives here, as text.
    ///
    /// # Errors
    /// As [`Exchange::evaluate`]; `invalid` when it is no text, number or boolean.
    pub fn fill_text(
        &mut self,
        template: &Template,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        if let Some(text) = template.literal() {
            return Ok(text.to_owned());
        }
        let value = self.fill(template, services)?;
        match expr::value::scalar_text(&value) {
            Some(text) => Ok(text.into_owned()),
            None => {
                let kind = expr::value::kind(&value);
                let expression = template.expressions().next();
                let shown = expression.map_or("", |it| it.text().trim());
                let detail = format!("a text is needed, not {kind}");
                Err(Fault::unfit(detail, format_args!("`{shown}`")))
            }
        }
    }

    /// Decodes what an evaluation will ask for.
    fn prepare(&mut self, uses_input: bool, variables: &[usize]) -> Result<(), Fault> {
        if uses_input {
            self.decode()?;
        }
        if variables.contains(&scope::IN)
            && let Some(original) = &self.original
            && original.value.get().is_none()
        {
            let mut content = original.content.clone();
            let is_large = content.is_long_to_decode();
            let body = content.value(original.request.headers.view())?.clone();
            if is_large {
                self.large.hold(&body);
            }
            let value = request_value(&original.request, body);
            // Nobody else is here to have set it in between.
            let _ = original.value.set(value);
        }
        Ok(())
    }

    /// The failure of an evaluation. One that exceeded its time slice is deferred.
    #[cold]
    fn failed(
        &mut self,
        text: &str,
        error: &EvalError,
        slots: &[usize],
        evaluate: impl Evaluate,
        services: &dyn Services,
    ) -> Fault {
        if error.kind != EvalErrorKind::Unfinished {
            return expression_fault(text, error);
        }
        let input = self.content.decoded().clone();
        let variables = Snapshot::of(slots, &Variables::new(self, services));
        let limits = self.context.limits;
        self.attempt.defer(Box::new(move || {
            DeferredResult::Evaluated(evaluate(&input, &variables, &limits))
        }))
    }

    /// The request as it goes on: the head that came in with the content as it is now.
    ///
    /// # Errors
    /// As [`Exchange::body`].
    pub fn take_request(&mut self) -> Result<Request, Fault> {
        self.attempt.operation();
        let body = self.encode()?;
        // A copy: the head goes on describing the content that came in, which may come back.
        let request = self.request.clone();
        Ok(self.content.put_into(request, body))
    }

    /// The same where the flow ends and nobody looks at the exchange any more.
    ///
    /// # Errors
    /// As [`Exchange::body`].
    pub fn into_request(mut self) -> Result<Request, Fault> {
        let body = self.encode()?;
        Ok(self.content.put_into(self.request, body))
    }

    /// A reply with the content and what describes it.
    ///
    /// # Errors
    /// As [`Exchange::body`].
    pub fn take_reply(&mut self, status: u16) -> Result<Reply, Fault> {
        let mut reply = Reply::new(status);
        let (body, content_type) = self.body()?;
        if matches!(body, Body::Empty) {
            return Ok(reply);
        }
        reply.body = body;
        if let Some(content_type) = content_type {
            reply.headers.append("Content-Type", content_type);
        }
        if let Some(encoding) = self.content_encoding() {
            reply.headers.append("Content-Encoding", encoding);
        }
        Ok(reply)
    }

    /// Takes the reply of another system over: its body becomes the content, its head `$reply`.
    pub fn take_over(&mut self, reply: Reply) {
        self.note_reply(reply);
        if let Some(reply) = &self.reply {
            self.content = reply.content.clone();
        }
    }

    /// Keeps the reply of another system for `$reply` alone; the content stays.
    pub fn note_reply(&mut self, reply: Reply) {
        self.reply = Some(Rc::new(ReplyHead {
            content: Content::of_reply(&reply).of_another(),
            status: reply.status,
            headers: reply.headers,
        }));
    }

    /// The message as it came in, when it has been kept: its head and its content.
    pub fn original(&self) -> Option<(&Request, &Content)> {
        let original = self.original.as_ref()?;
        Some((&original.request, &original.content))
    }

    pub(crate) fn original_value(&self) -> Value {
        let original = self.original.as_ref();
        let value = original.and_then(|original| original.value.get());
        value.cloned().unwrap_or_default()
    }
}

/// An expression or a template that is evaluated on another thread.
trait Evaluate:
    FnOnce(&Value, &Snapshot, &Limits) -> Result<Value, EvalError> + Send + 'static
{
}

impl<F> Evaluate for F where
    F: FnOnce(&Value, &Snapshot, &Limits) -> Result<Value, EvalError> + Send + 'static
{
}

fn expression_fault(text: &str, error: &EvalError) -> Fault {
    let shown: String = text.trim().chars().take(120).collect();
    let cause = format_args!("`{}`: {error}", shown.escape_debug());
    match error.kind {
        EvalErrorKind::NoText => {
            let detail = "a value is missing, or is no text, number or boolean";
            Fault::unfit(detail, cause)
        }
        _ => Fault::expression(cause),
    }
}
