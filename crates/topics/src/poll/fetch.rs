//! One poll: a request, or one for each page, further tries of those that fail, and what is made of
//! the answers.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::content::{Content, Format};
use component::exchange::{Exchange, FlowContext};
use component::handler::{Services, until};
use component::resilience::Retry;
use expr::Value;
use expr::jq::Expression;
use message::{Body, Fault, Headers, Kind, Method, Origin, Reply, Request, Retry as Helps};
use steps::{Asker, CallOptions, status_fault};

use super::memory::{Last, Validators, digest};
use super::pages::Pages;
use super::pointer::Pointer;

/// What logs call a poll where there is a step's name otherwise.
const STEP: &str = "poll";

/// The most bytes of `$last.kept` as JSON.
const KEPT_MAX: usize = 16 * 1024;

/// How documents are fetched.
pub(super) struct Fetcher {
    pub asker: Asker,
    pub context: Arc<FlowContext>,
    pub slots: Slots,
    pub timeout: Duration,
    pub retry: Retry,
    pub decode: Format,
    pub pointer: Pointer,
    pub map: Option<Expression>,
    pub keep: Option<Expression>,
    pub pages: Option<Pages>,
    pub conditional: bool,
    pub body_max: u64,
}

/// Where the values of names go.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub last: usize,
    pub now: usize,
    pub page: Option<usize>,
}

/// What a poll has brought.
#[derive(Debug)]
pub(super) enum Fetched {
    /// The other system says that nothing has changed.
    NotModified,
    /// There is no document.
    Nothing,
    /// This document, as JSON.
    Document(Bytes),
}

/// A poll that has succeeded, and what the next one has to know of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub fetched: Fetched,
    /// By what the next request asks whether anything has changed.
    pub validators: Option<Validators>,
    /// What `$last.kept` becomes.
    pub kept: Option<Value>,
}

/// The other system has answered with something that is of no use.
pub(super) fn unusable(cause: impl Display) -> Fault {
    let detail = "the polled system sent an answer that cannot be used";
    Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(cause)
}

impl Fetcher {
    /// Polls once. Dropping the future gives the request up.
    ///
    /// # Errors
    /// Of the last try, when none has succeeded.
    pub async fn fetch(&self, last: &Last, services: &dyn Services) -> Result<Answer, Fault> {
        let mut exchange = self.exchange(last, services);
        match &self.pages {
            Some(pages) => self.fetch_pages(pages, &mut exchange, services).await,
            None => self.fetch_one(last, &mut exchange, services).await,
        }
    }

    /// A message for the expressions.
    fn exchange(&self, last: &Last, services: &dyn Services) -> Exchange {
        let request = Request {
            method: Method::Other("POLL".into()),
            path: "/".to_owned(),
            query: None,
            parameters: Vec::new(),
            headers: Headers::new(),
            body: Body::Empty,
            peer: std::net::Ipv4Addr::UNSPECIFIED.into(),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        };
        let mut exchange = Exchange::new(&self.context, request);
        exchange.at = STEP.into();
        exchange.set_slot(self.slots.last, last.value());
        exchange.set_slot(self.slots.now, super::memory::time_text(services.wall()));
        exchange
    }

