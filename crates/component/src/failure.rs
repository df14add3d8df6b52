//! What happens when a step or a flow fails: clauses in order, the first that fits is run.

use std::borrow::Cow;
use std::rc::Rc;

use config::{Code, Report, Span, Spanned};
use message::{Fault, Kind, Of};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::block::Block;
use crate::exchange::Exchange;
use crate::handler::{LocalFuture, Services};
use crate::step::Next;

/// Which failures a clause is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// Every one.
    Any,
    /// Those of a kind.
    Kind(Kind),
    /// Statuses of other systems by their first digit.
    Class(u16),
    /// One status of other systems.
    Status(u16),
    /// Those that the flow raises under this name.
    Type(String),
}

impl Matcher {
    /// What a name in a flow file means: a kind, `4xx`, `404`, `any`, or else a type that a flow
    /// raises. `None` for a status that is none.
    pub fn of_name(name: &str) -> Option<Self> {
        if name == "any" {
            return Some(Self::Any);
        }
        if let Some(kind) = Kind::NAMED.into_iter().find(|kind| kind.name() == name) {
            return Some(Self::Kind(kind));
        }
        if let Some(class) = name.strip_suffix("xx")
            && let Ok(class) = class.parse::<u16>()
        {
            return (3..=5).contains(&class).then_some(Self::Class(class));
        }
        if let Ok(status) = name.parse::<u16>() {
            return (300..=599)
                .contains(&status)
                .then_some(Self::Status(status));
        }
        Some(Self::Type(name.to_owned()))
    }

    /// Whether it is this failure.
    pub fn fits(&self, fault: &Fault) -> bool {
        match (self, &fault.of) {
            (Self::Any, _) => true,
            (Self::Kind(kind), _) => *kind == fault.kind,
            (Self::Class(class), Of::Status(status)) => status / 100 == *class,
            (Self::Status(expected), Of::Status(status)) => status == expected,
            (Self::Type(name), Of::Type(names)) => names.0 == *name,
            _ => false,
        }
    }
}

/// The name of a kind of failure, or a status, as it stands in a list of a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum FailureName {
    /// A status.
    Status(u16),
    /// A name.
    Name(String),
}

impl Matcher {
    /// Reads a name of a file. What is none is reported under `code`; a type that looks like a
    /// misspelt kind is warned of.
    pub fn read(name: &str, span: Span, code: Code, report: &mut Report) -> Option<Self> {
        let matcher = Self::of_name(name).filter(|_| !name.is_empty());
        match &matcher {
            Some(Self::Type(name)) => {
                let known = Kind::NAMED.map(Kind::name);
                let known = known.into_iter().chain(["any", "4xx", "5xx"]);
                if let Some(near) = config::suggest(name, known) {
                    let message = format!("`{name}` looks like a misspelt kind of failure");
                    let diagnostic = report.warning(code, span, message);
                    diagnostic.hint(format!("did you mean `{near}`?"));
                }
            }
            Some(_) => {}
            None => {
                let hint = "a kind such as `timeout`, `4xx`, a status, a type that the flow \
                            raises, `any`";
                let diagnostic = report.error(code, span, "this is no kind of failure");
                diagnostic.hint(hint);
            }
        }
        matcher
    }

    /// Reads a list of a file. Every problem is reported under `code`; an empty list is one.
    pub fn read_list(
        names: &Spanned<Vec<FailureName>>,
        code: Code,
        report: &mut Report,
    ) -> Vec<Self> {
        if names.value.is_empty() {
            let diagnostic = report.error(code, names.span, "no failure is named");
            diagnostic.hint("name some, `[any]`, or leave the whole mapping out");
        }
        let read = |name: &FailureName| Self::read(&name.to_text(), names.span, code, report);
        names.value.iter().filter_map(read).collect()
    }
}

impl FailureName {
    /// What stands in the file.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Status(status) => status.to_string().into(),
            Self::Name(name) => name.into(),
        }
    }
}

/// What happens to some failures.
pub struct Clause {
    /// Which.
    pub on: Vec<Matcher>,
    /// What is done.
    pub block: Block,
}

/// Clauses in order.
pub struct Handlers(pub Vec<Clause>);

/// How a failure was handled.
#[derive(Debug)]
pub enum Handled {
    /// The steps of the clause ended the flow.
    Ended(Next),
    /// They ran to their end: this is what they have handled.
    Done(Rc<Fault>),
}

impl Handlers {
    /// Runs the first clause that fits.
    ///
    /// # Errors
    /// The failure itself when no clause fits, or that of the clause's steps.
    pub fn handle<'a>(
        &'a self,
        fault: Fault,
        exchange: &'a mut Exchange,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Handled, Fault>> {
        Box::pin(async move {
            let fits = |clause: &&Clause| clause.on.iter().any(|matcher| matcher.fits(&fault));
            let Some(clause) = self.0.iter().find(fits) else {
                return Err(fault);
            };
            let fault = Rc::new(fault);
            let outer = exchange.fault.replace(Rc::clone(&fault));
            let next = clause.block.run(exchange, services).await;
            exchange.fault = outer;
            Ok(match next? {
                Next::Continue => Handled::Done(fault),
                end => Handled::Ended(end),
            })
        })
    }

    /// Whether any of it needs the body in memory.
    pub fn reads_body(&self) -> bool {
        self.0.iter().any(|clause| clause.block.reads_body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::Origin;

    #[test]
    fn a_name_fits_the_failures_it_stands_for() {
        let timeout = Fault::new(Kind::Timeout, Origin::Upstream, "");
        let missing = Fault::of_status(404);
        let raised = Fault::raised("over-limit", None, String::new());
        for (name, fits) in [
            ("any", [true, true, true]),
            ("timeout", [true, false, false]),
            ("4xx", [false, true, false]),
            ("404", [false, true, false]),
            ("5xx", [false, false, false]),
            ("over-limit", [false, false, true]),
            ("other", [false, false, false]),
        ] {
            let matcher = Matcher::of_name(name).unwrap();
            let found = [&timeout, &missing, &raised].map(|fault| matcher.fits(fault));
            assert_eq!(found, fits, "{name}");
        }
        for name in ["9xx", "99", "600"] {
            assert_eq!(Matcher::of_name(name), None, "{name}");
        }
    }
}
