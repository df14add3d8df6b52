//! Where a service listens and which version of SOAP it speaks there.

use expr::xml::Element;

use crate::soap::names::{SOAP11, SOAP12, WSDL, WSDL_SOAP11, WSDL_SOAP12};
use crate::soap::problem::{Place, Problem};
use crate::soap::wsdl::read::{Document, Wsdl};

/// A version of SOAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// SOAP 1.1 (W3C Note, 8 May 2000).
    V11,
    /// SOAP 1.2 (W3C Recommendation, 27 April 2007).
    V12,
}

impl Version {
    /// The namespace of its envelope.
    pub fn envelope(self) -> &'static str {
        match self {
            Self::V11 => SOAP11,
            Self::V12 => SOAP12,
        }
    }

    /// The namespace of its part of WSDL.
    pub(super) fn binding(self) -> &'static str {
        match self {
            Self::V11 => WSDL_SOAP11,
            Self::V12 => WSDL_SOAP12,
        }
    }

    /// Its number.
    pub fn number(self) -> &'static str {
        match self {
            Self::V11 => "1.1",
            Self::V12 => "1.2",
        }
    }
}

/// A port: an address and what is spoken there.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// Its name.
    pub name: &'a str,
    /// The version of SOAP.
    pub version: Version,
    /// The address that the WSDL file says.
    pub address: Option<&'a str>,
    pub(super) document: &'a Document,
    pub(super) binding: &'a Element,
    /// Whether operations are `rpc` unless they say otherwise.
    pub(super) is_rpc: bool,
}

impl Wsdl {
    /// The port of this name, or the first that speaks SOAP over HTTP.
    ///
    /// # Errors
    /// When there is none.
    pub fn port(&self, name: Option<&str>) -> Result<Port<'_>, Problem> {
        let mut ports = Vec::new();
        for (document, service) in self.all("service") {
            for port in service.all(WSDL, "port") {
                ports.push((document, port));
            }
        }
        let named = |port: &&Element| name.is_none_or(|name| port.attribute("name") == Some(name));
        let mut reason = None;
        for (document, port) in ports.iter().filter(|(_, port)| named(port)) {
            match self.open(document, port) {
                Ok(port) => return Ok(port),
                Err(problem) => reason = reason.or(Some(problem)),
            }
        }
        let file = self.documents.first().map(|it| it.file.clone());
        let place = Place {
            file: file.unwrap_or_else(|| "".into()),
            line: 0,
        };
        Err(match (reason, name) {
            (Some(problem), _) => problem,
            (None, Some(name)) => {
                let names = ports.iter().filter_map(|(_, port)| port.attribute("name"));
                let problem = Problem::new(&place, format!("there is no port `{name}`"));
                match config::suggest(name, names.clone()) {
                    Some(near) => problem.hint(format!("did you mean `{near}`?")),
                    None => problem.hint(format!(
                        "there are: {}",
                        names.collect::<Vec<_>>().join(", ")
                    )),
                }
            }
            (None, None) => Problem::new(&place, "no service with a port is declared")
                .hint("is this the file that declares `wsdl:service`?"),
        })
    }

    /// The port of this name, or the first of each version.
    ///
    /// # Errors
    /// When there is none.
    pub fn ports(&self, name: Option<&str>) -> Result<Vec<Port<'_>>, Problem> {
        let first = self.port(name)?;
        let mut ports = vec![first];
        for (document, service) in self.all("service").filter(|_| name.is_none()) {
            for port in service.all(WSDL, "port") {
                let other = self.open(document, port).ok();
                ports.extend(other.filter(|it| it.version != first.version && ports.len() == 1));
            }
        }
        Ok(ports)
    }

    /// The addresses of all ports.
    pub fn addresses(&self) -> Vec<String> {
        let services = self.all("service");
        let ports = services.flat_map(|(_, service)| service.all(WSDL, "port"));
        let addresses = ports.flat_map(|port| port.children.iter());
        let addresses = addresses.filter(|it| it.name == "address");
        let addresses = addresses.filter_map(|it| it.attribute("location"));
        addresses.map(str::to_owned).collect()
    }

    fn open<'a>(&'a self, document: &'a Document, port: &'a Element) -> Result<Port<'a>, Problem> {
        let binding = port.attribute("binding").unwrap_or_default();
        let (document, binding) = self.named("binding", binding, (document, port))?;
        let found = [Version::V11, Version::V12]
            .into_iter()
            .find_map(|version| {
                let soap = binding.all(version.binding(), "binding").next()?;
                Some((version, soap))
            });
        let Some((version, soap)) = found else {
            let message = "the port does not speak SOAP";
            return Err(Problem::new(&document.place(binding), message));
        };
        let transport = soap.attribute("transport").unwrap_or_default();
        if !transport.is_empty() && !transport.ends_with("/http") && !transport.ends_with("/HTTP/")
        {
            let shown = transport.escape_debug();
            let message = format!("the transport `{shown}` is not supported");
            return Err(Problem::new(&document.place(soap), message).hint("HTTP is"));
        }
        let mut addresses = port.all(version.binding(), "address");
        Ok(Port {
            name: port.attribute("name").unwrap_or_default(),
            version,
            address: addresses.next().and_then(|it| it.attribute("location")),
            document,
            binding,
            is_rpc: soap.attribute("style") == Some("rpc"),
        })
    }
}
