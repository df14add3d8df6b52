//! Asks callbacks whether a request is meant, and tells those that are denied.

use std::net::Ipv4Addr;
use std::sync::Arc;

use component::handler::{Call, Services};
use message::{Body, Headers, Method, Reply, Request};
use websub::hub::{ANSWER_TIME, Answer, Denial, Verdict, Verification};
use websub::url::Url;

use super::state::HubState;
use super::subscriptions::{Access, add};

/// The most bytes that an answer may have: more than any challenge, so that the status of a page
/// that is none is seen.
const ANSWER_MAX: u64 = 64 << 10;

/// Asks callbacks for as long as some wait and may be asked now.
pub(super) fn pump(state: &Arc<HubState>, services: &dyn Services) {
    loop {
        let now = state.moment(services);
        let next = state.machine().next(now, websub::random::token);
        let Some(verification) = next else {
            return;
        };
        let asking = Asking {
            state: Arc::clone(state),
            verification,
            is_over: false,
        };
        services.spawn(Box::new(move |services| {
            Box::pin(async move { asking.verify(services).await })
        }));
    }
}

/// A callback that is being asked.
struct Asking {
    state: Arc<HubState>,
    verification: Verification,
    is_over: bool,
}

/// Dropped without an answer, nothing is known of the callback: the machine gives it up when its
/// time is over, and others may go on then.
impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_over {
            self.state.changed.notify_one();
        }
    }
}

impl Asking {
    async fn verify(mut self, services: &dyn Services) {
        let Verification {
            id,
            topic,
            callback,
            query,
        } = self.verification.clone();
        let state = Arc::clone(&self.state);
        let access = state.topic(&topic).and_then(|it| it.access());
        let reply = match access {
            Some(access) => ask(&access, (&callback, query), services).await,
            None => None,
        };
        let answer = match &reply {
            Some(reply) => Answer::Reply(reply.status, reply.body.as_bytes()),
            None => Answer::Nothing,
        };
        let now = state.moment(services);
        let verdict = state.machine().answered(id, answer, now);
        self.is_over = true;
        state.count(&topic, !matches!(verdict, Verdict::Failed));
        // Not the callback: whoever knows it could send what its owner takes for the hub's.
        let (url, host) = (&*topic, &**callback.host());
        match verdict {
            Verdict::Subscribed => {
                // Its lease may be the next one to end.
                state.changed.notify_one();
                let known = state.topic(url).and_then(|it| it.get(callback.as_str()));
                match known {
                    None => tracing::info!(target: "websub", topic = url, host, "subscribed"),
                    Some(_) => tracing::debug!(target: "websub", topic = url, host, "renewed"),
                }
            }
            Verdict::Unsubscribed => {
                tracing::info!(target: "websub", topic = url, host, "unsubscribed");
            }
            Verdict::Failed => {
                let status = reply.as_ref().map(|it| it.status);
                tracing::debug!(target: "websub", topic = url, host, status, "not verified");
            }
            Verdict::Denied(denial) => deny(&state, denial, services),
            Verdict::Over => {}
        }
        state.apply(services.wall()).await;
        pump(&state, services);
    }
}

/// Tells a subscriber, once, that it gets nothing any more.
pub(super) fn deny(state: &Arc<HubState>, denial: Denial, services: &dyn Services) {
    let topic = state.topic(&denial.topic);
    let (url, host) = (&*denial.topic, &**denial.callback.host());
    tracing::info!(target: "websub", topic = url, host, "denied");
    let Some(topic) = topic else {
        return;
    };
    add(&topic.denied);
    services.spawn(Box::new(move |services| {
        Box::pin(async move {
            if let Some(access) = topic.access() {
                // Nothing depends on the answer.
                ask(&access, (&denial.callback, denial.query), services).await;
            }
        })
    }));
}

/// Sends a `GET` to a callback; `None` when it does not answer, or may not be asked.
async fn ask(
    access: &Access,
    (callback, query): (&Url, String),
    services: &dyn Services,
) -> Option<Reply> {
    let mut target = match services.egress(callback.as_str()) {
        Ok(target) => target,
        Err(refusal) => {
            let host = &**callback.host();
            tracing::debug!(target: "websub", host, %refusal, "a callback may not be called");
            return None;
        }
    };
    target.query = Some(query);
    let plan = Arc::new(access.origins.plan(&target));
    let mut headers = Headers::new();
    headers.append("Accept", "*/*");
    let request = Request {
        method: Method::Get,
        path: target.path,
        query: None,
        parameters: Vec::new(),
        headers,
        body: Body::Empty,
        peer: Ipv4Addr::UNSPECIFIED.into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    let deadline = services.now() + access.timeout.min(ANSWER_TIME);
    let call = Call {
        // The challenge has to be the whole answer: what is cut could have gone on.
        body_max: Some(ANSWER_MAX),
        deadline: Some(deadline),
        ..Call::new(&plan, &request, "websub")
    };
    match services.call(call).await {
        Ok(reply) => Some(reply),
        Err(fault) => {
            let host = &**callback.host();
            tracing::debug!(target: "websub", host, %fault, "a callback does not answer");
            None
        }
    }
}
