//! The general way to evaluate: jaq.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jaq_core::data::{DataT, HasLut};
use jaq_core::load::parse::{Def, Term};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Lut, Vars};

use super::counted::Counted;
use super::error::{EvalError, EvalErrorKind};
use super::names::{self, Functions};
use super::{Variables, guard, meter, natives};
use crate::value::{Value, shown};

/// What natives see of an evaluation.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    lut: &'a Lut<Kind>,
    variables: &'a dyn Variables,
}

impl Context<'_> {
    pub fn now(&self) -> Counted {
        Counted::from(self.variables.now())
    }
}

pub(super) struct Kind;

impl DataT for Kind {
    type V<'a> = Counted;
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

/// Definitions of jaq that we do not want, or have in another way.
const REPLACED: &[&str] = &[
    "halt",
    "halt_error",
    "debug",
    "stderr",
    "tonumber",
    "getpath_",
    "from_entries",
    "with_entries",
    "del",
    "delpaths",
    "nan",
    "infinite",
    "test",
    "scan",
    "scan_",
    "sub",
    "gsub",
    "isnormal",
    "transpose",
    "flatten",
    "pick",
];

/// A definition of the prelude, with counting in it, and the earlier ones that it uses.
struct Prepared {
    definition: Def<&'static str>,
    needs: Vec<usize>,
}

struct Prelude {
    definitions: Vec<Prepared>,
    /// The last definition of each name and arity.
    places: BTreeMap<(&'static str, usize), usize>,
    signatures: BTreeSet<(String, usize)>,
}

static PRELUDE: LazyLock<Prelude> = LazyLock::new(Prelude::new);

impl Prelude {
    fn new() -> Self {
        let all = jaq_core::defs()
            .chain(jaq_std::defs())
            .chain(jaq_json::defs());
        let all = all.filter(|it| !REPLACED.contains(&it.name));
        let own = jaq_core::load::parse(include_str!("helpers.jq"), |parser| parser.defs());
        let all = all.chain(own.unwrap_or_default());
        let mut prelude = Self {
            definitions: Vec::new(),
            places: BTreeMap::new(),
            signatures: BTreeSet::new(),
        };
        for (name, arguments, _) in natives::all() {
            prelude
                .signatures
                .insert((name.to_owned(), arguments.len()));
        }
        for definition in all {
            let signature = (definition.name, definition.args.len());
            let needs = names::calls(&definition.body);
            let needs = needs.iter().filter_map(|(name, arity)| {
                let place = prelude.places.get(&(name.as_str(), *arity));
                place.copied()
            });
            let needs = needs.collect();
            let Ok(definition) = guard::definition(definition) else {
                continue;
            };
            let place = prelude.definitions.len();
            prelude.definitions.push(Prepared { definition, needs });
            prelude.places.insert(signature, place);
            prelude
                .signatures
                .insert((signature.0.to_owned(), signature.1));
        }
        prelude
    }

    /// The definitions that these functions need, in order.
    fn reachable(&self, functions: &BTreeSet<(String, usize)>) -> Vec<Def<&'static str>> {
        let places = functions.iter().filter_map(|(name, arity)| {
            let place = self.places.get(&(name.as_str(), *arity));
            place.copied()
        });
        let mut wanted: Vec<usize> = places.collect();
        let mut found = BTreeSet::new();
        while let Some(place) = wanted.pop() {
            if found.insert(place) {
                let prepared = self.definitions.get(place);
                wanted.extend(prepared.iter().flat_map(|it| it.needs.iter()));
            }
        }
        let found = found
            .into_iter()
            .filter_map(|place| self.definitions.get(place));
        found.map(|it| it.definition.clone()).collect()
    }
}

pub(super) struct Known;

impl Functions for Known {
    fn has(&self, name: &str, arity: usize) -> bool {
        !name.starts_with('!') && PRELUDE.signatures.contains(&(name.to_owned(), arity))
    }

    fn all(&self) -> Vec<(String, usize)> {
        PRELUDE.signatures.iter().cloned().collect()
    }
}

/// All functions, by name and number of arguments.
pub(super) fn builtins() -> impl Iterator<Item = String> {
    let typed = PRELUDE.signatures.iter();
    let typed = typed.filter(|(name, _)| name.starts_with(|it: char| it.is_ascii_alphabetic()));
    typed.map(|(name, arity)| format!("{name}/{arity}"))
}

/// A compiled expression.
pub(super) struct Engine {
    filter: Filter<Kind>,
    slots: Vec<usize>,
}

impl Engine {
    /// Compiles what has no unknown names and has been lowered; none when it is nested too deep.
    pub fn compile(term: Term<&str>, used: &names::Used) -> Option<Self> {
        let main = Def {
            name: MAIN,
            args: Vec::new(),
            body: term,
        };
        let main = guard::definition(main).ok()?;
        let mut functions = used.functions.clone();
        functions.extend(
            ALWAYS
                .iter()
                .map(|(name, arity)| ((*name).to_owned(), *arity)),
        );
        let definitions = PRELUDE.reachable(&functions).into_iter();
        let file = File {
            code: MAIN,
            path: (),
        };
        let arena = Arena::default();
        let modules = Loader::new(definitions.chain([main]))
            .load(&arena, file)
            .ok()?;
        let filter = Compiler::<_, Kind>::default()
            .with_funs(natives::all())
            .with_global_vars(used.variables.iter().map(|(name, _)| name.as_str()))
            .compile(modules)
            .ok()?;
        Some(Self {
            filter,
            slots: used.variables.iter().map(|(_, slot)| *slot).collect(),
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
        let values = self.slots.iter();
        let values = values.map(|slot| Counted::outside(variables.get(*slot)));
        let context = Ctx::<Kind>::new(context, Vars::new(values));
        let input = Counted::outside(input.clone());
        for result in self.filter.id.run((context, input)) {
            match result {
                Ok(value) => {
                    if !accept(value.value) {
                        break;
                    }
                }
                Err(exception) => return Err(failure(exception)),
            }
        }
        Ok(())
    }
}

/// What jaq itself calls.
const ALWAYS: &[(&str, usize)] = &[];

fn failure(exception: jaq_core::Exn<'_, Counted>) -> EvalError {
    let Ok(error) = exception.get_err() else {
        return EvalError::new(EvalErrorKind::Type, "the expression was left");
    };
    failure_of(error)
}

/// An error of jaq as ours.
pub(super) fn failure_of(error: super::counted::Error) -> EvalError {
    let value = error.into_val().value;
    let kind = match meter::was_raised(&value) {
        true => EvalErrorKind::Raised,
        false => EvalErrorKind::Type,
    };
    let message = match &value {
        Value::TStr(text) => cut(&String::from_utf8_lossy(text)),
        other => shown(other),
    };
    EvalError::new(kind, message)
}

/// The longest message; what is shown of values is cut before.
const MESSAGE_MAX: usize = 1000;

fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}...", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}
