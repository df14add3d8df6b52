//! JSON to elements: members go where the schema has them, whatever their order.

use std::collections::HashMap;

use expr::value::{self, Value};
use expr::xml::free::{self, Declared};
use expr::xml::{NotXml, Writer, XSI_NAMESPACE};

use crate::soap::xsd::map_error::{MapError, shown};
use crate::soap::xsd::model::{
    AttributeUse, Complex, Content, ElementUse, Group, Model, Particle, Term, Type,
};

/// The most levels of a value.
const DEPTH_MAX: usize = 128;

/// Writes elements by a model.
pub struct Encoder<'m> {
    /// What elements may hold.
    pub model: &'m Model,
    /// Where they go.
    pub out: &'m mut Writer,
    /// How deep it is within the value.
    pub depth: usize,
}

/// The members of an object that have not been written.
struct Members<'v> {
    /// The items of each, and how many have been written.
    items: HashMap<&'v str, (&'v [Value], usize)>,
    /// Those without a declaration, in order.
    others: Vec<(&'v str, &'v Value)>,
}

impl<'v> Members<'v> {
    fn left(&self, name: &str) -> &'v [Value] {
        let found = self.items.get(name);
        found.map_or(&[], |(items, at)| items.get(*at..).unwrap_or_default())
    }

    fn written(&self, name: &str) -> usize {
        self.items.get(name).map_or(0, |(_, at)| *at)
    }

    fn take(&mut self, name: &str, count: usize) {
        if let Some((_, at)) = self.items.get_mut(name) {
            *at += count;
        }
    }

    /// Whether something of a particle is among them.
    fn have(&self, particle: &Particle) -> bool {
        match &particle.term {
            Term::Element(element) => !self.left(&element.name.local).is_empty(),
            Term::Any(_) => !self.others.is_empty(),
            Term::Sequence(parts) | Term::Choice(parts) | Term::All(parts) => {
                parts.iter().any(|part| self.have(part))
            }
        }
    }
}

impl<'m> Encoder<'m> {
    /// Writes an element with a value as its content.
    ///
    /// # Errors
    /// When the value does not fit.
    pub fn element(&mut self, element: &ElementUse, content: &Value) -> Result<(), MapError> {
        if self.depth >= DEPTH_MAX {
            return Err(MapError::new("has too many levels"));
        }
        self.depth += 1;
        let result = self.start(element, content);
        self.depth -= 1;
        result
    }

    fn start(&mut self, element: &ElementUse, content: &Value) -> Result<(), MapError> {
        let (namespace, name) = (element.name.namespace.as_deref(), &*element.name.local);
        if matches!(self.model.get(element.ty), Type::Anything) {
            let written = free::write(name, content, &Declared::of(namespace), self.out);
            return written.map_err(|error| MapError::new(error.0));
        }
        self.out.start(namespace, name).map_err(not_xml)?;
        match content {
            Value::Null if element.is_nillable => {
                let nil = self.out.attribute(Some(XSI_NAMESPACE), "nil", "true");
                nil.map_err(not_xml)?;
            }
            _ => self.content(element, content)?,
        }
        self.out.end(namespace, name);
        Ok(())
    }

    /// Writes what stands within an element.
    ///
    /// # Errors
    /// When the value does not fit.
    pub fn content(&mut self, element: &ElementUse, content: &Value) -> Result<(), MapError> {
        let model: &'m Model = self.model;
        let mut complex = match model.get(element.ty) {
            Type::Anything => return Ok(()),
            Type::Simple(_) => {
                if matches!(content, Value::Null) {
                    return Err(MapError::new("may not be null"));
                }
                let text = self.model.text_of(element.ty, content, self.out)?;
                check_fixed(element.fixed.as_deref(), &text)?;
                return self.out.text(&text).map_err(not_xml);
            }
            Type::Complex(complex) => complex,
        };
        if let Some(name) = value::get(content, "@xsi:type") {
            complex = self.substitute(complex, name)?;
        } else if complex.is_abstract {
            let names = names(complex.derived.iter().map(|(name, _)| &*name.local));
            let what = format!("is of an abstract type: say `@xsi:type`, one of {names}");
            return Err(MapError::new(what));
        }
        self.complex(complex, element, content)
    }

