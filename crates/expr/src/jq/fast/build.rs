//! From jaq's syntax tree to ours, where that has a node for everything.

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Term};
use jaq_core::path::{Opt, Part, Path};

use super::{Fast, Piece, Step, Stream};
use crate::jq::natives::simple;
use crate::value::{self, Value};

/// The deepest tree that is made; what is deeper goes to jaq.
const DEPTH_MAX: usize = 64;

/// The tree for an expression; none when it has something that the tree cannot say. `variables`
/// are the names (with `$`) of those from outside.
pub(in crate::jq) fn build(term: &Term<&str>, variables: &[(String, usize)]) -> Option<Fast> {
    Builder { variables }.one(term, 0)
}

struct Builder<'a> {
    variables: &'a [(String, usize)],
}

impl Builder<'_> {
    fn boxed(&self, term: &Term<&str>, depth: usize) -> Option<Box<Fast>> {
        self.one(term, depth).map(Box::new)
    }

    fn one(&self, term: &Term<&str>, depth: usize) -> Option<Fast> {
        let depth = depth + 1;
        if depth > DEPTH_MAX {
            return None;
        }
        Some(match term {
            Term::Id => Fast::Input,
            Term::Num(text) => Fast::Constant(value::number(text)),
            Term::Str(None, parts) => self.text(parts, depth)?,
            Term::Arr(None) => Fast::Constant(value::array([])),
            Term::Arr(Some(inner)) => Fast::Array(Box::new(self.stream(inner, depth)?)),
            Term::Obj(members) if members.is_empty() => Fast::Constant(value::object([])),
            Term::Obj(members) => self.object(members, depth)?,
            Term::Neg(inner) => Fast::Neg(self.boxed(inner, depth)?),
            Term::BinOp(left, operator, right) => self.binary(left, operator, right, depth)?,
            Term::TryCatch(tried, None) => Fast::Try(self.boxed(tried, depth)?),
            Term::IfThenElse(branches, last) => {
                let branches = branches.iter().map(|(condition, then)| {
                    Some((self.one(condition, depth)?, self.one(then, depth)?))
                });
                let branches = branches.collect::<Option<_>>()?;
                let last = match last {
                    Some(last) => self.boxed(last, depth)?,
                    None => Box::new(Fast::Input),
                };
                Fast::If(branches, last)
            }
            Term::Call(name, arguments) => self.call(name, arguments, depth)?,
            Term::Var(name) => Fast::Variable(self.variable(name)?),
            Term::Path(head, path) => {
                let head = self.boxed(head, depth)?;
                Fast::Path(head, path.0.iter().map(step).collect::<Option<_>>()?)
            }
            Term::Str(Some(_), _)
            | Term::Recurse
            | Term::Label(..)
            | Term::Break(_)
            | Term::Fold(..)
            | Term::Def(..)
            | Term::TryCatch(_, Some(_)) => return None,
        })
    }

    fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|(known, _)| known == name)
    }

    fn text(&self, parts: &[StrPart<&str, Term<&str>>], depth: usize) -> Option<Fast> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        for part in parts {
            match part {
                StrPart::Str(text) => plain.push_str(text),
                StrPart::Char(character) => plain.push(*character),
                StrPart::Term(term) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Plain(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Hole(self.one(term, depth)?));
                }
            }
        }
        if pieces.is_empty() {
            return Some(Fast::Constant(value::text(plain)));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Some(Fast::Text(pieces))
    }

    fn object(&self, members: &[(Term<&str>, Option<Term<&str>>)], depth: usize) -> Option<Fast> {
        let members = members.iter().map(|(key, member)| {
            Some(match (key, member) {
                (Term::Var(name), None) => {
                    let bare = value::text(name.trim_start_matches('$'));
                    (Fast::Constant(bare), Fast::Variable(self.variable(name)?))
                }
                (key, None) => {
                    let Fast::Constant(key) = self.one(key, depth)? else {
                        return None;
                    };
                    let step = Step {
                        key: key.clone(),
                        is_optional: false,
                    };
                    let member = Fast::Path(Box::new(Fast::Input), vec![step]);
                    (Fast::Constant(key), member)
                }
                (key, Some(member)) => (self.one(key, depth)?, self.one(member, depth)?),
            })
        });
        Some(Fast::Object(members.collect::<Option<_>>()?))
    }

    fn binary(
        &self,
        left: &Term<&str>,
        operator: &BinaryOp<&str>,
        right: &Term<&str>,
        depth: usize,
    ) -> Option<Fast> {
        // What cannot be said must not cost more than its size to find out.
        if matches!(operator, BinaryOp::Pipe(Some(_)) | BinaryOp::Comma) {
            return None;
        }
        let (left, right) = (self.boxed(left, depth)?, self.boxed(right, depth)?);
        Some(match operator {
            BinaryOp::Pipe(None) => Fast::Pipe(left, right),
            BinaryOp::Alt => Fast::Alternative(left, right),
            BinaryOp::Or => Fast::Or(left, right),
            BinaryOp::And => Fast::And(left, right),
            BinaryOp::Math(operator) => Fast::Math(left, *operator, right),
            BinaryOp::Cmp(operator) => Fast::Compare(left, *operator, right),
            _ => return None,
        })
    }

    fn call(&self, name: &str, arguments: &[Term<&str>], depth: usize) -> Option<Fast> {
        Some(match (name, arguments) {
            ("true", []) => Fast::Constant(Value::Bool(true)),
            ("false", []) => Fast::Constant(Value::Bool(false)),
            ("null", []) => Fast::Constant(Value::Null),
            ("not", []) => Fast::Not,
            ("empty", []) => Fast::Empty,
            ("now", []) => Fast::Now,
            ("tostring", []) => Fast::Text(vec![Piece::Hole(Fast::Input)]),
            ("select", [condition]) => Fast::Select(self.boxed(condition, depth)?),
            ("map", [each]) => {
                let each = Box::new(self.stream(each, depth)?);
                Fast::Array(Box::new(Stream::Pipe(Box::new(Stream::Each), each)))
            }
            ("has", [key]) => Fast::Has(self.boxed(key, depth)?),
            ("join", [separator]) => {
                let Fast::Constant(Value::TStr(_)) = self.one(separator, depth)? else {
                    return None;
                };
                Fast::Join(self.boxed(separator, depth)?)
            }
            (name, []) => Fast::Call(simple::function(name)?),
            (name, [argument]) => {
                Fast::Call1(simple::function_of_two(name)?, self.boxed(argument, depth)?)
            }
            _ => return None,
        })
    }

    fn stream(&self, term: &Term<&str>, depth: usize) -> Option<Stream> {
        let depth = depth + 1;
        if depth > DEPTH_MAX {
            return None;
        }
        match term {
            Term::BinOp(left, BinaryOp::Comma, right) => {
                let mut parts = match self.stream(left, depth)? {
                    Stream::Many(parts) => parts,
                    part => vec![part],
                };
                parts.push(self.stream(right, depth)?);
                Some(Stream::Many(parts))
            }
            Term::BinOp(left, BinaryOp::Pipe(None), right) => Some(Stream::Pipe(
                Box::new(self.stream(left, depth)?),
                Box::new(self.stream(right, depth)?),
            )),
            Term::Path(head, path) if path.0.iter().any(is_each) => self.path(head, path, depth),
            Term::Call("empty", arguments) if arguments.is_empty() => Some(Stream::Nothing),
            term => self.one(term, depth).map(Stream::One),
        }
    }

    /// A path with `[]` in it, as a pipe.
    fn path(&self, head: &Term<&str>, path: &Path<Term<&str>>, depth: usize) -> Option<Stream> {
        let mut stream = self.stream(head, depth)?;
        let mut steps = Vec::new();
        for part in &path.0 {
            if is_each(part) {
                stream = walked(stream, std::mem::take(&mut steps));
                stream = Stream::Pipe(Box::new(stream), Box::new(Stream::Each));
            } else {
                steps.push(step(part)?);
            }
        }
        Some(walked(stream, steps))
    }
}

fn walked(stream: Stream, steps: Vec<Step>) -> Stream {
    if steps.is_empty() {
        return stream;
    }
    let path = Fast::Path(Box::new(Fast::Input), steps);
    Stream::Pipe(Box::new(stream), Box::new(Stream::One(path)))
}

fn is_each((part, opt): &(Part<Term<&str>>, Opt)) -> bool {
    matches!((part, opt), (Part::Range(None, None), Opt::Essential))
}

/// A part of a path that is a text or an integer.
fn step((part, opt): &(Part<Term<&str>>, Opt)) -> Option<Step> {
    let Part::Index(index) = part else {
        return None;
    };
    let nothing = Builder { variables: &[] };
    let key = match index {
        Term::Neg(inner) => match nothing.one(inner, 0)? {
            Fast::Constant(Value::Num(number)) => Value::Num(-number),
            _ => return None,
        },
        index => match nothing.one(index, 0)? {
            Fast::Constant(key @ (Value::TStr(_) | Value::Num(_))) => key,
            _ => return None,
        },
    };
    Some(Step {
        key,
        is_optional: matches!(opt, Opt::Optional),
    })
}
