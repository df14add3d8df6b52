//! Which web pages may read replies, and what browsers are told about it: the CORS protocol (Fetch
//! standard, section 3.2). What a file says is in `config`.

mod config;

use std::sync::Arc;

use message::{Field, Headers, HeadersView};

pub use self::config::CorsConfig;

/// The fields of replies that belong to the policy: those of a back end or a flow are replaced.
pub const FIELDS: [&str; 7] = [
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Credentials",
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Max-Age",
    "Access-Control-Allow-Private-Network",
];

/// A field of a reply: name and value.
pub type ReplyField = (&'static str, Vec<u8>);

/// Which pages may read replies, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsPolicy {
    origins: Origins,
    /// The methods, with commas; without them those of the flows at the path.
    methods: Option<String>,
    /// The request fields that pages may set; without them all.
    headers: Option<Vec<String>>,
    /// The reply fields that pages may read beside those that they always may.
    expose: Vec<String>,
    /// Whether requests with cookies and the like may be read.
    credentials: bool,
    /// For how many seconds a browser may keep the reply to a preflight request.
    max_age: u64,
    /// Whether pages of public addresses may ask this one, which is not
    /// (<https://wicg.github.io/private-network-access/>).
    private_network: bool,
}

/// The pages that are meant, by their origins (RFC 6454).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    /// All of them.
    Any,
    /// Those of one of these.
    Listed(Vec<Origin>),
    /// Those that all of these policies let read.
    Common(Vec<Arc<CorsPolicy>>),
}

/// One entry of `origins`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// This one; `null` is that of sandboxed pages and local files.
    Exact(String),
    /// All hosts below a domain: what stands before the host, and what behind its first part.
    Below {
        /// Such as `https://`.
        scheme: String,
        /// Such as `.shop.example:8443`.
        domain: String,
    },
}

impl Origin {
    fn allows(&self, origin: &[u8]) -> bool {
        let (scheme, domain) = match self {
            Self::Exact(exact) => return exact.as_bytes().eq_ignore_ascii_case(origin),
            Self::Below { scheme, domain } => (scheme.as_bytes(), domain.as_bytes()),
        };
        let Some(labels) = origin.len().checked_sub(scheme.len() + domain.len()) else {
            return false;
        };
        let (start, rest) = origin.split_at(scheme.len());
        let (labels, end) = rest.split_at(labels);
        let is_label = |label: &[u8]| {
            let is_ours = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
            !label.is_empty() && label.iter().all(is_ours)
        };
        start.eq_ignore_ascii_case(scheme)
            && end.eq_ignore_ascii_case(domain)
            && labels.split(|byte| *byte == b'.').all(is_label)
    }
}

/// What a browser asks before a request that a page could not send without CORS (Fetch standard,
/// section 3.2.2): may it send this method and these fields?
#[derive(Clone, Copy, Debug)]
pub struct Preflight<'a> {
    /// The origin of the page.
    pub origin: &'a [u8],
    /// The method of the request to come.
    pub method: &'a [u8],
    /// The fields of the request to come, with commas.
    headers: Option<&'a [u8]>,
    /// Whether the page has a public address and asks a private one.
    private_network: bool,
}

impl<'a> Preflight<'a> {
    /// What the fields of an `OPTIONS` request ask. `None` when that is an ordinary request.
    pub fn of(headers: HeadersView<'a>) -> Option<Self> {
        let private = headers.get("Access-Control-Request-Private-Network");
        Some(Self {
            origin: headers.get("Origin")?,
            method: headers.get("Access-Control-Request-Method")?,
            headers: headers.get("Access-Control-Request-Headers"),
            private_network: private == Some(b"true"),
        })
    }
}

impl CorsPolicy {
    /// Whether pages of this origin may read replies. `null` is an origin like others.
    pub fn allows(&self, origin: &[u8]) -> bool {
        match &self.origins {
            Origins::Any => true,
            Origins::Listed(list) => list.iter().any(|it| it.allows(origin)),
            Origins::Common(policies) => policies.iter().all(|it| it.allows(origin)),
        }
    }