    /// The type that `@xsi:type` names.
    fn substitute(&mut self, base: &'m Complex, name: &Value) -> Result<&'m Complex, MapError> {
        let wanted = value::as_text(name).unwrap_or_default();
        let is_own = base.name.as_ref().filter(|it| *it.local == *wanted);
        let found = base.derived.iter().find(|(it, _)| *it.local == *wanted);
        let (name, complex) = match (is_own, found) {
            (Some(name), _) => (name, base),
            (None, Some((name, id))) => match self.model.get(*id) {
                Type::Complex(complex) => (name, complex),
                _ => return Err(MapError::new("has an `@xsi:type` without elements")),
            },
            (None, None) => {
                let names = names(base.derived.iter().map(|(name, _)| &*name.local));
                let what = format!("has an `@xsi:type` that is none of {names}");
                return Err(MapError::new(what));
            }
        };
        if complex.is_abstract {
            return Err(MapError::new("has an `@xsi:type` that is abstract"));
        }
        let name = match &name.namespace {
            Some(namespace) => format!("{}:{}", self.out.prefix(namespace), name.local),
            None => name.local.to_string(),
        };
        let written = self.out.attribute(Some(XSI_NAMESPACE), "type", &name);
        written.map_err(not_xml)?;
        Ok(complex)
    }

    fn complex(
        &mut self,
        complex: &Complex,
        element: &ElementUse,
        content: &Value,
    ) -> Result<(), MapError> {
        let holds_text = matches!(complex.content, Content::Text(_)) || complex.is_mixed;
        let wrapped;
        let content = match content {
            Value::Obj(_) => content,
            Value::Null | Value::Arr(_) => return Err(no_object(content)),
            // The text of an element without attributes needs no object around it.
            scalar if holds_text => {
                wrapped = value::object([("#content".to_owned(), scalar.clone())]);
                &wrapped
            }
            _ => return Err(no_object(content)),
        };
        self.attributes(complex, content)?;
        let text = value::get(content, "#content");
        match &complex.content {
            Content::Text(id) => {
                self.only_known(complex, None, content)?;
                let Some(text) = text.filter(|it| !matches!(it, Value::Null)) else {
                    return Err(MapError::new("is missing").within("#content", None));
                };
                let text = self.model.text_of(*id, text, self.out)?;
                check_fixed(element.fixed.as_deref(), &text)?;
                self.out.text(&text).map_err(not_xml)
            }
            Content::Empty => {
                self.only_known(complex, None, content)?;
                self.mixed(complex, text)
            }
            Content::Elements(group) => {
                self.only_known(complex, Some(group), content)?;
                self.mixed(complex, text)?;
                self.group(group, content)
            }
        }
    }

    fn mixed(&mut self, complex: &Complex, text: Option<&Value>) -> Result<(), MapError> {
        let Some(text) = text.filter(|_| complex.is_mixed) else {
            return Ok(());
        };
        let text = value::scalar_text(text).unwrap_or_default();
        self.out.text(&text).map_err(not_xml)
    }

    /// Refuses members that the type does not have.
    fn only_known(
        &self,
        complex: &Complex,
        group: Option<&Group>,
        content: &Value,
    ) -> Result<(), MapError> {
        for (key, _) in value::members(content).into_iter().flatten() {
            if !complex.knows(group, key) {
                let near = config::suggest(key, complex.members(group));
                let near = near.map(|near| format!(": did you mean `{near}`?"));
                let near = near.unwrap_or_default();
                let what = format!("is not declared{near}");
                return Err(MapError::new(what).within(&shown(key), None));
            }
        }
        Ok(())
    }

    fn attributes(&mut self, complex: &Complex, content: &Value) -> Result<(), MapError> {
        for attribute in &complex.attributes {
            let given = value::get(content, &attribute.member);
            let given = given.filter(|it| !matches!(it, Value::Null));
            self.attribute(attribute, given)
                .map_err(|error| error.within(&attribute.member, None))?;
        }
        if !complex.any_attributes {
            return Ok(());
        }
        for (key, member) in value::members(content).into_iter().flatten() {
            let is_other = complex.attributes.iter().all(|it| *it.member != *key);
            let name = key
                .strip_prefix('@')
                .filter(|it| is_other && !it.contains(':'));
            if let Some(name) = name.filter(|it| expr::xml::is_plain_name(it)) {
                let text = value::scalar_text(member)
                    .ok_or_else(|| MapError::new("is a text").within(&shown(key), None))?;
                self.out.attribute(None, name, &text).map_err(not_xml)?;
            }
        }
        Ok(())
    }

    fn attribute(&mut self, usage: &AttributeUse, given: Option<&Value>) -> Result<(), MapError> {
        let text = match (given, &usage.fixed) {
            (Some(given), fixed) => {
                let text = self.model.text_of(usage.ty, given, self.out)?;
                check_fixed(fixed.as_deref(), &text)?;
                text
            }
            (None, Some(fixed)) if usage.is_required => fixed.to_string(),
            (None, _) if usage.is_required => return Err(MapError::new("is missing")),
            (None, _) => return Ok(()),
        };
        let namespace = usage.name.namespace.as_deref();
        self.out
            .attribute(namespace, &usage.name.local, &text)
            .map_err(not_xml)
    }

    fn group(&mut self, group: &Group, content: &Value) -> Result<(), MapError> {
        let mut members = Members {
            items: HashMap::new(),
            others: Vec::new(),
        };
        for (key, member) in value::members(content).into_iter().flatten() {
            if key.starts_with('@') || key == "#content" {
                continue;
            }
            if !group.fields.contains_key(key) {
                members.others.push((key, member));
                continue;
            }
            // A list within one text is one value of its element.
            let is_text = group.fields.get(key) == Some(&false)
                && group
                    .particle
                    .find(key)
                    .is_some_and(|it| self.model.list_item(it.ty).is_some());
            let items = match member {
                Value::Arr(items) if !is_text => items.as_slice(),
                single => std::slice::from_ref(single),
            };
            members.items.insert(key, (items, 0));
        }
        self.drop_nulls(group, &mut members);
        self.particle(&group.particle, &mut members)?;
        let left = members
            .items
            .iter()
            .find(|(_, (items, at))| *at < items.len());
        if let Some((name, (_, at))) = left {
            let what = match at {
                0 => "cannot stand beside the other members",
                _ => "has too many items",
            };
            return Err(MapError::new(what).within(name, None));
        }
        match members.others.first() {
            Some((key, _)) => Err(MapError::new("is one too many").within(&shown(key), None)),
            None => Ok(()),
        }
    }

    /// A null that cannot be said is nothing, when nothing may stand there.
    fn drop_nulls<'v>(&self, group: &Group, members: &mut Members<'v>) {
        members.items.retain(|name, (items, _)| {
            let is_null = matches!(items, [Value::Null]);
            !is_null || group.particle.keeps_null(name)
        });
    }

