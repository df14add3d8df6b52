//! A connection that `use:` names: another system, declared once and used by many steps.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use config::Span;

use crate::credentials::Credentials;
use crate::document::Declaration;
use crate::forward::QueryParameter;
use crate::key_value::KeyValueStore;
use crate::upstream::UpstreamPlan;

/// A connection to an HTTP system: an upstream and the beginning of its URLs.
#[derive(Clone, Debug)]
pub struct HttpConnection {
    /// The system.
    pub upstream: Arc<UpstreamPlan>,
    /// What every path begins with, without a slash at its end; may be empty.
    pub base: String,
    /// Header lines that every request gets, such as `Authorization`.
    pub fields: Vec<(String, String)>,
    /// A parameter that every query gets, percent-encoded: an API key.
    pub parameter: Option<QueryParameter>,
    /// What each request is authorized with, when that is made for the request.
    pub credentials: Option<Arc<dyn Credentials>>,
}

/// A connection that `use:` names.
#[derive(Clone)]
pub struct Connection {
    /// Its name.
    pub name: String,
    /// The kind: the key under its name, such as `http`.
    pub kind: &'static str,
    /// Where its name stands.
    pub span: Span,
    /// What its definition has made of it.
    pub value: Arc<dyn Any + Send + Sync>,
    /// The connection as a store of values by key, when it can be one.
    pub key_value: Option<Arc<dyn KeyValueStore>>,
}

/// The connections that a flow may use, and what documents beside flows declare. A copy is cheap:
/// every flow has one, and those of the engine and the declarations are the same for all.
#[derive(Clone, Default)]
pub struct Connections {
    /// Its own, which hide those of the engine.
    pub own: Arc<[Connection]>,
    /// Those of the engine.
    pub shared: Arc<[Connection]>,
    /// What documents beside flows declare.
    pub declarations: Arc<Declarations>,
}

impl Connections {
    /// Connections without anything beside them.
    pub fn of(own: impl Into<Arc<[Connection]>>) -> Self {
        Self {
            own: own.into(),
            ..Self::default()
        }
    }

    /// What a document of this kind declares under this name.
    pub fn declared(&self, kind: &str, name: &str) -> Option<&Declaration> {
        let mut named = self.declarations.named(name);
        named.find(|it| it.kind == kind)
    }

    /// The names of all documents of a kind, for hints.
    pub fn declared_names(&self, kind: &str) -> impl Iterator<Item = &str> {
        let of_kind = self.declarations.iter().filter(move |it| it.kind == kind);
        of_kind.map(|it| &*it.name)
    }

    /// The connection of this name.
    pub fn get(&self, name: &str) -> Option<&Connection> {
        self.iter().find(|connection| connection.name == name)
    }

    /// All of them, its own first.
    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.own.iter().chain(self.shared.iter())
    }

    /// All names, for hints.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|connection| connection.name.as_str())
    }

    /// Whether a connection or a document has this name: a test can have something stand in for it.
    pub fn has_system(&self, name: &str) -> bool {
        self.get(name).is_some() || self.declarations.named(name).next().is_some()
    }

    /// The names of all connections and documents.
    pub fn systems(&self) -> impl Iterator<Item = &str> {
        let declared = self.declarations.iter().map(|it| &*it.name);
        self.names().chain(declared)
    }
}

/// What documents beside flows declare, in the order of the files, found by name.
#[derive(Default)]
pub struct Declarations {
    all: Vec<Declaration>,
    by_name: HashMap<Arc<str>, Vec<usize>>,
}

impl Declarations {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Declaration> {
        self.all.iter()
    }

    /// Those of a name, of whichever kind.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Declaration> {
        let places = self.by_name.get(name).into_iter().flatten();
        places.filter_map(|at| self.all.get(*at))
    }
}

impl FromIterator<Declaration> for Declarations {
    fn from_iter<I: IntoIterator<Item = Declaration>>(declarations: I) -> Self {
        let mut made = Self::default();
        for declaration in declarations {
            let places = made.by_name.entry(Arc::clone(&declaration.name));
            places.or_default().push(made.all.len());
            made.all.push(declaration);
        }
        made
    }
}

impl Connection {
    /// The connection as one to an HTTP system, when it is one.
    pub fn as_http(&self) -> Option<&HttpConnection> {
        self.value.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Report, Sources};

    #[test]
    fn documents_are_found_by_kind_and_name_and_told_in_order() {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", b"x", &mut Report::default());
        let span = Span {
            source: source.unwrap(),
            start: 0,
            end: 1,
        };
        let declaration = |kind: &'static str, name: &str, value: u32| Declaration {
            kind,
            name: name.into(),
            span,
            value: Arc::new(value),
        };
        let declarations = [
            declaration("topic", "b", 1),
            declaration("menu", "a", 2),
            declaration("topic", "a", 3),
            // A second one of a name is refused elsewhere; the first one counts.
            declaration("topic", "a", 4),
        ];
        let connections = Connections {
            declarations: Arc::new(declarations.into_iter().collect()),
            ..Connections::default()
        };
        let value = |kind: &str, name: &str| {
            let found = connections.declared(kind, name)?;
            found.value.downcast_ref::<u32>().copied()
        };
        assert_eq!(value("topic", "a"), Some(3));
        assert_eq!(value("menu", "a"), Some(2));
        assert_eq!(value("menu", "b"), None);
        let names: Vec<&str> = connections.declared_names("topic").collect();
        assert_eq!(names, ["b", "a", "a"]);
        assert!(connections.has_system("b") && !connections.has_system("c"));
    }
}
