//! A flow within a protocol of its own.

use std::sync::Arc;

use component::access::drop_ticket_cookie;
use component::endpoint::{Envelope, Note, Opened};
use component::failure_lines::FailureLines;
use component::handler::{Callee, CallerContext, Handler, LocalFuture, Outcome, Services};
use component::limits::Gate;
use component::long_work::{ENVELOPE_AT_ONCE, beside};
use component::source::Started;
use component::stream_limits::StreamLimits;
use message::{Fault, Kind, Origin, Reply, Request};

use crate::running::RunningFlow;

/// A flow and the protocol around it.
pub(crate) struct Enveloped {
    pub flow: Arc<RunningFlow>,
    pub envelope: Arc<dyn Envelope>,
}

impl Enveloped {
    /// Opens a request, beside the worker when that takes long.
    async fn open(&self, request: Request, services: &dyn Services) -> Result<Opened, Fault> {
        if request.body.as_bytes().len() <= ENVELOPE_AT_ONCE {
            return Ok(self.envelope.open(request));
        }
        let envelope = Arc::clone(&self.envelope);
        beside(services, move |_| envelope.open(request)).await
    }

    /// Closes a reply, beside the worker when that takes long.
    async fn close(
        &self,
        note: &Note,
        reply: Reply,
        services: &dyn Services,
    ) -> Result<(Reply, Option<Fault>), Fault> {
        if reply.body.as_bytes().len() <= ENVELOPE_AT_ONCE {
            return Ok(self.envelope.close(note, Ok(reply)));
        }
        let (envelope, note) = (Arc::clone(&self.envelope), Arc::clone(note));
        beside(services, move |_| envelope.close(&note, Ok(reply))).await
    }

    async fn handle(&self, request: Request, services: &dyn Services) -> Outcome {
        let opened = match self.open(request, services).await {
            Ok(opened) => opened,
            Err(fault) => {
                log(&fault);
                return Outcome::Reply(fault.to_reply());
            }
        };
        let (request, note) = match opened {
            Opened::Reply(reply) => return Outcome::Reply(reply),
            Opened::Message(request, note) => (request, note),
            Opened::Stream(head, conversation) => {
                let flow = Arc::new(Conversed(Arc::clone(&self.flow)));
                return Outcome::Stream(head, conversation.with(flow));
            }
        };
        let flow: &dyn Handler = &*self.flow;
        let end = match flow.handle(*request, services).await {
            Ok(Outcome::Reply(reply)) => Ok(reply),
            // The loader has told the last step that nobody streams here.
            Ok(Outcome::Forward(..) | Outcome::Stream(..)) => {
                let detail = "a flow within a protocol cannot stream";
                Err(Fault::new(Kind::Internal, Origin::Engine, detail))
            }
            Err(fault) => Err(fault),
        };
        let end = match end {
            Ok(reply) => self.close(&note, reply, services).await,
            Err(fault) => Err(fault),
        };
        let (reply, failure) = match end {
            Ok(closed) => closed,
            Err(fault) => {
                log(&fault);
                self.envelope.close(&note, Err(&fault))
            }
        };
        if let Some(failure) = &failure {
            log(failure);
        }
        Outcome::Reply(reply)
    }
}

/// The flow of a conversation. Its messages come from a client, so they fail as requests do.
struct Conversed(Arc<RunningFlow>);

impl Started for Conversed {
    fn name(&self) -> &Arc<str> {
        Started::name(&*self.0)
    }

    fn start<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        let work = self.0.call(request, CallerContext::default(), services);
        Box::pin(async move {
            work.await.map_err(|fault| {
                let fault = self.0.place(fault);
                log(&fault);
                fault
            })
        })
    }

    fn detaches(&self) -> bool {
        Started::detaches(&*self.0)
    }
}

/// Logs a failure. A client can cause its own faults as often as it likes, so they are no warnings:
/// it would fill the log. So would refusals of the engine, such as those of a full disk.
fn log(fault: &Fault) {
    static LINES: FailureLines = FailureLines::new();
    let cause = fault.cause.as_deref().unwrap_or_default();
    match fault.origin {
        Origin::Client => {
            tracing::debug!(target: "flow", kind = fault.name(), cause, "{}", fault.detail);
        }
        Origin::Upstream | Origin::Engine => {
            if let Some(count) = LINES.pass(fault) {
                tracing::warn!(
                    target: "flow", kind = fault.name(), cause, count, "{}", fault.detail
                );
            }
        }
    }
}

impl Handler for Enveloped {
    fn reads_body(&self) -> bool {
        true
    }

    fn detaches(&self) -> bool {
        Handler::detaches(&*self.flow)
    }

    fn checks_origin(&self) -> bool {
        self.envelope.streams()
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.envelope.secret_parameters()
    }

    fn gate(&self) -> Option<&Arc<Gate>> {
        // Each message of a conversation passes it, not the handshake.
        self.flow.gate().filter(|_| !self.envelope.streams())
    }

    fn stream_limits(&self) -> Option<&Arc<StreamLimits>> {
        self.flow.stream_limits()
    }

    fn handle<'a>(
        &'a self,
        mut request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        drop_ticket_cookie(&mut request);
        Box::pin(async { Ok(self.handle(request, services).await) })
    }
}
