//! Where jaq means another thing than jq by the same syntax tree, the tree is changed so that jaq
//! does what jq does. What can have several results is told from what has one, so that the usual
//! expression stays as it is.

use std::collections::BTreeSet;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::{Opt, Part, Path};

use super::names;
use super::syntax::span;

/// The last result of a filter, or null. Nobody can type these names.
pub(super) const LAST: &str = "!last";
const RIGHT: &str = "$!right";
const STATE: &str = "$!state";

/// The tree of an expression as jaq has to run it.
pub(super) fn lowered<'s>(code: &'s str, whole: Term<&'s str>) -> Term<&'s str> {
    let mut lower = Lower {
        code,
        defined: BTreeSet::new(),
    };
    lower.term(whole).0
}

struct Lower<'s> {
    code: &'s str,
    /// Functions that the expression defines: nothing is known of them.
    defined: BTreeSet<&'s str>,
}

type Parts<'s> = Vec<StrPart<&'s str, Term<&'s str>>>;

/// A tree, and whether it has at most one result, and one unless it fails. It may say no when it
/// has.
type Lowered<'s> = (Term<&'s str>, bool);

impl<'s> Lower<'s> {
    #[expect(clippy::boxed_local, reason = "a tree is made of boxes")]
    fn boxed(&mut self, term: Box<Term<&'s str>>) -> (Box<Term<&'s str>>, bool) {
        let (term, is_one) = self.term(*term);
        (Box::new(term), is_one)
    }

    /// Several trees, and whether each has one result.
    fn all(&mut self, terms: Vec<Term<&'s str>>) -> (Vec<Term<&'s str>>, bool) {
        let mut is_one = true;
        let terms = terms.into_iter().map(|it| {
            let (term, single) = self.term(it);
            is_one &= single;
            term
        });
        let terms = terms.collect();
        (terms, is_one)
    }

    fn option(&mut self, term: Option<Box<Term<&'s str>>>) -> (Option<Box<Term<&'s str>>>, bool) {
        match term.map(|it| self.boxed(it)) {
            Some((term, is_one)) => (Some(term), is_one),
            None => (None, true),
        }
    }

    fn term(&mut self, whole: Term<&'s str>) -> Lowered<'s> {
        match whole {
            Term::Var(name @ "$__loc__") => (location(self.code, name), true),
            Term::Id | Term::Num(_) | Term::Var(_) => (whole, true),
            Term::Recurse | Term::Break(_) => (whole, false),
            Term::Str(format, parts) => self.text(format, parts),
            Term::Arr(inner) => (Term::Arr(self.option(inner).0), true),
            Term::Obj(members) => self.object(members),
            Term::Neg(inner) => {
                let (inner, is_one) = self.boxed(inner);
                (Term::Neg(inner), is_one)
            }
            Term::BinOp(left, operator, right) => self.binary(left, operator, right),
            Term::Label(name, inner) => (Term::Label(name, self.boxed(inner).0), false),
            Term::Fold(name, items, pattern, rest) => self.fold(name, items, pattern, rest),
            Term::TryCatch(tried, caught) => {
                let tried = self.boxed(tried).0;
                (Term::TryCatch(tried, self.option(caught).0), false)
            }
            Term::IfThenElse(branches, last) => self.branches(branches, last),
            Term::Def(definitions, inner) => {
                self.defined.extend(definitions.iter().map(|it| it.name));
                let definitions = definitions.into_iter().map(|Def { name, args, body }| {
                    self.defined.extend(args.iter().copied());
                    let body = self.term(body).0;
                    Def { name, args, body }
                });
                let definitions = definitions.collect();
                let (inner, is_one) = self.boxed(inner);
                (Term::Def(definitions, inner), is_one)
            }
            Term::Call(name, arguments) => {
                let (arguments, is_one) = self.all(arguments);
                if !is_one && NATIVE.contains(&name) && !self.defined.contains(name) {
                    return (products(name, arguments), false);
                }
                let is_known = !self.defined.contains(name);
                let is_one = COLLECTING.contains(&name) || is_one && SINGLE.contains(&name);
                (Term::Call(name, arguments), is_one && is_known)
            }
            Term::Path(head, path) => self.path(*head, path),
        }
    }

    fn branches(
        &mut self,
        branches: Vec<(Term<&'s str>, Term<&'s str>)>,
        last: Option<Box<Term<&'s str>>>,
    ) -> Lowered<'s> {
        let mut is_one = true;
        let branches = branches.into_iter().map(|(test, then)| {
            let (test, then) = (self.term(test), self.term(then));
            is_one &= test.1 && then.1;
            (test.0, then.0)
        });
        let branches = branches.collect();
        let last = self.option(last);
        (Term::IfThenElse(branches, last.0), is_one && last.1)
    }

