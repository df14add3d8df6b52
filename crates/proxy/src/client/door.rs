//! Access control in front of a route: the head of a request is judged before anything of its body
//! is read, and the whole message where a door goes by the body, too.

use std::rc::Rc;
use std::sync::Arc;

use component::access::{Admitted, Door, Place, RequestHead, Settlement, without_parameter};
use message::{Fault, Kind, Origin, Reply, Request};

use crate::call::Caller;
use crate::panics;
use crate::router::{Route, Target};
use crate::worker::Worker;

/// Has a door judge a request; `None` when it has to be judged again with its body.
///
/// # Errors
/// The reply of one that may not come in.
pub(crate) async fn judge(
    door: &Arc<dyn Door>,
    head: RequestHead<'_>,
    worker: &Rc<Worker>,
) -> Result<Option<Admitted>, Box<Reply>> {
    let services = Caller::new(worker, &Rc::default());
    let judged = panics::caught(|| {
        let judgement = door.judge(head, &services);
        Box::pin(async { Ok(judgement.end().await) })
    });
    judged
        .await
        .unwrap_or_else(|fault| Err(Box::new(fault.to_reply())))
}

/// Has a door judge a message whose body has been read, and lets it in.
async fn judge_message(
    door: &Arc<dyn Door>,
    request: &mut Request,
    worker: &Rc<Worker>,
) -> Result<Option<Settlement>, Box<Reply>> {
    let judged = judge(door, RequestHead::of(request), worker).await?;
    let mut admitted = judged.ok_or_else(|| Box::new(undecided().to_reply()))?;
    let settlement = admitted.settlement.take();
    admitted.enter(request);
    Ok(settlement)
}

/// A message on its way to a handler, and the door that judges it with its body, if one does.
#[derive(Default)]
pub(crate) struct MessageDoor<'a> {
    door: Option<&'a Arc<dyn Door>>,
    settlement: Option<Settlement>,
}

impl<'a> MessageDoor<'a> {
    /// One for a request that this door has yet to judge by its body.
    pub fn new(door: Option<&'a Arc<dyn Door>>) -> Self {
        Self {
            door,
            settlement: None,
        }
    }

    /// Whether the body has to be read for it.
    pub fn reads_body(&self) -> bool {
        self.door.is_some()
    }

    /// Lets in a message whose body has been read, if the door does.
    ///
    /// # Errors
    /// The reply of one that may not come in.
    pub async fn pass(
        &mut self,
        request: &mut Request,
        worker: &Rc<Worker>,
    ) -> Result<(), Box<Reply>> {
        if let Some(door) = self.door {
            self.settlement = Box::pin(judge_message(door, request, worker)).await?;
        }
        Ok(())
    }

    /// The message has been served with this status; 0 when its client has disconnected.
    pub fn settle(self, status: u16, detaches: bool) {
        if let Some(settlement) = self.settlement {
            let is_success = (200..300).contains(&status);
            settlement.settle(is_success || (status == 0 && detaches));
        }
    }
}

/// A request that its door has not let in goes nowhere.
pub(crate) fn undecided() -> Fault {
    let detail = "access control has not decided";
    Fault::new(Kind::Internal, Origin::Engine, detail)
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
