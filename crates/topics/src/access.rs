//! Who may subscribe to topics and publish to them, where several topics are behind one address: a
//! topic that a caller may not see is answered like one that does not exist.

mod judged;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use component::access::{
    AccessPage, Admitted, Caller, Door, DoorContext, ReplyField, TicketTarget, Validity, Ways,
};
use component::document::DocumentContext;
use component::handler::Services;
use component::trigger::ListenAddress;
use config::{Code, Node, Report, Span};
use message::{Fault, Kind, Origin, Reply, Request};

pub(crate) use self::judged::{Client, Verdicts};
use crate::endpoint::Endpoint;
use crate::only::Only;
use crate::origin;

/// A door with what the file says of it, so that equal ones are known.
#[derive(Clone)]
pub(crate) struct Lock {
    door: Arc<dyn Door>,
    /// The value of `auth` as JSON.
    text: Arc<str>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Lock {
    /// Reads the value of `auth` of something that has this name in logs, and takes tickets there.
    /// Every problem is reported; there is no lock when it is `none`.
    pub fn read(
        auth: &Node,
        (name, tickets): (&str, Option<TicketTarget>),
        context: &mut DocumentContext<'_>,
    ) -> Option<Self> {
        let mut door = DoorContext {
            report: &mut *context.report,
            name,
            evaluation: context.evaluation,
            tickets,
        };
        Self::make(auth, context.ways, &mut door)
    }

    /// The lock of the listener at this address, for what has no `auth` of its own.
    pub fn of_listener(
        address: &ListenAddress,
        (name, tickets): (&str, Option<TicketTarget>),
        context: &DocumentContext<'_>,
    ) -> Option<Self> {
        let auth = context.entrances.listener_auth(address)?;
        let mut door = DoorContext {
            // Its problems are reported at the listener.
            report: &mut Report::default(),
            name,
            evaluation: context.evaluation,
            tickets,
        };
        Self::make(auth, context.ways, &mut door)
    }

    fn make(auth: &Node, ways: &dyn Ways, context: &mut DoorContext<'_>) -> Option<Self> {
        let door = ways.door(auth, context)?;
        let text = auth.to_json().to_string().into();
        Some(Self { door, text })
    }

    /// The door.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Refuses proofs of possession where a request is judged once for each topic that it names,
    /// and a WebSocket handshake again with each message: a proof is good once.
    pub fn refuse_proofs(&self, code: Code, span: Span, report: &mut Report) {
        if self.door.judges_once() {
            let message = "a proof of possession (`dpop`) is good for one request: subscribers \
                           cannot show one";
            report
                .error(code, span, message)
                .hint("use a way without `dpop`; flows and `publish.http` alone take proofs");
        }
    }

    /// Whether the file says the same of both.
    pub fn is_like(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Who may do what with a topic that is subscribed to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Who may subscribe; everybody without.
    pub subscribe: Option<Lock>,
    /// Who may publish over WebSocket and in the manner of Axway Streams.
    pub publish: Option<Lock>,
    /// Which events each caller gets.
    pub only: Option<Arc<Only>>,
}

impl Access {
    /// The parameters of the query that carry credentials.
    pub fn secret_parameters(&self) -> impl Iterator<Item = &Arc<str>> {
        let locks = self.subscribe.iter().chain(&self.publish);
        locks.flat_map(|it| it.door.secret_parameters())
    }

    /// What its doors need on the listener.
    pub fn pages(&self) -> Vec<AccessPage> {
        let locks = self.subscribe.iter().chain(&self.publish);
        locks.flat_map(|it| it.door.pages()).collect()
    }

    /// Whether a caller may be known by the certificate of its client.
    pub fn reads_certificate(&self) -> bool {
        let mut locks = self.subscribe.iter().chain(&self.publish);
        locks.any(|it| it.door.reads_certificate())
    }

    /// Whether somebody may be refused.
    pub fn is_locked(&self) -> bool {
        self.subscribe.is_some() || self.publish.is_some()
    }

    /// What stands before this right.
    pub fn lock(&self, right: Right) -> Option<&Lock> {
        match right {
            Right::Subscribe => self.subscribe.as_ref(),
            Right::Publish => self.publish.as_ref(),
        }
    }
}

/// What somebody wants to do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    Subscribe,
    Publish,
}

/// The protocols with addresses for all topics of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Sse,
    WebSocket,
    Axway,
    /// Webhooks that are managed in the manner of Axway Streams.
    AxwayWebhooks,
    WebSub,
}

