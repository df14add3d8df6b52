//! What a request of HTTP/1.1 meets before it is served: what the listener and the route want to
//! see of it, the door, and the limits.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use component::access::{self, Admitted, Door};
use component::limits::{Entered, Gate, Passed};
use message::{Fault, Request};
use net::http1::{Framing, RequestHead};
use tokio::time::Instant;

use super::Session;
use crate::client::door::{self, ClientInfo, TurnedAway};
use crate::client::edge::Asked;
use crate::client::gate::{self, Refusal, Visitor};
use crate::client::handle;
use crate::relay::has_left;
use crate::router::Route;

impl Session {
    /// Asks the door about a request whose credential it may have verified before. `None`: it has
    /// to [`judge`](Self::judge) the request.
    pub(super) fn recall(&self, door: &Arc<dyn Door>) -> Option<Result<Admitted, TurnedAway>> {
        if !door.recalls() {
            return None;
        }
        let bytes = self.client.input.bytes();
        let client = self.client_info(bytes);
        let head = head_for_door(&self.head, bytes, &client, self.client.is_tls(), None);
        door::recall(door, head, &self.worker)
    }

    /// What the door learns of the client of the request whose head is at the front of `bytes`.
    fn client_info(&self, bytes: &[u8]) -> ClientInfo {
        let (peer, certificate) = (self.client.peer(), self.client.certificate());
        ClientInfo::of(peer, certificate, self.head.headers(bytes), &self.settings)
    }

    /// Has the door judge the request whose head is at the front of the input buffer.
    pub(super) async fn judge(
        &mut self,
        door: &Arc<dyn Door>,
        route: &Rc<Route>,
        path: Option<&Vec<u8>>,
    ) -> Result<Option<Admitted>, TurnedAway> {
        let needs_message = door.needs_message();
        let message = needs_message.then(|| handle::take_request(self, route, path.cloned()));
        // What comes behind a head without a body is another request.
        let watches = self.head.framing == Framing::None;
        // The door looks at the head while the client is watched, who may send more meanwhile.
        let input = std::mem::take(&mut self.client.input);
        let bytes = input.bytes();
        let info = self.client_info(bytes);
        let is_secure = self.client.is_tls();
        let head = head_for_door(&self.head, bytes, &info, is_secure, message.as_ref());
        let client = &mut self.client;
        let has_left = |context: &mut Context<'_>| watches && has_left(context, client);
        let waiting = (&mut self.now, has_left);
        let judged = door::judge(door, head, &self.worker, waiting).await;
        let behind = std::mem::replace(&mut self.client.input, input);
        self.client.input.append(behind.bytes());
        judged
    }

    /// The head, as far as the edge looks at it.
    pub(super) fn asked<'a>(&'a self, path: &'a [u8]) -> Asked<'a> {
        let bytes = self.client.input.bytes();
        Asked {
            method: &self.head.method,
            path,
            query: self.head.query(bytes),
            headers: self.head.headers(bytes),
            peer: self.client.peer(),
            is_secure: self.client.is_tls(),
            upgrades: self.head.upgrades_to_websocket,
            proxies: self.settings.trusted_proxies.as_deref(),
            audit: &self.worker.engine.audit,
        }
    }

    /// Asks a gate that needs no expression.
    pub(super) fn enter<'g>(
        &self,
        gate: &'g Gate,
        admitted: Option<&Admitted>,
    ) -> Option<Result<Entered<'g>, Fault>> {
        if gate.needs_evaluation() {
            return None;
        }
        let bytes = self.client.input.bytes();
        let head = bytes.get(..self.head.length).unwrap_or_default();
        let from = (self.client.peer(), self.head.headers(head), admitted);
        let proxies = self.settings.trusted_proxies.as_deref();
        Some(gate::enter(gate, from, proxies, self.now.into_std()))
    }

    /// Waits until a request may go on.
    pub(super) async fn pass(
        &mut self,
        gate: &Gate,
        entered: Option<Result<Entered<'_>, Fault>>,
        (route, path, admitted): (&Route, Option<&[u8]>, Option<&Admitted>),
    ) -> Result<Passed, Refusal> {
        let worker = Rc::clone(&self.worker);
        let now = self.now.into_std();
        let copied = match &entered {
            None => {
                let mut request = handle::take_request(self, route, path.map(<[u8]>::to_vec));
                if let Some(admitted) = &admitted {
                    admitted.enter(&mut request);
                }
                Some(request)
            }
            Some(_) => None,
        };
        // What comes behind a head without a body is another request.
        let watches = self.head.framing == Framing::None;
        let client = &mut self.client;
        let has_left = |context: &mut Context<'_>| watches && has_left(context, client);
        let passed = match (entered, copied) {
            (Some(Err(fault)), _) => Err(Refusal::Fault(fault)),
            (Some(Ok(entered)), _) => gate::wait(entered, &worker, has_left).await,
            (None, Some(request)) => {
                let visitor = Visitor {
                    gate,
                    worker: &worker,
                    now,
                    request,
                    has_left,
                };
                visitor.pass().await
            }
            // Copied above.
            (None, None) => Err(Refusal::Gone),
        };
        self.now = Instant::now();
        passed
    }
}

/// What a door sees of the request whose head is at the front of `bytes`.
fn head_for_door<'a>(
    head: &'a RequestHead,
    bytes: &'a [u8],
    client: &'a ClientInfo,
    is_secure: bool,
    message: Option<&'a Request>,
) -> access::RequestHead<'a> {
    access::RequestHead {
        method: head.method.as_str(),
        path: head.path(bytes),
        query: head.query(bytes),
        headers: head.headers(bytes),
        peer: client.address,
        proxy: client.proxy,
        is_secure,
        certificate: client.certificate.as_ref(),
        message,
    }
}
