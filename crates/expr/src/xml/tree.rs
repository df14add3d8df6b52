//! A document as a tree of elements.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::convert::error::Reason;
use crate::convert::xml_notes::{self, read};
use crate::convert::xml_text::check_characters;
use crate::stop::StopCheck;

/// The most namespaces that may be declared for one element: each name looks through them.
const DECLARED_MAX: usize = 256;
/// How many attributes are compared with each other one by one.
const FEW: usize = 16;
/// The deepest nesting that the tree's own recursion is made for.
const DEPTH_LIMIT: usize = 256;

/// Why a document is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XmlError {
    /// The line of the place, from 1.
    pub line: usize,
    /// The reason.
    pub detail: &'static str,
}

impl fmt::Display for XmlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (line {})", self.detail, self.line)
    }
}

impl std::error::Error for XmlError {}

/// An attribute; declarations of namespaces are none.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Its namespace; an attribute without a prefix has none.
    pub namespace: Option<Arc<str>>,
    /// Its name without a prefix.
    pub name: String,
    /// Its value, references resolved.
    pub value: String,
}

/// An element.
#[derive(Clone, Debug)]
pub struct Element {
    /// Its namespace.
    pub namespace: Option<Arc<str>>,
    /// Its name without a prefix.
    pub name: String,
    /// Its attributes, in order.
    pub attributes: Vec<Attribute>,
    /// The elements within, in order.
    pub children: Vec<Element>,
    /// All text directly within, without white space between elements.
    pub text: String,
    /// The line of its start tag, from 1.
    pub line: usize,
    scope: Option<Arc<Scope>>,
}

/// The namespaces that one element declares, and those around it.
#[derive(Debug)]
struct Scope {
    declared: Vec<(String, Option<Arc<str>>)>,
    count: usize,
    outer: Option<Arc<Scope>>,
}

impl Scope {
    fn find(&self, prefix: &str) -> Option<&Arc<str>> {
        let mut scope = self;
        loop {
            let mut declared = scope.declared.iter();
            if let Some((_, uri)) = declared.find(|(known, _)| known == prefix) {
                return uri.as_ref();
            }
            scope = scope.outer.as_deref()?;
        }
    }
}

impl Element {
    /// Whether it has this name in this namespace.
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        self.name == name && self.namespace.as_deref() == Some(namespace)
    }

    /// The value of an attribute without a namespace.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|it| it.namespace.is_none() && it.name == name)?;
        Some(&found.value)
    }

    /// The value of an attribute of a namespace.
    pub fn attribute_in(&self, namespace: &str, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let is_it = |it: &&Attribute| it.namespace.as_deref() == Some(namespace) && it.name == name;
        Some(&attributes.find(is_it)?.value)
    }

    /// The elements within that have this name in this namespace.
    pub fn all<'a>(&'a self, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children
            .iter()
            .filter(move |it| it.is(namespace, name))
    }

    /// What a qualified name in a text means here: its namespace, the default one without a
    /// prefix, and its local part. `None` when the prefix is not declared.
    pub fn resolve<'t>(&self, name: &'t str) -> Option<(Option<Arc<str>>, &'t str)> {
        let name = name.trim();
        let Some((prefix, local)) = name.split_once(':') else {
            return Some((self.uri(""), name));
        };
        Some((Some(self.uri(prefix)?), local))
    }

    fn uri(&self, prefix: &str) -> Option<Arc<str>> {
        uri(self.scope.as_ref(), prefix)
    }
}

fn uri(scope: Option<&Arc<Scope>>, prefix: &str) -> Option<Arc<str>> {
    if prefix == "xml" {
        return Some(super::XML_NAMESPACE.into());
    }
    scope.and_then(|scope| scope.find(prefix)).cloned()
}

/// Reads a document of at most `depth_max` levels; more than 256 are never read.
///
/// # Errors
/// When it is not well-formed UTF-8, has a document type declaration, uses a prefix that is not
/// declared, or is nested deeper.
pub fn parse(xml: &[u8], depth_max: usize) -> Result<Element, XmlError> {
    let root = || {
        let text = check_characters(xml)?;
        // Offsets are those of the text behind a byte order mark.
        let notes = read(text, depth_max.min(DEPTH_LIMIT))?;
        let lines = lines(text, &notes);
        let stop = StopCheck::new(0);
        let mut builder = Builder { notes, lines, stop };
        builder.build(0, None)
    };
    root().map_err(|Reason { offset, detail, .. }| {
        let before = xml.get(..offset.min(xml.len())).unwrap_or_default();
        let line = 1 + before.iter().filter(|it| **it == b'\n').count();
        XmlError { line, detail }
    })
}

/// The lines of all elements, which stand in the order of the document.
fn lines(text: &str, notes: &[xml_notes::Element<'_>]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let lines = notes.iter().map(|note| {
        let between = text.as_bytes().get(from..note.offset).unwrap_or_default();
        line += between.iter().filter(|it| **it == b'\n').count();
        from = note.offset;
        line
    });
    lines.collect()
}

struct Builder<'a> {
    notes: Vec<xml_notes::Element<'a>>,
    lines: Vec<usize>,
    stop: StopCheck,
}

