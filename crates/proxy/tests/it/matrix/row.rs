//! A row of the matrix: what the back end does, what the client does, and what must come of it.

use std::rc::Rc;

use super::backend::{Arrival, Exchange, Local, Script, script};
use super::client::{Ask, Client, End, Seen, Sending};
use super::column::{Column, Target};
use super::content::reply_content;

/// What the client does.
pub type Play = Rc<dyn Fn(Rc<Client>, Script) -> Local<'static, Seen>>;

/// What is looked at when a row has been played.
pub struct Outcome<'a> {
    pub column: Column,
    /// The id of the row's first request.
    pub id: &'a str,
    pub seen: &'a Seen,
    /// The times that the first request came to the back end.
    pub arrivals: &'a [Arrival],
}

/// What must come of a row, or what came instead.
pub type Check = Rc<dyn Fn(&Outcome<'_>) -> Result<(), String>>;

/// A row.
pub struct Row {
    pub name: String,
    pub applies: fn(Column) -> bool,
    pub target: Target,
    pub script: Script,
    pub play: Play,
    pub check: Check,
}

impl Row {
    /// A `GET` that is answered with 200 and 50 bytes, until something else is said.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            applies: |_| true,
            target: Target::Usual,
            script: super::backend::marker(),
            play: play(|client, script| {
                Box::pin(async move { client.exchange(client.ask(&script)).await })
            }),
            check: whole(200, super::MARKER_LENGTH),
        }
    }

    /// The columns it is for.
    pub fn only(self, applies: fn(Column) -> bool) -> Self {
        Self { applies, ..self }
    }

    pub fn target(self, target: Target) -> Self {
        Self { target, ..self }
    }

    /// What the back end does.
    pub fn backend(
        self,
        work: impl for<'a> Fn(&'a mut Exchange) -> Local<'a, ()> + 'static,
    ) -> Self {
        let script = script(work);
        Self { script, ..self }
    }

    /// What the client does.
    pub fn client(
        self,
        work: impl Fn(Rc<Client>, Script) -> Local<'static, Seen> + 'static,
    ) -> Self {
        let play = play(work);
        Self { play, ..self }
    }

    /// The client sends this request.
    pub fn asks(self, change: impl Fn(Ask) -> Ask + 'static) -> Self {
        let change = Rc::new(change);
        self.client(move |client, script| {
            let ask = change(client.ask(&script));
            Box::pin(async move { client.exchange(ask).await })
        })
    }

    /// The client sends a body.
    pub fn posts(self, sending: Sending) -> Self {
        self.asks(move |ask| ask.sending(sending))
    }

    /// What must come of it.
    pub fn expect(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// What must come of it besides.
    pub fn and(self, further: impl Fn(&Outcome<'_>) -> Result<(), String> + 'static) -> Self {
        let first = Rc::clone(&self.check);
        self.expect(Rc::new(move |outcome| {
            first(outcome)?;
            further(outcome)
        }))
    }
}

fn play(work: impl Fn(Rc<Client>, Script) -> Local<'static, Seen> + 'static) -> Play {
    Rc::new(work)
}

fn or(expected: &str, outcome: &Outcome<'_>, is_so: bool) -> Result<(), String> {
    match is_so {
        true => Ok(()),
        false => Err(format!(
            "expected {expected}, came {}",
            outcome.seen.short()
        )),
    }
}

/// A whole reply with this status and this much of its own content.
pub fn whole(status: u16, length: usize) -> Check {
    Rc::new(move |outcome| {
        let own = reply_content(outcome.id, length);
        let seen = outcome.seen;
        let is_so = seen.status == status && seen.end == End::Whole && seen.body == own;
        or(
            &format!("{status} with {length} bytes of its own"),
            outcome,
            is_so,
        )
    })
}

/// A whole reply with one of these statuses, whatever its content: one of the engine's own.
pub fn status(statuses: &'static [u16]) -> Check {
    Rc::new(move |outcome| {
        let seen = outcome.seen;
        let is_so = statuses.contains(&seen.status) && seen.end == End::Whole;
        or(&format!("{statuses:?}"), outcome, is_so)
    })
}

/// A reply that has begun with this status and cannot be taken for a whole one. Where replies are
/// collected first there is a reply of the engine's own instead.
pub fn broken(began: u16, own: &'static [u16]) -> Check {
    Rc::new(move |outcome| {
        let seen = outcome.seen;
        if outcome.column.collects() {
            return status(own)(outcome);
        }
        let part = reply_content(outcome.id, seen.body.len());
        let is_so = seen.status == began && matches!(seen.end, End::Broken(_)) && seen.body == part;
        or(&format!("{began} that breaks off"), outcome, is_so)
    })
}

/// Either of both.
pub fn either(one: Check, other: Check) -> Check {
    Rc::new(move |outcome| match (one(outcome), other(outcome)) {
        (Err(one), Err(other)) => Err(format!("{one}; or {other}")),
        _ => Ok(()),
    })
}

/// The request came this often to the back end.
pub fn came(times: usize) -> impl Fn(&Outcome<'_>) -> Result<(), String> {
    move |outcome| match outcome.arrivals.len() {
        count if count == times => Ok(()),
        count => Err(format!("expected {times} arrivals, came {count}")),
    }
}

/// The request came whole the last time, with this much content.
pub fn uploaded(length: usize) -> impl Fn(&Outcome<'_>) -> Result<(), String> {
    move |outcome| match outcome.arrivals.last() {
        Some(last) if last.complete && last.received == length => Ok(()),
        other => Err(format!(
            "expected {length} bytes at the back end, came {other:?}"
        )),
    }
}

/// No attempt to send the request looked whole to the back end.
pub fn never_whole(outcome: &Outcome<'_>) -> Result<(), String> {
    match outcome.arrivals.iter().find(|it| it.complete) {
        None => Ok(()),
        Some(arrival) => Err(format!("a broken-off request looked whole: {arrival:?}")),
    }
}
