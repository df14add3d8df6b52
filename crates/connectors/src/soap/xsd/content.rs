//! What complex types hold: their own and what they take from the types they are made of.

use std::collections::HashMap;
use std::sync::Arc;

use expr::xml::Element;

use crate::soap::names::{ENCODING11, ENCODING12, QName, XS};
use crate::soap::problem::{Place, Problem};
use crate::soap::xsd::compile::{Compiler, DEPTH_MAX, encoded, is_true};
use crate::soap::xsd::components::{Component, Kind, SchemaDocument};
use crate::soap::xsd::facets::Facets;
use crate::soap::xsd::model::{
    AttributeUse, Content, Group, Namespaces, Particle, Simple, Term, Type, TypeId,
};

/// The most occurrences that are told apart from no limit.
const OCCURS_MAX: u32 = 1_000_000;

/// What a complex type holds, before its fields are known.
#[derive(Default)]
pub(super) struct BodyOf {
    pub content: Made,
    pub attributes: Vec<AttributeUse>,
    pub any_attributes: bool,
    pub is_mixed: bool,
}

/// The content of a complex type in the making.
#[derive(Default)]
pub(in crate::soap) enum Made {
    #[default]
    Empty,
    Text(TypeId),
    Elements(Particle),
}

impl<'a> Compiler<'a> {
    /// What a complex type holds.
    pub(super) fn body(&mut self, component: Component<'a>) -> Result<BodyOf, Problem> {
        let Component { document, node } = component;
        self.enter(&document.place(node))?;
        let mut body = BodyOf {
            is_mixed: is_true(node.attribute("mixed")),
            ..BodyOf::default()
        };
        let is_derivation =
            |it: &&Element| matches!(it.name.as_str(), "simpleContent" | "complexContent");
        match node.children.iter().find(is_derivation) {
            Some(content) => {
                body.is_mixed |= is_true(content.attribute("mixed"));
                self.derivation(
                    Component {
                        document,
                        node: content,
                    },
                    &mut body,
                )?;
            }
            None => {
                if let Some(particle) = self.particle_within(component)? {
                    body.content = Made::Elements(particle);
                }
                self.attributes(component, &mut body)?;
            }
        }
        self.depth -= 1;
        Ok(body)
    }

    pub(super) fn enter(&mut self, place: &Place) -> Result<(), Problem> {
        self.depth += 1;
        match self.depth > DEPTH_MAX {
            true => Err(Problem::new(
                place,
                "types are made of each other without end",
            )),
            false => Ok(()),
        }
    }

    /// The extension or restriction of another type.
    fn derivation(&mut self, content: Component<'a>, body: &mut BodyOf) -> Result<(), Problem> {
        let document = content.document;
        let place = document.place(content.node);
        let is_it = |it: &&Element| matches!(it.name.as_str(), "extension" | "restriction");
        let Some(node) = content.node.children.iter().find(is_it) else {
            return Err(Problem::new(
                &place,
                "an extension or a restriction is missing",
            ));
        };
        let derivation = Component { document, node };
        let base = document.name(node.attribute("base").unwrap_or_default(), node)?;
        let place = document.place(node);
        let restricts = node.name == "restriction";
        let mut outer = self.base(&base, &place)?;
        body.is_mixed |= outer.is_mixed && !restricts;
        body.content = match (content.node.name.as_str(), outer.content) {
            ("simpleContent", Made::Text(id)) if restricts => {
                let facets = Facets::read(node, &document.file)?;
                let inner = node.children.iter().find(|it| it.name == "simpleType");
                let id = match inner {
                    Some(inner) => self.reserve(
                        None,
                        Component {
                            document,
                            node: inner,
                        },
                    )?,
                    None => id,
                };
                Made::Text(self.add(Type::Simple(Simple::Restricted(id, facets))))
            }
            ("simpleContent", Made::Text(id)) => Made::Text(id),
            ("simpleContent", _) => {
                return Err(Problem::new(
                    &place,
                    "the base of simple content has no text",
                ));
            }
            (_, Made::Text(_)) => {
                return Err(Problem::new(
                    &place,
                    "the base of complex content has only text",
                ));
            }
            (_, outer) => match (self.particle_within(derivation)?, outer, restricts) {
                (Some(own), _, true) | (Some(own), Made::Empty, _) => Made::Elements(own),
                (None, _, true) => Made::Empty,
                (None, outer, false) => outer,
                (Some(own), Made::Elements(outer), false) => {
                    Made::Elements(once(Term::Sequence(vec![outer, own])))
                }
                (Some(own), Made::Text(_), false) => Made::Elements(own),
            },
        };
        body.attributes.append(&mut outer.attributes);
        body.any_attributes = outer.any_attributes && !restricts;
        self.attributes(derivation, body)
    }