    fn object(&mut self, members: Vec<(Term<&'s str>, Option<Term<&'s str>>)>) -> Lowered<'s> {
        const KEY: &str = "$!key";
        let mut is_one = true;
        let mut outside = None;
        let members = members.into_iter().map(|member| match member {
            (Term::Var(name @ "$__loc__"), None) => {
                (string("__loc__"), Some(location(self.code, name)))
            }
            // What stands for its own value must be found once for both.
            (key @ Term::Str(..), None) if names::constant_text(&key).is_none() => {
                let (key, single) = self.term(key);
                is_one &= single;
                if single || outside.is_some() {
                    return (key, None);
                }
                outside = Some(key);
                let index = (Part::Index(Term::Var(KEY)), Opt::Essential);
                let value = Term::Path(Box::new(Term::Id), Path(vec![index]));
                (Term::Var(KEY), Some(value))
            }
            (key, None) => (key, None),
            (key, Some(value)) => {
                let (key, value) = (self.term(key), self.term(value));
                is_one &= key.1 && value.1;
                (key.0, Some(value.0))
            }
        });
        let members = Term::Obj(members.collect());
        match outside {
            Some(key) => (bound(key, Pattern::Var(KEY), members), false),
            None => (members, is_one),
        }
    }

    /// jq goes through the right side outside and through the left side inside.
    fn binary(
        &mut self,
        left: Box<Term<&'s str>>,
        operator: BinaryOp<&'s str>,
        right: Box<Term<&'s str>>,
    ) -> Lowered<'s> {
        let ((left, left_one), (right, right_one)) = (self.boxed(left), self.boxed(right));
        let operator = match operator {
            BinaryOp::Pipe(Some(pattern)) => BinaryOp::Pipe(Some(self.pattern(pattern))),
            other => other,
        };
        let is_one = match &operator {
            BinaryOp::Comma => false,
            // An update has one result for each of what it puts in.
            BinaryOp::Update => true,
            BinaryOp::Assign | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => right_one,
            _ => left_one && right_one,
        };
        let is_product = matches!(operator, BinaryOp::Math(_) | BinaryOp::Cmp(_));
        if !is_product || left_one || right_one {
            return (Term::BinOp(left, operator, right), is_one);
        }
        let inner = Term::BinOp(left, operator, Box::new(Term::Var(RIGHT)));
        (bound(*right, Pattern::Var(RIGHT), inner), false)
    }

    fn pattern(&mut self, pattern: Pattern<&'s str>) -> Pattern<&'s str> {
        match pattern {
            Pattern::Var(name) => Pattern::Var(name),
            Pattern::Arr(items) => {
                Pattern::Arr(items.into_iter().map(|it| self.pattern(it)).collect())
            }
            Pattern::Obj(members) => {
                let members = members.into_iter();
                let members = members.map(|(key, it)| (self.term(key).0, self.pattern(it)));
                Pattern::Obj(members.collect())
            }
        }
    }

    /// The last one of several holes is the one outside.
    fn text(&mut self, format: Option<&'s str>, parts: Parts<'s>) -> Lowered<'s> {
        // The parts of a text of which only the first has several results.
        let mut pieces: Vec<Parts<'s>> = vec![Vec::new()];
        let mut many = 0;
        for part in parts {
            let part = match part {
                StrPart::Term(inner) => {
                    let (inner, is_one) = self.term(inner);
                    many += usize::from(!is_one);
                    if !is_one && many > 1 {
                        pieces.push(Vec::new());
                    }
                    StrPart::Term(inner)
                }
                other => other,
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(part);
            }
        }
        let texts = pieces.into_iter().map(|parts| Term::Str(format, parts));
        let whole = texts.rev().reduce(|behind, before| sum(before, behind));
        (whole.unwrap_or_default(), many == 0)
    }

    /// The state is the last result of the update, or null when it has none.
    fn fold(
        &mut self,
        name: &'s str,
        items: Box<Term<&'s str>>,
        pattern: Pattern<&'s str>,
        rest: Vec<Term<&'s str>>,
    ) -> Lowered<'s> {
        let items = self.boxed(items).0;
        let pattern = self.pattern(pattern);
        let mut ones = Vec::with_capacity(rest.len());
        let rest = rest.into_iter().map(|it| {
            let (term, is_one) = self.term(it);
            ones.push(is_one);
            term
        });
        let mut rest: Vec<_> = rest.collect();
        let is_one = name == "reduce" && ones.first() == Some(&true);
        match (name, ones.get(1), rest.get_mut(1)) {
            ("reduce", Some(false), Some(update)) => {
                let inner = std::mem::take(update);
                *update = Term::Call(LAST, vec![inner]);
            }
            ("foreach", Some(false), Some(update)) => {
                let update = std::mem::take(update);
                return (foreach(items, pattern, rest, update), false);
            }
            _ => {}
        }
        (Term::Fold(name, items, pattern, rest), is_one)
    }

    /// jq goes through an index outside and through what is indexed inside.
    fn path(&mut self, head: Term<&'s str>, path: Path<Term<&'s str>>) -> Lowered<'s> {
        let (mut whole, mut is_one) = self.term(head);
        let mut parts: Vec<(Part<Term<&'s str>>, Opt)> = Vec::new();
        for (part, opt) in path.0 {
            let (part, index_one) = self.part(part);
            let is_each = matches!(part, Part::Range(None, None));
            if !index_one && !is_one {
                whole = indexed(joined(whole, std::mem::take(&mut parts)), part, opt);
            } else {
                parts.push((part, opt));
            }
            is_one &= index_one && !is_each && matches!(opt, Opt::Essential);
        }
        (joined(whole, parts), is_one)
    }

    /// A part of a path, and whether each of its bounds has one result.
    fn part(&mut self, part: Part<Term<&'s str>>) -> (Part<Term<&'s str>>, bool) {
        let mut is_one = true;
        let mut lower = |it| {
            let (term, single) = self.term(it);
            is_one &= single;
            term
        };
        let part = match part {
            Part::Index(index) => Part::Index(lower(index)),
            Part::Range(from, to) => Part::Range(from.map(&mut lower), to.map(&mut lower)),
        };
        (part, is_one)
    }
}

