//! The ways of `engine.auth` by their names, and the doors that use them.

use std::sync::Arc;

use component::access::{AccessNodes, Door, DoorContext, Ways};
use component::audit::Audit;
use component::definition::Surroundings;
use component::identity::Identities;
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Spanned, Value};
use serde_json::json;

use crate::api_key::ApiKeyWay;
use crate::ask::AskWay;
use crate::basic::BasicWay;
use crate::codes::{BAD_AUTH, BAD_WAY, UNKNOWN_WAY, UNUSED_WAY};
use crate::config::{
    ApiKeyConfig, AskConfig, AuthConfig, BasicConfig, HmacConfig, IntrospectConfig, JwtConfig,
    MtlsConfig, OidcConfig, WayConfig,
};
use crate::credential::Carrier;
use crate::deny;
use crate::door::AccessDoor;
use crate::failed_checks::Guesses;
use crate::hmac::HmacWay;
use crate::identity::IdentityIssuer;
use crate::introspect::IntrospectWay;
use crate::jwt::JwtWay;
use crate::mtls::MtlsWay;
use crate::oidc::OidcWay;
use crate::tickets::{TicketDesk, TicketOffice};
use crate::way::Way;

/// The word that opens a door.
const NONE: &str = "none";

/// All ways, in the order of the file; without the way itself where it has a problem, which has
/// been reported.
#[derive(Default)]
struct NamedWays {
    all: Vec<NamedWay>,
    /// What the deny list does by itself.
    deny: Option<SourcePlan>,
    /// What doors need for tickets.
    tickets: Option<(Arc<TicketOffice>, Arc<Guesses>)>,
    /// What tells systems behind flows who a caller is.
    identity: Option<IdentityIssuer>,
    /// Where doors tell whom they refuse.
    audit: Arc<Audit>,
}

/// A name and its way.
type NamedWay = (Arc<str>, Option<Arc<dyn Way>>);

/// Reads the values under `engine.auth` and `engine.deny`.
pub(crate) fn build(
    nodes: AccessNodes<'_>,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Arc<dyn Ways> {
    let mut ways = NamedWays {
        deny: deny::read(nodes, surroundings, report),
        identity: IdentityIssuer::read(nodes, surroundings, report),
        audit: Audit::of(surroundings.states),
        ..NamedWays::default()
    };
    if let Some(node) = nodes.ways {
        let states = surroundings.states;
        ways.tickets = Some((TicketOffice::of(states), Guesses::of(states)));
        // Each way is checked when it is read.
        config::check(node, &json!({ "type": "object" }), report);
        for entry in node.as_mapping().unwrap_or_default() {
            let name: Arc<str> = entry.key.as_str().into();
            if name.is_empty() || *name == *NONE {
                let message = format!("`{name}` is no name for a way");
                let hint = "`auth: none` opens a flow to everybody";
                report.error(BAD_WAY, entry.key_span, message).hint(hint);
            }
            let way = read_way(&name, &entry.value, surroundings, report);
            ways.all.push((name, way));
        }
    }
    Arc::new(ways)
}

