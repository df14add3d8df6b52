//! Credentials of requests that are sent: asked for before the head is written, and once more when
//! the system refuses them and all of the request is still at hand.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use component::credentials::{Credentials, Grant, Signs, Unsigned};
use component::handler::Services;
use message::{Fault, Kind, Origin};
use tokio::time::Instant;

use super::exchange::{Exchange, Reply};
use super::failure::{Failed, Failure};
use super::send::Order;
use super::{Requester, UpstreamExchange, Waiting};
use crate::call::Caller;
use crate::router::ForwardTargets;
use crate::upstream::request_head::{self, Http2Head};

/// Asks for the credentials of a target's requests.
pub(crate) struct Authorizer {
    credentials: Arc<dyn Credentials>,
    /// The targets of the requests that it takes to get them.
    forwards: Rc<ForwardTargets>,
}

/// The credentials of a request on its way.
pub(crate) struct Authorization {
    pub grant: Grant,
    /// Whether the first ones were refused: then the reply stands, whatever it is.
    is_second: bool,
}

/// How a request with credentials was answered.
pub(crate) enum Answered {
    Reply(Reply),
    /// They were refused: the request is to be sent again with these.
    Renewed(Box<Authorization>),
}

impl Authorizer {
    /// That of a plan whose requests need credentials.
    pub fn of(plan: &component::forward::ForwardPlan) -> Option<Self> {
        Some(Self {
            credentials: Arc::clone(plan.credentials.as_ref()?),
            forwards: Rc::default(),
        })
    }

    /// The credentials of a request that has not been sent yet.
    pub async fn begin<D: Requester>(
        &self,
        down: &mut D,
        order: Order<'_>,
    ) -> Result<Box<Authorization>, Failure> {
        let grant = self.grant(down, order).await?;
        Ok(Box::new(Authorization {
            grant,
            is_second: false,
        }))
    }

    /// Asks for credentials, unless the client leaves meanwhile or the request's time ends.
    async fn grant<D: Requester>(&self, down: &mut D, order: Order<'_>) -> Result<Grant, Failure> {
        let signs = self.credentials.signs();
        let mut head = Http2Head::default();
        let mut target = Vec::new();
        let mut body = None;
        if signs != Signs::Nothing {
            request_head::write_http2(order.target, &down.request(), &mut head);
            target = std::mem::take(&mut head.path);
        }
        if signs == Signs::Body {
            body = Some(down.content().ok_or_else(body_is_gone)?);
        }
        let unsigned = Unsigned {
            method: order.method.as_str(),
            host: &head.authority,
            target: &target,
            fields: Some(head.fields.view()),
            body: body.as_deref(),
        };
        let services = Caller::new(down.worker(), &self.forwards);
        let time = down.settings().timeouts.call;
        let Waiting {
            deadline,
            mut client,
        } = down.waiting();
        deadline.set(Instant::now(), time);
        let mut asking = self.credentials.grant(&unsigned, &services);
        poll_fn(|context| {
            if let Poll::Ready(granted) = asking.as_mut().poll(context) {
                return Poll::Ready(granted.map_err(|it| Failure::Limited(Box::new(it))));
            }
            if client.poll_disconnected(context) {
                return Poll::Ready(Err(Failure::ClientGone));
            }
            deadline.poll(context).map(|()| Err(Failure::ReplyTimeout))
        })
        .await
    }

    /// Runs a request with credentials, and says with which ones to send it again when these were
    /// refused. Credentials that were refused are renewed for the next request if not for this one.
    pub async fn run<D: Requester, U: UpstreamExchange>(
        &self,
        exchange: &mut Exchange<'_, D, U>,
        order: Order<'_>,
        authorization: &Authorization,
        answered: impl FnOnce(),
    ) -> Result<Answered, Failed> {
        exchange.final_head().await?;
        let head = exchange.up.head();
        let wall = || Caller::new(exchange.down.worker(), &self.forwards).wall();
        let grant = &authorization.grant;
        let is_refused = head.status >= 400
            && self
                .credentials
                .refuses(grant, head.status, head.fields, wall());
        if is_refused && !authorization.is_second && exchange.down.can_rewind() {
            let renewed = Box::pin(self.grant(exchange.down, order)).await;
            match renewed {
                Ok(renewed) if renewed != *grant => {
                    answered();
                    return Ok(Answered::Renewed(Box::new(Authorization {
                        grant: renewed,
                        is_second: true,
                    })));
                }
                // It is too early for others: the refusal is the reply.
                Ok(_) => {}
                Err(failure) => {
                    answered();
                    return Err(failure.finally());
                }
            }
        }
        Ok(Answered::Reply(exchange.pass_on(answered).await?))
    }
}

/// The lines of credentials in a head of HTTP/1.1, which ends with an empty line.
pub(crate) fn add_lines(head: &mut Vec<u8>, authorization: &Authorization) {
    for (name, value) in &authorization.grant.lines {
        add_line(head, (name, value));
    }
}

/// A line more in such a head.
pub(crate) fn add_line(head: &mut Vec<u8>, (name, value): (&str, &str)) {
    head.truncate(head.len().saturating_sub(b"\r\n".len()));
    request_head::line(head, name.as_bytes(), value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// The same in one of HTTP/2.
pub(crate) fn add_fields(head: &mut Http2Head, authorization: &Authorization) {
    use request_head::Lines as _;
    for (name, value) in &authorization.grant.lines {
        head.fields.line(name.as_bytes(), value.as_bytes());
    }
}

/// A plan that signs bodies is used where they are read first.
fn body_is_gone() -> Failure {
    let detail = "a body is to be signed that was not read";
    Failure::Limited(Box::new(Fault::new(Kind::Internal, Origin::Engine, detail)))
}
