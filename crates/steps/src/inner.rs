//! Steps that run on a copy of a message: beside others, many times, or when the message has gone
//! on. What they make of the body may come back; nothing else of what they change does.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::block::Block;
use component::content::Content;
use component::exchange::{Exchange, ReplyHead};
use component::handler::{LocalFuture, Services, until};
use component::step::Next;
use expr::Value;
use message::{Fault, Kind, Origin};

/// How steps on a copy have ended.
pub(crate) enum Ran<T> {
    /// They ran to their end.
    Done(T),
    /// They ended the flow.
    Ended(Next),
}

/// The body that steps leave as it is, and the head of the last reply of another system.
pub(crate) struct Left {
    content: Content,
    reply: Option<Rc<ReplyHead>>,
}

impl Left {
    /// Makes it the message's.
    pub fn put(self, exchange: &mut Exchange) {
        exchange.content = self.content;
        exchange.reply = self.reply;
    }
}

/// A copy of a message on its way through steps. When it is given up because the flow's time is
/// over, the message knows where it was.
struct Copy<'a> {
    exchange: Exchange,
    services: &'a dyn Services,
    has_ended: bool,
}

impl<'a> Copy<'a> {
    fn new(exchange: Exchange, services: &'a dyn Services) -> Self {
        Self {
            exchange,
            services,
            has_ended: false,
        }
    }

    async fn run(&mut self, block: &Block) -> Result<Next, Fault> {
        let result = block.run(&mut self.exchange, self.services).await;
        self.has_ended = true;
        result
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.exchange.stop_here(self.services);
        }
    }
}

/// Runs steps on a copy for the value of the body that they leave, when it is wanted.
pub(crate) fn for_value<'a>(
    block: &'a Block,
    copy: Exchange,
    is_wanted: bool,
    services: &'a dyn Services,
) -> LocalFuture<'a, Result<Ran<Value>, Fault>> {
    let mut copy = Copy::new(copy, services);
    Box::pin(async move {
        Ok(match copy.run(block).await? {
            Next::Continue if is_wanted => {
                let value = copy
                    .exchange
                    .preemptible(services, |it| it.value().cloned());
                Ran::Done(value.await?)
            }
            Next::Continue => Ran::Done(Value::Null),
            end => Ran::Ended(end),
        })
    })
}

/// Runs steps on a copy for the body that they leave, whatever it is.
pub(crate) fn for_content<'a>(
    block: &'a Block,
    copy: Exchange,
    services: &'a dyn Services,
) -> LocalFuture<'a, Result<Ran<Left>, Fault>> {
    let mut copy = Copy::new(copy, services);
    Box::pin(async move {
        Ok(match copy.run(block).await? {
            Next::Continue => Ran::Done(Left {
                content: std::mem::take(&mut copy.exchange.content),
                reply: copy.exchange.reply.take(),
            }),
            end => Ran::Ended(end),
        })
    })
}

/// Runs steps that nobody waits for on a copy, for at most this time, and says whether they
/// succeeded. A failure goes to the log.
pub(crate) async fn in_background(
    block: &Block,
    mut copy: Exchange,
    time: Duration,
    services: &dyn Services,
) -> bool {
    // The message that it is a copy of may have to end before.
    let at = services.now() + time;
    copy.deadline = Some(at);
    // What is held for the message, such as a transaction, ends with it.
    copy.held.clear();
    let result = until(Some(at), services, block.run(&mut copy, services)).await;
    let result = result.unwrap_or_else(|| {
        let fault = Fault::new(Kind::Timeout, Origin::Upstream, "a step took too long");
        let mut fault = fault.with_cause(format_args!("longer than {time:?}"));
        fault.step = Some(Arc::clone(&copy.at));
        Err(fault)
    });
    if let Err(fault) = &result {
        tracing::warn!(
            target: "flow",
            flow = &*copy.context.name,
            step = fault.step.as_deref().unwrap_or_default(),
            kind = fault.name(),
            cause = fault.cause.as_deref().unwrap_or_default(),
            "{}; nobody waits for this step", fault.detail
        );
    }
    result.is_ok()
}
