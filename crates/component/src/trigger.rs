//! What starts a flow over HTTP: methods, a listening address and a path pattern.

use std::fmt;

use message::Method;

use crate::content::Format;

/// The request methods a flow takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Methods {
    /// Every method but `CONNECT` and `TRACE`: the reply to `TRACE` shows whatever the request had,
    /// credentials included (RFC 9110, section 9.3.8), so that a flow has to name it.
    Any,
    /// These, each once. `GET` takes `HEAD` too where no flow names `HEAD` at the same path.
    Only(Vec<Method>),
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenAddress {
    /// An IP address or a name such as `localhost`; none for all interfaces.
    pub host: Option<String>,
    /// The TCP port, never 0.
    pub port: u16,
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) if host.contains(':') => write!(formatter, "[{host}]:{}", self.port),
            Some(host) => write!(formatter, "{host}:{}", self.port),
            None => write!(formatter, ":{}", self.port),
        }
    }
}

/// One part of a path pattern between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This text exactly, as it stands in the request's path (percent-encoding included).
    Literal(String),
    /// Any one non-empty segment; its text becomes the parameter of this name.
    Parameter(String),
}

/// A path pattern: `/orders`, `/orders/{id}`, `/files/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// The segments behind the leading slash; empty for `/` (one empty literal is not kept).
    pub segments: Vec<Segment>,
    /// Whether the pattern ends with `*`: anything may follow, and becomes the parameter `rest`.
    pub rest: bool,
}

impl PathPattern {
    /// The pattern without its parameter names: two patterns of one shape match the same paths.
    pub fn shape(&self) -> String {
        let mut shape = String::new();
        for segment in &self.segments {
            shape.push('/');
            match segment {
                Segment::Literal(text) => shape.push_str(text),
                Segment::Parameter(_) => shape.push_str("{}"),
            }
        }
        if self.rest {
            shape.push_str("/*");
        } else if shape.is_empty() {
            shape.push('/');
        }
        shape
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(formatter, "/{text}")?,
                Segment::Parameter(name) => write!(formatter, "/{{{name}}}")?,
            }
        }
        match (self.rest, self.segments.is_empty()) {
            (true, _) => formatter.write_str("/*"),
            (false, true) => formatter.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

/// A complete HTTP trigger.
#[derive(Clone, Debug)]
pub struct HttpTrigger {
    /// The methods.
    pub methods: Methods,
    /// Where to listen.
    pub listen: ListenAddress,
    /// Which paths.
    pub path: PathPattern,
    /// The most bytes of a request body that the message path reads into memory.
    pub body_max: u64,
    /// The format of bodies, when it does not go by their `Content-Type`.
    pub decode: Option<Format>,
}
