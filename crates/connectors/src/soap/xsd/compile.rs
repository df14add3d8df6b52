//! Declarations to a model: what some elements lead to, and nothing else, so that what is not
//! supported elsewhere in a schema is nobody's problem.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

use expr::xml::Element;

use crate::soap::names::{ENCODING11, ENCODING12, QName, XS};
use crate::soap::problem::{Place, Problem};
use crate::soap::xsd::builtin::Builtin;
use crate::soap::xsd::components::{Component, Kind, Schemas};
use crate::soap::xsd::facets::Facets;
use crate::soap::xsd::model::{Complex, ElementUse, Model, Simple, Type, TypeId};

/// The most types of one model.
const TYPES_MAX: usize = 50_000;
/// The most declarations within each other, references followed.
pub(super) const DEPTH_MAX: usize = 100;

/// Makes a model.
pub struct Compiler<'a> {
    pub(super) schemas: &'a Schemas,
    types: Vec<Option<Type>>,
    named: HashMap<QName, TypeId>,
    elements: HashMap<QName, ElementUse>,
    /// Types that have a number and have not been looked into.
    open: VecDeque<(TypeId, Option<QName>, Component<'a>)>,
    pub(super) depth: usize,
}

impl<'a> Compiler<'a> {
    /// One that knows these schemas.
    pub fn new(schemas: &'a Schemas) -> Self {
        Self {
            schemas,
            types: Vec::new(),
            named: HashMap::new(),
            elements: HashMap::new(),
            open: VecDeque::new(),
            depth: 0,
        }
    }

    /// Looks into all types that have been asked for.
    ///
    /// # Errors
    /// For what is not supported or not declared.
    pub fn finish(mut self) -> Result<Model, Problem> {
        while let Some((id, name, component)) = self.open.pop_front() {
            let ty = self.look_into(name, component)?;
            if let Some(place) = self.types.get_mut(id) {
                *place = Some(ty);
            }
        }
        let types = self.types.into_iter();
        Ok(Model {
            types: types.map(|ty| ty.unwrap_or(Type::Anything)).collect(),
        })
    }

    fn look_into(
        &mut self,
        name: Option<QName>,
        component: Component<'a>,
    ) -> Result<Type, Problem> {
        if component.node.name == "simpleType" {
            return self.simple(component).map(Type::Simple);
        }
        let mut complex = self.complex(component)?;
        if let Some(name) = &name {
            for derived in self.schemas.derived(name) {
                let place = component.document.place(component.node);
                let id = self.named_type(&derived, &place)?;
                complex.derived.push((derived, id));
            }
        }
        complex.name = name;
        Ok(Type::Complex(complex))
    }

    /// A type of our own making.
    pub fn add(&mut self, ty: Type) -> TypeId {
        self.types.push(Some(ty));
        self.types.len() - 1
    }

    /// A number for a type that is looked into later.
    pub(super) fn reserve(
        &mut self,
        name: Option<QName>,
        component: Component<'a>,
    ) -> Result<TypeId, Problem> {
        let id = self.types.len();
        if id >= TYPES_MAX {
            let place = component.document.place(component.node);
            return Err(Problem::new(
                &place,
                "the operation leads to too many types",
            ));
        }
        self.types.push(None);
        self.open.push_back((id, name, component));
        Ok(id)
    }

    /// The type of a name that is used at a place.
    ///
    /// # Errors
    /// When there is none.
    pub fn named_type(&mut self, name: &QName, place: &Place) -> Result<TypeId, Problem> {
        if let Some(id) = self.named.get(name) {
            return Ok(*id);
        }
        let id = match name.namespace.as_deref() {
            Some(XS) => self.builtin(name, place)?,
            Some(ENCODING11 | ENCODING12) => return Err(encoded(place)),
            _ => {
                let component = self.schemas.get(Kind::Type, name, place)?;
                self.reserve(Some(name.clone()), component)?
            }
        };
        self.named.insert(name.clone(), id);
        Ok(id)
    }

    fn builtin(&mut self, name: &QName, place: &Place) -> Result<TypeId, Problem> {
        if &*name.local == "anyType" {
            return Ok(self.add(Type::Anything));
        }
        let list = match &*name.local {
            "IDREFS" | "ENTITIES" => Builtin::of_name("NCName"),
            "NMTOKENS" => Builtin::of_name("NMTOKEN"),
            _ => None,
        };
        if let Some(item) = list {
            let item = self.add(Type::Simple(Simple::Builtin(item)));
            return Ok(self.add(Type::Simple(Simple::List(item))));
        }
        match Builtin::of_name(&name.local) {
            Some(builtin) => Ok(self.add(Type::Simple(Simple::Builtin(builtin)))),
            None => {
                let message = format!("XML Schema has no type `{}`", name.local);
                Err(Problem::new(place, message))
            }
        }
    }

    /// The element of a name that is used at a place.
    ///
    /// # Errors
    /// When there is none, or its type is none.
    pub fn element(&mut self, name: &QName, place: &Place) -> Result<ElementUse, Problem> {
        if let Some(known) = self.elements.get(name) {
            return Ok(known.clone());
        }
        let component = self.schemas.get(Kind::Element, name, place)?;
        let element = self.declared(name.clone(), component)?;
        self.elements.insert(name.clone(), element.clone());
        Ok(element)
    }