    /// What the base of a type holds.
    fn base(&mut self, base: &QName, place: &Place) -> Result<BodyOf, Problem> {
        match base.namespace.as_deref() {
            Some(ENCODING11 | ENCODING12) => return Err(encoded(place)),
            Some(XS) if &*base.local == "anyType" => return Ok(BodyOf::default()),
            Some(XS) => {
                return Ok(BodyOf {
                    content: Made::Text(self.named_type(base, place)?),
                    ..BodyOf::default()
                });
            }
            _ => {}
        }
        let component = self.schemas.get(Kind::Type, base, place)?;
        match component.node.name.as_str() {
            "simpleType" => Ok(BodyOf {
                content: Made::Text(self.named_type(base, place)?),
                ..BodyOf::default()
            }),
            // Read anew and not looked up: the base may lead to the type that is made of it.
            _ => self.body(component),
        }
    }

    /// The group of elements that stands within a type, extension or restriction.
    fn particle_within(&mut self, around: Component<'a>) -> Result<Option<Particle>, Problem> {
        let mut nodes = around.node.children.iter();
        let found =
            nodes.find(|it| matches!(it.name.as_str(), "sequence" | "choice" | "all" | "group"));
        let Some(node) = found else {
            return Ok(None);
        };
        let document = around.document;
        self.particle(Component { document, node })
    }

    /// A particle; none when it can never stand there.
    fn particle(&mut self, component: Component<'a>) -> Result<Option<Particle>, Problem> {
        let Component { document, node } = component;
        if node.namespace.as_deref() != Some(XS) || node.name == "annotation" {
            return Ok(None);
        }
        let place = document.place(node);
        let (min, max) = occurs(node, &place)?;
        if max == Some(0) {
            return Ok(None);
        }
        self.enter(&place)?;
        let term = match node.name.as_str() {
            "element" => self.element_term(component)?,
            "sequence" => Term::Sequence(self.particles(component)?),
            "choice" => Term::Choice(self.particles(component)?),
            "all" => Term::All(self.particles(component)?),
            "any" => Term::Any(namespaces(document, node)),
            "group" => {
                let name = node.attribute("ref").unwrap_or_default();
                let name = document.name(name, node)?;
                let group = self.schemas.get(Kind::Group, &name, &place)?;
                let inner = self.particle_within(group)?;
                Term::Sequence(inner.into_iter().collect())
            }
            other => {
                let message = format!("`{other}` is nothing that stands in a group");
                return Err(Problem::new(&place, message));
            }
        };
        self.depth -= 1;
        Ok(Some(Particle { min, max, term }))
    }

    fn particles(&mut self, around: Component<'a>) -> Result<Vec<Particle>, Problem> {
        let document = around.document;
        let mut particles = Vec::new();
        for node in &around.node.children {
            particles.extend(self.particle(Component { document, node })?);
        }
        Ok(particles)
    }

    fn element_term(&mut self, component: Component<'a>) -> Result<Term, Problem> {
        let Component { document, node } = component;
        let place = document.place(node);
        let Some(reference) = node.attribute("ref") else {
            let namespace = document.target.as_deref();
            let namespace = namespace.filter(|_| document.qualifies(node));
            let name = QName::new(namespace, node.attribute("name").unwrap_or_default());
            return self.declared(name, component).map(Term::Element);
        };
        let name = document.name(reference, node)?;
        let head = self.element(&name, &place)?;
        let mut all = vec![head];
        for name in self.schemas.substitutes(&name) {
            all.push(self.element(&name, &place)?);
        }
        all.retain(|it| !it.is_abstract);
        match all.len() {
            0 => {
                let message = format!("the element {name} is abstract and nothing stands for it");
                Err(Problem::new(&place, message))
            }
            1 => Ok(Term::Element(all.remove(0))),
            _ => Ok(Term::Choice(
                all.into_iter().map(|it| once(Term::Element(it))).collect(),
            )),
        }
    }

    /// The content with its fields.
    pub(in crate::soap) fn content(
        &mut self,
        made: Made,
        place: &Place,
    ) -> Result<Content, Problem> {
        let particle = match made {
            Made::Empty => return Ok(Content::Empty),
            Made::Text(id) => return Ok(Content::Text(id)),
            Made::Elements(particle) => particle,
        };
        let mut has_any = false;
        let names = fields(&particle, &mut has_any, place)?;
        check_repeated(&particle, place)?;
        let fields = names.into_iter();
        Ok(Content::Elements(Group {
            particle,
            fields: fields.map(|(name, (_, count))| (name, count > 1)).collect(),
            has_any,
        }))
    }