impl Protocol {
    /// Whether a topic is served by it.
    pub fn serves(self, endpoint: &Endpoint) -> bool {
        let settings = &endpoint.settings;
        match self {
            Self::Sse => settings.sse,
            Self::WebSocket => settings.websocket.is_some(),
            Self::Axway => settings.is_axway,
            Self::AxwayWebhooks => settings.is_axway && endpoint.topic.managed().is_some(),
            Self::WebSub => settings.websub,
        }
    }
}

/// The locks of all topics of a listener that could be named, each once. A request is judged by
/// that of the topic that it names alone: no other issuer sees its token, and no other budget of
/// failed checks counts it. Where there is only one, it judges names without a topic, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(Arc<[Lock]>);

impl Locks {
    /// The only one of a topic's own address.
    pub fn of(lock: Option<&Lock>) -> Self {
        Self::all(lock.into_iter().cloned())
    }

    /// These, each once.
    pub fn all(locks: impl Iterator<Item = Lock>) -> Self {
        let mut all: Vec<Lock> = Vec::new();
        for lock in locks {
            if !all.iter().any(|it| it.is_like(&lock)) {
                all.push(lock);
            }
        }
        Self(all.into())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that all have. A refusal may be shown then to whoever has no valid credential: it is
    /// the same for all names. Where locks differ it would tell which one was named.
    fn only(&self) -> Option<&Lock> {
        match &*self.0 {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// A topic for which somebody has been admitted.
pub(crate) type Entered = (Arc<Endpoint>, Option<Admitted>);

/// Why somebody is not admitted.
pub(crate) enum Refusal {
    /// Nothing may be told: the answer is that of a name that does not exist. The door's own reply
    /// is for those who may see the topic in another way.
    Missing(Option<Box<Reply>>),
    /// This reply.
    Reply(Box<Reply>),
}

/// A refusal as it goes to the client.
pub(crate) enum Refused {
    Fault(Fault),
    Reply(Box<Reply>),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Refusal {
    /// The refusal as it goes to the client, where this is what is said of names that do not exist.
    pub fn or(self, missing: impl FnOnce() -> Fault) -> Refused {
        match self {
            Self::Missing(_) => Refused::Fault(missing()),
            Self::Reply(reply) => Refused::Reply(reply),
        }
    }
}

impl Refused {
    /// The same where answers are no replies of HTTP.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Reply(reply) => fault_of(&reply),
        }
    }
}

/// What the reply of a door says, in protocols with answers of their own.
pub(crate) fn fault_of(reply: &Reply) -> Fault {
    match reply.status {
        401 => Fault::new(
            Kind::Unauthorized,
            Origin::Client,
            "the topic needs valid credentials",
        ),
        403 => Fault::new(
            Kind::Forbidden,
            Origin::Client,
            "the caller may not do this",
        ),
        429 => {
            let detail = "too many wrong credentials have come from this address";
            let fault = Fault::new(Kind::Limited, Origin::Client, detail);
            match retry_after(reply) {
                Some(time) => fault.with_retry_after(time),
                None => fault,
            }
        }
        400..=499 => Fault::invalid("a request has one credential"),
        _ => {
            let detail = "credentials cannot be checked at the moment";
            Fault::new(Kind::Unavailable, Origin::Engine, detail)
                .with_retry_after(retry_after(reply).unwrap_or(Duration::from_secs(5)))
        }
    }
}

/// The time of `Retry-After` in seconds (RFC 9110, section 10.2.3).
fn retry_after(reply: &Reply) -> Option<Duration> {
    let value = reply.headers.get("Retry-After")?;
    let seconds = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// What stands before this right: of a topic, or of a name without one where all locks are alike.
fn lock_of<'a>(
    found: Option<&'a Arc<Endpoint>>,
    locks: &'a Locks,
    right: Right,
) -> Option<&'a Lock> {
    match found {
        Some(endpoint) => endpoint.access.lock(right),
        None => locks.only(),
    }
}

/// Judges a request for a topic that was named, whether there is one or not. `locks` are those of
/// all topics that could have been named. A topic that is not for the network of the client is
/// missing: where a name can be anything, no edge has looked at it before.
pub(crate) async fn admit(
    found: Option<Arc<Endpoint>>,
    locks: &Locks,
    right: Right,
    client: impl Into<Client<'_>>,
) -> Result<Entered, Refusal> {
    let client: Client<'_> = client.into();
    let found = origin::near(found, client.request);
    let Some(lock) = lock_of(found.as_ref(), locks, right).cloned() else {
        return found
            .map(|endpoint| (endpoint, None))
            .ok_or(Refusal::Missing(None));
    };
    let may_tell = locks.only().is_some_and(|only| only.is_like(&lock));
    match (client.judge(&lock).await, found) {
        (Ok(Some(admitted)), Some(endpoint)) => Ok((endpoint, Some(admitted))),
        (Err(reply), _) if reply.status != 403 && may_tell => Err(Refusal::Reply(reply)),
        (Err(reply), Some(_)) => Err(Refusal::Missing(Some(reply))),
        _ => Err(Refusal::Missing(None)),
    }
}

/// Judges a request at an address that is for this topic alone.
pub(crate) async fn admit_to_one(
    endpoint: &Arc<Endpoint>,
    right: Right,
    at: (&Request, &dyn Services),
) -> Result<Entered, Refusal> {
    let locks = Locks::of(endpoint.access.lock(right));
    admit(Some(Arc::clone(endpoint)), &locks, right, at).await
}

/// What is said at an address that is for one topic alone to whoever may not see it, as of paths
/// that do not exist.
pub(crate) fn nothing() -> Fault {
    Fault::invalid("there is nothing at this path").with_status(404)
}

/// The same as [`admit`] for a publisher: who may subscribe knows that the topic exists, and is
/// told why it may not publish. `locks` are those of publishers and of subscribers.
pub(crate) async fn admit_publisher(
    found: Option<Arc<Endpoint>>,
    locks: [&Locks; 2],
    client: impl Into<Client<'_>>,
) -> Result<Entered, Refusal> {
    let at: Client<'_> = client.into();
    // Once for both rights: the audit stream is told of it.
    let found = origin::near(found, at.request);
    let [publish, subscribe] = locks;
    let of = |locks, right| lock_of(found.as_ref(), locks, right);
    let both = of(publish, Right::Publish).zip(of(subscribe, Right::Subscribe));
    // It would say the same again, and count a wrong credential twice.
    let is_same = both.is_some_and(|(publish, subscribe)| publish.is_like(subscribe));
    let refusal = match admit(found.clone(), publish, Right::Publish, at).await {
        Err(Refusal::Missing(reply)) => reply,
        other => return other,
    };
    let sees = !is_same && admit(found, subscribe, Right::Subscribe, at).await.is_ok();
    Err(match refusal.filter(|_| sees) {
        Some(reply) => Refusal::Reply(reply),
        None => Refusal::Missing(None),
    })
}

/// Takes credentials out of a request that has been admitted to all of these; gives the topics and
/// who calls.
pub(crate) fn enter(
    entered: Vec<Entered>,
    request: &mut Request,
) -> (Vec<Arc<Endpoint>>, Vec<Option<Arc<Caller>>>) {
    let mut callers = Vec::with_capacity(entered.len());
    let mut endpoints = Vec::with_capacity(entered.len());
    for (endpoint, admitted) in entered {
        callers.push(admitted.as_ref().map(|it| Arc::clone(&it.caller)));
        endpoints.push(endpoint);
        if let Some(admitted) = admitted {
            admitted.enter(request);
        }
    }
    (endpoints, callers)
}

/// What the reply to a request gets that has been admitted to these.
pub(crate) fn reply_fields(entered: &[Entered]) -> Vec<ReplyField> {
    let admitted = entered.iter().filter_map(|(_, admitted)| admitted.as_ref());
    admitted.flat_map(|it| it.reply_fields.clone()).collect()
}

/// How long a stream may go on that all of these callers open, for they are one client.
pub(crate) fn validity(callers: &[Option<Arc<Caller>>]) -> Option<Arc<Validity>> {
    let callers = callers.iter().flatten();
    Validity::of_all(callers.filter_map(|it| it.validity()))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use component::access::{Judgement, RequestHead, Revocable};
    use component::edge::RouteEdge;
    use component::state::States;
    use message::{Body, Headers, Method};

    use super::*;
    use crate::endpoint::Directory;
    use crate::hub::Hub;
    use crate::testing::endpoint_settings;
    use crate::websocket::testing::FakeServices;

    /// Lets everybody in, and counts them; those who have been denied meanwhile keep their callers.
    #[derive(Default)]
    struct Counting(AtomicUsize, Arc<Denial>);

    /// Whether all are denied.
    #[derive(Default)]
    struct Denial(AtomicBool);

    impl Revocable for Denial {
        fn is_denied(&self, _: &Caller, _: &dyn Fn() -> u64) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn validity(&self, _: &Caller) -> Arc<Validity> {
            Arc::default()
        }
    }

    impl Door for Counting {
        fn judge<'a>(&'a self, _: RequestHead<'a>, _: &'a dyn Services) -> Judgement<'a> {
            self.0.fetch_add(1, Ordering::Relaxed);
            if self.1.0.load(Ordering::Relaxed) {
                return Judgement::Ready(Err(Box::new(Reply::new(401))));
            }
            let mut caller = Caller::new(&"way".into(), "ann", expr::Value::Null);
            caller.revocable = Some(Arc::clone(&self.1) as _);
            Judgement::Ready(Ok(Admitted {
                caller: Arc::new(caller),
                strip: None,
                implied: None,
                settlement: None,
                reply_fields: Vec::new(),
                successor: None,
            }))
        }
    }