    /// An element by its declaration.
    pub(super) fn declared(
        &mut self,
        name: QName,
        component: Component<'a>,
    ) -> Result<ElementUse, Problem> {
        let Component { document, node } = component;
        check_name(&name, &document.place(node))?;
        let ty = match node.attribute("type") {
            Some(ty) => self.named_type(&document.name(ty, node)?, &document.place(node))?,
            None => self.inline_type(component)?,
        };
        let flag = |name: &str| is_true(node.attribute(name));
        Ok(ElementUse {
            name,
            ty,
            is_nillable: flag("nillable"),
            default: node.attribute("default").map(Arc::from),
            fixed: node.attribute("fixed").map(Arc::from),
            is_abstract: flag("abstract"),
        })
    }

    /// The type that stands within an element or attribute. Without one it is that of the head of
    /// its substitution group, or any.
    fn inline_type(&mut self, component: Component<'a>) -> Result<TypeId, Problem> {
        let Component { document, node } = component;
        let is_type = |it: &&Element| matches!(it.name.as_str(), "simpleType" | "complexType");
        if let Some(node) = node.children.iter().find(is_type) {
            return self.reserve(None, Component { document, node });
        }
        if let Some(head) = node.attribute("substitutionGroup")
            && self.depth < DEPTH_MAX
        {
            let head = document.name(head, node)?;
            self.depth += 1;
            let head = self.element(&head, &document.place(node));
            self.depth -= 1;
            return head.map(|head| head.ty);
        }
        let any = if node.name == "attribute" {
            "anySimpleType"
        } else {
            "anyType"
        };
        self.named_type(&QName::new(Some(XS), any), &document.place(node))
    }

    /// The type of an attribute's declaration.
    pub(super) fn attribute_type(&mut self, component: Component<'a>) -> Result<TypeId, Problem> {
        let Component { document, node } = component;
        match node.attribute("type") {
            Some(ty) => self.named_type(&document.name(ty, node)?, &document.place(node)),
            None => self.inline_type(component),
        }
    }

    /// A simple type by its declaration.
    fn simple(&mut self, component: Component<'a>) -> Result<Simple, Problem> {
        let Component { document, node } = component;
        let place = document.place(node);
        let is_variety =
            |it: &&Element| matches!(it.name.as_str(), "restriction" | "list" | "union");
        let Some(variety) = node.children.iter().find(is_variety) else {
            return Err(Problem::new(&place, "the simple type says nothing"));
        };
        let within = variety.children.iter().filter(|it| it.name == "simpleType");
        let mut inner = Vec::new();
        for node in within {
            inner.push(self.reserve(None, Component { document, node })?);
        }
        let mut named = |text: Option<&str>| -> Result<Vec<TypeId>, Problem> {
            let texts = text.unwrap_or_default().split_ascii_whitespace();
            let types = texts.map(|text| {
                let name = document.name(text, variety)?;
                self.named_type(&name, &document.place(variety))
            });
            types.collect()
        };
        let nothing = || Problem::new(&place, "the simple type is made of nothing");
        Ok(match variety.name.as_str() {
            "union" => {
                let mut members = named(variety.attribute("memberTypes"))?;
                members.extend(inner);
                Simple::Union(members)
            }
            "list" => {
                let mut items = named(variety.attribute("itemType"))?;
                items.extend(inner);
                Simple::List(items.first().copied().ok_or_else(nothing)?)
            }
            _ => {
                let mut bases = named(variety.attribute("base"))?;
                bases.extend(inner);
                let base = bases.first().copied().ok_or_else(nothing)?;
                Simple::Restricted(base, Facets::read(variety, &document.file)?)
            }
        })
    }

    /// A complex type by its declaration.
    fn complex(&mut self, component: Component<'a>) -> Result<Complex, Problem> {
        let Component { document, node } = component;
        let body = self.body(component)?;
        let content = self.content(body.content, &document.place(node))?;
        Ok(Complex {
            name: None,
            is_abstract: is_true(node.attribute("abstract")),
            attributes: body.attributes,
            any_attributes: body.any_attributes,
            content,
            is_mixed: body.is_mixed,
            derived: Vec::new(),
        })
    }
}

/// Refuses what could not be written.
pub(in crate::soap) fn check_name(name: &QName, place: &Place) -> Result<(), Problem> {
    match expr::xml::is_plain_name(&name.local) {
        true => Ok(()),
        false => {
            let shown = super::map_error::shown(&name.local);
            Err(Problem::new(place, format!("`{shown}` is no name of XML")))
        }
    }
}

/// Whether an attribute says so.
pub(super) fn is_true(text: Option<&str>) -> bool {
    matches!(text, Some("true" | "1"))
}

/// The refusal of what only `rpc/encoded` has.
pub(super) fn encoded(place: &Place) -> Problem {
    Problem::new(place, "types of the SOAP encoding are not supported")
        .hint("they belong to rpc/encoded, which WS-I Basic Profile rules out: use literal")
}
