//! Which names an expression uses: unknown ones are errors.

use std::collections::BTreeSet;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::path::{Part, Path};

use super::Scope;
use super::error::CompileError;
use super::pattern::{Flags, Pattern as Regex};
use super::syntax::span;

/// Functions of jq that a server must not offer, and why.
const UNAVAILABLE: &[(&str, &str)] = &[
    (
        "env",
        "the environment is in `$env`, as far as `engine.env` names it",
    ),
    ("halt", "an expression cannot end the process"),
    (
        "halt_error",
        "an expression cannot end the process; `error` fails",
    ),
    ("input", "the one input is `.`"),
    ("inputs", "the one input is `.`"),
    ("debug", "the step `log` writes to the log"),
    ("stderr", "the step `log` writes to the log"),
    ("input_filename", "the one input is `.`"),
    ("input_line_number", "the one input is `.`"),
    ("get_search_list", "there are no modules"),
    ("modulemeta", "there are no modules"),
    ("localtime", "times have the zone that `in_zone` gives them"),
    (
        "strflocaltime",
        "times have the zone that `in_zone` gives them",
    ),
];

/// What an expression uses.
#[derive(Default)]
pub(super) struct Used {
    /// Variables from outside, with their `$`, and their slots.
    pub variables: Vec<(String, usize)>,
    /// The slots of variables with the members that are used of them: constant names from the
    /// outermost, none for the whole value.
    pub members: Vec<(usize, Vec<String>)>,
    /// Names and arities of functions that it does not define itself.
    pub functions: BTreeSet<(String, usize)>,
    pub errors: Vec<CompileError>,
}

/// The functions there are beside those of the expression.
pub(super) trait Functions {
    fn has(&self, name: &str, arity: usize) -> bool;
    fn all(&self) -> Vec<(String, usize)>;
}

/// Finds what an expression uses.
pub(super) fn used(
    code: &str,
    term: &Term<&str>,
    scope: &dyn Scope,
    functions: &dyn Functions,
) -> Used {
    let mut names = Names {
        code,
        scope,
        functions,
        used: Used::default(),
        locals: Vec::new(),
    };
    names.term(term);
    names.used
}

/// The functions that a definition of the prelude uses.
pub(super) fn calls(term: &Term<&str>) -> BTreeSet<(String, usize)> {
    struct All;
    impl Functions for All {
        fn has(&self, _: &str, _: usize) -> bool {
            true
        }
        fn all(&self) -> Vec<(String, usize)> {
            Vec::new()
        }
    }
    impl Scope for All {
        fn slot(&self, _: &str) -> Option<usize> {
            Some(0)
        }
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }
    used("", term, &All, &All).functions
}

/// The names at the beginning of a path that stand in the expression itself: `a` and `b` of
/// `.a["b"][$i].c`.
fn constant_names(path: &Path<Term<&str>>) -> Vec<String> {
    let names = path.0.iter().map_while(|(part, _)| {
        let Part::Index(Term::Str(None, parts)) = part else {
            return None;
        };
        let mut name = String::new();
        for part in parts {
            match part {
                StrPart::Str(text) => name.push_str(text),
                StrPart::Char(character) => name.push(*character),
                StrPart::Term(_) => return None,
            }
        }
        Some(name)
    });
    names.collect()
}

