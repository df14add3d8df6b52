//! The egress guard: which URLs that somebody else than the author of the files has set may be
//! called, against server-side request forgery (SSRF). Decision 0052 tells the whole.
//!
//! [`Policy::target`] reads a URL and refuses what can be refused by its text. A name says nothing
//! about where it leads, so that [`Policy::check`] is asked again for each connection, with the
//! address that is about to be connected to. [`Origins`] makes plans for targets that are known
//! only when messages come. [`loops`] has the header that tells requests which come back. Nothing
//! here looks a name up.

pub mod loops;
mod origins;
mod proxy;
mod settings;
mod special;
mod target;

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use message::{Fault, Kind, Origin};

use crate::networks::NetworkList;

pub use origins::Origins;
pub use proxy::EgressProxy;
pub use settings::EgressConfig;
pub use special::Class;
pub use target::Target;

/// Which URLs may be called. The default is `https` on port 443, at public addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Addresses that may be connected to although they are not public.
    allow: NetworkList,
    /// Addresses that may not, whatever else holds.
    deny: NetworkList,
    ports: Vec<u16>,
    schemes: Vec<Scheme>,
    /// What this engine calls itself in `CDN-Loop`.
    pub loop_id: Arc<str>,
    /// What connections are made through.
    pub proxy: Option<Arc<EgressProxy>>,
}

/// The schemes of URLs that can be called.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// HTTP in clear text.
    Http,
}

impl Scheme {
    /// The port of URLs that name none.
    pub fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }

    fn of(is_secure: bool) -> Self {
        if is_secure { Self::Https } else { Self::Http }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Https => "https",
            Self::Http => "http",
        })
    }
}

/// Why something may not be called, in words for the log. What the address is that a name has led
/// to is nothing for those who have set the URL: [`Refusal::detail`] is for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text is no URL, or one that is read in more than one way.
    Malformed(Cow<'static, str>),
    /// The scheme is not allowed.
    Scheme(String),
    /// The port is not allowed.
    Port(u16),
    /// The address is not public, and not allowed by itself.
    Address(IpAddr, Class),
    /// The address is denied.
    Denied(IpAddr),
}

impl Refusal {
    /// Why, for whoever has set the URL.
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::Malformed(problem) => format!("the URL cannot be used: {problem}").into(),
            Self::Scheme(_) => "URLs with this scheme may not be called".into(),
            Self::Port(_) => "URLs with this port may not be called".into(),
            Self::Address(..) | Self::Denied(_) => "this address may not be called".into(),
        }
    }

    /// The failure of a message whose URL it is.
    pub fn into_fault(self) -> Fault {
        Fault::new(Kind::Forbidden, Origin::Client, self.detail()).with_cause(self)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(problem) => write!(formatter, "the URL cannot be used: {problem}"),
            Self::Scheme(scheme) => {
                let scheme = scheme.escape_debug();
                write!(
                    formatter,
                    "`engine.egress` does not allow the scheme `{scheme}`"
                )
            }
            Self::Port(port) => {
                write!(formatter, "`engine.egress` does not allow the port {port}")
            }
            Self::Address(address, class) => {
                write!(
                    formatter,
                    "`engine.egress` does not allow {address}, {class}"
                )
            }
            Self::Denied(address) => write!(formatter, "`engine.egress` denies {address}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl Default for Policy {
    fn default() -> Self {
        let nothing = NetworkList::default();
        let ports = vec![Scheme::Https.port()];
        Self::new(nothing.clone(), nothing, ports, vec![Scheme::Https])
    }
}

impl Policy {
    /// A policy that allows these addresses beside the public ones, but for those of the second
    /// list, on these ports by these schemes.
    pub fn new(
        allow: NetworkList,
        deny: NetworkList,
        ports: Vec<u16>,
        schemes: Vec<Scheme>,
    ) -> Self {
        Self {
            allow,
            deny,
            ports,
            schemes,
            loop_id: loops::process_id(),
            proxy: None,
        }
    }

    /// Reads a URL that somebody has set, and checks all of it but where its name leads.
    ///
    /// # Errors
    /// When it is none, can be read in more than one way, or may not be called.
    pub fn target(&self, url: &str) -> Result<Target, Refusal> {
        let target = Target::parse(url)?;
        self.check_endpoint(target.is_secure, &target.host, target.port)?;
        Ok(target)
    }

    /// Checks scheme and port, and the address where the host is one.
    ///
    /// # Errors
    /// When it may not be called.
    pub fn check_endpoint(&self, is_secure: bool, host: &str, port: u16) -> Result<(), Refusal> {
        match host.parse::<IpAddr>() {
            Ok(address) => self.check(is_secure, SocketAddr::new(address, port)),
            Err(_) => self.check_service(is_secure, port),
        }
    }

    /// Checks an address that is about to be connected to: this very one, after the name has been
    /// looked up.
    ///
    /// # Errors
    /// When it may not be called.
    pub fn check(&self, is_secure: bool, address: SocketAddr) -> Result<(), Refusal> {
        self.check_service(is_secure, address.port())?;
        self.check_address(address.ip().to_canonical())
    }

    fn check_service(&self, is_secure: bool, port: u16) -> Result<(), Refusal> {
        let scheme = Scheme::of(is_secure);
        if !self.schemes.contains(&scheme) {
            return Err(Refusal::Scheme(scheme.to_string()));
        }
        match self.ports.contains(&port) {
            true => Ok(()),
            false => Err(Refusal::Port(port)),
        }
    }

    /// An IPv6 address may hold an IPv4 address that a gateway would connect to: both have to be
    /// allowed then.
    fn check_address(&self, address: IpAddr) -> Result<(), Refusal> {
        if self.deny.contains(address) {
            return Err(Refusal::Denied(address));
        }
        if let Some(class) = special::class_of(address)
            && !self.is_allowed(address, class)
        {
            return Err(Refusal::Address(address, class));
        }
        match special::embedded(address) {
            Some(inner) => self.check_address(inner.into()),
            None => Ok(()),
        }
    }

    fn is_allowed(&self, address: IpAddr, class: Class) -> bool {
        match class {
            Class::Unspecified | Class::Multicast | Class::Broadcast => false,
            // A block that is allowed for other reasons does not open it.
            Class::Metadata => self.allow.names(address),
            _ => self.allow.contains(address),
        }
    }
}

#[cfg(test)]
mod tests;