impl Builder<'_> {
    fn build(&mut self, number: usize, outer: Option<&Arc<Scope>>) -> Result<Element, Reason> {
        let Some(note) = self.notes.get_mut(number) else {
            return Err(Reason::syntax(0, "there is no element"));
        };
        if self.stop.is_stopped(note.offset) {
            return Err(Reason::stopped(note.offset));
        }
        let scope = declare(note, outer)?;
        let undeclared = || Reason::syntax(note.offset, "a prefix that is not declared");
        let (namespace, name) = match note.name.split_once(':') {
            Some((prefix, local)) => {
                let namespace = uri(scope.as_ref(), prefix).ok_or_else(undeclared)?;
                (Some(namespace), local)
            }
            None => (uri(scope.as_ref(), ""), note.name),
        };
        let attributes = attributes(note, scope.as_ref())?;
        let (text, name) = (std::mem::take(&mut note.text), name.to_owned());
        let mut next = note.first_child;
        let mut children = Vec::new();
        while let Some(child) = next {
            children.push(self.build(child, scope.as_ref())?);
            next = self.notes.get(child).and_then(|it| it.next_sibling);
        }
        Ok(Element {
            namespace,
            name,
            attributes,
            children,
            text,
            line: self.lines.get(number).copied().unwrap_or(1),
            scope,
        })
    }
}

/// The namespaces within an element.
fn declare(
    note: &xml_notes::Element<'_>,
    outer: Option<&Arc<Scope>>,
) -> Result<Option<Arc<Scope>>, Reason> {
    let mut declared = Vec::new();
    for (name, value) in &note.attributes {
        let prefix = match name.strip_prefix("xmlns") {
            Some("") => "",
            Some(rest) => match rest.strip_prefix(':') {
                Some(prefix) => prefix,
                None => continue,
            },
            None => continue,
        };
        let is_xml = value == super::XML_NAMESPACE;
        if prefix == "xml" && is_xml {
            continue;
        }
        let is_odd =
            matches!(prefix, "xml" | "xmlns") || is_xml || (value.is_empty() && !prefix.is_empty());
        if is_odd {
            let detail = "a namespace that cannot be declared so";
            return Err(Reason::syntax(note.offset, detail));
        }
        let uri = Some(Arc::from(value.as_str())).filter(|_| !value.is_empty());
        declared.push((prefix.to_owned(), uri));
    }
    if declared.is_empty() {
        return Ok(outer.cloned());
    }
    let count = declared.len() + outer.map_or(0, |outer| outer.count);
    if count > DECLARED_MAX {
        return Err(Reason::syntax(note.offset, "too many namespaces"));
    }
    Ok(Some(Arc::new(Scope {
        declared,
        count,
        outer: outer.cloned(),
    })))
}

fn attributes(
    note: &mut xml_notes::Element<'_>,
    scope: Option<&Arc<Scope>>,
) -> Result<Vec<Attribute>, Reason> {
    let mut attributes = Vec::new();
    for (name, value) in std::mem::take(&mut note.attributes) {
        if name == "xmlns" || name.starts_with("xmlns:") {
            continue;
        }
        let (namespace, name) = match name.split_once(':') {
            Some((prefix, local)) => {
                let detail = "a prefix that is not declared";
                let found = uri(scope, prefix).ok_or(Reason::syntax(note.offset, detail))?;
                (Some(found), local)
            }
            None => (None, name.as_str()),
        };
        attributes.push(Attribute {
            namespace,
            name: name.to_owned(),
            value,
        });
    }
    match have_twins(&attributes) {
        false => Ok(attributes),
        true => Err(Reason::syntax(
            note.offset,
            "an attribute that stands twice",
        )),
    }
}

/// Whether two attributes have the same name in the same namespace.
fn have_twins(attributes: &[Attribute]) -> bool {
    let key = |it: &Attribute| (it.namespace.clone(), it.name.clone());
    if attributes.len() > FEW {
        let mut seen = HashSet::new();
        return !attributes.iter().all(|it| seen.insert(key(it)));
    }
    let mut rest = attributes;
    while let Some((first, others)) = rest.split_first() {
        let is_twin = |it: &Attribute| it.name == first.name && it.namespace == first.namespace;
        if others.iter().any(is_twin) {
            return true;
        }
        rest = others;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_and_lines_are_kept() {
        let xml = b"<a xmlns='u:a' xmlns:p='u:p'\n>\n<p:b p:x='1' x='2'/>\n\
                    <c xmlns=''>p:t</c></a>";
        let root = parse(xml, 10).unwrap();
        assert!(root.is("u:a", "a"));
        let [b, c] = root.children.as_slice() else {
            panic!("{root:?}");
        };
        assert!(b.is("u:p", "b") && b.line == 3);
        assert_eq!(
            (b.attribute("x"), b.attribute_in("u:p", "x")),
            (Some("2"), Some("1"))
        );
        assert_eq!((c.namespace.as_deref(), c.line), (None, 4));
        assert_eq!(c.resolve(&c.text), Some((Some("u:p".into()), "t")));
        assert_eq!(
            (c.resolve("t"), c.resolve("q:t")),
            (Some((None, "t")), None)
        );
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let many: String = (0..300).map(|it| format!(" xmlns:p{it}='u'")).collect();
        let deep = "<a>".repeat(300) + &"</a>".repeat(300);
        for (xml, detail, line) in [
            ("<a>\n<p:b/></a>", "a prefix that is not declared", 2),
            ("<a p:b=''/>", "a prefix that is not declared", 1),
            (
                "<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''/>",
                "an attribute that stands twice",
                1,
            ),
            (
                "<a xmlns:p=''/>",
                "a namespace that cannot be declared so",
                1,
            ),
            (
                "<!DOCTYPE a>\n<a/>",
                "a document type declaration, which is not allowed",
                1,
            ),
            (&format!("<a{many}/>"), "too many namespaces", 1),
            (&deep, "too many levels within each other", 1),
            ("<a>\n</b>", "the text is not well-formed XML", 2),
        ] {
            let error = parse(xml.as_bytes(), 1000).unwrap_err();
            assert_eq!((error.detail, error.line), (detail, line), "{xml}");
        }
    }
}
