//! The ways of `engine.auth` by their names, and the doors that use them.

use std::sync::Arc;

use component::access::{Door, DoorContext, Ways};
use component::definition::Surroundings;
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Spanned};

use crate::api_key::ApiKeyWay;
use crate::ask::AskWay;
use crate::basic::BasicWay;
use crate::codes::{BAD_AUTH, BAD_WAY, UNKNOWN_WAY, UNUSED_WAY};
use crate::config::{AuthConfig, WayConfig};
use crate::credential::Carrier;
use crate::door::AccessDoor;
use crate::hmac::HmacWay;
use crate::introspect::IntrospectWay;
use crate::jwt::JwtWay;
use crate::oidc::OidcWay;
use crate::way::Way;

/// The word that opens a door.
const NONE: &str = "none";

/// All ways, in the order of the file; without the way itself where it has a problem, which has
/// been reported.
#[derive(Default)]
struct NamedWays(Vec<NamedWay>);

/// A name and its way.
type NamedWay = (Arc<str>, Option<Arc<dyn Way>>);

/// Reads the value under `engine.auth`.
pub(crate) fn build(
    node: Option<&Node>,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Arc<dyn Ways> {
    let mut ways = NamedWays::default();
    if let Some(node) = node {
        config::check_kind(node, crate::config::ways_schema, report);
        for entry in node.as_mapping().unwrap_or_default() {
            let name: Arc<str> = entry.key.as_str().into();
            if name.is_empty() || *name == *NONE {
                let message = format!("`{name}` is no name for a way");
                let hint = "`auth: none` opens a flow to everybody";
                report.error(BAD_WAY, entry.key_span, message).hint(hint);
            }
            let way = read_way(&name, &entry.value, surroundings, report);
            ways.0.push((name, way));
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
        hmac,
        introspect,
        ask,
        oidc,
        pass,
    } = &config;
    let passes = pass.as_ref().is_some_and(|it| it.value);
    if let (Some(pass), true) = (pass, hmac.is_some() || ask.is_some()) {
        let message = "`pass` has no effect here: everything is passed on";
        let hint = "leave it out";
        report.error(BAD_WAY, pass.span, message).hint(hint);
    }
    if let Some(oidc) = oidc
        && [jwt.is_some(), basic.is_some(), api_key.is_some()] == [false; 3]
        && [hmac.is_some(), introspect.is_some(), ask.is_some()] == [false; 3]
    {
        return arc(OidcWay::read(name, oidc, passes, surroundings, report));
    }
    match (jwt, basic, api_key, hmac, introspect, ask) {
        _ if oidc.is_some() => {
            refuse_several(name, node, report);
            None
        }
        (Some(jwt), None, None, None, None, None) => {
            arc(JwtWay::read(name, jwt, passes, surroundings, report))
        }
        (None, Some(basic), None, None, None, None) => {
            arc(BasicWay::read(name, basic, passes, surroundings, report))
        }
        (None, None, Some(api_key), None, None, None) => {
            arc(ApiKeyWay::read(name, api_key, passes, surroundings, report))
        }
        (None, None, None, Some(hmac), None, None) => {
            arc(HmacWay::read(name, hmac, surroundings, report))
        }
        (None, None, None, None, Some(introspect), None) => {
            let way = IntrospectWay::read(name, introspect, passes, surroundings, report);
            arc(way)
        }
        (None, None, None, None, None, Some(ask)) => {
            arc(AskWay::read(name, ask, surroundings, report))
        }
        _ => {
            refuse_several(name, node, report);
            None
        }
    }
}

fn refuse_several(name: &str, node: &Node, report: &mut Report) {
    let message = format!(
        "`{name}` must be exactly one of `jwt`, `basic`, `api_key`, `hmac`, `introspect`, `ask` \
         and `oidc`"
    );
    let hint = "write two ways, and name both under `any`";
    report.error(BAD_WAY, node.span, message).hint(hint);
}

fn arc(way: Option<impl Way + 'static>) -> Option<Arc<dyn Way>> {
    Some(Arc::new(way?))
}

impl NamedWays {
    /// The way of a name; `None` when there is none, or it has a problem.
    fn find(&self, name: &Spanned<String>, report: &mut Report) -> Option<Arc<dyn Way>> {
        let found = self.0.iter().find(|(known, _)| **known == *name.value);
        if let Some((_, way)) = found {
            return way.clone();
        }
        let shown = name.value.escape_debug();
        let message = format!("there is no way `{shown}` to know a caller");
        let names = self.0.iter().map(|(name, _)| &**name);
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
            let cannot_tell = !way.tells_apart() && !other.tells_apart();
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
        config::check_kind(auth, crate::config::auth_schema, context.report);
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
            return sound(door, auth, context).map(|door| Arc::new(door) as _);
        }
        auth.as_mapping()?;
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
        is_whole.then(|| Arc::new(door) as _)
    }

    fn sources(&self) -> Vec<SourcePlan> {
        let ways = self.0.iter().filter_map(|(_, way)| way.as_ref());
        ways.filter_map(|way| way.source()).collect()
    }

    fn upstreams(&self) -> Vec<Arc<UpstreamPlan>> {
        let ways = self.0.iter().filter_map(|(_, way)| way.as_ref());
        let both = ways.flat_map(|way| way.upstream().into_iter().chain(way.more_upstreams()));
        both.cloned().collect()
    }
}
