//! Puts counting into a syntax tree: in front of bodies of definitions, right sides of `,`, and
//! now and then on the way down, so that no evaluation goes on for long without it.

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};

use super::names;

/// The identity that counts. Nobody can type these names.
pub(super) const TICK: &str = "!tick";
/// The same in front of the body of a definition.
pub(super) const CALL: &str = "!call";
/// The same where a definition calls itself and hands on filters: these nest within each other,
/// and a deep nest overflows the stack when it is dropped.
pub(super) const NEST: &str = "!nest";

/// Levels of the tree between two counts: few enough for the stack's reserve.
const LEVELS: usize = 12;
/// The deepest tree.
const DEPTH_MAX: usize = 2_000;
/// jaq nests the members of an object and the parts of a text as deep as there are many.
const PARTS_MAX: usize = 12;

/// The tree is too deep.
#[derive(Debug)]
pub(super) struct TooDeep;

type Result<T> = std::result::Result<T, TooDeep>;

/// The definition with counting in it.
pub(super) fn definition(def: Def<&str>) -> Result<Def<&str>> {
    guarded(def, 0)
}

fn guarded(def: Def<&str>, depth: usize) -> Result<Def<&str>> {
    let takes_filters = def.args.iter().any(|it| !it.starts_with('$'));
    let signature = (def.name.to_owned(), def.args.len());
    let nests = takes_filters && names::calls(&def.body).contains(&signature);
    let count = if nests { NEST } else { CALL };
    let body = counted(count, term(def.body, depth + 1)?);
    Ok(Def { body, ..def })
}

fn ticked(term: Term<&str>) -> Term<&str> {
    counted(TICK, term)
}

fn counted<'s>(name: &'s str, term: Term<&'s str>) -> Term<&'s str> {
    let tick = Term::Call(name, Vec::new());
    Term::BinOp(Box::new(tick), BinaryOp::Pipe(None), Box::new(term))
}

#[expect(clippy::boxed_local, reason = "a tree is made of boxes")]
fn boxed(inner: Box<Term<&str>>, depth: usize) -> Result<Box<Term<&str>>> {
    Ok(Box::new(term(*inner, depth)?))
}

fn option(inner: Option<Box<Term<&str>>>, depth: usize) -> Result<Option<Box<Term<&str>>>> {
    inner.map(|it| boxed(it, depth)).transpose()
}

fn all(terms: Vec<Term<&str>>, depth: usize) -> Result<Vec<Term<&str>>> {
    terms.into_iter().map(|it| term(it, depth)).collect()
}

/// Arguments that call something: that may be an argument of the caller, and so on for long.
fn arguments<'s>(arguments: Vec<Term<&'s str>>, depth: usize) -> Result<Vec<Term<&'s str>>> {
    let count = |argument: Term<&'s str>| {
        let is_simple = matches!(&argument, Term::Id | Term::Num(_) | Term::Var(_))
            || names::calls(&argument).is_empty();
        let argument = term(argument, depth)?;
        Ok(if is_simple {
            argument
        } else {
            ticked(argument)
        })
    };
    arguments.into_iter().map(count).collect()
}

fn term(whole: Term<&str>, depth: usize) -> Result<Term<&str>> {
    if depth > DEPTH_MAX {
        return Err(TooDeep);
    }
    let term = inside(whole, depth + 1)?;
    let is_leaf = matches!(
        term,
        Term::Id | Term::Num(_) | Term::Var(_) | Term::Call(..) | Term::Arr(None)
    );
    match depth.is_multiple_of(LEVELS) && depth > 0 && !is_leaf {
        true => Ok(ticked(term)),
        false => Ok(term),
    }
}

fn inside(whole: Term<&str>, depth: usize) -> Result<Term<&str>> {
    Ok(match whole {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) => whole,
        Term::Str(format, parts) => text(format, parts, depth)?,
        Term::Arr(inner) => Term::Arr(option(inner, depth)?),
        Term::Obj(members) => object(members, depth)?,
        Term::Neg(inner) => Term::Neg(boxed(inner, depth)?),
        Term::BinOp(left, operator, right) => binary(left, operator, right, depth)?,
        Term::Label(name, inner) => Term::Label(name, boxed(inner, depth)?),
        Term::Fold(name, items, pattern, rest) => Term::Fold(
            name,
            boxed(items, depth)?,
            self::pattern(pattern, depth)?,
            all(rest, depth)?,
        ),
        Term::TryCatch(tried, caught) => {
            Term::TryCatch(boxed(tried, depth)?, option(caught, depth)?)
        }
        Term::IfThenElse(branches, last) => {
            let branches = branches
                .into_iter()
                .enumerate()
                .map(|(at, (condition, then))| {
                    // Each `elif` is a level of its own.
                    Ok((term(condition, depth + at)?, term(then, depth + at)?))
                });
            Term::IfThenElse(branches.collect::<Result<_>>()?, option(last, depth)?)
        }
        Term::Def(definitions, inner) => {
            let definitions = definitions.into_iter().map(|it| guarded(it, depth));
            Term::Def(definitions.collect::<Result<_>>()?, boxed(inner, depth)?)
        }
        Term::Call(name, arguments) => Term::Call(name, self::arguments(arguments, depth)?),
        Term::Path(head, path) => in_pieces(*boxed(head, depth)?, self::path(path, depth)?.0),
    })
}