    fn particle(&mut self, particle: &Particle, members: &mut Members<'_>) -> Result<(), MapError> {
        match &particle.term {
            Term::Element(element) => self.items(element, particle, members),
            Term::Any(_) => self.others(particle, members),
            Term::Sequence(parts) | Term::All(parts) => {
                let mut rounds = 0;
                while particle.max.is_none_or(|max| rounds < max) {
                    let is_needed = rounds < particle.min;
                    if !is_needed && !members.have(particle) {
                        break;
                    }
                    for part in parts {
                        self.particle(part, members)?;
                    }
                    rounds += 1;
                    if !members.have(particle) {
                        break;
                    }
                }
                Ok(())
            }
            Term::Choice(parts) => {
                let mut rounds = 0;
                while particle.max.is_none_or(|max| rounds < max) {
                    let Some(part) = parts.iter().find(|part| members.have(part)) else {
                        break;
                    };
                    self.particle(part, members)?;
                    rounds += 1;
                }
                if rounds < particle.min && !parts.iter().any(Particle::may_be_nothing) {
                    let names = names(particle.first_names().into_iter());
                    return Err(MapError::new(format!("needs one of {names}")));
                }
                Ok(())
            }
        }
    }

    fn items(
        &mut self,
        element: &ElementUse,
        particle: &Particle,
        members: &mut Members<'_>,
    ) -> Result<(), MapError> {
        let name = &*element.name.local;
        let items = members.left(name);
        let count = particle
            .max
            .map_or(items.len(), |max| items.len().min(max as usize));
        if count < particle.min as usize {
            let what = match count {
                0 => "is missing".to_owned(),
                _ => format!("has at least {} items", particle.min),
            };
            return Err(MapError::new(what).within(name, None));
        }
        let first = members.written(name);
        let is_list = particle.max != Some(1);
        for (at, item) in items.iter().take(count).enumerate() {
            let written = self.element(element, item);
            let place = Some(first + at).filter(|_| is_list);
            written.map_err(|error| error.within(name, place))?;
        }
        members.take(name, count);
        Ok(())
    }

    fn others(&mut self, particle: &Particle, members: &mut Members<'_>) -> Result<(), MapError> {
        let count = members.others.len();
        let count = particle.max.map_or(count, |max| count.min(max as usize));
        if count < particle.min as usize {
            return Err(MapError::new("needs an element of any name"));
        }
        for (key, member) in members.others.drain(..count) {
            let written = free::write(key, member, &Declared::default(), self.out);
            written.map_err(|error| MapError::new(error.0).within(&shown(key), None))?;
        }
        Ok(())
    }
}

fn no_object(content: &Value) -> MapError {
    MapError::new(format!("is an object, not {}", value::kind(content)))
}

fn not_xml(error: NotXml) -> MapError {
    MapError::new(match error {
        NotXml::TooLarge => "makes the message too large",
        NotXml::Character => "has a character that XML does not have",
        NotXml::Stopped => "is not written any further",
    })
}

pub(super) fn check_fixed(fixed: Option<&str>, text: &str) -> Result<(), MapError> {
    match fixed {
        Some(fixed) if fixed != text => Err(MapError::new(format!("is always `{}`", shown(fixed)))),
        _ => Ok(()),
    }
}

/// Names for a message, not too many.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<String> = names.take(9).map(|it| format!("`{}`", shown(it))).collect();
    if all.len() > 8 {
        all.truncate(8);
        all.push("...".to_owned());
    }
    all.join(", ")
}
