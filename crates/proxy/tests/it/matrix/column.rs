//! A column of the matrix: versions of both sides, the path through the engine, TLS or not; and the
//! engine that serves it.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use component::forward::ForwardPlan;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::identity::IdentityField;
use component::plan::RouteTarget;
use component::settings::Settings;
use component::tls::{Protocol, UpstreamTls};
use component::trigger::{PathPattern, Segment};
use component::upstream::UpstreamPlan;
use message::{Fault, Method, Request};
use testkit::wire::{ClientTls, ServerTls};
use testkit::{Authority, Issued};

use super::backend::IDENTITY;
use crate::support::{Proxy, Setup, StepCall};

/// The time after which the engine gives a silent or standing peer up.
pub const SHORT: Duration = Duration::from_millis(600);
/// The most bytes of a body in memory.
const BODY_MAX: u64 = 16 << 20;

/// What is between the client's request and the back end's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// A route that only forwards.
    Forward,
    /// A handler that reads the body and has the message forwarded.
    Map,
    /// A handler that calls the back end and replies with what it got.
    Step,
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Whether the client speaks HTTP/2.
    pub client_h2: bool,
    /// Whether the back end does.
    pub backend_h2: bool,
    pub path: Path,
    pub tls: bool,
}

impl Column {
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for number in 0..24_usize {
            all.push(Self {
                client_h2: number & 1 != 0,
                backend_h2: number & 2 != 0,
                tls: number & 4 != 0,
                path: [Path::Forward, Path::Map, Path::Step][number / 8],
            });
        }
        all
    }

    /// Whether the reply is collected before any of it goes on to the client.
    pub fn collects(&self) -> bool {
        self.path == Path::Step
    }

    /// Whether the request's body is collected before any of it goes on to the back end.
    pub fn collects_request(&self) -> bool {
        self.path != Path::Forward
    }
}

impl fmt::Display for Column {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |is_h2| if is_h2 { "h2" } else { "h1" };
        let path = match self.path {
            Path::Forward => "forward",
            Path::Map => "map",
            Path::Step => "step",
        };
        let tls = if self.tls { "tls" } else { "clear" };
        let (client, backend) = (version(self.client_h2), version(self.backend_h2));
        write!(formatter, "{client}-{backend}-{path}-{tls}")
    }
}

/// Which of a column's routes a row uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything as it comes.
    Usual,
    /// The request goes to the back end as `HEAD`.
    AsHead,
    /// The back end's sockets take next to nothing that is not read, so that writes are partial.
    Tight,
}

impl Target {
    /// The beginning of the path.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::AsHead => "as-head",
            Self::Tight => "tight",
        }
    }
}

struct Certificates {
    authority: Authority,
    issued: Issued,
}

static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(|| {
    let authority = Authority::new("matrix");
    let issued = authority.issue(&["localhost", "127.0.0.1"]);
    Certificates { authority, issued }
});

fn ids(is_h2: bool) -> &'static [&'static str] {
    if is_h2 { &["h2"] } else { &["http/1.1"] }
}

/// What the back end of a column takes.
pub fn backend_tls(column: Column) -> Option<ServerTls> {
    let made = || ServerTls::new(&CERTIFICATES.issued, ids(column.backend_h2));
    column.tls.then(made)
}

/// What clients of a column offer.
pub fn client_tls(column: Column) -> Option<ClientTls> {
    let made = || ClientTls::new(&CERTIFICATES.authority, ids(column.client_h2));
    column.tls.then(made)
}

/// Starts the engine of a column before back ends at these ports.
pub fn start(column: Column, port: u16, tight_port: u16) -> Proxy {
    let protocol = |is_h2| match is_h2 {
        true => Protocol::Http2,
        false => Protocol::Http1,
    };
    let upstream = |port| {
        let tls = column.tls.then(UpstreamTls::default);
        let mut upstream = UpstreamPlan::single("127.0.0.1", port, tls);
        upstream.protocols = vec![protocol(column.backend_h2)];
        Arc::new(upstream)
    };
    let (usual, tight) = (upstream(port), upstream(tight_port));
    let route = |target: Target, upstream: &Arc<UpstreamPlan>| {
        let prefix = target.prefix();
        let mut plan = ForwardPlan::new(Arc::clone(upstream), format!("/{prefix}/"));
        plan.appends_rest = true;
        plan.method = (target == Target::AsHead).then_some(Method::Head);
        let path = PathPattern {
            segments: vec![Segment::Literal(prefix.to_owned())],
            rest: true,
        };
        (path, serve_by(column.path, Arc::new(plan)))
    };
    Proxy::serving(Setup {
        protocols: vec![protocol(column.client_h2)],
        routes: vec![
            route(Target::Usual, &usual),
            route(Target::AsHead, &usual),
            route(Target::Tight, &tight),
        ],
        settings: settings(),
        server: column.tls.then(|| server(column)),
        clients: match column.tls {
            true => [&usual, &tight]
                .map(|it| (Arc::clone(it), vec![client(column)]))
                .into(),
            false => Vec::new(),
        },
        upstreams: vec![usual, tight],
    })
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.limits.body = BODY_MAX;
    settings.timeouts.head = SHORT;
    settings.timeouts.body = SHORT;
    settings.timeouts.response = SHORT;
    settings.identity_field = Some(Arc::new(IdentityField::new(IDENTITY)));
    settings
}

fn net_protocols(is_h2: bool) -> Vec<net::tls::Protocol> {
    match is_h2 {
        true => vec![net::tls::Protocol::Http2],
        false => vec![net::tls::Protocol::Http1],
    }
}

fn server(column: Column) -> net::tls::Server {
    let issued = &CERTIFICATES.issued;
    let (cert, key) = (issued.cert.as_bytes(), issued.key.as_bytes());
    let identity = net::tls::Identity::from_pem(cert, key, SystemTime::now()).unwrap();
    net::tls::Server::new(net::tls::ServerSettings {
        identities: vec![identity],
        client_auth: net::tls::ClientAuth::None,
        revoked: net::tls::RevocationLists::default(),
        protocols: net_protocols(column.client_h2),
        min_version: net::tls::MinVersion::Tls12,
    })
    .unwrap()
}

fn client(column: Column) -> net::tls::Client {
    let roots = net::tls::Roots::from_pem(CERTIFICATES.authority.pem().as_bytes()).unwrap();
    let settings = net::tls::ClientSettings {
        trust: net::tls::Trust::Chain(roots, Vec::new()),
        identity: None,
        protocols: net_protocols(column.backend_h2),
        min_version: net::tls::MinVersion::Tls12,
    };
    net::tls::Client::new("127.0.0.1", settings).unwrap()
}

fn serve_by(path: Path, plan: Arc<ForwardPlan>) -> RouteTarget {
    let handler: Arc<dyn Handler> = match path {
        Path::Forward => return RouteTarget::Forward(plan),
        Path::Map => Arc::new(Mapping(plan)),
        Path::Step => Arc::new(StepCall::new(plan)),
    };
    RouteTarget::Handle {
        handler,
        body_max: BODY_MAX,
    }
}

/// Reads the body and has the message forwarded.
struct Mapping(Arc<ForwardPlan>);

impl Handler for Mapping {
    fn reads_body(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        let outcome = Outcome::Forward(Arc::clone(&self.0), Box::new(request), None);
        Box::pin(async { Ok(outcome) })
    }
}
