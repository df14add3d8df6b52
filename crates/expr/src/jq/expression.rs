//! One expression: compiled once, evaluated for every message.

use std::cell::OnceCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Term};
use jaq_core::path::Part;

use super::engine::{Engine, Known};
use super::error::{CompileError, EvalError, EvalErrorKind};
use super::fast::{self, Fast};
use super::{Limits, Scope, Variables, lower, meter, names, syntax, walk};
use crate::json::{self, Projection};
use crate::value::{self, Value};

/// A compiled expression. It gives exactly one result for an input. A copy is cheap.
#[derive(Clone)]
pub struct Expression(Arc<Compiled>);

struct Compiled {
    text: String,
    slots: Vec<usize>,
    uses_input: bool,
    constant: Option<Value>,
    fast: Option<Fast>,
    makes_numbers: bool,
    projection: Option<Projection>,
    used: names::Used,
    engine: OnceLock<Option<Engine>>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Expression")
            .field(&self.0.text)
            .finish()
    }
}

impl Expression {
    /// Compiles the text of an expression.
    ///
    /// # Errors
    /// What is wrong with it: syntax, unknown functions and variables, or what is not available.
    pub fn compile(code: &str, scope: &dyn Scope) -> Result<Self, Vec<CompileError>> {
        let names = Names::of(scope);
        let expression = syntax::with_stack(code, || Self::compile_here(code, &names))?;
        expression
            .variables()
            .iter()
            .for_each(|&slot| scope.note_use(slot));
        Ok(expression)
    }

    fn compile_here(code: &str, scope: &Names) -> Result<Self, Vec<CompileError>> {
        let term = syntax::parse(code)?;
        let used = names::used(code, &term, scope, &Known);
        if !used.errors.is_empty() {
            return Err(used.errors);
        }
        let constant = literal(&term);
        let uses_input = constant.is_none() && uses_input(&term);
        let slots = used.variables.iter().map(|(_, slot)| *slot).collect();
        let fast = fast::build(&term, &used.variables);
        let expression = Self(Arc::new(Compiled {
            text: code.to_owned(),
            slots,
            uses_input,
            constant,
            projection: fast.as_ref().and_then(fast::projection),
            makes_numbers: fast.as_ref().is_none_or(Fast::makes_numbers),
            fast,
            used,
            engine: OnceLock::new(),
        }));
        let is_ready = expression.0.fast.is_some()
            || expression
                .engine(Some(lower::lowered(code, term)))
                .is_some();
        match is_ready {
            true => Ok(expression),
            false => Err(vec![too_deep(code)]),
        }
    }

    /// What runs it in general; made when first needed.
    fn engine(&self, term: Option<Term<&str>>) -> Option<&Engine> {
        let make = || {
            let term = match term {
                Some(term) => term,
                None => lower::lowered(&self.0.text, syntax::parse(&self.0.text).ok()?),
            };
            Engine::compile(term, &self.0.used)
        };
        self.0.engine.get_or_init(make).as_ref()
    }

    /// The text that it was compiled from.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The slots of the variables that it uses, each once.
    pub fn variables(&self) -> &[usize] {
        &self.0.slots
    }

    /// What it uses of the variable in this slot: constant names from the outermost, none for the
    /// whole value. `$a.b["c"] + $a.d[0]` uses `b c` and `d`.
    pub fn members_of(&self, slot: usize) -> impl Iterator<Item = &[String]> {
        let members = self.0.used.members.iter();
        members.filter(move |it| it.0 == slot).map(|it| &*it.1)
    }

    /// Whether it looks at `.`; may say so when it does not.
    pub fn uses_input(&self) -> bool {
        self.0.uses_input
    }

    /// Its value, when it is a literal.
    pub fn constant(&self) -> Option<&Value> {
        self.0.constant.as_ref()
    }