    /// A policy that allows what both allow.
    pub fn and(self: &Arc<Self>, other: &Arc<Self>) -> Arc<Self> {
        if self == other {
            return Arc::clone(self);
        }
        let common = |left: &[String], right: &[String]| {
            let is_in = |name: &&String| right.iter().any(|it| it.eq_ignore_ascii_case(name));
            left.iter().filter(is_in).cloned().collect::<Vec<_>>()
        };
        let methods = match (&self.methods, &other.methods) {
            (Some(left), Some(right)) => {
                let split = |list: &str| list.split(", ").map(str::to_owned).collect::<Vec<_>>();
                Some(common(&split(left), &split(right)).join(", "))
            }
            (left, right) => left.as_ref().or(right.as_ref()).cloned(),
        };
        let headers = match (&self.headers, &other.headers) {
            (Some(left), Some(right)) => Some(common(left, right)),
            (left, right) => left.as_ref().or(right.as_ref()).cloned(),
        };
        Arc::new(Self {
            origins: Origins::Common(vec![Arc::clone(self), Arc::clone(other)]),
            methods,
            headers,
            expose: common(&self.expose, &other.expose),
            credentials: self.credentials && other.credentials,
            max_age: self.max_age.min(other.max_age),
            private_network: self.private_network && other.private_network,
        })
    }

    /// Whether replies are the same for all pages, so that caches need not tell them apart.
    fn is_constant(&self) -> bool {
        self.origins == Origins::Any
    }

    /// The fields of a reply that is no reply to a preflight request, and whether it depends on the
    /// `Origin`. A page whose origin is not allowed gets none, and the browser hides the reply.
    pub fn reply_fields(&self, origin: Option<&[u8]>) -> (Vec<ReplyField>, bool) {
        let mut fields = Vec::new();
        if self.allow_origin(origin, &mut fields) && !self.expose.is_empty() {
            let expose = self.expose.join(", ");
            fields.push(("Access-Control-Expose-Headers", expose.into_bytes()));
        }
        (fields, !self.is_constant())
    }

    /// False when the origin is not allowed.
    fn allow_origin(&self, origin: Option<&[u8]>, fields: &mut Vec<ReplyField>) -> bool {
        let allowed = match (origin, self.is_constant()) {
            (_, true) => Some(&b"*"[..]),
            (origin, false) => origin.filter(|origin| self.allows(origin)),
        };
        let Some(allowed) = allowed else {
            return false;
        };
        fields.push(("Access-Control-Allow-Origin", allowed.to_vec()));
        if self.credentials {
            fields.push(("Access-Control-Allow-Credentials", b"true".to_vec()));
        }
        true
    }

    /// The fields of the reply to a preflight request. `methods` are those of the flows at the
    /// path. A request that is not allowed gets those that say what is: the browser compares.
    pub fn preflight_fields(&self, asked: Preflight<'_>, methods: &str) -> Headers {
        let mut headers = Headers::new();
        let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        headers.append("Vary", vary);
        let mut fields = Vec::new();
        if !self.allow_origin(Some(asked.origin), &mut fields) {
            return headers;
        }
        for (name, value) in fields {
            headers.append(name, value);
        }
        let methods = self.methods.as_deref().unwrap_or(methods);
        headers.append("Access-Control-Allow-Methods", methods);
        match (&self.headers, asked.headers) {
            (Some(list), _) if list.is_empty() => {}
            (Some(list), _) => headers.append("Access-Control-Allow-Headers", list.join(", ")),
            (None, Some(asked)) => headers.append("Access-Control-Allow-Headers", asked),
            (None, None) => {}
        }
        headers.append("Access-Control-Max-Age", self.max_age.to_string());
        if self.private_network && asked.private_network {
            headers.append("Access-Control-Allow-Private-Network", "true");
        }
        headers
    }
}

/// Whether a request comes from a page of the same origin that it asks. `believes_proxy` is whether
/// `X-Forwarded-Host` comes from a proxy that is trusted, so that it may be the host that the page
/// knows.
pub fn is_same_origin(headers: HeadersView<'_>, is_secure: bool, believes_proxy: bool) -> bool {
    let Some(origin) = headers.get("Origin") else {
        return false;
    };
    let forwarded = headers.first(Field::XForwardedHost);
    let hosts = [
        headers.first(Field::Host),
        forwarded.filter(|_| believes_proxy),
    ];
    let is_host = |authority: &[u8]| {
        let mut hosts = hosts.iter().flatten();
        !authority.is_empty() && hosts.any(|host| authority.eq_ignore_ascii_case(host))
    };
    // A page that came in clear text may have been changed on its way: it is another origin than
    // the same host over TLS. In clear text we may stand behind somebody who ends TLS.
    let schemes: &[&[u8]] = match is_secure {
        true => &[b"https://"],
        false => &[b"https://", b"http://"],
    };
    let authority = |scheme: &&[u8]| {
        let (start, authority) = origin.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(authority)
    };
    schemes.iter().filter_map(authority).any(is_host)
}

#[cfg(test)]
mod tests;
