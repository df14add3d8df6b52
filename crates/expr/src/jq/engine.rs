//! The general way to evaluate: jaq.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jaq_core::data::{DataT, HasLut};
use jaq_core::load::parse::{Def, Term};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Lut, RunPtr, ValXs, Vars, native};

use super::Variables;
use super::error::{EvalError, EvalErrorKind};
use super::names::Functions;
use crate::value::{Value, float, shown};

/// What natives see of an evaluation.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    lut: &'a Lut<Kind>,
    variables: &'a dyn Variables,
}

pub(super) struct Kind;

impl DataT for Kind {
    type V<'a> = Value;
    type Data<'a> = Context<'a>;
}

impl<'a> HasLut<'a, Kind> for Context<'a> {
    fn lut(&self) -> &'a Lut<Kind> {
        self.lut
    }
}

/// The definition that holds the user's expression; a name that the parser accepts, as the file
/// that calls it is parsed.
const MAIN: &str = "@main";

const HIDDEN: &[&str] = &["env", "halt", "now", "localtime", "strflocaltime"];

fn natives() -> impl Iterator<Item = native::Fun<Kind>> {
    let base = jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs());
    let base = base.filter(|(name, _, _)| !HIDDEN.contains(name));
    let now: native::Filter<RunPtr<Kind>> = ("now", native::v(0), now);
    base.chain([native::run::<Kind>(now)])
}

fn now(cv: jaq_core::Cv<'_, Kind>) -> ValXs<'_, Value> {
    native::bome(Ok(float(cv.0.data().variables.now())))
}

static DEFINITIONS: LazyLock<Vec<Def<&'static str>>> = LazyLock::new(|| {
    let all = jaq_core::defs()
        .chain(jaq_std::defs())
        .chain(jaq_json::defs());
    let hidden = ["halt", "halt_error", "debug", "stderr"];
    all.filter(|it| !hidden.contains(&it.name)).collect()
});

static SIGNATURES: LazyLock<BTreeSet<(String, usize)>> = LazyLock::new(|| {
    let definitions = DEFINITIONS
        .iter()
        .map(|it| (it.name.to_owned(), it.args.len()));
    let natives = natives().map(|(name, arguments, _)| (name.to_owned(), arguments.len()));
    definitions.chain(natives).collect()
});

pub(super) struct Known;

impl Functions for Known {
    fn has(&self, name: &str, arity: usize) -> bool {
        SIGNATURES.contains(&(name.to_owned(), arity))
    }

    fn all(&self) -> Vec<(String, usize)> {
        SIGNATURES.iter().cloned().collect()
    }
}

/// A compiled expression.
pub(super) struct Engine {
    filter: Filter<Kind>,
    slots: Vec<usize>,
}

impl Engine {
    /// Compiles what has no unknown names.
    pub fn compile(term: Term<&str>, variables: &[(String, usize)]) -> Option<Self> {
        let main = Def {
            name: MAIN,
            args: Vec::new(),
            body: term,
        };
        let arena = Arena::default();
        let definitions = DEFINITIONS.iter().cloned();
        let file = File {
            code: MAIN,
            path: (),
        };
        let modules = Loader::new(definitions.chain([main]))
            .load(&arena, file)
            .ok()?;
        let filter = Compiler::<_, Kind>::default()
            .with_funs(natives())
            .with_global_vars(variables.iter().map(|(name, _)| name.as_str()))
            .compile(modules)
            .ok()?;
        Some(Self {
            filter,
            slots: variables.iter().map(|(_, slot)| *slot).collect(),
        })
    }

    /// Hands each result to `accept` until that says stop.
    pub fn run(
        &self,
        input: &Value,
        variables: &dyn Variables,
        mut accept: impl FnMut(Value) -> bool,
    ) -> Result<(), EvalError> {
        let context = Context {
            lut: &self.filter.lut,
            variables,
        };
        let values = self.slots.iter().map(|slot| variables.get(*slot));
        let context = Ctx::<Kind>::new(context, Vars::new(values));
        for result in self.filter.id.run((context, input.clone())) {
            match result {
                Ok(value) => {
                    if !accept(value) {
                        break;
                    }
                }
                Err(exception) => {
                    let message = match exception.get_err() {
                        Ok(error) => match error.into_val() {
                            Value::TStr(text) => String::from_utf8_lossy(&text).into_owned(),
                            value => shown(&value),
                        },
                        Err(_) => "the expression was left".to_owned(),
                    };
                    return Err(EvalError::new(EvalErrorKind::Type, message));
                }
            }
        }
        Ok(())
    }
}
