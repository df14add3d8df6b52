//! Paths that could be a locked one. Beside a route with a door an open one must not take what a
//! back end may read as the locked path: Express, for one, forgives upper case and a slash at the
//! end.

use std::rc::Rc;

use component::trigger::{Methods, PathPattern, Segment};
use message::Method;

use super::{Captures, Node, Route, ambiguous_path};

/// The routes of a listener that have doors, by their paths in lower case.
pub(super) struct Locks {
    root: Node,
}

/// A route with a door.
pub(super) type Locked<'a> = (&'a PathPattern, &'a Methods, Rc<Route>);

impl Locks {
    /// `None` when no route has a door.
    pub fn new(locked: Vec<Locked<'_>>) -> Option<Box<Self>> {
        let lower = |segment: &Segment| match segment {
            Segment::Literal(text) => Some(text.to_ascii_lowercase()),
            Segment::Parameter(_) => None,
        };
        let mut locked: Vec<_> = locked
            .into_iter()
            .map(|(path, methods, route)| {
                let segments: Vec<_> = path.segments.iter().map(lower).collect();
                (segments, path.rest, methods, route)
            })
            .collect();
        // Literals are put into a node in order.
        locked.sort_by(|one, other| one.0.cmp(&other.0));
        let mut root = Node::default();
        for (segments, rest, methods, route) in &locked {
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
            leaf.push(((*methods).clone(), Rc::clone(route)));
        }
        (!locked.is_empty()).then(|| Box::new(Self { root }))
    }

    /// Whether a request that this route takes must not be served: its path can be read in more
    /// than one way, or the route is open and the path could be a locked one. An open route whose
    /// whole path stands in the file is meant.
    pub fn refuse(&self, route: &Route, method: &Method, path: &[u8]) -> bool {
        if ambiguous_path::ambiguity(path).is_some() {
            return true;
        }
        if route.door.is_some() || route.parameters.is_empty() {
            return false;
        }
        let mut path = path.to_ascii_lowercase();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        let without = path.get(..path.len() - 1).unwrap_or_default();
        let is_locked = |path: &[u8]| {
            let (mut captures, mut others) = (Captures::new(), Vec::new());
            let found = self.root.find(method, path, 0, &mut captures, &mut others);
            found.is_some()
        };
        is_locked(&path) || (!without.is_empty() && is_locked(without))
    }
}
