//! What elements may hold, with every reference resolved.

use std::collections::HashMap;
use std::sync::Arc;

use crate::soap::names::QName;
use crate::soap::xsd::builtin::Builtin;
use crate::soap::xsd::facets::Facets;

/// The number of a type in its model.
pub type TypeId = usize;

/// All types that some elements lead to. They may lead to each other and to themselves.
#[derive(Debug, Default)]
pub struct Model {
    pub(super) types: Vec<Type>,
}

impl Model {
    /// A type.
    pub fn get(&self, id: TypeId) -> &Type {
        self.types.get(id).unwrap_or(&Type::Anything)
    }
}

/// A type.
#[derive(Debug)]
pub enum Type {
    /// `xs:anyType`: whatever stands there.
    Anything,
    /// Text.
    Simple(Simple),
    /// Attributes, and elements or text.
    Complex(Complex),
}

/// What a text is.
#[derive(Debug)]
pub enum Simple {
    /// A type of the standard.
    Builtin(Builtin),
    /// One with fewer texts.
    Restricted(TypeId, Facets),
    /// Texts with white space between.
    List(TypeId),
    /// The first of these that fits.
    Union(Vec<TypeId>),
}

/// What an element may hold.
#[derive(Debug, Default)]
pub struct Complex {
    /// Its name, when it has one.
    pub name: Option<QName>,
    /// Whether only types made of it may stand.
    pub is_abstract: bool,
    /// Its attributes.
    pub attributes: Vec<AttributeUse>,
    /// Whether it may have others.
    pub any_attributes: bool,
    /// What stands within.
    pub content: Content,
    /// Whether text may stand between the elements.
    pub is_mixed: bool,
    /// The types that `xsi:type` may name instead, itself left out.
    pub derived: Vec<(QName, TypeId)>,
}

/// What stands within an element.
#[derive(Debug, Default)]
pub enum Content {
    /// Nothing.
    #[default]
    Empty,
    /// Text.
    Text(TypeId),
    /// Elements.
    Elements(Group),
}

/// The elements within an element.
#[derive(Debug)]
pub struct Group {
    /// How they stand.
    pub particle: Particle,
    /// All that have a name, and whether they are lists.
    pub fields: HashMap<Arc<str>, bool>,
    /// Whether others may stand there.
    pub has_any: bool,
}

/// Something that stands in an element so and so often.
#[derive(Debug)]
pub struct Particle {
    /// At least.
    pub min: u32,
    /// At most; no limit without one.
    pub max: Option<u32>,
    /// What.
    pub term: Term,
}

/// What stands in an element.
#[derive(Debug)]
pub enum Term {
    /// An element.
    Element(ElementUse),
    /// One after the other.
    Sequence(Vec<Particle>),
    /// One of these.
    Choice(Vec<Particle>),
    /// All, in any order.
    All(Vec<Particle>),
    /// Any element of these namespaces.
    Any(Namespaces),
}

/// An element where it stands.
#[derive(Clone, Debug)]
pub struct ElementUse {
    /// Its name.
    pub name: QName,
    /// What it holds.
    pub ty: TypeId,
    /// Whether it may be `xsi:nil`.
    pub is_nillable: bool,
    /// What it holds when it is empty.
    pub default: Option<Arc<str>>,
    /// The only text that it may hold.
    pub fixed: Option<Arc<str>>,
    /// Whether only elements of its substitution group may stand.
    pub is_abstract: bool,
}

/// An attribute where it stands.
#[derive(Clone, Debug)]
pub struct AttributeUse {
    /// Its name.
    pub name: QName,
    /// Its member's name: `@` and the name.
    pub member: Arc<str>,
    /// What it holds, a simple type.
    pub ty: TypeId,
    /// Whether it must stand there.
    pub is_required: bool,
    /// What it holds when it is absent.
    pub default: Option<Arc<str>>,
    /// The only text that it may hold.
    pub fixed: Option<Arc<str>>,
}

impl Complex {
    /// Whether an object may have this member.
    pub fn knows(&self, group: Option<&Group>, key: &str) -> bool {
        if let Some(name) = key.strip_prefix('@') {
            let is_own = self.attributes.iter().any(|it| *it.member == *key);
            return is_own || name == "xsi:type" || self.any_attributes;
        }
        let holds_text = self.is_mixed || matches!(self.content, Content::Text(_));
        if key == "#content" {
            return holds_text;
        }
        group.is_some_and(|group| group.has_any || group.fields.contains_key(key))
    }

    /// The names of all members that it declares.
    pub fn members<'a>(&'a self, group: Option<&'a Group>) -> impl Iterator<Item = &'a str> {
        let attributes = self.attributes.iter().map(|it| &*it.member);
        let elements = group.into_iter().flat_map(|it| it.fields.keys());
        attributes.chain(elements.map(|it| &**it))
    }
}

impl Particle {
    /// Whether nothing may stand where it does.
    pub fn may_be_nothing(&self) -> bool {
        self.min == 0
            || match &self.term {
                Term::Element(_) | Term::Any(_) => false,
                Term::Sequence(parts) | Term::All(parts) => parts.iter().all(Self::may_be_nothing),
                Term::Choice(parts) => parts.iter().any(Self::may_be_nothing),
            }
    }

    /// The names of the elements that it may begin with.
    pub fn first_names(&self) -> Vec<&str> {
        match &self.term {
            Term::Element(element) => vec![&element.name.local],
            Term::Any(_) => Vec::new(),
            Term::Choice(parts) | Term::All(parts) => {
                parts.iter().flat_map(Self::first_names).collect()
            }
            Term::Sequence(parts) => {
                let count = parts.iter().take_while(|it| it.may_be_nothing()).count();
                let first = parts.iter().take(count + 1);
                first.flat_map(Self::first_names).collect()
            }
        }
    }

    /// The element of this name.
    pub fn find(&self, name: &str) -> Option<&ElementUse> {
        match &self.term {
            Term::Element(usage) => (*usage.name.local == *name).then_some(usage),
            Term::Any(_) => None,
            Term::Sequence(parts) | Term::Choice(parts) | Term::All(parts) => {
                parts.iter().find_map(|part| part.find(name))
            }
        }
    }

    /// Whether null is something to be said for the element of this name.
    pub fn keeps_null(&self, name: &str) -> bool {
        match &self.term {
            Term::Element(element) => {
                *element.name.local == *name && (element.is_nillable || self.min > 0)
            }
            Term::Any(_) => false,
            Term::Sequence(parts) | Term::All(parts) => {
                parts.iter().any(|part| part.keeps_null(name))
            }
            Term::Choice(parts) => parts.iter().any(|part| match &part.term {
                Term::Element(element) => element.is_nillable && *element.name.local == *name,
                _ => part.keeps_null(name),
            }),
        }
    }
}

/// The namespaces of `xs:any` (XML Schema Part 1, section 3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// All, and none.
    Any,
    /// All but this one, and not none.
    Other(Option<Arc<str>>),
    /// These.
    These(Vec<Option<Arc<str>>>),
}

impl Namespaces {
    /// Whether it is one of them.
    pub fn has(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Other(own) => namespace.is_some() && own.as_deref() != namespace,
            Self::These(all) => all.iter().any(|it| it.as_deref() == namespace),
        }
    }
}
