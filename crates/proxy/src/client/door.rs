//! Access control in front of a route: the head of a request is judged before anything of its body
//! is read.

use std::rc::Rc;
use std::sync::Arc;

use component::access::{Admitted, Door, Place, RequestHead, without_parameter};
use message::Reply;

use crate::call::Caller;
use crate::panics;
use crate::router::{Route, Target};
use crate::worker::Worker;

/// Has a door judge a request.
///
/// # Errors
/// The reply of one that may not come in.
pub(crate) async fn judge(
    door: &Arc<dyn Door>,
    head: RequestHead<'_>,
    worker: &Rc<Worker>,
) -> Result<Admitted, Box<Reply>> {
    let services = Caller::new(worker, &Rc::default());
    let judged = panics::caught(|| {
        let judgement = door.judge(head, &services);
        Box::pin(async { Ok(judgement.end().await) })
    });
    judged
        .await
        .unwrap_or_else(|fault| Err(Box::new(fault.to_reply())))
}

/// What is taken out of a request that is forwarded as it lies in the client's buffer.
#[derive(Debug)]
pub(crate) struct Stripped {
    /// The lines of this name are left out.
    pub field: Option<Arc<str>>,
    /// The query as it goes on, when it is not the client's.
    pub query: Option<Option<String>>,
}

impl Stripped {
    /// What an admitted request goes on without, if that is anything.
    pub fn of(admitted: Option<&Admitted>, query: Option<&[u8]>) -> Option<Box<Self>> {
        Some(Box::new(match admitted?.strip.as_ref()? {
            Place::Field(name) => Self {
                field: Some(Arc::clone(name)),
                query: None,
            },
            Place::Query(name) => {
                let query = String::from_utf8_lossy(query.unwrap_or_default());
                Self {
                    field: None,
                    query: Some(without_parameter(&query, name)),
                }
            }
        }))
    }
}

/// What logs show in place of a credential.
const MASK: &str = "***";

/// A target for logs, in which no credential stands.
pub(crate) fn masked(target: &str, route: &Route) -> Option<String> {
    let (path, query) = target.split_once('?')?;
    let door = route.door.as_deref().map(Door::secret_parameters);
    let mut names = door.unwrap_or_default().to_vec();
    if let Target::Handle { handler, .. } = &route.target {
        names.extend(handler.secret_parameters());
    }
    if names.is_empty() {
        return None;
    }
    let mask = |part: &str| {
        let name = component::access::parameter_name(part);
        match names.iter().any(|it| **it == *name) {
            true => format!("{name}={MASK}"),
            false => part.to_owned(),
        }
    };
    let parts: Vec<String> = query.split('&').map(mask).collect();
    Some(format!("{path}?{}", parts.join("&")))
}
