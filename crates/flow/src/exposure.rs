//! What is open to everybody, and where credentials can be read on their way: warnings of `check`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use component::access::Door;
use component::document::Declared;
use component::trigger::ListenAddress;
use config::{Node, Report, Span};

use crate::codes::{CLEAR_CREDENTIALS, OPEN_TO_ALL};
use crate::compile::Flow;
use crate::engine::Engine;
use crate::trigger::Trigger;
use crate::{AdminSettings, Operate};

/// One place where requests come in.
struct Entry<'a> {
    what: String,
    listen: &'a ListenAddress,
    has_tls: bool,
    span: Span,
    doors: Vec<&'a Arc<dyn Door>>,
    /// Whether everybody gets in, and the file does not say that this is meant.
    is_forgotten: bool,
}

/// Warns about what everybody beyond this machine may use though the files know ways to tell
/// callers apart, and about credentials that come without TLS. `settings` is what stands under
/// `engine:`.
pub(crate) fn warn(
    (flows, declared): (&[Flow], &[Declared]),
    (engine, settings): (&Engine, Option<&Node>),
    report: &mut Report,
) {
    let ways = settings.and_then(|it| it.get("auth")?.as_mapping());
    // Without a way to tell callers apart, everything is meant to be open.
    if ways.is_none_or(<[_]>::is_empty) {
        return;
    }
    let (mut told, mut clear) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries(flows, declared) {
        if is_local(entry.listen) {
            continue;
        }
        let edge = engine.listeners.edge(entry.listen);
        // An `auth: none` of the listener is meant, too.
        let is_bounded =
            edge.requests.lists_networks() || engine.listeners.auth(entry.listen).is_some();
        let place = (entry.span.source, entry.span.start);
        if entry.is_forgotten && !is_bounded && told.insert(place) {
            let message = format!("{}, whoever reaches {}", entry.what, entry.listen);
            report
                .warning(OPEN_TO_ALL, entry.span, message)
                .hint("name a way under `auth`, or write `auth: none` if everybody may");
        }
        let shows_secrets = entry.doors.iter().any(|it| it.takes_secrets());
        // What is in front ends TLS.
        let proxies = edge.trusted_proxies.as_ref();
        let proxies = proxies.or(engine.settings.trusted_proxies.as_ref());
        let is_behind = proxies.is_some_and(|it| !it.is_empty()) || edge.proxy_protocol.is_some();
        if shows_secrets && !entry.has_tls && !is_behind && clear.insert(entry.listen) {
            warn_clear(entry.listen, entry.span, report);
        }
    }
}

fn warn_clear(listen: &ListenAddress, span: Span, report: &mut Report) {
    let message =
        format!("credentials come to {listen} without TLS: they can be read on their way");
    report.warning(CLEAR_CREDENTIALS, span, message).hint(
        "add `tls`; behind a proxy that ends TLS, name it in `trusted_proxies` or listen on \
         127.0.0.1",
    );
}

/// The same for the admin port, as far as the files say where it is.
pub(crate) fn warn_admin(admin: &AdminSettings, settings: Option<&Node>, report: &mut Report) {
    let node = settings.and_then(|it| it.get("admin"));
    let (Some(listen), Some(node)) = (&admin.listen, node) else {
        return;
    };
    if is_local(listen) {
        return;
    }
    if let (Operate::Everybody, Some(entry)) = (&admin.operate, node.entry("operate")) {
        let message = format!("everybody may operate the engine, whoever reaches {listen}");
        report
            .warning(OPEN_TO_ALL, entry.key_span, message)
            .hint("name a way under `operate`, or listen on 127.0.0.1");
    }
    let operate = match &admin.operate {
        Operate::Behind(door) => Some(door),
        _ => None,
    };
    let mut doors = admin.view.iter().chain(operate);
    if let Some(span) = node.get("listen").map(|it| it.span)
        && doors.any(|it| it.takes_secrets())
    {
        let message =
            format!("credentials come to {listen} without TLS: they can be read on their way");
        report
            .warning(CLEAR_CREDENTIALS, span, message)
            .hint("listen on 127.0.0.1, behind a proxy that ends TLS");
    }
}

fn entries<'a>(flows: &'a [Flow], declared: &'a [Declared]) -> impl Iterator<Item = Entry<'a>> {
    let flows = flows.iter().filter_map(|flow| {
        let start = flow.trigger.as_ref().and_then(Trigger::start)?;
        let is_bounded = flow.says_auth || flow.edge.lists_networks();
        Some(Entry {
            what: format!("everybody may start flow `{}`", flow.name),
            listen: &start.http.listen,
            has_tls: start.tls.is_some(),
            span: start.span,
            doors: flow.door.iter().collect(),
            is_forgotten: flow.door.is_none() && !is_bounded,
        })
    });
    let declared = declared.iter().flat_map(|it| {
        it.routes.iter().map(|route| {
            let guard = &route.guard;
            let is_bounded = guard.says_auth || route.edge.lists_networks();
            Entry {
                what: format!(
                    "everybody may {} {} `{}`",
                    guard.verb, it.declaration.kind, it.declaration.name
                ),
                listen: &route.entrance.http.listen,
                has_tls: route.entrance.tls.is_some(),
                span: route.entrance.span,
                doors: route.door.iter().chain(&guard.doors).collect(),
                is_forgotten: route.door.is_none() && guard.doors.is_empty() && !is_bounded,
            }
        })
    });
    flows.chain(declared)
}

/// Whether only this machine reaches an address.
pub(crate) fn is_local(listen: &ListenAddress) -> bool {
    let Some(host) = &listen.host else {
        return false;
    };
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}
