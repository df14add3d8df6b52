//! Answers that come in pages: how each page is asked for, and when it was the last one.

use component::exchange::Exchange;
use component::handler::Services;
use expr::Value;
use expr::jq::Expression;
use expr::value::{as_array, as_text, integer, object, scalar_text, text};
use message::{Fault, Reply, Request};
use steps::Asker;

use super::fetch::unusable;
use super::link;
use super::pointer::Pointer;

/// How an answer comes in pages.
pub(super) struct Pages {
    pub kind: Kind,
    /// Where a page has its items.
    pub items: Pointer,
    /// How many pages there may be.
    pub most: u64,
}

/// By what a page is asked for.
pub(super) enum Kind {
    /// By a number.
    Counted {
        param: String,
        /// The parameter with the size, and the size.
        size_param: Option<String>,
        size: Option<u64>,
        start: u64,
        /// Whether items are counted, not pages.
        by_item: bool,
    },
    /// By what the page before says.
    Cursor { param: String, next: Place },
    /// By a URL in its `Link` field.
    Link,
    /// By a URL in its body.
    Next(Place),
}

/// Where a page says how the next one is asked for.
pub(super) enum Place {
    Pointer(Pointer),
    Expression(Box<Expression>),
}

/// How one page is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PageRef {
    /// As the first one.
    First,
    /// By this number.
    Number(u64),
    /// By this text.
    Cursor(String),
    /// By this reference of the page before.
    To(String),
}

impl Pages {
    /// How the first page is asked for.
    pub fn first(&self) -> PageRef {
        match &self.kind {
            Kind::Counted { start, .. } => PageRef::Number(*start),
            _ => PageRef::First,
        }
    }

    /// Makes a request one for a page. The request is that of the first page, but for a
    /// reference, which is relative to the page before.
    ///
    /// # Errors
    /// `connection` when a reference leads nowhere.
    pub fn ask(&self, page: &PageRef, asker: &Asker, request: &mut Request) -> Result<(), Fault> {
        if let PageRef::To(reference) = page {
            let turned = asker.turn(request, reference);
            return turned.map_err(|why| unusable(format_args!("the next page: {why}")));
        }
        match (&self.kind, page) {
            (
                Kind::Counted {
                    param,
                    size_param,
                    size,
                    ..
                },
                PageRef::Number(number),
            ) => {
                Asker::add(request, param, &number.to_string());
                if let (Some(param), Some(size)) = (size_param, size) {
                    Asker::add(request, param, &size.to_string());
                }
            }
            (Kind::Cursor { param, .. }, PageRef::Cursor(cursor)) => {
                Asker::add(request, param, cursor);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the items of a page; how the next one is asked for, `None` behind the last one. The
    /// page is the exchange's content.
    ///
    /// # Errors
    /// `connection` when the page has no list, or says nothing of use about the next one.
    pub fn take(
        &self,
        current: &PageRef,
        (exchange, reply): (&mut Exchange, &Reply),
        services: &dyn Services,
        all: &mut Vec<Value>,
    ) -> Result<Option<PageRef>, Fault> {
        let page = exchange.value()?;
        let found = self.items.find(page).and_then(as_array);
        let items = found.ok_or_else(|| unusable("a page has no list at `items`"))?;
        let count = items.len() as u64;
        all.extend_from_slice(items);
        let next = match (&self.kind, current) {
            (Kind::Counted { size, by_item, .. }, PageRef::Number(number)) => {
                let is_full = count > 0 && size.is_none_or(|size| count >= size);
                let step = if *by_item { count } else { 1 };
                return Ok(is_full.then(|| PageRef::Number(number.saturating_add(step))));
            }
            (Kind::Cursor { next, .. }, _) => {
                let cursor = next.text(exchange, services)?;
                cursor.map(PageRef::Cursor)
            }
            (Kind::Link, _) => {
                let fields = reply.headers.view();
                let fields = fields
                    .iter()
                    .filter(|(_, name, _)| name.eq_ignore_ascii_case(b"link"));
                let mut fields = fields.filter_map(|(.., line)| std::str::from_utf8(line).ok());
                fields
                    .find_map(link::next)
                    .map(|it| PageRef::To(it.to_owned()))
            }
            (Kind::Next(place), _) => place.text(exchange, services)?.map(PageRef::To),
            (Kind::Counted { .. }, _) => None,
        };
        match next {
            Some(next) if next == *current => {
                Err(unusable("a page says that the next one is itself"))
            }
            next => Ok(next),
        }
    }
}

impl PageRef {
    /// What `$page` is.
    pub fn value(&self, number: u64) -> Value {
        let asked = match self {
            Self::First | Self::To(_) => Value::Null,
            Self::Number(number) => integer(i64::try_from(*number).unwrap_or(i64::MAX)),
            Self::Cursor(cursor) => text(cursor.clone()),
        };
        let number = integer(i64::try_from(number).unwrap_or(i64::MAX));
        object([("number".to_owned(), number), ("by".to_owned(), asked)])
    }
}

impl Place {
    /// The text or number there; `None` when there is nothing of the kind.
    fn text(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Option<String>, Fault> {
        let value = match self {
            Self::Pointer(pointer) => pointer.find(exchange.value()?).cloned(),
            Self::Expression(expression) => Some(exchange.evaluate(expression, services)?),
        };
        let Some(value) = value else {
            return Ok(None);
        };
        match &value {
            Value::Null | Value::Bool(false) => Ok(None),
            value if as_text(value).is_some_and(str::is_empty) => Ok(None),
            value => match scalar_text(value) {
                Some(text) => Ok(Some(text.into_owned())),
                None => {
                    let kind = expr::value::kind(value);
                    Err(unusable(format_args!(
                        "`next` of a page is of the kind {kind}"
                    )))
                }
            },
        }
    }
}
