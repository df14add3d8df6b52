//! What a request of HTTP/2 meets before it is served: what the listener and the route want to see
//! of it, the door, and the limits.

use std::sync::Arc;
use std::task::Context;

use component::access::{Admitted, Door, RequestHead};
use component::limits::{Gate, Passed};
use message::{Body, Method, Request};
use net::http2::Head;
use tokio::time::Instant;

use super::{Place, StreamSession};
use crate::client::door::{self, ClientInfo, TurnedAway};
use crate::client::edge::Asked;
use crate::client::gate::{self, Refusal, Visitor};
use crate::router::Route;
use crate::upstream::request_head::take_fields;

impl StreamSession {
    /// The head, as far as the edge looks at it.
    pub(super) fn asked<'a>(
        &'a self,
        head: &'a Head,
        method: &'a Method,
        place: Place<'a>,
    ) -> Asked<'a> {
        Asked {
            method,
            path: place.path,
            query: place.query,
            headers: head.fields.view(),
            peer: self.origin.peer,
            is_secure: self.origin.is_secure,
            upgrades: false,
            proxies: self.settings.trusted_proxies.as_deref(),
            audit: &self.worker.engine.audit,
        }
    }

    /// Asks the limits, and waits until it is the request's turn.
    pub(super) async fn enter(
        &mut self,
        gate: &Gate,
        route: &Route,
        head: &Head,
        (method, place, admitted): (&Method, Place<'_>, Option<&Admitted>),
    ) -> Result<Passed, Refusal> {
        let now = self.now.into_std();
        let stream = &self.stream;
        let has_left = |context: &mut Context<'_>| stream.fate(context).is_some();
        let passed = if gate.needs_evaluation() {
            let mut request = self.take_request(route, head, method, place);
            if let Some(admitted) = admitted {
                admitted.enter(&mut request);
            }
            let visitor = Visitor {
                gate,
                worker: &self.worker,
                now,
                request,
                has_left,
            };
            visitor.pass().await
        } else {
            let from = (self.origin.peer, head.fields.view(), admitted);
            let proxies = self.settings.trusted_proxies.as_deref();
            match gate::enter(gate, from, proxies, now) {
                Err(fault) => return Err(Refusal::Fault(fault)),
                Ok(entered) if entered.wait.is_zero() => return Ok(entered.finish(now)),
                Ok(entered) => gate::wait(entered, &self.worker, has_left).await,
            }
        };
        self.now = Instant::now();
        passed
    }

    /// Has the door judge the request.
    pub(super) async fn judge(
        &mut self,
        door: &Arc<dyn Door>,
        route: &Route,
        head: &Head,
        method: &Method,
        place: Place<'_>,
    ) -> Result<Option<Admitted>, TurnedAway> {
        let headers = head.fields.view();
        let needs_message = door.needs_message();
        let message = needs_message.then(|| self.take_request(route, head, method, place));
        let origin = &self.origin;
        let certificate = origin.certificate.as_ref();
        let client = ClientInfo::of(origin.peer, certificate, headers, &self.settings);
        let head = RequestHead {
            method: method.as_str(),
            path: place.path,
            query: place.query,
            headers,
            peer: client.address,
            proxy: client.proxy,
            is_secure: origin.is_secure,
            certificate: client.certificate.as_ref(),
            message: message.as_ref(),
        };
        if door.recalls()
            && let Some(judged) = door::recall(door, head, &self.worker)
        {
            return judged.map(Some);
        }
        let stream = &self.stream;
        let has_left = |context: &mut Context<'_>| stream.fate(context).is_some();
        door::judge(door, head, &self.worker, (&mut self.now, has_left)).await
    }

    /// Copies the head for a message.
    pub(super) fn take_request(
        &self,
        route: &Route,
        head: &Head,
        method: &Method,
        place: Place<'_>,
    ) -> Request {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let path = text(place.path);
        let captures = route.parameters.iter().zip(&self.captures);
        let parameters = captures
            .map(|(name, (start, end))| {
                let value = path.get(*start as usize..*end as usize).unwrap_or_default();
                (name.clone(), value.to_owned())
            })
            .collect();
        let (fields, origin) = (head.fields.view(), &self.origin);
        let of_connection = origin.certificate.as_ref();
        let taken = take_fields(&self.settings, origin.peer, fields, of_connection);
        Request {
            method: method.clone(),
            query: place.query.map(text),
            parameters,
            headers: taken.headers,
            body: Body::Unread,
            peer: taken.peer,
            proxy: taken.proxy,
            is_secure: origin.is_secure,
            certificate: taken.certificate,
            caller: None,
            path,
        }
    }
}