fn read_way(
    name: &Arc<str>,
    node: &Node,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<Arc<dyn Way>> {
    let config: WayConfig = config::decode(node, report)?;
    let WayConfig {
        jwt,
        basic,
        api_key,
        mtls,
        hmac,
        introspect,
        ask,
        oidc,
        pass,
    } = &config;
    let passes = pass.as_ref().is_some_and(|it| it.value);
    let has_nothing_to_pass = hmac.is_some() || ask.is_some() || mtls.is_some();
    if let (Some(pass), true) = (pass, has_nothing_to_pass) {
        let message = "`pass` has no effect here: everything is passed on";
        let hint = "leave it out";
        report.error(BAD_WAY, pass.span, message).hint(hint);
    }
    let kinds = [
        jwt.as_ref().map(Kind::Jwt),
        basic.as_ref().map(Kind::Basic),
        api_key.as_ref().map(Kind::ApiKey),
        mtls.as_ref().map(Kind::Mtls),
        hmac.as_ref().map(Kind::Hmac),
        introspect.as_ref().map(Kind::Introspect),
        ask.as_ref().map(Kind::Ask),
        oidc.as_ref().map(Kind::Oidc),
    ];
    let mut kinds = kinds.into_iter().flatten();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        let message = format!(
            "`{name}` must be exactly one of `jwt`, `basic`, `api_key`, `mtls`, `hmac`, \
             `introspect`, `ask` and `oidc`"
        );
        let hint = "write two ways, and name both under `any`";
        report.error(BAD_WAY, node.span, message).hint(hint);
        return None;
    };
    match kind {
        Kind::Jwt(it) => arc(JwtWay::read(name, it, passes, surroundings, report)),
        Kind::Basic(it) => arc(BasicWay::read(name, it, passes, surroundings, report)),
        Kind::ApiKey(it) => arc(ApiKeyWay::read(name, it, passes, surroundings, report)),
        Kind::Mtls(it) => arc(MtlsWay::read(name, it, surroundings, report)),
        Kind::Hmac(it) => arc(HmacWay::read(name, it, surroundings, report)),
        Kind::Introspect(it) => arc(IntrospectWay::read(name, it, passes, surroundings, report)),
        Kind::Ask(it) => arc(AskWay::read(name, it, surroundings, report)),
        Kind::Oidc(it) => arc(OidcWay::read(name, it, passes, surroundings, report)),
    }
}

