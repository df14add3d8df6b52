//! `only`: the condition that says which events of a topic a caller gets.
//!
//! Callers for whom everything is the same that the condition uses of `$auth` are one group: they
//! share channels and evaluations. The condition sees nothing of `$auth` beyond that, so its result
//! can depend on nothing that differs within a group.

use std::fmt;
use std::sync::Arc;

use component::access::Caller;
use component::definition::compile_expression;
use component::document::DocumentContext;
use component::scope::AUTH;
use config::Spanned;
use expr::jq::Variables;
use expr::{Expression, Value, json, value};

use crate::codes::BAD_SUBSCRIBE;

/// A condition over an event and `$auth`.
pub(crate) struct Only {
    expression: Expression,
    /// What it uses of `$auth`: names from the outermost; none stand for the whole.
    members: Vec<Vec<String>>,
}

impl fmt::Debug for Only {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expression.text())
    }
}

impl Only {
    /// Reads the condition. Every problem is reported.
    pub fn read(text: &Spanned<String>, context: &mut DocumentContext<'_>) -> Option<Arc<Self>> {
        let scope = context.evaluation.scope();
        let expression = compile_expression(&text.value, text.span, &scope, context.report)?;
        if expression.variables().iter().any(|slot| *slot != AUTH) {
            let message = "`only` sees the event and `$auth`, nothing else";
            let diagnostic = context.report.error(BAD_SUBSCRIBE, text.span, message);
            diagnostic.hint("such as `.tenant == $auth.claims.tenant`");
            return None;
        }
        Some(Arc::new(Self::of(expression)))
    }

    /// The condition of this text.
    #[cfg(test)]
    pub fn of_text(text: &str) -> Self {
        Self::of(Expression::compile(text, &component::scope::Scope::default()).unwrap())
    }

    fn of(expression: Expression) -> Self {
        let members = expression.members_of(AUTH).map(<[String]>::to_vec);
        Self {
            members: members.collect(),
            expression,
        }
    }

    /// The group of a caller.
    pub fn group(&self, caller: Option<&Caller>) -> Group {
        let auth = match caller {
            Some(caller) => {
                let members: Vec<&[String]> = self.members.iter().map(Vec::as_slice).collect();
                part(caller.value(), &members)
            }
            None => Value::Null,
        };
        let mut key = Vec::new();
        // What is no JSON makes all callers with it one group, for whom nothing holds.
        let auth = match json::write(&auth, usize::MAX, &mut key) {
            Ok(()) => auth,
            Err(_) => Value::Null,
        };
        Group {
            expression: Arc::new(self.expression.clone()),
            auth,
            key: key.into(),
        }
    }
}

/// A value with nothing but these members.
fn part(whole: &Value, members: &[&[String]]) -> Value {
    let is_whole = members.iter().any(|it| it.is_empty());
    if is_whole || value::members(whole).is_none() {
        return whole.clone();
    }
    let mut names: Vec<&str> = members
        .iter()
        .filter_map(|it| it.first())
        .map(|it| &**it)
        .collect();
    names.sort_unstable();
    names.dedup();
    let inner = |name: &&str| {
        let value = value::get(whole, name)?;
        let below = members.iter().filter_map(|it| it.split_first());
        let below = below.filter(|it| it.0 == name).map(|it| it.1);
        let below: Vec<&[String]> = below.collect();
        Some(((*name).to_owned(), part(value, &below)))
    };
    value::object(names.iter().filter_map(inner))
}

/// The callers for whom a condition gives the same.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The condition. The allocation tells the group from others on a worker.
    pub expression: Arc<Expression>,
    /// What the condition sees of `$auth`.
    auth: Value,
    key: Arc<[u8]>,
}

impl Group {
    /// Whether both are the same group.
    pub fn is(&self, other: &Self) -> bool {
        self.expression.text() == other.expression.text() && self.key == other.key
    }

    /// What the condition sees beside an event of this time, in seconds since 1970.
    pub fn variables(&self, now: f64) -> impl Variables {
        Seen {
            auth: self.auth.clone(),
            now,
        }
    }
}

struct Seen {
    auth: Value,
    now: f64,
}

impl Variables for Seen {
    fn get(&self, slot: usize) -> Value {
        match slot {
            AUTH => self.auth.clone(),
            _ => Value::Null,
        }
    }

    fn now(&self) -> f64 {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(claims: &str) -> Caller {
        let claims = json::parse(&bytes::Bytes::copy_from_slice(claims.as_bytes()), 16);
        Caller::new(&"staff".into(), "ann", claims.unwrap())
    }

    fn groups(condition: &str, one: &str, other: &str) -> bool {
        let only = Only::of_text(condition);
        let (one, other) = (caller(one), caller(other));
        only.group(Some(&one)).is(&only.group(Some(&other)))
    }

    #[test]
    fn callers_are_grouped_by_the_claims_that_the_condition_uses() {
        let (one, other) = (
            r#"{"tenant":"a","exp":1,"groups":["x"]}"#,
            r#"{"exp":2,"groups":["x"],"tenant":"a"}"#,
        );
        let third = r#"{"tenant":"b","exp":1,"groups":["x"]}"#;
        for (condition, is_same, is_same_as_third) in [
            (".t == $auth.claims.tenant", true, false),
            (".t == $auth.claims[\"tenant\"]", true, false),
            ("$auth.claims.groups | index(\"x\")", true, true),
            (
                ".t == $auth.claims.tenant and $auth.claims.exp > 1",
                false,
                false,
            ),
            (". == 1", true, true),
            // All of it may matter here.
            ("$auth | .claims.tenant == \"a\"", false, false),
            ("$auth.claims[.name] == 1", false, false),
        ] {
            assert_eq!(groups(condition, one, other), is_same, "{condition}");
            assert_eq!(
                groups(condition, one, third),
                is_same_as_third,
                "{condition}"
            );
        }
    }

    #[test]
    fn the_condition_sees_nothing_that_is_not_the_same_for_its_group() {
        let only = Only::of_text(".t == $auth.claims.tenant.name");
        let caller = caller(r#"{"tenant":{"name":"a","secret":1},"exp":1}"#);
        let group = only.group(Some(&caller));
        assert_eq!(&*group.key, br#"{"claims":{"tenant":{"name":"a"}}}"#);
        let text = only.group(Some(&self::caller(r#"{"tenant":"plain"}"#)));
        assert_eq!(&*text.key, br#"{"claims":{"tenant":"plain"}}"#);
        let none = only.group(Some(&self::caller("{}")));
        assert_eq!(&*none.key, br#"{"claims":{}}"#);
    }
}