    fn attributes(&mut self, around: Component<'a>, body: &mut BodyOf) -> Result<(), Problem> {
        let mut found = Vec::new();
        self.read_attributes(around, &mut found, &mut body.any_attributes)?;
        for (attribute, is_prohibited) in found {
            body.attributes.retain(|it| it.name != attribute.name);
            if !is_prohibited {
                body.attributes.push(attribute);
            }
        }
        Ok(())
    }
}

/// A particle that stands once.
pub fn once(term: Term) -> Particle {
    Particle {
        min: 1,
        max: Some(1),
        term,
    }
}

fn occurs(node: &Element, place: &Place) -> Result<(u32, Option<u32>), Problem> {
    let wrong = || Problem::new(place, "`minOccurs` or `maxOccurs` is no number");
    let count = |name: &str| match node.attribute(name) {
        None => Ok(Some(1)),
        Some("unbounded") => Ok(None),
        Some(text) => text.trim().parse::<u32>().map(Some).map_err(|_| wrong()),
    };
    let min = count("minOccurs")?.ok_or_else(wrong)?;
    let max = count("maxOccurs")?.filter(|max| *max < OCCURS_MAX);
    match max {
        Some(max) if max < min => Err(Problem::new(place, "`maxOccurs` is less than `minOccurs`")),
        _ => Ok((min, max)),
    }
}

fn namespaces(document: &SchemaDocument, node: &Element) -> Namespaces {
    match node.attribute("namespace") {
        None | Some("##any") => Namespaces::Any,
        Some("##other") => Namespaces::Other(document.target.clone()),
        Some(list) => {
            let names = list.split_ascii_whitespace();
            Namespaces::These(
                names
                    .map(|name| match name {
                        "##local" => None,
                        "##targetNamespace" => document.target.clone(),
                        name => Some(name.into()),
                    })
                    .collect(),
            )
        }
    }
}

/// How often elements can stand somewhere, by name; more than once is 2.
type Fields = HashMap<Arc<str>, (QName, u32)>;

/// Every element of a particle.
fn fields(particle: &Particle, has_any: &mut bool, place: &Place) -> Result<Fields, Problem> {
    let mut all = Fields::new();
    match &particle.term {
        Term::Any(_) => *has_any = true,
        Term::Element(element) => {
            let name = element.name.clone();
            all.insert(Arc::clone(&name.local), (name, 1));
        }
        Term::Sequence(parts) | Term::All(parts) => {
            for part in parts {
                let own = fields(part, has_any, place)?;
                merge(&mut all, own, |one, other| one + other, place)?;
            }
        }
        Term::Choice(parts) => {
            for part in parts {
                let own = fields(part, has_any, place)?;
                merge(&mut all, own, u32::max, place)?;
            }
        }
    }
    let times = particle.max.map_or(2, |max| max.min(2));
    for (_, count) in all.values_mut() {
        *count = (*count * times).min(2);
    }
    Ok(all)
}

fn merge(
    all: &mut Fields,
    own: Fields,
    count: impl Fn(u32, u32) -> u32,
    place: &Place,
) -> Result<(), Problem> {
    for (local, (name, times)) in own {
        match all.get_mut(&local) {
            None => {
                all.insert(local, (name, times));
            }
            Some(known) if known.0 == name => known.1 = count(known.1, times),
            Some(_) => {
                let message = format!("two elements `{local}` of different namespaces in one type");
                let hint = "JSON has one name for both: this version cannot tell them apart";
                return Err(Problem::new(place, message).hint(hint));
            }
        }
    }
    Ok(())
}

/// Refuses repeated sequences whose rounds cannot be told from lists of members.
fn check_repeated(particle: &Particle, place: &Place) -> Result<(), Problem> {
    let parts = match &particle.term {
        Term::Sequence(parts) | Term::All(parts) => parts,
        Term::Choice(parts) => return parts.iter().try_for_each(|it| check_repeated(it, place)),
        Term::Element(_) | Term::Any(_) => return Ok(()),
    };
    let repeats = particle.max.is_none_or(|max| max > 1);
    let is_plain =
        |it: &Particle| it.min == 1 && it.max == Some(1) && matches!(it.term, Term::Element(_));
    if repeats && parts.len() > 1 && !parts.iter().all(is_plain) {
        let message = "a repeated sequence with parts that are optional or repeated themselves";
        let hint = "its rounds cannot be told apart in JSON: this version does not support it";
        return Err(Problem::new(place, message).hint(hint));
    }
    parts.iter().try_for_each(|it| check_repeated(it, place))
}
