//! What is served at the addresses of a topic, and by whom.

use std::sync::Arc;

use component::handler::Handler;

use super::{Routes, Wanted};
use crate::endpoint::Endpoint;
use crate::other_methods::OtherMethods;
use crate::profile::axway;
use crate::socket::WebSocketHandler;
use crate::sse::{Of, SseHandler};
use crate::webhooks;
use crate::websub_hub::{self, ContentHandler, HubHandler};

impl Routes {
    /// What is served at the addresses of this topic alone.
    pub(super) fn own_addresses(&self, base: &str) -> Vec<Wanted> {
        let settings = &self.endpoint.settings;
        let mut wanted: Vec<Wanted> = Vec::new();
        if settings.sse {
            let handler = SseHandler(Of::One(Arc::clone(&self.endpoint)));
            wanted.push(("GET", format!("{base}/sse"), Arc::new(handler)));
        }
        if settings.websocket.is_some() {
            let handler = self.websocket(Some(&self.endpoint));
            wanted.push(("GET", format!("{base}/ws"), handler));
        }
        if settings.websub {
            let handler = ContentHandler(Arc::clone(&self.endpoint));
            wanted.push(("GET", base.to_owned(), Arc::new(handler)));
        }
        if let Some(handler) = self.ticket_handler() {
            wanted.push(("POST", format!("{base}/ticket"), Arc::new(handler)));
        }
        wanted
    }

    /// What answers all other methods there.
    pub(super) fn refused(&self, (methods, path, _): &Wanted) -> [Wanted; 2] {
        let allow = if *methods == "GET" {
            "GET, HEAD"
        } else {
            methods
        };
        ["any", "TRACE"].map(|methods| {
            let endpoint = Arc::clone(&self.endpoint);
            let handler = OtherMethods { endpoint, allow };
            (methods, path.clone(), Arc::new(handler) as _)
        })
    }

    /// What is served at the addresses that all topics of the listener share.
    pub(super) fn shared_addresses(&self, has_profile: bool) -> Vec<Wanted> {
        let settings = &self.endpoint.settings;
        let all = || (Arc::clone(&self.directory), settings.listen.clone());
        let mut wanted: Vec<Wanted> = Vec::new();
        if settings.sse {
            let (directory, listen) = all();
            let handler = SseHandler(Of::Several(directory, listen));
            wanted.push(("GET", "/topics/sse".to_owned(), Arc::new(handler)));
        }
        if settings.websocket.is_some() {
            wanted.push(("GET", "/topics/ws".to_owned(), self.websocket(None)));
        }
        if settings.websub {
            let (directory, listen) = all();
            let handler = HubHandler { directory, listen };
            wanted.push(("POST", websub_hub::PATH.to_owned(), Arc::new(handler)));
        }
        if has_profile {
            let (directory, listen) = all();
            let handler = SseHandler(Of::Axway(directory, listen));
            wanted.push(("GET", axway::SSE.to_owned(), Arc::new(handler)));
            let (directory, listen) = all();
            let publisher = axway::Publisher::new(directory, listen);
            wanted.push(("POST", axway::POST.to_owned(), Arc::new(publisher)));
        }
        wanted
    }

    fn websocket(&self, only: Option<&Arc<Endpoint>>) -> Arc<dyn Handler> {
        Arc::new(WebSocketHandler {
            directory: Arc::clone(&self.directory),
            listen: self.endpoint.settings.listen.clone(),
            only: only.map(Arc::clone),
        })
    }

    /// What is served to those who manage webhooks. It says itself which methods it takes: to
    /// whoever may see the topic. With a profile they come in its manner, too.
    pub(super) fn managed_addresses(&self, base: &str, has_profile: bool) -> Vec<Wanted> {
        let Some(managed) = &self.managed else {
            return Vec::new();
        };
        let routes = webhooks::routes(&self.endpoint, (managed, base));
        let both = routes.into_iter().flat_map(|(path, handler)| {
            let trace = ("TRACE", path.clone(), Arc::clone(&handler));
            [("any", path, handler), trace]
        });
        let of_profile = has_profile.then(|| {
            let listen = &self.endpoint.settings.listen;
            webhooks::axway_routes(&self.directory, listen)
        });
        both.chain(of_profile.into_iter().flatten()).collect()
    }
}
