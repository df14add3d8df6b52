//! One step of a running flow.

use std::sync::Arc;

use message::{Body, Fault, Field, Headers, Reply, Request};

use crate::forward::ForwardPlan;
use crate::handler::{LocalFuture, Services};

/// What follows a step.
#[derive(Debug)]
pub enum Next {
    /// The next step.
    Continue,
    /// This reply ends the flow.
    Reply(Reply),
}

/// The work of a step: done at once, or a future. Most steps are done at once and cost no
/// allocation.
pub enum Progress<'a> {
    /// The step is done.
    Done(Result<Next, Fault>),
    /// The step waits for something.
    Waits(LocalFuture<'a, Result<Next, Fault>>),
}

/// One step of a flow. One value serves all workers, so a step keeps no state of a message.
pub trait Step: Send + Sync {
    /// Does the step's work on the exchange.
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a>;

    /// Whether the step looks at the body or replaces it. When no step of a flow does, bodies are
    /// relayed as they arrive.
    fn reads_body(&self) -> bool {
        true
    }

    /// The plan of a step that forwards. As the last step it is handed to the proxy, which streams
    /// the reply; anywhere else [`Step::run`] reads the reply whole.
    fn forwards(&self) -> Option<&Arc<ForwardPlan>> {
        None
    }

    /// Whether the flow always ends here, so that a step behind it would never run.
    fn ends_flow(&self) -> bool {
        false
    }
}

/// The state of one message on its way through a flow.
#[derive(Debug)]
pub struct Exchange {
    /// The name of the flow.
    pub flow: Arc<str>,
    /// The message: the request as it came in, with the body and fields that steps have changed.
    pub request: Request,
}

/// Fields with checksums of the body, wrong as soon as it changes (RFC 9530; RFC 2616, section
/// 14.15; RFC 3230).
const DIGESTS: [&str; 4] = ["Content-Digest", "Repr-Digest", "Content-MD5", "Digest"];

/// Fields that go with the body into a reply.
const DESCRIPTIONS: [&str; 2] = ["Content-Type", "Content-Encoding"];

impl Exchange {
    /// Replaces the body. `describes` holds the header fields that come with the new one: its
    /// `Content-Type` and `Content-Encoding` take the place of the old body's, whose checksums go.
    pub fn replace_body(&mut self, body: Body, describes: &Headers) {
        let headers = &mut self.request.headers;
        for name in DESCRIPTIONS.iter().chain(&DIGESTS) {
            headers.remove(name);
        }
        for name in DESCRIPTIONS {
            if let Some(value) = describes.get(name) {
                headers.append(name, value);
            }
        }
        self.request.body = body;
    }

    /// A reply with the body and what describes it; the exchange is left without a body.
    pub fn take_reply(&mut self, status: u16) -> Reply {
        let mut reply = Reply::new(status);
        reply.body = std::mem::take(&mut self.request.body);
        if matches!(reply.body, Body::Empty) {
            return reply;
        }
        for (field, name) in [
            (Field::ContentType, "Content-Type"),
            (Field::ContentEncoding, "Content-Encoding"),
        ] {
            if let Some(value) = self.request.headers.view().first(field) {
                reply.headers.append(name, value);
            }
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::Method;

    fn exchange(body: &[u8]) -> Exchange {
        let mut headers = Headers::new();
        headers.append("content-type", "text/plain");
        headers.append("Content-Encoding", "gzip");
        headers.append("Content-Digest", "sha-256=:AA==:");
        headers.append("X-Kept", "1");
        let request = Request {
            method: Method::Post,
            path: "/".into(),
            query: None,
            parameters: Vec::new(),
            headers,
            body: body.to_vec().into(),
            peer: [127, 0, 0, 1].into(),
            is_secure: false,
        };
        Exchange {
            flow: "test".into(),
            request,
        }
    }

    #[test]
    fn a_new_body_brings_its_own_description() {
        let mut exchange = exchange(b"old");
        let mut describes = Headers::new();
        describes.append("Content-Type", "application/xml");
        describes.append("X-Other", "2");
        exchange.replace_body(b"<a/>".to_vec().into(), &describes);
        let headers = &exchange.request.headers;
        assert_eq!(headers.get("Content-Type"), Some(&b"application/xml"[..]));
        assert_eq!(headers.get("Content-Encoding"), None);
        assert_eq!(headers.get("Content-Digest"), None);
        assert_eq!(headers.get("X-Other"), None);
        assert_eq!(headers.get("X-Kept"), Some(&b"1"[..]));
        assert_eq!(exchange.request.body.as_bytes(), b"<a/>");
    }

    #[test]
    fn a_reply_takes_the_body_and_what_describes_it() {
        let reply = exchange(b"text").take_reply(200);
        assert_eq!(reply.body.as_bytes(), b"text");
        assert_eq!(reply.headers.get("Content-Type"), Some(&b"text/plain"[..]));
        assert_eq!(reply.headers.get("Content-Encoding"), Some(&b"gzip"[..]));
        assert_eq!(reply.headers.view().len(), 2);
        assert!(exchange(b"").take_reply(204).headers.view().is_empty());
    }
}