#[derive(Clone, Copy)]
enum Local<'s> {
    Variable(&'s str),
    Function(&'s str, usize),
    Label(&'s str),
}

struct Names<'a, 's> {
    code: &'s str,
    scope: &'a dyn Scope,
    functions: &'a dyn Functions,
    used: Used,
    locals: Vec<Local<'s>>,
}

impl<'s> Names<'_, 's> {
    fn within(&mut self, locals: &[Local<'s>], run: impl FnOnce(&mut Self)) {
        let before = self.locals.len();
        self.locals.extend_from_slice(locals);
        run(self);
        self.locals.truncate(before);
    }

    fn term(&mut self, term: &Term<&'s str>) {
        match term {
            Term::Id | Term::Recurse | Term::Num(_) | Term::Arr(None) => {}
            Term::Str(format, parts) => self.string(*format, parts),
            Term::Arr(Some(inner)) | Term::Neg(inner) => self.term(inner),
            Term::Obj(members) => members.iter().for_each(|(key, value)| {
                self.term(key);
                value.iter().for_each(|value| self.term(value));
            }),
            Term::BinOp(left, operator, right) => self.binary(left, operator, right),
            Term::Label(name, inner) => {
                self.within(&[Local::Label(name)], |it| it.term(inner));
            }
            Term::Break(name) => self.label(name),
            Term::Fold(_, items, pattern, rest) => self.fold(items, pattern, rest),
            Term::TryCatch(tried, caught) => {
                self.term(tried);
                caught.iter().for_each(|it| self.term(it));
            }
            Term::IfThenElse(branches, last) => {
                for (condition, then) in branches {
                    self.term(condition);
                    self.term(then);
                }
                last.iter().for_each(|it| self.term(it));
            }
            Term::Def(definitions, inner) => self.definitions(definitions, inner),
            Term::Call(name, arguments) => {
                arguments.iter().for_each(|it| self.term(it));
                self.call(name, arguments.len());
                self.regex(name, arguments);
            }
            Term::Var(name) => self.variable(name, Vec::new()),
            Term::Path(head, path) => {
                match &**head {
                    Term::Var(name) => self.variable(name, constant_names(path)),
                    head => self.term(head),
                }
                for (part, _) in &path.0 {
                    match part {
                        Part::Index(index) => self.term(index),
                        Part::Range(from, to) => {
                            from.iter().chain(to).for_each(|it| self.term(it));
                        }
                    }
                }
            }
        }
    }

    fn string(&mut self, format: Option<&'s str>, parts: &[StrPart<&'s str, Term<&'s str>>]) {
        if let Some(format) = format {
            self.call(format, 0);
        }
        for part in parts {
            if let StrPart::Term(term) = part {
                self.term(term);
            }
        }
    }

    fn binary(
        &mut self,
        left: &Term<&'s str>,
        operator: &BinaryOp<&'s str>,
        right: &Term<&'s str>,
    ) {
        self.term(left);
        let mut locals = Vec::new();
        if let BinaryOp::Pipe(Some(pattern)) = operator {
            self.pattern(pattern, &mut locals);
        }
        self.within(&locals, |it| it.term(right));
    }

    fn fold(&mut self, items: &Term<&'s str>, pattern: &Pattern<&'s str>, rest: &[Term<&'s str>]) {
        self.term(items);
        let mut locals = Vec::new();
        self.pattern(pattern, &mut locals);
        let (first, rest) = rest.split_at(rest.len().min(1));
        first.iter().for_each(|it| self.term(it));
        self.within(&locals, |names| rest.iter().for_each(|it| names.term(it)));
    }

    fn pattern(&mut self, pattern: &Pattern<&'s str>, locals: &mut Vec<Local<'s>>) {
        match pattern {
            Pattern::Var(name) => locals.push(Local::Variable(name)),
            Pattern::Arr(items) => items.iter().for_each(|it| self.pattern(it, locals)),
            Pattern::Obj(members) => {
                for (key, value) in members {
                    self.term(key);
                    self.pattern(value, locals);
                }
            }
        }
    }

    fn definitions(&mut self, definitions: &[Def<&'s str>], inner: &Term<&'s str>) {
        let before = self.locals.len();
        for Def { name, args, body } in definitions {
            let itself = Local::Function(name, args.len());
            let mut locals = vec![itself];
            locals.extend(args.iter().map(|it| match it.starts_with('$') {
                true => Local::Variable(it),
                false => Local::Function(it, 0),
            }));
            self.within(&locals, |it| it.term(body));
            self.locals.push(itself);
        }
        self.term(inner);
        self.locals.truncate(before);
    }

    fn error(&mut self, name: &str, message: String, hint: Option<String>) {
        let at = span(self.code, name);
        let error = CompileError { message, hint, at };
        if !self.used.errors.contains(&error) {
            self.used.errors.push(error);
        }
    }

    fn label(&mut self, name: &'s str) {
        let is_known = |it: &Local| matches!(it, Local::Label(label) if *label == name);
        if !self.locals.iter().any(is_known) {
            self.error(
                name,
                format!("there is no `label {name}` around this"),
                None,
            );
        }
    }

    fn variable(&mut self, name: &'s str, members: Vec<String>) {
        let is_local = |it: &Local| matches!(it, Local::Variable(local) if *local == name);
        if self.locals.iter().any(is_local) || name == "$__loc__" {
            return;
        }
        let bare = name.strip_prefix('$').unwrap_or(name);
        if let Some(slot) = self.scope.slot(bare) {
            let variables = &mut self.used.variables;
            if !variables.iter().any(|(known, _)| known == name) {
                variables.push((name.to_owned(), slot));
            }
            let used = (slot, members);
            if !self.used.members.contains(&used) {
                self.used.members.push(used);
            }
            return;
        }
        if name == "$ENV" {
            let hint = "the environment is in `$env`, as far as `engine.env` names it";
            return self.error(
                name,
                "`$ENV` is not available".to_owned(),
                Some(hint.to_owned()),
            );
        }
        let mut known = self.scope.names();
        for local in &self.locals {
            if let Local::Variable(name) = local {
                known.push(name.trim_start_matches('$').to_owned());
            }
        }
        let hint = nearest(bare, known.iter().map(String::as_str));
        let hint = hint.map(|it| format!("did you mean `${it}`?"));
        self.error(name, format!("there is no variable `{name}`"), hint);
    }

    fn call(&mut self, name: &'s str, arity: usize) {
        let is_local =
            |it: &Local| matches!(it, Local::Function(n, a) if *n == name && *a == arity);
        if self.locals.iter().any(is_local) {
            return;
        }
        if self.functions.has(name, arity) {
            self.used.functions.insert((name.to_owned(), arity));
            return;
        }
        if let Some((_, reason)) = UNAVAILABLE.iter().find(|(known, _)| *known == name) {
            let message = format!("`{name}` is not available");
            return self.error(name, message, Some((*reason).to_owned()));
        }
        if name == "include" || name == "import" || name.contains("::") {
            return self.error(name, "modules are not available".to_owned(), None);
        }
        let (message, hint) = self.unknown_function(name, arity);
        self.error(name, message, hint);
    }

    /// A regular expression that is written down is one, and so are its flags.
    fn regex(&mut self, name: &'s str, arguments: &[Term<&'s str>]) {
        let (pattern, flags) = match (name, arguments) {
            ("test" | "match" | "capture" | "scan" | "splits", [pattern]) => (pattern, None),
            ("test" | "match" | "capture" | "scan" | "split" | "splits", [pattern, flags]) => {
                (pattern, Some(flags))
            }
            ("sub" | "gsub", [pattern, _]) => (pattern, None),
            ("sub" | "gsub", [pattern, _, flags]) => (pattern, Some(flags)),
            _ => return,
        };
        let arity = arguments.len();
        let is_own = |it: &Local| matches!(it, Local::Function(n, a) if *n == name && *a == arity);
        let Some(pattern) = constant_text(pattern) else {
            return;
        };
        let flags = flags.map_or(Some(String::new()), constant_text);
        if self.code.is_empty() || self.locals.iter().any(is_own) {
            return;
        }
        let read = Flags::read(flags.as_deref().unwrap_or_default());
        if let Err(message) = read.and_then(|flags| Regex::compile(&pattern, &flags)) {
            self.error(name, message, None);
        }
    }

    fn unknown_function(&self, name: &str, arity: usize) -> (String, Option<String>) {
        let mut known = self.functions.all();
        for local in &self.locals {
            if let Local::Function(name, arity) = local {
                known.push(((*name).to_owned(), *arity));
            }
        }
        let arities: BTreeSet<usize> = known
            .iter()
            .filter(|(it, _)| it == name)
            .map(|(_, arity)| *arity)
            .collect();
        if !arities.is_empty() {
            let arities: Vec<String> = arities.iter().map(ToString::to_string).collect();
            let message = format!(
                "`{name}` takes {} arguments, not {arity}",
                arities.join(" or ")
            );
            let hint = "arguments stand in parentheses, with `;` between";
            return (message, Some(hint.to_owned()));
        }
        let names = known.iter().map(|(name, _)| name.as_str());
        let hint = nearest(name, names.chain(KEYWORDS.iter().copied()));
        (
            format!("there is no function `{name}`"),
            hint.map(|it| format!("did you mean `{it}`?")),
        )
    }
}

/// The text of a literal that is one.
pub(super) fn constant_text(term: &Term<&str>) -> Option<String> {
    let Term::Str(None, parts) = term else {
        return None;
    };
    let mut text = String::new();
    for part in parts {
        match part {
            StrPart::Str(part) => text.push_str(part),
            StrPart::Char(character) => text.push(*character),
            StrPart::Term(_) => return None,
        }
    }
    Some(text)
}

const KEYWORDS: &[&str] = &[
    "if", "then", "else", "elif", "end", "as", "def", "reduce", "foreach",
];

/// The name that is most like the given one, if any is.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let distance_max = (name.chars().count() / 3).max(1);
    known
        .filter(|it| it.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '@'))
        .map(|it| (strsim::damerau_levenshtein(name, it), it))
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, it)| it.to_owned())
}
