//! Systems that files name with `egress: guarded`, compared with what `engine.egress` allows: what
//! would be refused for each message is told when files are loaded.

use std::sync::Arc;

use component::codes::BAD_EGRESS;
use component::egress::{Policy, Refusal, Scheme};
use component::upstream::{Egress, UpstreamPlan};
use config::Report;

/// Reports those that can never be called.
pub(crate) fn check(upstreams: &[Arc<UpstreamPlan>], policy: &Policy, report: &mut Report) {
    for upstream in upstreams {
        // What has no place in a file is no endpoint of a file.
        let Egress::Guarded(Some(place)) = &upstream.egress else {
            continue;
        };
        let is_secure = upstream.tls.is_some();
        for endpoint in &upstream.endpoints {
            let checked = policy.check_endpoint(is_secure, &endpoint.host, endpoint.port);
            if let Err(refusal) = checked {
                let message = format!("`{}:{}`: {refusal}", endpoint.host, endpoint.port);
                let diagnostic = report.error(BAD_EGRESS, place.0, message);
                diagnostic.hint(hint(&refusal));
            }
        }
    }
}

/// What to write so that it can be called.
fn hint(refusal: &Refusal) -> String {
    let setting = match refusal {
        Refusal::Scheme(_) => format!("schemes: [{}, {}]", Scheme::Https, Scheme::Http),
        Refusal::Port(port) => format!("ports: [443, {port}]"),
        Refusal::Address(address, _) => format!("allow: [{address}]"),
        Refusal::Malformed(_) | Refusal::Denied(_) => return "name another host".to_owned(),
    };
    format!("if it is meant, add `egress: {{ {setting} }}` to the `engine:` document")
}

#[cfg(test)]
mod tests {
    use component::tls::Place;
    use config::{Sources, Span};

    use super::*;

    fn problems(host: &str, port: u16, change: impl FnOnce(&mut UpstreamPlan)) -> Vec<String> {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let source = sources.add("t.yaml", b"x", &mut report).unwrap();
        let place = Place(Span {
            source,
            start: 0,
            end: 1,
        });
        let mut upstream = UpstreamPlan::single(host, port, Some(Default::default()));
        upstream.egress = Egress::Guarded(Some(place));
        change(&mut upstream);
        check(&[Arc::new(upstream)], &Policy::default(), &mut report);
        let problems = report.diagnostics().iter();
        problems
            .map(|it| format!("{} {}", it.code(), it.message()))
            .collect()
    }

    #[test]
    fn what_can_never_be_called_is_told() {
        let none: &[&str] = &[];
        assert_eq!(problems("a.example", 443, |_| {}), none);
        assert_eq!(problems("93.184.215.14", 443, |_| {}), none);
        assert_eq!(
            problems("a.example", 8443, |_| {}),
            ["IT0740 `a.example:8443`: `engine.egress` does not allow the port 8443"]
        );
        assert_eq!(
            problems("10.0.0.1", 443, |_| {}),
            ["IT0740 `10.0.0.1:443`: `engine.egress` does not allow 10.0.0.1, a private address"]
        );
        assert_eq!(
            problems("a.example", 443, |it| it.tls = None),
            ["IT0740 `a.example:443`: `engine.egress` does not allow the scheme `http`"]
        );
        let open = problems("10.0.0.1", 80, |it| it.egress = Egress::Open);
        assert_eq!(open, none);
        let template = problems("", 0, |it| it.endpoints.clear());
        assert_eq!(template, none);
    }
}
