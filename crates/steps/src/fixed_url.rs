//! A system that is asked at one URL, the same for every request: a token server, an issuer's keys,
//! a service that decides.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use component::forward::ForwardPlan;
use component::handler::{Call, Services, until};
use component::upstream::UpstreamPlan;
use config::{Code, Report, Spanned};
use message::{Body, Fault, Headers, Kind, Method, Origin, Reply, Request, Retry};

use crate::http;
use crate::target::parse_url;
use crate::tls::TlsConfig;
use crate::way::EgressConfig;

/// A system that is asked at one URL.
#[derive(Clone, Debug)]
pub struct FixedUrl {
    plan: Arc<ForwardPlan>,
    query: Option<String>,
    /// How long one request may take.
    timeout: Duration,
    /// What logs call whoever asks.
    name: &'static str,
}

impl FixedUrl {
    /// Reads a URL and the TLS beside it. Every problem is reported, one with the scheme under this
    /// code.
    pub fn read(
        url: &Spanned<String>,
        tls: Option<&Spanned<TlsConfig>>,
        (name, timeout): (&'static str, Duration),
        code: Code,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let parsed = match parse_url(&url.value) {
            Ok(parsed) if parsed.is_websocket => {
                let message = "this is not asked over WebSocket";
                let diagnostic = report.error(code, url.span, message);
                diagnostic.hint("write `https://`");
                return None;
            }
            Ok(parsed) => parsed,
            Err(problems) => {
                for problem in problems {
                    problem.put(url.span, report);
                }
                return None;
            }
        };
        let upstream = http::single(&parsed, tls, None, url.span, report);
        let mut plan = ForwardPlan::new(Arc::new(upstream), parsed.path);
        plan.timeouts.total = Some(timeout);
        (report.errors() == before).then(|| Self {
            plan: Arc::new(plan),
            query: parsed.query,
            timeout,
            name,
        })
    }

    /// The same system asked at another path.
    #[must_use]
    pub fn at(&self, path: &str, query: Option<String>) -> Self {
        let mut plan = ForwardPlan::clone(&self.plan);
        path.clone_into(&mut plan.path);
        Self {
            plan: Arc::new(plan),
            query,
            timeout: self.timeout,
            name: self.name,
        }
    }

    /// The same system, with the egress guard where a file asks for it.
    #[must_use]
    pub fn with_egress(mut self, egress: Option<&Spanned<EgressConfig>>) -> Self {
        let upstream = UpstreamPlan {
            egress: EgressConfig::read(egress),
            ..UpstreamPlan::clone(&self.plan.upstream)
        };
        let plan = ForwardPlan {
            upstream: Arc::new(upstream),
            ..ForwardPlan::clone(&self.plan)
        };
        self.plan = Arc::new(plan);
        self
    }

    /// The system.
    #[must_use]
    pub fn upstream(&self) -> &Arc<UpstreamPlan> {
        &self.plan.upstream
    }

    /// The path that it is asked for.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.plan.path
    }

    /// Asks, and reads an answer of at most so many bytes, whatever its status.
    ///
    /// # Errors
    /// When there is no answer in time.
    pub async fn ask(
        &self,
        method: Method,
        headers: Headers,
        body: Body,
        answer_max: u64,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let request = Request {
            method,
            path: self.plan.path.clone(),
            query: self.query.clone(),
            parameters: Vec::new(),
            headers,
            body,
            peer: Ipv4Addr::UNSPECIFIED.into(),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        };
        let at = services.now() + self.timeout;
        let call = Call {
            body_max: Some(answer_max),
            deadline: Some(at),
            ..Call::new(&self.plan, &request, self.name)
        };
        let reply = until(Some(at), services, services.call(call)).await;
        reply.unwrap_or_else(|| Err(too_slow()))
    }
}

fn too_slow() -> Fault {
    let detail = "another system did not answer in time";
    Fault::new(Kind::Timeout, Origin::Upstream, detail).with_retry(Retry::Yes)
}