    /// The request for a document, or for its first page.
    async fn request(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Request, Fault> {
        let made = exchange.preemptible(services, |it| self.asker.request(it, services));
        made.await
    }

    async fn fetch_one(
        &self,
        last: &Last,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Answer, Fault> {
        let mut request = self.request(exchange, services).await?;
        let target = match &request.query {
            Some(query) => format!("{}?{query}", request.path),
            None => request.path.clone(),
        };
        // What is written to the disk must not show a key that stands in the query.
        let target = digest(target.as_bytes());
        // They belong to what was asked for, which a computed query may have changed.
        let known = last.validators.as_ref();
        let known = known.filter(|it| self.conditional && it.target == target);
        let is_conditional = known.is_some_and(|it| it.put(&mut request.headers));
        let (accepts, max) = (is_conditional, self.body_max);
        let reply = self.ask(&request, (accepts, max), services).await?;
        if reply.status == 304 {
            return Ok(Answer {
                fetched: Fetched::NotModified,
                validators: known.cloned(),
                kept: None,
            });
        }
        let validators = self.conditional.then(|| Validators::of(&reply, target));
        let is_plain = self.pointer.is_whole() && self.map.is_none() && self.keep.is_none();
        if is_plain && self.decode == Format::Json {
            return Ok(Answer {
                fetched: Fetched::Document(as_it_is(reply)?),
                validators: validators.flatten(),
                kept: None,
            });
        }
        self.take_over(reply, exchange, services).await?;
        Ok(Answer {
            validators: validators.flatten(),
            ..self.finish(exchange, services).await?
        })
    }

    async fn fetch_pages(
        &self,
        pages: &Pages,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Answer, Fault> {
        let (mut all, mut left) = (Vec::new(), self.body_max);
        let mut next_page = pages.first();
        let mut before: Option<(String, Option<String>)> = None;
        for number in 0..pages.most {
            if let Some(slot) = self.slots.page {
                exchange.set_slot(slot, next_page.value(number));
            }
            let empty = Content::of_value(Value::Null);
            let page = std::mem::replace(&mut exchange.content, empty);
            drop(page);
            let mut request = self.request(exchange, services).await?;
            if let Some((path, query)) = before.take() {
                (request.path, request.query) = (path, query);
            }
            // A reference is relative to the page before; anything else to the first one.
            pages.ask(&next_page, &self.asker, &mut request)?;
            let reply = self.ask(&request, (false, left), services).await?;
            left = left.saturating_sub(reply.body.as_bytes().len() as u64);
            self.take_over(reply.clone(), exchange, services).await?;
            let taken = all.len();
            let next = exchange.preemptible(services, |it| {
                all.truncate(taken);
                pages.take(&next_page, (it, &reply), services, &mut all)
            });
            let Some(next) = next.await? else {
                exchange.set_value(expr::value::array(all));
                return self.finish(exchange, services).await;
            };
            if matches!(next, super::pages::PageRef::To(_)) {
                before = Some((request.path, request.query));
            }
            next_page = next;
        }
        let most = pages.most;
        Err(unusable(format_args!("there are more than {most} pages")))
    }

    /// Sends a request, again when that may help. A reply with another status than 2xx, or 304
    /// where it `accepts` that, is a failure.
    async fn ask(
        &self,
        request: &Request,
        (accepts, body_max): (bool, u64),
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let mut failed = 0;
        loop {
            let fault = match self.try_once(request.clone(), body_max, services).await {
                Ok(reply) if matches!(reply.status, 200..=299) => return Ok(reply),
                Ok(reply) if reply.status == 304 && accepts => return Ok(reply),
                Ok(reply) => status_fault(&reply, services),
                Err(fault) => fault,
            };
            failed += 1;
            match self.retry.wait(failed, &fault, true, services.random()) {
                Some(wait) => services.sleep(wait).await,
                None => return Err(fault),
            }
        }
    }

    async fn try_once(
        &self,
        request: Request,
        body_max: u64,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let at = services.now() + self.timeout;
        let options = CallOptions {
            step: STEP,
            body_max: Some(body_max),
            deadline: Some(at),
        };
        let sending = self.asker.send(request, options, services);
        let reply = until(Some(at), services, sending).await;
        reply.unwrap_or_else(|| {
            let detail = "the polled system did not answer in time";
            let cause = format_args!("longer than {:?}", self.timeout);
            let fault = Fault::new(Kind::Timeout, Origin::Upstream, detail);
            Err(fault.with_retry(Helps::Yes).with_cause(cause))
        })
    }

    /// Makes a reply's body the content.
    async fn take_over(
        &self,
        reply: Reply,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let is_empty = reply.body.as_bytes().is_empty();
        exchange.take_over(reply);
        if is_empty {
            return Err(unusable("it is empty"));
        }
        let content = std::mem::take(&mut exchange.content);
        exchange.content = content.in_format(Some(self.decode));
        let read = exchange.preemptible(services, |it| it.value().map(|_| ()));
        read.await
    }

    /// What the document is, the whole answer being the content.
    async fn finish(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Answer, Fault> {
        let finished = exchange.preemptible(services, |it| {
            let before = it.content.clone();
            let finished = self.finish_once(it, services);
            if finished.is_err() {
                it.content = before;
            }
            finished
        });
        finished.await
    }

    fn finish_once(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Answer, Fault> {
        let kept = match &self.keep {
            Some(keep) => Some(check_kept(exchange.evaluate(keep, services)?)?),
            None => None,
        };
        if !self.pointer.is_whole() {
            let part = self.pointer.find(exchange.value()?).cloned();
            let part = part.ok_or_else(|| unusable("there is nothing at `pointer`"))?;
            exchange.set_value(part);
        }
        if let Some(map) = &self.map {
            let made = exchange.evaluate(map, services)?;
            exchange.set_value(made);
        }
        let mut text = Vec::with_capacity(1024);
        let fetched = match exchange.value()? {
            Value::Null => Fetched::Nothing,
            value => {
                let max = usize::try_from(self.body_max).unwrap_or(usize::MAX);
                expr::json::write(value, max, &mut text).map_err(Fault::expression)?;
                Fetched::Document(text.into())
            }
        };
        Ok(Answer {
            fetched,
            validators: None,
            kept,
        })
    }
}

/// A JSON body that nobody looks into: whoever takes the document reads it.
fn as_it_is(reply: Reply) -> Result<Bytes, Fault> {
    let encoding = reply.headers.get("Content-Encoding").unwrap_or_default();
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity") {
        return Err(unusable("it has a Content-Encoding"));
    }
    match reply.body {
        Body::Bytes(bytes) if !bytes.is_empty() => Ok(bytes),
        _ => Err(unusable("it is empty")),
    }
}

fn check_kept(value: Value) -> Result<Value, Fault> {
    let mut text = Vec::new();
    let written = expr::json::write(&value, KEPT_MAX, &mut text);
    written.map_err(|error| Fault::expression(format_args!("`keep`: {error}")))?;
    Ok(value)
}
