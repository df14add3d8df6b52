//! `soap` endpoints: a flow serves the operations of a WSDL file.

mod pages;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use component::endpoint::{EndpointDefinition, Envelope as Around, Note, Opened};
use component::source::SourceContext;
use config::{Node, Spanned};
use message::{Fault, Method, Reply, Request};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_WSDL;
use crate::soap::connection::{put, read_wsdl};
use crate::soap::wsdl::{Operation, Port, Version, Wsdl};

/// The definition of the endpoint.
pub const DEFINITION: EndpointDefinition = EndpointDefinition {
    name: "soap",
    summary: "Serves a SOAP service described by a WSDL file.",
    documentation: include_str!("endpoint.md"),
    example: include_str!("endpoint.yaml"),
    schema: config::schema_for::<SoapEndpointConfig>,
    has_body: true,
    build,
};

/// Serves the operations of a WSDL file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SoapEndpointConfig {
    /// The WSDL file, relative to the flow file.
    wsdl: Spanned<String>,
    /// The port of the WSDL file. The default is the first of each version of SOAP.
    port: Option<Spanned<String>>,
    /// The only operation to serve. The default is all of them; `$headers["soap-operation"]` is the
    /// one that was called.
    operation: Option<Spanned<String>>,
}

/// The operations that are served in one version of SOAP.
struct Served {
    version: Version,
    operations: Vec<Operation>,
}

/// An endpoint.
struct Endpoint {
    wsdl: Wsdl,
    served: Vec<Served>,
}

/// What a reply needs to know of its request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Which of the versions.
    served: usize,
    /// Which of its operations.
    operation: usize,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Around>> {
    let config: SoapEndpointConfig = config::decode(node, context.report)?;
    let wsdl = read_wsdl(&config.wsdl, context.report, context.surroundings)?;
    let served = read_served(&wsdl, &config, context)?;
    Some(Arc::new(Endpoint { wsdl, served }))
}

fn read_served(
    wsdl: &Wsdl,
    config: &SoapEndpointConfig,
    context: &mut SourceContext<'_>,
) -> Option<Vec<Served>> {
    let wanted = config.port.as_ref();
    let place = wanted.map_or(config.wsdl.span, |it| it.span);
    let ports = match wsdl.ports(wanted.map(|it| it.value.as_str())) {
        Ok(ports) => ports,
        Err(problem) => {
            put(&problem, place, context.report);
            return None;
        }
    };
    let place = config.operation.as_ref().map_or(place, |it| it.span);
    let ports = match &config.operation {
        Some(only) => with_operation(wsdl, ports, &only.value),
        None => ports,
    };
    let mut served = Vec::new();
    for port in ports {
        let names = match &config.operation {
            Some(only) => vec![only.value.as_str()],
            None => wsdl.operations(&port),
        };
        let mut operations = Vec::new();
        for name in names {
            match wsdl.operation(&port, name) {
                Ok(operation) => operations.push(operation),
                Err(problem) => {
                    put(&problem, place, context.report);
                    return None;
                }
            }
        }
        check_told_apart(&operations, config, context)?;
        served.push(Served {
            version: port.version,
            operations,
        });
    }
    Some(served)
}

/// The ports that have an operation; all of them when none has, so that the name is reported.
fn with_operation<'a>(wsdl: &'a Wsdl, ports: Vec<Port<'a>>, name: &str) -> Vec<Port<'a>> {
    let has = |port: &Port<'a>| wsdl.operations(port).contains(&name);
    match ports.iter().any(has) {
        true => ports.into_iter().filter(has).collect(),
        false => ports,
    }
}

/// Requests are told apart by what stands in their bodies (WS-I Basic Profile, R2710).
fn check_told_apart(
    operations: &[Operation],
    config: &SoapEndpointConfig,
    context: &mut SourceContext<'_>,
) -> Option<()> {
    let mut seen = HashSet::new();
    let name = |it: &Operation| it.input.body.as_ref().map(|body| body.name.clone());
    match operations.iter().find(|it| !seen.insert(name(it))) {
        None => Some(()),
        Some(second) => {
            let message = format!("requests of `{}` look like those of another", second.name);
            context
                .report
                .error(BAD_WSDL, config.wsdl.span, message)
                .hint("serve one of them: say `operation`");
            None
        }
    }
}

impl Endpoint {
    fn asked(&self, asked: Asked) -> Option<(&Served, &Operation)> {
        let served = self.served.get(asked.served)?;
        Some((served, served.operations.get(asked.operation)?))
    }
}

impl Around for Endpoint {
    fn methods(&self) -> Vec<Method> {
        vec![Method::Get, Method::Post]
    }

    fn open(&self, request: Request) -> Opened {
        if request.method != Method::Post {
            return Opened::Reply(pages::page(self, &request));
        }
        match request::open(self, request) {
            Ok((request, asked)) => Opened::Message(Box::new(request), Arc::new(asked)),
            Err(reply) => Opened::Reply(*reply),
        }
    }

    fn close(&self, note: &Note, end: Result<Reply, &Fault>) -> (Reply, Option<Fault>) {
        let asked = note.downcast_ref::<Asked>().and_then(|it| self.asked(*it));
        match asked {
            Some((served, operation)) => reply::close(served.version, operation, end),
            None => (Reply::new(500), None),
        }
    }
}
