//! What the step `http` does, for those who ask again and again outside a flow.

use std::sync::Arc;

use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use component::text::{check_path, check_query};
use component::upstream::UpstreamPlan;
use config::Node;
use message::{Fault, Reply, Request};

use super::{CallOptions, HttpCall, build_mapping};
use crate::url_template::push_encoded;

/// Asks another system as the step `http` does.
pub struct Asker(HttpCall);

impl Asker {
    /// Reads the mapping form of `http`. What systems it sends to is added to the context. Every
    /// problem goes into the report; `None` when there was one.
    pub fn read(node: &Node, context: &mut BuildContext<'_>) -> Option<Self> {
        build_mapping(node, context).map(Self)
    }

    /// The request that the settings make, with this exchange for their expressions.
    ///
    /// # Errors
    /// What an expression says that fails, and `invalid` for a value that cannot be sent.
    pub fn request(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Request, Fault> {
        self.0.request(exchange, services)
    }

    /// Sends a request that [`Asker::request`] has made, and those that redirects ask for; the
    /// reply whatever its status.
    ///
    /// # Errors
    /// When there is no reply, or a redirect is not followed.
    pub async fn send(
        &self,
        mut request: Request,
        options: CallOptions<'_>,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let plan = &self.0.plan;
        self.0.ask(plan, &mut request, options, services).await
    }

    /// Points a request at a reference that a reply to it has: a URL of the same scheme and host,
    /// or a relative one (RFC 3986, section 4.2).
    ///
    /// # Errors
    /// When it leads to another host or is no reference, in words for the log.
    pub fn turn(&self, request: &mut Request, reference: &str) -> Result<(), &'static str> {
        let reference = reference.split('#').next().unwrap_or_default();
        let local = self
            .0
            .same_host(reference)
            .ok_or("it leads to another host")?;
        let (path, query) = match local.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (local, None),
        };
        let path = match path {
            "" => request.path.clone(),
            path if path.starts_with('/') => path.to_owned(),
            path => {
                let folder = request.path.rfind('/').unwrap_or_default();
                format!("{}/{path}", request.path.get(..folder).unwrap_or_default())
            }
        };
        let is_sound = check_path(&path).is_ok() && query.is_none_or(|it| check_query(it).is_ok());
        if !is_sound {
            return Err("it is no path that can be asked for");
        }
        let rest = path.strip_prefix('/').unwrap_or(&path).to_owned();
        request.path = path;
        request.query = query.filter(|it| !it.is_empty()).map(str::to_owned);
        request.parameters = vec![("rest".into(), rest)];
        Ok(())
    }

    /// Adds a parameter to the query of a request.
    pub fn add(request: &mut Request, name: &str, value: &str) {
        let mut query = request.query.take().unwrap_or_default();
        if !query.is_empty() {
            query.push('&');
        }
        push_encoded(name, &mut query);
        query.push('=');
        push_encoded(value, &mut query);
        request.query = Some(query);
    }

    /// The same with so many redirects followed.
    pub fn following(mut self, redirects: u64) -> Self {
        self.0.redirects = redirects;
        self
    }

    /// The system that is asked.
    pub fn upstream(&self) -> &Arc<UpstreamPlan> {
        &self.0.plan.upstream
    }
}
