//! What is asked of topics and hubs.

use std::fmt;

use component::handler::Services;
use message::{Body, Headers, Method, Reply};
use steps::FixedUrl;
use websub::discovery::{DOCUMENT_MAX, Discovered, Fetched};
use websub::form;
use websub::signature::Secret;
use websub::subscriber::Mode;
use websub::url::Url;

/// How many redirects are followed.
const REDIRECTS_MAX: usize = 5;
/// The most bytes of a hub's answer.
const ANSWER_MAX: u64 = 64 * 1024;
/// How many characters of a refusal are logged.
const SHOWN_MAX: usize = 200;

/// A system that may be asked.
pub(super) struct Origin {
    pub url: Url,
    pub system: FixedUrl,
}

/// Asks a topic for its hub, and hubs for subscriptions.
pub(super) struct Client {
    pub topic: Url,
    /// The hub, when the file names one.
    pub hub: Option<Url>,
    /// The systems that may be asked: nothing else is, wherever a reply leads.
    pub origins: Vec<Origin>,
}

/// What is asked of a hub.
pub(super) struct Order<'a> {
    pub mode: Mode,
    pub hub: &'a Url,
    pub topic: &'a Url,
    pub callback: &'a str,
    /// In seconds.
    pub lease: u64,
    pub secret: &'a Secret,
}

/// Why something was not done, in words for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn problem<T>(text: impl Into<String>) -> Result<T, Problem> {
    Err(Problem(text.into()))
}

impl Client {
    /// The hubs of the topic, and the URL under which they know it.
    pub async fn discover(&self, services: &dyn Services) -> Result<Discovered, Problem> {
        if let Some(hub) = &self.hub {
            return Ok(Discovered {
                hubs: vec![hub.clone()],
                topic: self.topic.clone(),
            });
        }
        // A topic may be large, and most say by their headers what there is to know.
        if let Ok((url, reply)) = self.fetch(Method::Head, services).await
            && let Ok(found) = discover(&url, &reply)
        {
            return Ok(found);
        }
        let (url, reply) = self.fetch(Method::Get, services).await?;
        discover(&url, &reply).map_err(|it| Problem(it.explanation().to_owned()))
    }

    /// Fetches the topic; gives where it was found.
    async fn fetch(
        &self,
        method: Method,
        services: &dyn Services,
    ) -> Result<(Url, Reply), Problem> {
        let request = (method, Headers::new(), Body::Empty);
        let (url, reply) = self
            .ask(&self.topic, request, DOCUMENT_MAX as u64, services)
            .await?;
        match reply.status {
            200..=299 => Ok((url, reply)),
            status => problem(format!("the topic answered with status {status}")),
        }
    }

    /// Asks a hub for a subscription, or for its end.
    pub async fn order(&self, order: &Order<'_>, services: &dyn Services) -> Result<(), Problem> {
        let mut body = String::new();
        form::push("hub.mode", order.mode.name(), &mut body);
        form::push("hub.topic", order.topic.as_str(), &mut body);
        form::push("hub.callback", order.callback, &mut body);
        if order.mode == Mode::Subscribe {
            form::push("hub.lease_seconds", &order.lease.to_string(), &mut body);
            form::push("hub.secret", order.secret.expose(), &mut body);
        }
        let mut headers = Headers::new();
        headers.append("Content-Type", "application/x-www-form-urlencoded");
        let request = (Method::Post, headers, Body::from(body.into_bytes()));
        let (_, reply) = self.ask(order.hub, request, ANSWER_MAX, services).await?;
        match reply.status {
            200..=299 => Ok(()),
            status => {
                let text = String::from_utf8_lossy(reply.body.as_bytes());
                let text: String = text.trim().chars().take(SHOWN_MAX).collect();
                let text = text.escape_debug();
                problem(format!("the hub answered with status {status}: {text}"))
            }
        }
    }

    /// Sends a request, and again where redirects lead; gives where the reply came from.
    async fn ask(
        &self,
        url: &Url,
        (method, headers, body): (Method, Headers, Body),
        max: u64,
        services: &dyn Services,
    ) -> Result<(Url, Reply), Problem> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let system = self.system(&url)?;
            let asked = system.at(url.path(), url.query().map(str::to_owned));
            let sent = asked.ask(method.clone(), headers.clone(), body.clone(), max, services);
            let reply = sent.await.map_err(|fault| Problem(fault.to_string()))?;
            // What was posted is not to become a GET (section 5.1: 307 and 308).
            let is_redirect = match method {
                Method::Post => matches!(reply.status, 307 | 308),
                _ => matches!(reply.status, 301 | 302 | 303 | 307 | 308),
            };
            if !is_redirect {
                return Ok((url, reply));
            }
            let location = reply.headers.get("Location").unwrap_or_default();
            let location = std::str::from_utf8(location).unwrap_or_default();
            let target = url.join(location);
            url = target.map_err(|error| Problem(format!("a redirect to no URL: {error}")))?;
        }
        problem(format!("more than {REDIRECTS_MAX} redirects"))
    }

    fn system(&self, url: &Url) -> Result<&FixedUrl, Problem> {
        let origin = self.origins.iter().find(|it| it.url.is_of_origin(url));
        match origin {
            Some(origin) => Ok(&origin.system),
            None => problem(format!(
                "{url} is of another origin: allow it by `origins`, or name the hub by `hub`"
            )),
        }
    }
}

fn discover(url: &Url, reply: &Reply) -> Result<Discovered, websub::discovery::NotFound> {
    let lines = reply.headers.view();
    let links = lines.iter().filter(|it| it.1.eq_ignore_ascii_case(b"Link"));
    let links: Vec<&str> = links
        .filter_map(|it| std::str::from_utf8(it.2).ok())
        .collect();
    let content_type = reply.headers.get("Content-Type").unwrap_or_default();
    Fetched {
        url,
        links: &links,
        content_type: std::str::from_utf8(content_type).unwrap_or_default(),
        body: reply.body.as_bytes(),
    }
    .discover()
}
