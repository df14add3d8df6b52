//! Requests for WebSocket connections to topics.

use std::rc::Rc;
use std::sync::Arc;

use component::access::{
    Admitted, CACHE_FIELD, Caller, SUBPROTOCOL_FIELD, TOKEN_SUBPROTOCOL, tickets_of,
};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::stream::{Client, Feed};
use component::trigger::ListenAddress;
use message::{Fault, Kind, Origin, RateLimit, Reply, Request};
use net::websocket::{CloseCode, Handshake, Terms};

use super::connection::{Connection, Scope};
use super::subscription::Wish;
use crate::access::{self, Protocol, Refused, Right};
use crate::ask::Ask;
use crate::caller_limits::{OpenConnection, Subscriber};
use crate::endpoint::{Directory, Endpoint};
use crate::origin;
use crate::websocket::session::{Options, Session};

/// After how long a silence a client is asked whether it is there.
const PING: std::time::Duration = std::time::Duration::from_secs(25);
/// The largest message of a client beside what it publishes.
const MESSAGE_MAX: usize = 64 * 1024;

/// Answers requests for WebSocket connections to topics.
pub(crate) struct WebSocketHandler {
    pub directory: Arc<Directory>,
    pub listen: ListenAddress,
    /// The only topic; without it those of the listener that the client names.
    pub only: Option<Arc<Endpoint>>,
}

impl Handler for WebSocketHandler {
    fn reads_body(&self) -> bool {
        false
    }

    fn shares(&self) -> Option<&'static str> {
        self.only.is_none().then_some("topics over WebSocket")
    }

    fn checks_origin(&self) -> bool {
        true
    }

    fn is_locked(&self) -> bool {
        match &self.only {
            Some(endpoint) => endpoint.access.is_locked(),
            None => self.directory.has_locks(&self.listen, Protocol::WebSocket),
        }
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        match &self.only {
            Some(endpoint) => endpoint.access.secret_parameters().cloned().collect(),
            None => self.directory.secret_parameters(&self.listen).to_vec(),
        }
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            match self.accept(request, services).await {
                Ok(outcome) => Ok(outcome),
                Err(Refused::Reply(reply)) => Ok(Outcome::Reply(*reply)),
                Err(Refused::Fault(fault)) => Err(fault),
            }
        })
    }
}

impl WebSocketHandler {
    /// Whether somebody may be refused: each order is judged by what has opened the connection.
    fn is_judged(&self) -> bool {
        match &self.only {
            Some(endpoint) => endpoint.access.is_locked(),
            None => self.directory.has_locks(&self.listen, Protocol::WebSocket),
        }
    }

