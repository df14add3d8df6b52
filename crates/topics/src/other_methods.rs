//! Requests of other methods than those that an address takes that is for one topic alone, which
//! not everybody may see.

use std::sync::Arc;

use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Fault, Request};

use crate::access::{self, Refused, Right};
use crate::endpoint::Endpoint;

/// Answers 405 to those who may see the topic, and to others what paths get that do not exist.
pub(crate) struct OtherMethods {
    pub endpoint: Arc<Endpoint>,
    /// The methods that are taken there.
    pub allow: &'static str,
}

impl Handler for OtherMethods {
    fn reads_body(&self) -> bool {
        false
    }

    fn is_locked(&self) -> bool {
        true
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.endpoint.access.secret_parameters().cloned().collect()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let at = (&request, services);
            let entered = access::admit_to_one(&self.endpoint, Right::Subscribe, at).await;
            match entered.map_err(|refusal| refusal.or(access::nothing)) {
                Ok(_) => {
                    let fault = Fault::invalid("the method is not allowed here");
                    let mut reply = fault.with_status(405).to_reply();
                    reply.headers.append("Allow", self.allow);
                    Ok(Outcome::Reply(reply))
                }
                Err(Refused::Reply(reply)) => Ok(Outcome::Reply(*reply)),
                Err(Refused::Fault(fault)) => Err(fault),
            }
        })
    }
}
