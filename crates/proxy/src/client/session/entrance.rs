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
use crate::client::door::{self, Sender, TurnedAway};
use crate::client::edge::Asked;
use crate::client::gate::{self, Refusal, Visitor};
use crate::client::handle;
use crate::relay::has_left;
use crate::router::Route;

impl Session {
    /// Has the door judge the request whose head lies at the front of the input, when it knows the
    /// credential.
    pub(super) fn recall(&self, door: &Arc<dyn Door>) -> Option<Result<Admitted, TurnedAway>> {
        if !door.recalls() {
            return None;
        }
        let bytes = self.client.input.bytes();
        let sender = self.sender(bytes);
        let is_secure = self.client.is_tls();
        let head = head_for_door((&self.head, bytes), (&sender, is_secure), None);
        door::recall(door, head, &self.worker)
    }

    /// Who has sent the request whose head lies at the front of these bytes.
    fn sender(&self, bytes: &[u8]) -> Sender {
        let connected = (self.client.peer(), self.client.certificate());
        Sender::of(connected, self.head.headers(bytes), &self.settings)
    }

    /// Has the door judge the request whose head lies at the front of the input.
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
        let sender = self.sender(bytes);
        let sent = (&sender, self.client.is_tls());
        let head = head_for_door((&self.head, bytes), sent, message.as_ref());
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

/// What a door sees of the request whose head lies at the front of these bytes.
fn head_for_door<'a>(
    (head, bytes): (&'a RequestHead, &'a [u8]),
    (sender, is_secure): (&'a Sender, bool),
    message: Option<&'a Request>,
) -> access::RequestHead<'a> {
    access::RequestHead {
        method: head.method.as_str(),
        path: head.path(bytes),
        query: head.query(bytes),
        headers: head.headers(bytes),
        peer: sender.address,
        proxy: sender.proxy,
        is_secure,
        certificate: sender.certificate.as_ref(),
        message,
    }
}