    async fn accept(
        &self,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Outcome, Refused> {
        let only = self.only.as_ref();
        let is_judged = self.is_judged();
        // What browsers offer before a token: they want to see one of what they have offered.
        let subprotocols = is_judged.then(|| TOKEN_SUBPROTOCOL.to_owned());
        let terms = Terms {
            subprotocols: subprotocols.as_slice(),
            compresses: only.is_none_or(|it| it.settings.compression),
        };
        // What is wrong with it is said to those only who may see the topic.
        let handshake = Handshake::accept(&request, terms);
        let mut scope = Scope {
            directory: Arc::clone(&self.directory),
            listen: self.listen.clone(),
            only: only.map(|it| Arc::clone(it.topic.name())),
            origin: origin::Caller::of(&request),
            client: request.peer,
            head: None,
            connection: OpenConnection::default(),
            handshake: is_judged.then(|| Arc::new(request.clone())),
            verdicts: Rc::default(),
        };
        let mut first = Subscriber::default();
        let mut wishes = Vec::new();
        let mut message_max = MESSAGE_MAX;
        let (mut reply, deflate);
        if let Some(endpoint) = only {
            let (caller, admitted) = admit(endpoint, &mut request, services).await?;
            scope.check_origin(endpoint, &request)?;
            Handshake { reply, deflate, .. } = handshake.map_err(Refused::Reply)?;
            if let Some(admitted) = admitted {
                follow_up(admitted, &mut scope, &mut reply);
            }
            let wish = Wish {
                ask: Ask::of(&request)?,
                window: None,
            };
            // What is wrong with it is said before the connection is there.
            wish.check((endpoint, &caller), services).await?;
            message_max += endpoint.topic.settings().body_max;
            wishes.push(wish);
            let one = (&[Arc::clone(endpoint)][..], &[caller][..]);
            let subscriber = Subscriber::enter(one, &request, services).await?;
            for (name, value) in subscriber.fields.iter().flat_map(RateLimit::fields) {
                reply.headers.append(name, value);
            }
            scope.connection = subscriber.connection.clone();
            first = subscriber;
        } else {
            Handshake { reply, deflate, .. } = handshake.map_err(Refused::Reply)?;
            message_max += scope.body_max();
        }
        scope.head = scope.head_of(&request);
        let options = Options {
            message_max,
            deflate,
            ping: PING,
        };
        let feed = SocketFeed {
            scope,
            wishes,
            first,
            options,
        };
        Ok(Outcome::Stream(reply, Box::new(feed)))
    }
}

impl Scope {
    /// Refuses pages of origins that may not read the topic.
    fn check_origin(&self, endpoint: &Endpoint, request: &Request) -> Result<(), Fault> {
        let Some(reason) = self.origin.refusal(&endpoint.settings.edge) else {
            return Ok(());
        };
        origin::audit_client_of_topic(endpoint, reason, request);
        let detail = "pages of this origin may not connect";
        Err(Fault::new(Kind::Forbidden, Origin::Client, detail))
    }
}

/// Notes what an admission leaves behind. A ticket is good once: the orders of the client are
/// judged by what stands for it.
fn follow_up(admitted: Admitted, scope: &mut Scope, reply: &mut Reply) {
    if let Some(handshake) = &mut scope.handshake {
        admitted.replace_ticket(Arc::make_mut(handshake));
    }
    let fields = admitted.reply_fields.into_iter();
    // The handshake has chosen the subprotocol already, and no cache keeps it.
    let is_meant = |name: &str| !matches!(name, SUBPROTOCOL_FIELD | CACHE_FIELD);
    for (name, value) in fields.filter(|(name, _)| is_meant(name)) {
        reply.headers.append(name, value);
    }
}

/// Lets a request in at an address that is for this topic alone; who has sent it, and how it has
/// been admitted.
async fn admit(
    endpoint: &Arc<Endpoint>,
    request: &mut Request,
    services: &dyn Services,
) -> Result<(Option<Arc<Caller>>, Option<Admitted>), Refused> {
    let entered = access::admit_to_one(endpoint, Right::Subscribe, (request, services)).await;
    let entered = entered.map_err(|refusal| refusal.or(access::nothing))?;
    let (_, admitted) = entered;
    if let Some(admitted) = &admitted {
        admitted.enter(request);
    }
    let caller = admitted.as_ref().map(|it| Arc::clone(&it.caller));
    match admitted {
        Some(_) => Ok((caller, admitted)),
        None => Ok((None, admit_by_ticket(endpoint, request, services).await?)),
    }
}

/// Takes the ticket of a publisher to a topic that everybody may subscribe to: it is good once, and
/// the orders are judged by what stands for it.
async fn admit_by_ticket(
    endpoint: &Arc<Endpoint>,
    request: &mut Request,
    services: &dyn Services,
) -> Result<Option<Admitted>, Refused> {
    let query = request.query.as_deref().unwrap_or_default();
    if endpoint.access.publish.is_none() || tickets_of(query).next().is_none() {
        return Ok(None);
    }
    let entered = access::admit_to_one(endpoint, Right::Publish, (&*request, services)).await;
    let (_, admitted) = entered.map_err(|refusal| match refusal {
        access::Refusal::Reply(reply) | access::Refusal::Missing(Some(reply)) => {
            Refused::Reply(reply)
        }
        access::Refusal::Missing(None) => access::nothing().into(),
    })?;
    if let Some(admitted) = &admitted {
        admitted.enter(request);
        // Whoever subscribes is nobody in particular.
        request.caller = None;
    }
    Ok(admitted)
}

/// A connection that is about to begin.
struct SocketFeed {
    scope: Scope,
    wishes: Vec<Wish>,
    /// Who has been admitted to the first of them.
    first: Subscriber,
    options: Options,
}

impl Feed for SocketFeed {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let Self {
                scope,
                wishes,
                first,
                options,
            } = *self;
            let session = Session::new(client, options);
            let mut connection = Connection::new(session, scope, options.deflate, services);
            let mut first = Some(first);
            for wish in wishes {
                connection.subscribe_first(wish, first.take().unwrap_or_default());
            }
            connection.serve().await;
            let mut session = connection.into_session();
            session.close(CloseCode::NORMAL, "");
            Box::pin(session.end(services)).await;
        })
    }
}