    fn lock(text: &str) -> (Lock, Arc<Counting>) {
        let door = Arc::new(Counting::default());
        let lock = Lock {
            door: Arc::clone(&door) as _,
            text: text.into(),
        };
        (lock, door)
    }

    fn request(peer: [u8; 4]) -> Request {
        Request {
            method: Method::Get,
            path: "/".to_owned(),
            query: None,
            parameters: Vec::new(),
            headers: Headers::new(),
            body: Body::Empty,
            peer: IpAddr::from(peer),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        }
    }

    /// A topic for clients of 10.0.0.0/8 that has this lock.
    fn topic(lock: Option<&Lock>) -> Arc<Endpoint> {
        let (mut sources, mut report) = Default::default();
        let file = config::Sources::add(
            &mut sources,
            "test.yaml",
            b"networks: [10.0.0.0/8]",
            &mut report,
        );
        let node = config::parse(&sources, file.unwrap(), &mut report).remove(0);
        let states = States::default();
        let topic = Hub::of(&states).declare("prices", Default::default(), &states);
        let mut settings = endpoint_settings(&ListenAddress {
            host: None,
            port: 1,
        });
        settings.edge = Arc::new(RouteEdge::read(&node, &mut report));
        let access = Access {
            subscribe: lock.cloned(),
            publish: lock.cloned(),
            only: None,
        };
        Directory::default().put(&topic, (settings, access), Default::default())
    }