    /// The one result for an input.
    ///
    /// # Errors
    /// When the expression fails, passes a limit, has no result or more than one, or when the
    /// result is not JSON.
    pub fn evaluate(
        &self,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> Result<Value, EvalError> {
        if let Some(constant) = &self.0.constant {
            return Ok(constant.clone());
        }
        let running = meter::Running::start(limits);
        self.evaluate_in(&running, input, variables, limits)
    }

    /// The same as [`Self::evaluate`], and how many steps it took, also when it failed.
    pub fn evaluate_counted(
        &self,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> (Result<Value, EvalError>, u64) {
        if let Some(constant) = &self.0.constant {
            return (Ok(constant.clone()), 0);
        }
        let running = meter::Running::start(limits);
        let result = self.evaluate_in(&running, input, variables, limits);
        (result, running.taken(limits))
    }

    fn evaluate_in(
        &self,
        running: &meter::Running,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> Result<Value, EvalError> {
        match &self.0.fast {
            Some(fast) => self.evaluate_fast((fast, running), input, variables, limits),
            None => self.evaluate_general(running, input, variables, limits),
        }
    }

    /// Whether it only puts parts of its input together; see [`Expression::project`].
    pub fn is_projection(&self) -> bool {
        self.0.projection.is_some()
    }

    /// Appends the result for a JSON text as JSON text, where the expression only puts parts of its
    /// input together. They are copied as they stand, white space and escapes included.
    ///
    /// It says no, and leaves `out` as it was, when the expression does more, or when something is
    /// unusual about the text: reading it with at most `depth_max` levels, evaluating and writing
    /// then give the result or the failure.
    pub fn project(
        &self,
        body: &Bytes,
        depth_max: usize,
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(projection) = &self.0.projection else {
            return false;
        };
        let depth_max = depth_max.min(limits.depth.saturating_sub(projection.depth));
        projection.run(body, depth_max, limits.memory, out)
    }

    fn evaluate_fast(
        &self,
        (fast, running): (&Fast, &meter::Running),
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> Result<Value, EvalError> {
        let empty = [const { OnceCell::new() }; 8];
        let many: Vec<OnceCell<Value>>;
        let cells = match empty.get(..self.0.slots.len()) {
            Some(cells) => cells,
            None => {
                many = self.0.slots.iter().map(|_| OnceCell::new()).collect();
                &many
            }
        };
        let context = fast::Context {
            variables,
            slots: &self.0.slots,
            cells,
        };
        let result = match fast.run(input, &context) {
            Ok(result) => Ok(result.into_owned()),
            Err(fast::Stop::Fail(error)) => Err(error),
            Err(fast::Stop::Empty) => Err(no_result()),
        };
        if let Some(error) = running.stopped() {
            return Err(error);
        }
        let result = result?;
        if self.0.makes_numbers || limits.depth < json::DEPTH_LIMIT {
            let depth = limits.depth.min(json::DEPTH_LIMIT);
            match walk::check(&result, depth) {
                Ok(checked) => checked.map_err(flawed)?,
                Err(_) => return Err(running.stopped().unwrap_or_else(no_result)),
            }
        }
        Ok(result)
    }

    /// The same as [`Self::evaluate`] without the quick way.
    #[doc(hidden)]
    pub fn evaluate_slow(
        &self,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> Result<Value, EvalError> {
        let running = meter::Running::start(limits);
        self.evaluate_general(&running, input, variables, limits)
    }

    fn evaluate_general(
        &self,
        running: &meter::Running,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> Result<Value, EvalError> {
        let mut result = None;
        let mut is_single = true;
        let accept = |value| {
            is_single = result.is_none();
            result = Some(value);
            is_single
        };
        self.run(running, input, variables, limits, accept)?;
        match result {
            Some(result) if is_single => Ok(result),
            Some(_) => Err(EvalError::new(
                EvalErrorKind::Count,
                "gave more than one result",
            )),
            None => Err(no_result()),
        }
    }

    /// Whether it has the quick way.
    #[doc(hidden)]
    pub fn is_fast(&self) -> bool {
        self.0.fast.is_some()
    }

    /// All results for an input, or those before the failure.
    #[doc(hidden)]
    pub fn evaluate_all(
        &self,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
    ) -> (Vec<Value>, Result<(), EvalError>) {
        let mut results = Vec::new();
        let accept = |value| {
            results.push(value);
            true
        };
        let running = meter::Running::start(limits);
        let outcome = self.run(&running, input, variables, limits, accept);
        (results, outcome)
    }

    fn run(
        &self,
        running: &meter::Running,
        input: &Value,
        variables: &dyn Variables,
        limits: &Limits,
        mut accept: impl FnMut(Value) -> bool,
    ) -> Result<(), EvalError> {
        let depth = limits.depth.min(json::DEPTH_LIMIT);
        let mut flaw = None;
        let Some(engine) = self.engine(None) else {
            return Err(EvalError::new(
                EvalErrorKind::Budget,
                "the expression is nested too deep",
            ));
        };
        let outcome = engine.run(input, variables, |value| match walk::check(&value, depth) {
            Ok(Ok(())) => accept(value),
            Ok(Err(found)) => {
                flaw = Some(found);
                false
            }
            Err(_) => false,
        });
        if let Some(error) = running.stopped() {
            return Err(error);
        }
        if let Some(flaw) = flaw {
            return Err(flawed(flaw));
        }
        outcome
    }
}

fn too_deep(code: &str) -> CompileError {
    CompileError {
        message: "the expression is nested too deep".to_owned(),
        hint: None,
        at: 0..code.len(),
    }
}

#[cold]
fn no_result() -> EvalError {
    EvalError::new(EvalErrorKind::Count, "gave no result")
}

#[cold]
fn flawed(flaw: walk::Flaw) -> EvalError {
    let mut error = EvalError::new(EvalErrorKind::NotJson, flaw.message);
    error.part = (!flaw.path.is_empty()).then_some(flaw.path);
    error
}

/// The names of a scope, so that they may go to another thread.
struct Names(Vec<(String, usize)>);

impl Names {
    fn of(scope: &dyn Scope) -> Self {
        let names = scope.names().into_iter();
        Self(
            names
                .filter_map(|name| scope.slot(&name).map(|slot| (name, slot)))
                .collect(),
        )
    }
}

impl Scope for Names {
    fn slot(&self, name: &str) -> Option<usize> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, slot)| *slot)
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The value of a literal.
fn literal(term: &Term<&str>) -> Option<Value> {
    Some(match term {
        Term::Num(text) => value::number(text),
        Term::Str(..) => value::text(names::constant_text(term)?),
        Term::Arr(None) => value::array([]),
        Term::Obj(members) if members.is_empty() => value::object([]),
        Term::Call("true", arguments) if arguments.is_empty() => Value::Bool(true),
        Term::Call("false", arguments) if arguments.is_empty() => Value::Bool(false),
        Term::Call("null", arguments) if arguments.is_empty() => Value::Null,
        _ => return None,
    })
}

/// Functions that do not look at their input.
const BLIND: &[&str] = &[
    "true", "false", "null", "now", "empty", "nan", "infinite", "range",
];

fn uses_input(term: &Term<&str>) -> bool {
    match term {
        Term::Num(_) | Term::Var(_) | Term::Arr(None) | Term::Break(_) => false,
        Term::Id | Term::Recurse | Term::Def(..) => true,
        Term::Str(_, parts) => parts
            .iter()
            .any(|part| matches!(part, StrPart::Term(term) if uses_input(term))),
        Term::Arr(Some(inner)) | Term::Neg(inner) | Term::Label(_, inner) => uses_input(inner),
        Term::Obj(members) => members.iter().any(|(key, value)| match value {
            Some(value) => uses_input(key) || uses_input(value),
            None => !matches!(key, Term::Var(_)),
        }),
        Term::BinOp(left, BinaryOp::Pipe(None), _) => uses_input(left),
        Term::BinOp(left, _, right) => uses_input(left) || uses_input(right),
        Term::Fold(_, items, _, rest) => uses_input(items) || rest.first().is_some_and(uses_input),
        Term::TryCatch(tried, _) => uses_input(tried),
        Term::IfThenElse(branches, last) => {
            let of_branch = |(condition, then): &(_, _)| uses_input(condition) || uses_input(then);
            last.is_none()
                || branches.iter().any(of_branch)
                || last.as_deref().is_some_and(uses_input)
        }
        Term::Call(name, arguments) => !BLIND.contains(name) || arguments.iter().any(uses_input),
        Term::Path(head, path) => {
            uses_input(head)
                || path.0.iter().any(|(part, _)| match part {
                    Part::Index(index) => uses_input(index),
                    Part::Range(from, to) => from.iter().chain(to).any(uses_input),
                })
        }
    }
}
