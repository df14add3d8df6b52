//! Where requests go that differ in their bodies and a few headers only, such as those to a
//! webhook: a URL or a connection of `use:`, and header lines that stay the same.

use std::sync::Arc;

use component::connection::Connections;
use component::forward::ForwardPlan;
use component::upstream::{Eject, UpstreamPlan};
use config::{Node, Report, Spanned};

use crate::fields;
use crate::http_call::refuse_websocket;
use crate::target::{Target, parse_target};
use crate::tls::TlsConfig;
use crate::way;

/// Where requests go.
#[derive(Clone, Debug)]
pub struct CallTarget {
    /// The plan of each request.
    pub plan: Arc<ForwardPlan>,
    /// The systems that it needs: the target, and what gives out its credentials.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
}

/// What a file says of a target.
#[derive(Clone, Copy, Debug)]
pub struct CallTargetConfig<'a> {
    /// A URL, or `CONNECTION:/path`.
    pub url: &'a Spanned<String>,
    /// TLS of a URL.
    pub tls: Option<&'a Spanned<TlsConfig>>,
    /// Header lines, a mapping.
    pub headers: Option<&'a Node>,
    /// Names of header lines that whoever sends the requests sets, in small letters.
    pub reserved: &'a [&'a str],
}

impl CallTarget {
    /// Reads a target. Every problem is reported.
    pub fn read(
        config: CallTargetConfig<'_>,
        (connections, report): (&Connections, &mut Report),
    ) -> Option<Self> {
        let before = report.errors();
        let CallTargetConfig {
            url, tls, headers, ..
        } = config;
        let target = match parse_target(&url.value) {
            Ok(target) => target,
            Err(problems) => {
                for problem in problems {
                    problem.put(url.span, report);
                }
                return None;
            }
        };
        if refuse_websocket(&target, url.span, report) {
            return None;
        }
        let is_named = matches!(target, Target::Named { .. });
        let lines = read_headers(headers, config.reserved, report);
        let way = way::find(
            target,
            url.span,
            way::Own::new(tls, None),
            (connections, report),
        )?;
        let place = headers.map_or(url.span, |it| it.span);
        let names = || lines.iter().map(|(name, _)| name.as_str());
        way::check_fields(names(), way.credentials.as_ref(), place, report);
        let mut upstream = way.upstream;
        if !is_named {
            // Whoever sends the requests decides when one that fails is asked again.
            let failures = u32::MAX;
            let own = UpstreamPlan::clone(&upstream);
            let eject = Eject {
                failures,
                ..own.eject
            };
            upstream = Arc::new(UpstreamPlan { eject, ..own });
        }
        let mut upstreams = vec![Arc::clone(&upstream)];
        upstreams.extend(
            way.credentials
                .iter()
                .filter_map(|it| it.upstream().cloned()),
        );
        let mut plan = ForwardPlan::new(upstream, way.path);
        plan.query = way.query;
        plan.request_fields.set = way.fields;
        for (name, value) in lines {
            plan.request_fields
                .set
                .retain(|(of_connection, _)| !of_connection.eq_ignore_ascii_case(&name));
            plan.request_fields.set.push((name, value));
        }
        way::authorize(&mut plan, way.parameter, way.credentials);
        (report.errors() == before).then(|| Self {
            plan: Arc::new(plan),
            upstreams,
        })
    }
}

/// Reads header lines that stay the same: a mapping of names and values. Every problem is reported,
/// such as names that frame a message, and `reserved` ones (in small letters), which whoever sends
/// the requests sets.
pub fn read_headers(
    node: Option<&Node>,
    reserved: &[&str],
    report: &mut Report,
) -> Vec<(String, String)> {
    let lines = fields::read_set(node, &fields::framing, report);
    for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
        let name = &entry.key;
        if reserved.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            let message = format!("the header `{name}` is set by the engine");
            let diagnostic = report.error(crate::codes::RESERVED_FIELD, entry.key_span, message);
            diagnostic.hint("leave it out");
        }
    }
    lines
}