    /// A client that names a locked topic again and again.
    struct Connection {
        services: FakeServices,
        lock: Lock,
        judged: Arc<Counting>,
        request: Request,
        verdicts: Verdicts,
    }

    impl Connection {
        fn new() -> Self {
            let (lock, judged) = lock("staff");
            Self {
                services: FakeServices::new(),
                lock,
                judged,
                request: request([10, 0, 0, 1]),
                verdicts: Verdicts::default(),
            }
        }

        async fn publish(&self) -> Result<Entered, Refusal> {
            let client = Client {
                request: &self.request,
                services: &self.services,
                verdicts: Some(&self.verdicts),
            };
            let (found, locks) = (topic(Some(&self.lock)), Locks::of(Some(&self.lock)));
            admit(Some(found), &locks, Right::Publish, client).await
        }

        /// How often the door has judged.
        fn judgements(&self) -> usize {
            self.judged.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn a_topic_is_missing_for_networks_that_it_is_not_for() {
        let services = FakeServices::new();
        let (lock, _) = lock("staff");
        let locks = Locks::of(Some(&lock));
        for own in [None, Some(&lock)] {
            for (peer, is_in) in [([10, 0, 0, 1], true), ([192, 0, 2, 1], false)] {
                let request = request(peer);
                let at = (&request, &services as &dyn Services);
                let entered = admit(Some(topic(own)), &locks, Right::Subscribe, at).await;
                assert_eq!(entered.is_ok(), is_in, "{peer:?}");
                let entered = admit_publisher(Some(topic(own)), [&locks, &locks], at).await;
                assert_eq!(entered.is_ok(), is_in, "{peer:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_credential_goes_to_the_lock_of_its_topic_alone() {
        let services = FakeServices::new();
        let ((own, judged), (other, others)) = (lock("own"), lock("other"));
        let locks = Locks::all([own.clone(), other].into_iter());
        let request = request([10, 0, 0, 1]);
        let at = (&request, &services as &dyn Services);
        let right = Right::Subscribe;
        assert!(
            admit(Some(topic(Some(&own))), &locks, right, at)
                .await
                .is_ok()
        );
        assert!(admit(None, &locks, right, at).await.is_err());
        let counts = [judged, others].map(|it| it.0.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 0]);
    }

    #[tokio::test]
    async fn the_credential_of_a_connection_is_judged_once_a_second() {
        let connection = Connection::new();
        for (seconds, judgements) in [(0, 1), (0, 1), (1, 2), (0, 2), (5, 3)] {
            connection.services.pass(seconds);
            let (_, admitted) = connection.publish().await.ok().unwrap();
            assert_eq!(&*admitted.unwrap().caller.id, "ann");
            assert_eq!(connection.judgements(), judgements, "{seconds}");
        }
    }

    #[tokio::test]
    async fn a_verdict_does_not_outlive_the_denial_of_its_credential() {
        let connection = Connection::new();
        for (is_denied, is_in, judgements) in [(false, true, 1), (false, true, 1), (true, false, 2)]
        {
            connection.judged.1.0.store(is_denied, Ordering::Relaxed);
            assert_eq!(connection.publish().await.is_ok(), is_in, "{is_denied}");
            assert_eq!(connection.judgements(), judgements);
        }
    }

    #[test]
    fn refusals_for_a_time_say_how_long_as_the_door_does() {
        for (status, field, kind, seconds) in [
            (429, Some("6"), Kind::Limited, Some(6)),
            (429, None, Kind::Limited, None),
            (503, Some("30"), Kind::Unavailable, Some(30)),
            (503, None, Kind::Unavailable, Some(5)),
        ] {
            let mut reply = Reply::new(status);
            if let Some(field) = field {
                reply.headers.append("Retry-After", field);
            }
            let fault = fault_of(&reply);
            assert_eq!((fault.kind, fault.status), (kind, status));
            assert_eq!(fault.retry_after, seconds.map(Duration::from_secs));
        }
    }
}
