//! Paths that could be a locked one. Beside a route that is locked, by a door or because its
//! handler asks for credentials as topics do, an open one must not take what a
//! back end may read as the locked path: Express, for one, forgives upper case and a slash at the
//! end, and most decode what is escaped.

use std::rc::Rc;

use component::trigger::{Methods, PathPattern, Segment};
use component::variables::decoded;
use message::Method;

use super::{Captures, Node, Route, ambiguous_path};

/// The routes of a listener of which some are locked, by their paths as [`folded`] gives them.
pub(super) struct Locks {
    root: Node,
}

/// A route and what it takes.
pub(super) type Routed<'a> = (&'a PathPattern, &'a Methods, Rc<Route>);

impl Locks {
    /// `None` when no route is locked.
    pub fn new(routes: Vec<Routed<'_>>) -> Option<Box<Self>> {
        if routes.iter().all(|(_, _, route)| !route.is_locked) {
            return None;
        }
        let literal = |segment: &Segment| match segment {
            Segment::Literal(text) => Some(folded(text)),
            Segment::Parameter(_) => None,
        };
        let mut routes: Vec<_> = routes
            .into_iter()
            .map(|(path, methods, route)| {
                let segments: Vec<_> = path.segments.iter().map(literal).collect();
                (segments, !route.is_locked, path.rest, methods, route)
            })
            .collect();
        // Literals are put into a node in order, and of one path those that are locked come first.
        routes.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        let mut root = Node::default();
        for (segments, _, rest, methods, route) in routes {
            let mut node = &mut root;
            for segment in segments {
                node = match segment {
                    Some(text) => node.literal(text.as_bytes()),
                    None => node.parameter.get_or_insert_default(),
                };
            }
            let leaf = match rest {
                true => &mut node.rest,
                false => &mut node.here,
            };
            leaf.push((methods.clone(), route));
        }
        Some(Box::new(Self { root }))
    }

    /// Whether a request that this route takes must not be served: its path can be read in more
    /// than one way, or the route is open and the path could be one that a locked route takes. An
    /// open route whose whole path stands in the file is meant.
    pub fn refuse(&self, route: &Route, method: &Method, path: &[u8]) -> bool {
        if ambiguous_path::ambiguity(path).is_some() {
            return true;
        }
        if route.is_locked || route.parameters.is_empty() {
            return false;
        }
        let path = folded(&String::from_utf8_lossy(path));
        let other = match path.strip_suffix('/') {
            Some(without) => without.to_owned(),
            None => format!("{path}/"),
        };
        self.is_locked(method, &path, false)
            || (!other.is_empty() && self.is_locked(method, &other, true))
    }

    /// Whether the most specific route for a folded path is locked. When the path is a `variant`
    /// of the one that was asked for, with or without the slash at the end, a `*` that takes both
    /// does not count: what stands open below it is more specific.
    fn is_locked(&self, method: &Method, path: &str, variant: bool) -> bool {
        let (mut captures, mut others) = (Captures::new(), Vec::new());
        let bytes = path.as_bytes();
        let found = self.root.find(method, bytes, 0, &mut captures, &mut others);
        found.is_some_and(|route| {
            let is_rest = route.parameters.last().is_some_and(|it| **it == *"rest");
            let takes_both = is_rest && captures.last().is_some_and(|(from, to)| from < to);
            route.is_locked_now() && !(variant && takes_both)
        })
    }
}

/// A path as the most forgiving back end reads it: nothing escaped, and in lower case. No escaped
/// delimiter is among what is compared: [`ambiguous_path`] refuses those.
fn folded(path: &str) -> String {
    decoded(path).to_lowercase()
}
