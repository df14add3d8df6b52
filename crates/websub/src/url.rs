//! URLs of callbacks, hubs and topics: absolute `http` and `https` URLs without user names and
//! fragments, kept to the letter as they were written.

use std::fmt;
use std::sync::Arc;

use component::text::{check_path, check_query, parse_authority};

use crate::form;

/// The most bytes of a URL.
pub const URL_MAX: usize = 2048;

/// An absolute `http` or `https` URL.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Url {
    text: Arc<str>,
    is_secure: bool,
    /// In lower case, an IPv6 address without its brackets.
    host: Arc<str>,
    port: u16,
    /// Where the path begins in the text.
    path: usize,
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, formatter)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Why a text is no such URL, in words for whoever has sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(pub String);

impl fmt::Display for UrlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError(message.into()))
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// With the first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_MAX {
            return refuse(format!("it has more than {URL_MAX} bytes"));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse("it is no absolute URL");
        };
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return refuse("its scheme is neither `http` nor `https`"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if authority.contains('@') {
            return refuse("it has a user name or password");
        }
        let (host, port) = match parse_authority(authority) {
            Ok((Some(host), port)) => (host, port),
            Ok((None, _)) => return refuse("it has no host"),
            Err(error) => return refuse(error.message),
        };
        if tail.contains('#') {
            return refuse("it has a fragment");
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let path = if path.is_empty() { "/" } else { path };
        let checked = check_path(path).and_then(|()| check_query(query));
        checked.map_err(|error| UrlError(error.message))?;
        Ok(Self {
            text: text.into(),
            is_secure,
            host: host.into(),
            port: port.unwrap_or(if is_secure { 443 } else { 80 }),
            path: text.len() - tail.len(),
        })
    }

    /// The URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same, shared.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it is `https`.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Name or address, in lower case, an IPv6 address without its brackets.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path, beginning with `/`.
    pub fn path(&self) -> &str {
        let tail = self.tail();
        let path = tail.split_once('?').map_or(tail, |(path, _)| path);
        if path.is_empty() { "/" } else { path }
    }

    /// The query without its `?`, when it has one that is not empty.
    pub fn query(&self) -> Option<&str> {
        let (_, query) = self.tail().split_once('?')?;
        Some(query).filter(|it| !it.is_empty())
    }

    fn tail(&self) -> &str {
        self.text.get(self.path..).unwrap_or_default()
    }

    /// Whether scheme, host and port are the same.
    pub fn is_of_origin(&self, other: &Self) -> bool {
        let origin = |url: &Self| (url.is_secure, Arc::clone(&url.host), url.port);
        origin(self) == origin(other)
    }

    /// The query with these parameters behind those that it has, which stay as they are, also when
    /// they have the same names.
    pub fn query_with<'a>(
        &self,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let mut query = self.query().unwrap_or_default().to_owned();
        for (name, value) in parameters {
            form::push(name, value, &mut query);
        }
        query
    }

    /// The URL that a reference means which stands in a document with this URL (RFC 3986, section
    /// 5.2), without its fragment.
    ///
    /// # Errors
    /// When the result is no URL of an `http` or `https` resource.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let reference = reference.trim();
        let reference = reference.split('#').next().unwrap_or_default();
        if has_scheme(reference) {
            return Self::parse(reference);
        }
        let text = &self.text;
        let scheme = if self.is_secure { "https" } else { "http" };
        if reference.starts_with("//") {
            return Self::parse(&format!("{scheme}:{reference}"));
        }
        let origin = text.get(..self.path).unwrap_or_default();
        let (path, query) = match reference.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (reference, None),
        };
        let (path, query) = match path {
            "" => (self.path().to_owned(), query.or(self.query())),
            path if path.starts_with('/') => (path.to_owned(), query),
            path => {
                let own = self.path();
                let folder = own.rfind('/').and_then(|end| own.get(..=end));
                (format!("{}{path}", folder.unwrap_or("/")), query)
            }
        };
        let path = without_dots(&path);
        Self::parse(&match query {
            Some(query) => format!("{origin}{path}?{query}"),
            None => format!("{origin}{path}"),
        })
    }
}

