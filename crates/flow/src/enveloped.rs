//! A flow within a protocol of its own.

use std::sync::Arc;

use component::endpoint::{Envelope, Opened};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::source::Started;
use component::stream_limits::StreamLimits;
use message::{Fault, Kind, Origin, Request};

use crate::running::RunningFlow;

/// A flow and the protocol around it.
pub(crate) struct Enveloped {
    pub flow: Arc<RunningFlow>,
    pub envelope: Arc<dyn Envelope>,
}

impl Enveloped {
    async fn handle(&self, request: Request, services: &dyn Services) -> Outcome {
        let (request, note) = match self.envelope.open(request) {
            Opened::Reply(reply) => return Outcome::Reply(reply),
            Opened::Message(request, note) => (request, note),
            Opened::Stream(head, conversation) => {
                let flow = Arc::clone(&self.flow) as Arc<dyn Started>;
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
        let (reply, failure) = match end {
            Ok(reply) => self.envelope.close(&note, Ok(reply)),
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

fn log(fault: &Fault) {
    tracing::warn!(
        target: "flow",
        kind = fault.name(),
        cause = fault.cause.as_deref().unwrap_or_default(),
        "{}", fault.detail
    );
}

impl Handler for Enveloped {
    fn reads_body(&self) -> bool {
        true
    }

    fn detaches(&self) -> bool {
        Handler::detaches(&*self.flow)
    }

    fn stream_limits(&self) -> Option<&Arc<StreamLimits>> {
        self.flow.stream_limits()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async { Ok(self.handle(request, services).await) })
    }
}