fn joined<'s>(head: Term<&'s str>, parts: Vec<(Part<Term<&'s str>>, Opt)>) -> Term<&'s str> {
    match parts.is_empty() {
        true => head,
        false => Term::Path(Box::new(head), Path(parts)),
    }
}

/// A part of something, for each index.
fn indexed<'s>(head: Term<&'s str>, part: Part<Term<&'s str>>, opt: Opt) -> Term<&'s str> {
    const FROM: &str = "$!from";
    let variable = |part| Term::Path(Box::new(head), Path(vec![(part, opt)]));
    match part {
        Part::Index(index) => {
            let inner = variable(Part::Index(Term::Var(RIGHT)));
            bound(index, Pattern::Var(RIGHT), inner)
        }
        Part::Range(from, to) => {
            let null = || Term::Call("null", Vec::new());
            let range = Part::Range(Some(Term::Var(FROM)), Some(Term::Var(RIGHT)));
            let inner = variable(range);
            let inner = bound(to.unwrap_or_else(null), Pattern::Var(RIGHT), inner);
            bound(from.unwrap_or_else(null), Pattern::Var(FROM), inner)
        }
    }
}

fn bound<'s>(
    value: Term<&'s str>,
    pattern: Pattern<&'s str>,
    inner: Term<&'s str>,
) -> Term<&'s str> {
    let operator = BinaryOp::Pipe(Some(pattern));
    Term::BinOp(Box::new(value), operator, Box::new(inner))
}

fn piped<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    Term::BinOp(Box::new(left), BinaryOp::Pipe(None), Box::new(right))
}

fn string(text: &str) -> Term<&str> {
    Term::Str(None, vec![StrPart::Str(text)])
}

/// Two texts, the second one outside.
fn sum<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    let add = BinaryOp::Math(Math::Add);
    let inner = Term::BinOp(Box::new(left), add, Box::new(Term::Var(RIGHT)));
    bound(right, Pattern::Var(RIGHT), inner)
}