/// Whether a reference begins with a scheme (RFC 3986, section 3.1).
fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else {
        return false;
    };
    let is_part = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
    scheme.starts_with(|it: char| it.is_ascii_alphabetic()) && scheme.chars().all(is_part)
}

/// A path without its dot segments (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_kept_as_they_are_written() {
        let url = Url::parse("HTTPS://Example.COM:8443/a/%7Eb?x=1&y").unwrap();
        assert_eq!(url.as_str(), "HTTPS://Example.COM:8443/a/%7Eb?x=1&y");
        assert_eq!((&**url.host(), url.port()), ("example.com", 8443));
        assert_eq!((url.path(), url.query()), ("/a/%7Eb", Some("x=1&y")));
        let url = Url::parse("http://[::1]?q").unwrap();
        assert_eq!((&**url.host(), url.port()), ("::1", 80));
        assert_eq!((url.path(), url.query()), ("/", Some("q")));
        assert_eq!(Url::parse("http://a/?").unwrap().query(), None);
    }

    #[test]
    fn what_is_no_url_of_a_resource_is_refused() {
        let long = format!("http://a/{}", "x".repeat(URL_MAX));
        for text in [
            "",
            "/a",
            "a.example/x",
            "ftp://a/",
            "javascript://a/%0aalert(1)",
            "http://",
            "http:///x",
            "http://:80/",
            "http://u@a/",
            "http://u:p@a/",
            "http://a:0/",
            "http://a:99999/",
            "http://a b/",
            "http://a/ b",
            "http://a/\r\nX: y",
            "http://a/%2",
            "http://a/%00",
            "http://a/#f",
            "http://a/?x#f",
            "http://a/../b",
            "http://a/%2e%2e/b",
            "http://1.2.3/",
            "http://\u{e4}.example/",
            "http://a/\u{e4}",
            " http://a/",
            long.as_str(),
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn parameters_are_put_behind_those_of_the_url() {
        let with = |text: &str| {
            let url = Url::parse(text).unwrap();
            url.query_with([
                ("hub.mode", "subscribe"),
                ("hub.topic", "http://t/?a=1&b=2"),
            ])
        };
        let added = "hub.mode=subscribe&hub.topic=http%3A%2F%2Ft%2F%3Fa%3D1%26b%3D2";
        assert_eq!(with("http://a/"), added);
        assert_eq!(with("http://a/?"), added);
        assert_eq!(with("http://a/?x=%20"), format!("x=%20&{added}"));
        // Parameters of the callback are not replaced (section 5.3 of the recommendation).
        let own = "http://a/?hub.mode=mine&y";
        assert_eq!(with(own), format!("hub.mode=mine&y&{added}"));
    }

    #[test]
    fn references_mean_what_rfc_3986_says() {
        let base = Url::parse("http://a/b/c/d?q").unwrap();
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d?q"),
            ("", "http://a/b/c/d?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            (" https://hub.example/x?y#z ", "https://hub.example/x?y"),
        ] {
            let joined = base.join(reference).map(|it| it.as_str().to_owned());
            assert_eq!(joined.as_deref(), Ok(expected), "{reference}");
        }
        for reference in ["mailto:a@b", "ftp://a/", "//u@a/", "http:g", "/\u{e4}"] {
            assert!(base.join(reference).is_err(), "{reference}");
        }
    }

    #[test]
    fn origins_are_compared_by_what_they_mean() {
        let of = |one: &str, other: &str| {
            let (one, other) = (Url::parse(one).unwrap(), Url::parse(other).unwrap());
            one.is_of_origin(&other)
        };
        assert!(of("http://a/x", "HTTP://A:80/y?z"));
        assert!(!of("http://a", "https://a"));
        assert!(!of("http://a", "http://a:8080"));
        assert!(!of("http://a", "http://a.b"));
    }
}
