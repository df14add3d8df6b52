//! `soap` connections: a service and the WSDL file that describes it.

use std::any::Any;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use component::definition::{ConnectionContext, ConnectionDefinition};
use config::{Node, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::bounds;
use crate::codes::BAD_ADDRESS;
use crate::url::{self, Endpoint};

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "soap",
    summary: "A SOAP service that a WSDL file describes.",
    documentation: include_str!("connection.md"),
    example: include_str!("connection.yaml"),
    schema: config::schema_for::<SoapConfig>,
    missing: Some("this build has no driver for soap"),
    build,
};

/// A SOAP service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SoapConfig {
    /// The WSDL file, relative to the flow file; its name ends in `.wsdl`.
    soap: Spanned<String>,
    /// The URL of the service. The default is the address in the WSDL file.
    endpoint: Option<String>,
    /// The longest until a connection is made, from 10ms to 5m.
    #[schemars(extend("default" = "5s"))]
    connect_timeout: Option<Spanned<config::Duration>>,
}

/// A SOAP service.
pub struct Service {
    /// The WSDL file, relative to the flow file.
    pub wsdl: String,
    /// The URL of the service.
    pub endpoint: Option<Endpoint>,
    /// The longest until a connection is made.
    pub connect_timeout: Duration,
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let report = &mut *context.report;
    let config: SoapConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    let wsdl = &config.soap;
    let mut parts = Path::new(&wsdl.value).components();
    let is_inside = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let is_url = wsdl.value.contains("://");
    if !is_inside || is_url || !wsdl.value.ends_with(".wsdl") {
        report
            .error(BAD_ADDRESS, wsdl.span, "this is no name of a WSDL file")
            .hint("write one relative to the flow file, such as `./wsdl/erp.wsdl`");
    }
    let endpoint = match &config.endpoint {
        Some(_) => node
            .get("endpoint")
            .and_then(|endpoint| url::read_http(endpoint, report)),
        None => None,
    };
    let service = Service {
        wsdl: config.soap.value,
        endpoint,
        connect_timeout: bounds::time(
            config.connect_timeout.as_ref(),
            Duration::from_secs(5),
            Duration::from_millis(10)..=Duration::from_secs(300),
            report,
        ),
    };
    (report.diagnostics().len() == before).then(|| Arc::new(service) as _)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connect;

    #[test]
    fn a_service_is_read() {
        let yaml = "{ soap: ./wsdl/erp.wsdl, endpoint: 'https://erp.example/ws?v=1' }";
        let found = connect(&DEFINITION, yaml).unwrap();
        let found = found.downcast::<Service>().ok().unwrap();
        let endpoint = found.endpoint.as_ref().unwrap();
        assert_eq!(endpoint.server.path, "/ws");
        assert_eq!(endpoint.query.as_deref(), Some("v=1"));
        assert_eq!(endpoint.server.port, 443);
    }

    #[test]
    fn every_problem_has_its_place() {
        let cases = [
            ("{ soap: /etc/erp.wsdl }", "IT0290 1:9"),
            ("{ soap: ../erp.wsdl }", "IT0290 1:9"),
            ("{ soap: erp.xml }", "IT0290 1:9"),
            ("{ soap: 'http://erp/x.wsdl' }", "IT0290 1:9"),
            ("{ soap: erp.wsdl, endpoint: 'ftp://erp' }", "IT0290 1:29"),
            (
                "{ soap: erp.wsdl, endpoint: 'http://u:p@erp' }",
                "IT0290 1:29",
            ),
            ("{ soap: erp.wsdl, connect_timeout: 1ms }", "IT0291 1:36"),
        ];
        for (yaml, expected) in cases {
            let found = connect(&DEFINITION, yaml).err().unwrap_or_default();
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
        }
    }
}