fn item<'s>(of: Term<&'s str>, at: &'static str) -> Term<&'s str> {
    let part = (Part::Index(Term::Num(at)), Opt::Essential);
    Term::Path(Box::new(of), Path(vec![part]))
}

/// `foreach` whose update has not just one result: the state is an array of the state proper and
/// the results of the last update.
fn foreach<'s>(
    items: Box<Term<&'s str>>,
    pattern: Pattern<&'s str>,
    rest: Vec<Term<&'s str>>,
    update: Term<&'s str>,
) -> Term<&'s str> {
    let mut rest = rest.into_iter();
    let init = rest.next().unwrap_or_default();
    let extract = rest.nth(1).unwrap_or_default();
    let comma = |left, right| Term::BinOp(Box::new(left), BinaryOp::Comma, Box::new(right));
    let pair = |left, right| Term::Arr(Some(Box::new(comma(left, right))));
    let state = pair(Term::Var(STATE), Term::Arr(None));
    let init = bound(init, Pattern::Var(STATE), state);
    let results = Term::Arr(Some(Box::new(piped(item(Term::Id, "0"), update))));
    let last = Term::Neg(Box::new(Term::Num("1")));
    let last = (Part::Index(last), Opt::Essential);
    let last = Term::Path(Box::new(Term::Var(STATE)), Path(vec![last]));
    let update = bound(results, Pattern::Var(STATE), pair(last, Term::Var(STATE)));
    let each = (Part::Range(None, None), Opt::Essential);
    let each = Term::Path(Box::new(item(Term::Id, "1")), Path(vec![each]));
    Term::Fold(
        "foreach",
        items,
        pattern,
        vec![init, update, piped(each, extract)],
    )
}

/// `$__loc__`: the line that it stands in.
fn location<'s>(code: &'s str, name: &'s str) -> Term<&'s str> {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let before = code.get(..span(code, name).start).unwrap_or_default();
    let line = 1 + before.bytes().filter(|it| *it == b'\n').count();
    let math = |left, operator, right| {
        Term::BinOp(
            Box::new(left),
            BinaryOp::Math(operator),
            Box::new(Term::Num(right)),
        )
    };
    let digits = line.to_string();
    let digits = digits
        .bytes()
        .filter_map(|it| DIGITS.get(usize::from(it - b'0')));
    let line = digits.fold(Term::Num("0"), |sum, digit| {
        math(math(sum, Math::Mul, "10"), Math::Add, digit)
    });
    let file = (string("file"), Some(string("<top-level>")));
    Term::Obj(vec![file, (string("line"), Some(line))])
}

/// Functions of several arguments that jq goes through from the last one, outside, to the first.
const NATIVE: &[&str] = &[
    "atan2",
    "copysign",
    "drem",
    "fdim",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "hypot",
    "ldexp",
    "nextafter",
    "nexttoward",
    "pow",
    "remainder",
    "scalb",
    "scalbln",
    "setpath",
];

fn products<'s>(name: &'s str, arguments: Vec<Term<&'s str>>) -> Term<&'s str> {
    const NAMES: [&str; 3] = ["$!first", "$!second", "$!third"];
    if arguments.len() > NAMES.len() {
        return Term::Call(name, arguments);
    }
    let names = NAMES.iter().take(arguments.len());
    let call = Term::Call(name, names.map(|it| Term::Var(*it)).collect());
    let arguments = NAMES.into_iter().zip(arguments);
    arguments.fold(call, |inner, (name, argument)| {
        bound(argument, Pattern::Var(name), inner)
    })
}

/// Functions that have just one result, or fail, when their arguments do.
const SINGLE: &[&str] = &[
    "true",
    "false",
    "null",
    "not",
    "length",
    "keys",
    "tostring",
    "tonumber",
    "tojson",
    "fromjson",
    "type",
    "add",
    "sort",
    "reverse",
    "floor",
    "ascii_downcase",
    "ascii_upcase",
    "now",
    "has",
    "startswith",
    "endswith",
    "ltrimstr",
    "rtrimstr",
    "to_entries",
    "from_entries",
    "getpath",
    "setpath",
    "explode",
    "implode",
    "min",
    "max",
    "unique",
    "contains",
    "tojson",
];

/// Functions that have just one result whatever their arguments give.
const COLLECTING: &[&str] = &[
    "map",
    "sort_by",
    "group_by",
    "unique_by",
    "with_entries",
    "del",
];