/// The settings of a way, which are of one kind.
enum Kind<'a> {
    Jwt(&'a Spanned<JwtConfig>),
    Basic(&'a Spanned<BasicConfig>),
    ApiKey(&'a Spanned<ApiKeyConfig>),
    Mtls(&'a Spanned<MtlsConfig>),
    Hmac(&'a Spanned<HmacConfig>),
    Introspect(&'a Spanned<IntrospectConfig>),
    Ask(&'a Spanned<AskConfig>),
    Oidc(&'a Spanned<OidcConfig>),
}

fn arc(way: Option<impl Way + 'static>) -> Option<Arc<dyn Way>> {
    Some(Arc::new(way?))
}

impl NamedWays {
    /// Has a door take tickets where it shall, and tell whom it refuses.
    fn with_tickets(&self, door: AccessDoor, context: &DoorContext<'_>) -> AccessDoor {
        let desk = self.tickets.as_ref().zip(context.tickets.clone());
        let desk = desk.map(|((office, guesses), target)| TicketDesk::new(target, office, guesses));
        door.with_tickets(desk).with_audit(&self.audit)
    }

    /// The way of a name; `None` when there is none, or it has a problem.
    fn find(&self, name: &Spanned<String>, report: &mut Report) -> Option<Arc<dyn Way>> {
        let found = self.all.iter().find(|(known, _)| **known == *name.value);
        if let Some((_, way)) = found {
            return way.clone();
        }
        if name.value == NONE {
            let message = "`none` is no way to know a caller: it stands alone, as `auth: none`";
            let hint = "leave it out; `auth: none` lets everybody in, known or not";
            report.error(UNKNOWN_WAY, name.span, message).hint(hint);
            return None;
        }
        let shown = name.value.escape_debug();
        let message = format!("there is no way `{shown}` to know a caller");
        let names = self.all.iter().map(|(name, _)| &**name);
        let hint = match config::suggest(&name.value, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "ways are described in the `engine:` document, under `auth`".to_owned(),
        };
        report.error(UNKNOWN_WAY, name.span, message).hint(hint);
        None
    }
}

/// The door, or its problem in the report.
fn sound(
    door: Result<AccessDoor, &'static str>,
    auth: &Node,
    context: &mut DoorContext<'_>,
) -> Option<AccessDoor> {
    door.map_err(|problem| {
        let message = format!("`auth` cannot be used: {problem}");
        context.report.error(BAD_AUTH, auth.span, message);
    })
    .ok()
}

/// Says how an `auth` is written that is neither a text nor a mapping.
fn refuse_shape(auth: &Node, report: &mut Report) {
    let kind = auth.type_name();
    let hint = match &auth.value {
        Value::Sequence(names) => {
            let names = names.iter().map(Node::as_str);
            let names = names
                .collect::<Option<Vec<_>>>()
                .filter(|it| !it.is_empty());
            let names = names.unwrap_or_else(|| vec!["staff"]).join(", ");
            format!("write `{{ any: [{names}] }}`")
        }
        Value::Bool(false) | Value::Null => "write `none` to let everybody in".to_owned(),
        _ => {
            "write the name of a way under `engine.auth`, or `none` to let everybody in".to_owned()
        }
    };
    let message = format!("`auth` is the name of a way, `none` or a mapping, not {kind}");
    report.error(BAD_AUTH, auth.span, message).hint(hint);
}

/// Refuses ways of one door of which one would never be used.
fn check_together(names: &[Spanned<String>], ways: &[Arc<dyn Way>], report: &mut Report) {
    for (at, (name, way)) in names.iter().zip(ways).enumerate() {
        if *way.carrier() == Carrier::Always && at + 1 < ways.len() {
            let message = format!(
                "`{}` takes every request: no way behind it is used",
                name.value.escape_debug()
            );
            let hint = "name it last";
            report.error(UNUSED_WAY, name.span, message).hint(hint);
            continue;
        }
        let mut before = names.iter().zip(ways).take(at);
        let is_same = |other: &dyn Way| {
            let cannot_tell = !way.properties().tells_apart && !other.properties().tells_apart;
            other.name() == way.name() || (cannot_tell && other.carrier() == way.carrier())
        };
        if let Some((other, _)) = before.find(|(_, other)| is_same(&***other)) {
            let message = format!(
                "`{}` is never used: `{}` gets the same requests",
                name.value.escape_debug(),
                other.value.escape_debug()
            );
            report.error(UNUSED_WAY, name.span, message).hint(
                "two ways of one door need credentials that can be told apart: other headers, \
                 or tokens of other issuers",
            );
        }
    }
}

impl Ways for NamedWays {
    fn door(&self, auth: &Node, context: &mut DoorContext<'_>) -> Option<Arc<dyn Door>> {
        if let Some(name) = auth.as_str() {
            if name == NONE {
                return None;
            }
            let name = Spanned {
                value: name.to_owned(),
                span: auth.span,
            };
            let way = self.find(&name, context.report)?;
            let door = AccessDoor::new(context.name, vec![way]);
            let door = sound(door, auth, context)?;
            return Some(Arc::new(self.with_tickets(door, context)));
        }
        if auth.as_mapping().is_none() {
            refuse_shape(auth, context.report);
            return None;
        }
        let config: AuthConfig = config::decode(auth, context.report)?;
        if config.any.value.is_empty() {
            let message = "`any` names no way: nobody could come in";
            context.report.error(BAD_AUTH, config.any.span, message);
            return None;
        }
        let names = config.any.value.iter();
        let ways: Vec<_> = names
            .filter_map(|name| self.find(name, context.report))
            .collect();
        let is_whole = ways.len() == config.any.value.len();
        if is_whole {
            check_together(&config.any.value, &ways, context.report);
        }
        let door = sound(AccessDoor::new(context.name, ways), auth, context)?;
        let door = door.with_demands(&config, auth, context)?;
        is_whole.then(|| Arc::new(self.with_tickets(door, context)) as _)
    }

    fn sources(&self) -> Vec<SourcePlan> {
        let ways = self.all.iter().filter_map(|(_, way)| way.as_ref());
        let own = ways.filter_map(|way| way.source());
        own.chain(self.deny.clone()).collect()
    }

    fn identities(&self) -> Option<&dyn Identities> {
        Some(self.identity.as_ref()?)
    }

    fn upstreams(&self) -> Vec<Arc<UpstreamPlan>> {
        let ways = self.all.iter().filter_map(|(_, way)| way.as_ref());
        ways.flat_map(|way| way.upstreams()).cloned().collect()
    }
}