fn binary<'s>(
    left: Box<Term<&'s str>>,
    operator: BinaryOp<&'s str>,
    right: Box<Term<&'s str>>,
    depth: usize,
) -> Result<Term<&'s str>> {
    let is_comma = matches!(operator, BinaryOp::Comma);
    let operator = match operator {
        BinaryOp::Pipe(Some(it)) => BinaryOp::Pipe(Some(pattern(it, depth)?)),
        other => other,
    };
    let left = boxed(left, depth)?;
    let mut right = boxed(right, depth)?;
    if is_comma {
        right = Box::new(ticked(*right));
    }
    Ok(Term::BinOp(left, operator, right))
}

fn pattern(whole: Pattern<&str>, depth: usize) -> Result<Pattern<&str>> {
    if depth > DEPTH_MAX {
        return Err(TooDeep);
    }
    Ok(match whole {
        Pattern::Var(name) => Pattern::Var(name),
        Pattern::Arr(items) => {
            let items = items.into_iter().map(|it| pattern(it, depth + 1));
            Pattern::Arr(items.collect::<Result<_>>()?)
        }
        Pattern::Obj(members) => {
            let members = members.into_iter();
            let members = members.map(|(key, it)| Ok((term(key, depth)?, pattern(it, depth + 1)?)));
            Pattern::Obj(members.collect::<Result<_>>()?)
        }
    })
}

fn path<'s>(path: Path<Term<&'s str>>, depth: usize) -> Result<Path<Term<&'s str>>> {
    let bound = |it: Option<Term<&'s str>>| it.map(|it| term(it, depth)).transpose();
    let parts = path.0.into_iter().map(|(part, opt)| {
        let part = match part {
            Part::Index(index) => Part::Index(term(index, depth)?),
            Part::Range(from, to) => Part::Range(bound(from)?, bound(to)?),
        };
        Ok((part, opt))
    });
    Ok(Path(parts.collect::<Result<_>>()?))
}

/// A long path as a path from a path: jaq goes as deep as a path has parts.
fn in_pieces<'s>(head: Term<&'s str>, mut parts: Vec<PathPart<'s>>) -> Term<&'s str> {
    let mut whole = head;
    while parts.len() > PARTS_MAX {
        let behind = parts.split_off(PARTS_MAX);
        whole = ticked(Term::Path(Box::new(whole), Path(parts)));
        parts = behind;
    }
    Term::Path(Box::new(whole), Path(parts))
}

type PathPart<'s> = (Part<Term<&'s str>>, jaq_core::path::Opt);

fn text<'s>(
    format: Option<&'s str>,
    parts: Vec<StrPart<&'s str, Term<&'s str>>>,
    depth: usize,
) -> Result<Term<&'s str>> {
    let parts = parts.into_iter().map(|part| {
        Ok(match part {
            StrPart::Term(inner) => StrPart::Term(term(inner, depth)?),
            other => other,
        })
    });
    let parts: Vec<_> = parts.collect::<Result<_>>()?;
    sum(parts, |parts| Term::Str(format, parts))
}

fn object<'s>(
    members: Vec<(Term<&'s str>, Option<Term<&'s str>>)>,
    depth: usize,
) -> Result<Term<&'s str>> {
    let members = members.into_iter().map(|(key, value)| {
        let key = match value {
            // What stands for its own value must stay as it is.
            None => inside(key, depth)?,
            Some(_) => term(key, depth)?,
        };
        Ok((key, value.map(|it| term(it, depth)).transpose()?))
    });
    let members: Vec<_> = members.collect::<Result<_>>()?;
    sum(members, Term::Obj)
}

/// Many parts as a balanced sum of few.
fn sum<'s, P>(
    mut parts: Vec<P>,
    make: impl Fn(Vec<P>) -> Term<&'s str> + Copy,
) -> Result<Term<&'s str>> {
    if parts.len() <= PARTS_MAX {
        return Ok(make(parts));
    }
    let behind = parts.split_off(parts.len() / 2);
    let left = sum(parts, make)?;
    let right = sum(behind, make)?;
    let add = BinaryOp::Math(Math::Add);
    Ok(Term::BinOp(Box::new(left), add, Box::new(right)))
}
