//! A connection that `use:` names: another system, declared once and used by many steps.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use config::Span;
use message::Fault;

use crate::document::Declaration;
use crate::handler::{LocalFuture, Services};
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
    /// Who asks, when that is not known before a request is made.
    pub credentials: Option<Arc<dyn Credentials>>,
}

/// Who asks, as a system learns it from somebody else, such as by a token that expires. The text of
/// `Debug` shows no secret.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// The system that hands them out.
    fn upstream(&self) -> &Arc<UpstreamPlan>;

    /// The value of `Authorization`; another one than that which the system has `refused`, if it is
    /// not too early to ask for another: otherwise the same.
    ///
    /// # Errors
    /// When there is none to be had.
    fn authorization<'a>(
        &'a self,
        refused: Option<&'a str>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<String, Fault>>;
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
}

/// The connections that a flow may use, its own before those of the engine, and what documents
/// beside flows declare.
#[derive(Clone, Default)]
pub struct Connections(pub Vec<Connection>, pub Arc<[Declaration]>);

impl Connections {
    /// What a document of this kind declares under this name.
    pub fn declared(&self, kind: &str, name: &str) -> Option<&Declaration> {
        let mut all = self.1.iter();
        all.find(|it| it.kind == kind && *it.name == *name)
    }

    /// The names of all documents of a kind, for hints.
    pub fn declared_names(&self, kind: &str) -> impl Iterator<Item = &str> {
        let of_kind = self.1.iter().filter(move |it| it.kind == kind);
        of_kind.map(|it| &*it.name)
    }

    /// The connection of this name.
    pub fn get(&self, name: &str) -> Option<&Connection> {
        self.0.iter().find(|connection| connection.name == name)
    }

    /// All names, for hints.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|connection| connection.name.as_str())
    }
}

impl Connection {
    /// The connection as one to an HTTP system, when it is one.
    pub fn as_http(&self) -> Option<&HttpConnection> {
        self.value.downcast_ref()
    }
}
