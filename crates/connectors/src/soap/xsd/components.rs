//! All schemas of a service, and the components that they declare, not yet looked into.

use std::collections::HashMap;
use std::sync::Arc;

use expr::xml::Element;

use crate::soap::names::{QName, XS};
use crate::soap::problem::{Place, Problem};

/// What a component is: each kind has its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `xs:element`.
    Element,
    /// `xs:simpleType` and `xs:complexType`.
    Type,
    /// `xs:attribute`.
    Attribute,
    /// `xs:group`.
    Group,
    /// `xs:attributeGroup`.
    AttributeGroup,
}

impl Kind {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "element" => Self::Element,
            "simpleType" | "complexType" => Self::Type,
            "attribute" => Self::Attribute,
            "group" => Self::Group,
            "attributeGroup" => Self::AttributeGroup,
            _ => return None,
        })
    }

    fn words(self) -> &'static str {
        match self {
            Self::Element => "element",
            Self::Type => "type",
            Self::Attribute => "attribute",
            Self::Group => "group",
            Self::AttributeGroup => "attribute group",
        }
    }
}

/// One schema document.
#[derive(Debug)]
pub struct SchemaDocument {
    /// The file that it stands in.
    pub file: Arc<str>,
    /// `xs:schema`.
    pub root: Element,
    /// The namespace of what it declares.
    pub target: Option<Arc<str>>,
    /// Whether it takes the namespace of the one that includes it, so that names without a
    /// namespace are of that one.
    pub is_chameleon: bool,
}

impl SchemaDocument {
    /// Where an element of it stands.
    pub fn place(&self, element: &Element) -> Place {
        Place {
            file: Arc::clone(&self.file),
            line: element.line,
        }
    }

    /// Whether local elements or attributes have the target namespace.
    pub fn qualifies(&self, node: &Element) -> bool {
        let default = match node.name.as_str() {
            "attribute" => "attributeFormDefault",
            _ => "elementFormDefault",
        };
        let form = node.attribute("form").or(self.root.attribute(default));
        form == Some("qualified")
    }

    /// What a text in an element names.
    ///
    /// # Errors
    /// When its prefix is not declared.
    pub fn name(&self, text: &str, element: &Element) -> Result<QName, Problem> {
        let mut name = QName::read(text, element, &self.file)?;
        if self.is_chameleon && name.namespace.is_none() {
            name.namespace.clone_from(&self.target);
        }
        Ok(name)
    }
}

/// A component and the document that it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Component<'a> {
    /// The document.
    pub document: &'a SchemaDocument,
    /// The declaration.
    pub node: &'a Element,
}

/// All schemas of a service.
#[derive(Debug, Default)]
pub struct Schemas {
    documents: Vec<SchemaDocument>,
    /// Document and child of each component.
    index: HashMap<(Kind, QName), (usize, usize)>,
    /// Elements that may stand for another, by that one.
    substitutes: HashMap<QName, Vec<QName>>,
    /// Types made of another, by that one.
    derived: HashMap<QName, Vec<QName>>,
}

impl Schemas {
    /// Indexes documents. Where two declare the same, the first counts.
    ///
    /// # Errors
    /// When a name in one has a prefix that is not declared.
    pub fn new(documents: Vec<SchemaDocument>) -> Result<Self, Problem> {
        let mut schemas = Self::default();
        for (number, document) in documents.iter().enumerate() {
            for (child, node) in document.root.children.iter().enumerate() {
                let kind = Kind::of_name(&node.name);
                let (Some(kind), Some(name)) = (kind, node.attribute("name")) else {
                    continue;
                };
                if node.namespace.as_deref() == Some(XS) {
                    let name = QName::new(document.target.as_deref(), name);
                    schemas.add(kind, name, (number, child), (document, node))?;
                }
            }
        }
        schemas.documents = documents;
        Ok(schemas)
    }

    fn add(
        &mut self,
        kind: Kind,
        name: QName,
        at: (usize, usize),
        (document, node): (&SchemaDocument, &Element),
    ) -> Result<(), Problem> {
        if self.index.contains_key(&(kind, name.clone())) {
            return Ok(());
        }
        self.index.insert((kind, name.clone()), at);
        if let Some(head) = node.attribute("substitutionGroup") {
            for head in head.split_ascii_whitespace() {
                let head = document.name(head, node)?;
                self.substitutes.entry(head).or_default().push(name.clone());
            }
        }
        let derivations = node.children.iter().filter(|_| node.name == "complexType");
        let derivation = derivations
            .flat_map(|it| &it.children)
            .find(|it| matches!(it.name.as_str(), "extension" | "restriction"));
        if let Some(derivation) = derivation
            && let Some(base) = derivation.attribute("base")
        {
            let base = document.name(base, derivation)?;
            self.derived.entry(base).or_default().push(name);
        }
        Ok(())
    }

    /// The component of a name that is used at a place.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, kind: Kind, name: &QName, place: &Place) -> Result<Component<'_>, Problem> {
        let found = self
            .index
            .get(&(kind, name.clone()))
            .and_then(|(at, child)| {
                let document = self.documents.get(*at)?;
                let node = document.root.children.get(*child)?;
                Some(Component { document, node })
            });
        found.ok_or_else(|| {
            if name.is(Some(XS), "schema") {
                // .NET describes a DataSet by the schema that travels with its data.
                return Problem::new(
                    place,
                    "a .NET DataSet (a `ref` to `xs:schema`) is not supported",
                )
                .hint("the operation can be used once the service declares what it returns");
            }
            let message = format!("there is no {} {name}", kind.words());
            let names = self.index.keys().filter(|(it, _)| *it == kind);
            let names: Vec<&str> = names.map(|(_, name)| &*name.local).collect();
            let problem = Problem::new(place, message);
            match config::suggest(
                &name.local,
                names.into_iter().filter(|it| **it != *name.local),
            ) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint("is a schema missing? Import it from a file in the folder"),
            }
        })
    }

    /// The elements that may stand for one, those that may stand for these included.
    pub fn substitutes(&self, head: &QName) -> Vec<QName> {
        closure(&self.substitutes, head)
    }

    /// The types that are made of one, directly or not.
    pub fn derived(&self, base: &QName) -> Vec<QName> {
        closure(&self.derived, base)
    }
}

fn closure(table: &HashMap<QName, Vec<QName>>, first: &QName) -> Vec<QName> {
    let mut found: Vec<QName> = Vec::new();
    let mut open = vec![first.clone()];
    while let Some(name) = open.pop() {
        for other in table.get(&name).into_iter().flatten() {
            if other != first && !found.contains(other) {
                found.push(other.clone());
                open.push(other.clone());
            }
        }
    }
    found
}
