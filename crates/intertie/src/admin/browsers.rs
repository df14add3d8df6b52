//! What web pages may not do by the admin port. A browser on the machine or in the network that
//! reaches it sends requests for every page that it shows.

use std::net::{IpAddr, Ipv6Addr};

use component::access::Caller;
use message::{Fault, Kind, Origin, Request};

/// What tells that a web page has caused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageRefusal {
    /// The page has another origin than the port.
    Origin,
    /// `Host` names a host that the port is not known by.
    Host,
}

impl PageRefusal {
    /// A word for the audit stream.
    pub fn name(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Host => "host",
        }
    }

    /// 403.
    pub fn fault(self) -> Fault {
        let detail = match self {
            Self::Origin => "pages of other origins may not operate the engine",
            Self::Host => "the admin port is not known by this name: see `engine.admin.hosts`",
        };
        Fault::new(Kind::Forbidden, Origin::Client, detail)
    }
}

/// The names by which the port may be reached where it asks for no credentials.
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// These names in lower case, beside IP addresses and `localhost`.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Refuses what a page of another origin has a browser send: it would come with the credentials
    /// that the browser remembers, or from the machine that alone reaches the port.
    ///
    /// `Origin` and `Sec-Fetch-Site` (Fetch Metadata) tell the pages of other sites. A page whose
    /// own name leads here by now (DNS rebinding) has the same origin as the port; it is told by
    /// `Host`, and cannot know the credential of a caller.
    ///
    /// # Errors
    /// What tells that it is such a request.
    pub fn refuse_pages(&self, request: &Request) -> Result<(), PageRefusal> {
        let site = request.headers.get("Sec-Fetch-Site");
        let is_near = |site: &[u8]| matches!(site, b"same-origin" | b"none");
        if !site.is_none_or(is_near) || !has_own_origin(request) {
            return Err(PageRefusal::Origin);
        }
        if Caller::of(request).is_none() && !self.has_host_of(request) {
            return Err(PageRefusal::Host);
        }
        Ok(())
    }

    fn has_host_of(&self, request: &Request) -> bool {
        // Every browser sends it.
        let Some(host) = request.headers.get("Host") else {
            return true;
        };
        let Ok(host) = std::str::from_utf8(host) else {
            return false;
        };
        if let Some(address) = host.strip_prefix('[') {
            let address = address.split(']').next().unwrap_or_default();
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

fn has_own_origin(request: &Request) -> bool {
    let Some(origin) = request.headers.get("Origin") else {
        return true;
    };
    let host = request.headers.get("Host").unwrap_or_default();
    let mut schemes = [&b"http://"[..], b"https://"].into_iter();
    schemes.any(|scheme| origin.strip_prefix(scheme) == Some(host))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use message::{Body, Headers};

    use super::*;

    fn refusal(fields: &[(&str, &str)], is_known: bool) -> Option<PageRefusal> {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        let mut request = Request::of_source("POST", headers, Body::Empty);
        let caller = || Caller::new(&"staff".into(), "ann", expr::value::object([]));
        request.caller = is_known.then(|| Arc::new(caller()) as _);
        let hosts = Hosts::new(["admin.internal".to_owned()]);
        hosts.refuse_pages(&request).err()
    }

    #[test]
    fn requests_of_web_pages_elsewhere_are_refused() {
        let host = ("Host", "127.0.0.1:9900");
        for (fields, is_refused) in [
            (&[host][..], false),
            (&[host, ("Origin", "http://127.0.0.1:9900")], false),
            (&[host, ("Origin", "https://127.0.0.1:9900")], false),
            (&[host, ("Origin", "http://127.0.0.1:9901")], true),
            (&[host, ("Origin", "null")], true),
            (&[host, ("Sec-Fetch-Site", "same-origin")], false),
            (&[host, ("Sec-Fetch-Site", "none")], false),
            (&[host, ("Sec-Fetch-Site", "same-site")], true),
            (&[host, ("Sec-Fetch-Site", "cross-site")], true),
        ] {
            for is_known in [false, true] {
                let expected = is_refused.then_some(PageRefusal::Origin);
                assert_eq!(refusal(fields, is_known), expected, "{fields:?}");
            }
        }
    }

    #[test]
    fn a_name_that_leads_here_is_known_or_its_caller_is() {
        for (host, is_refused) in [
            ("127.0.0.1", false),
            ("10.1.2.3:9900", false),
            ("[::1]", false),
            ("[::1]:9900", false),
            ("[evil.example]:9900", true),
            ("localhost", false),
            ("LocalHost:9900", false),
            ("localhost.:9900", false),
            ("admin.internal:9900", false),
            ("evil.example", true),
            ("evil.example:9900", true),
            ("localhost.evil.example", true),
            ("127.0.0.1.evil.example", true),
            ("", true),
        ] {
            let expected = is_refused.then_some(PageRefusal::Host);
            assert_eq!(refusal(&[("Host", host)], false), expected, "{host}");
            assert_eq!(refusal(&[("Host", host)], true), None, "{host}");
        }
        assert_eq!(refusal(&[], false), None);
    }
}
