//! Elements to JSON: every element in its place, lists where the schema has lists.

use std::collections::HashMap;
use std::sync::Arc;

use expr::value::{self, Value};
use expr::xml::{Element, XML_NAMESPACE, XSI_NAMESPACE, free};

use crate::soap::names::{SOAP11, SOAP12};
use crate::soap::xsd::encode::{check_fixed, names};
use crate::soap::xsd::map_error::{MapError, shown};
use crate::soap::xsd::model::{Complex, Content, ElementUse, Group, Model, Particle, Term, Type};

/// Members in the order of the document.
type Found = Vec<(Arc<str>, Value)>;

impl Model {
    /// The content of an element.
    ///
    /// # Errors
    /// When it is not what the schema says.
    pub fn decode(&self, usage: &ElementUse, element: &Element) -> Result<Value, MapError> {
        let nil = element.attribute_in(XSI_NAMESPACE, "nil").map(str::trim);
        if matches!(nil, Some("true" | "1")) {
            return match usage.is_nillable {
                true => Ok(Value::Null),
                false => Err(MapError::new("may not be nil")),
            };
        }
        let complex = match self.get(usage.ty) {
            Type::Anything => return Ok(self.anything(element)),
            Type::Simple(_) => {
                if let Some(child) = element.children.first() {
                    return Err(
                        MapError::new("has text and no elements").within(&shown(&child.name), None)
                    );
                }
                let text = self.content_text(usage, element);
                check_fixed(usage.fixed.as_deref(), text)?;
                return self.value_of(usage.ty, text, element);
            }
            Type::Complex(complex) => complex,
        };
        let mut found = Found::new();
        let complex = self.actual(complex, element, &mut found)?;
        self.attributes(complex, element, &mut found)?;
        self.complex(complex, usage, element, found)
    }

    /// The content of an element of which only what stands within is there.
    ///
    /// # Errors
    /// When it is not what the schema says.
    pub fn decode_within(
        &self,
        usage: &ElementUse,
        children: &[Element],
    ) -> Result<Value, MapError> {
        let Type::Complex(complex) = self.get(usage.ty) else {
            return Err(MapError::new("has no elements"));
        };
        let group = match &complex.content {
            Content::Elements(group) => Some(group),
            _ => None,
        };
        let (mut at, mut found) = (0, Found::new());
        if let Some(group) = group {
            self.particle(&group.particle, children, &mut at, &mut found)?;
        }
        match children.get(at) {
            Some(child) => Err(unexpected(child, &[])),
            None => Ok(object(found, group)),
        }
    }

    fn content_text<'a>(&self, usage: &'a ElementUse, element: &'a Element) -> &'a str {
        let default = usage.default.as_deref().or(usage.fixed.as_deref());
        match (element.text.as_str(), default) {
            ("", Some(default)) => default,
            (text, _) => text,
        }
    }

    /// What is declared as nothing in particular; `xsi:type` may name a type of the standard.
    fn anything(&self, element: &Element) -> Value {
        free::to_value(element, element.namespace.as_deref())
    }

    /// The type that `xsi:type` names, or the declared one.
    fn actual<'m>(
        &'m self,
        declared: &'m Complex,
        element: &Element,
        found: &mut Found,
    ) -> Result<&'m Complex, MapError> {
        let named = element.attribute_in(XSI_NAMESPACE, "type");
        let Some(text) = named else {
            return match declared.is_abstract {
                true => Err(MapError::new(
                    "is of an abstract type and has no `xsi:type`",
                )),
                false => Ok(declared),
            };
        };
        let Some((namespace, local)) = element.resolve(text) else {
            return Err(MapError::new(
                "has an `xsi:type` whose prefix is not declared",
            ));
        };
        let own = declared.name.as_ref();
        if own.is_some_and(|own| own.is(namespace.as_deref(), local)) && !declared.is_abstract {
            return Ok(declared);
        }
        let mut derived = declared.derived.iter();
        let it = derived.find(|(name, _)| name.is(namespace.as_deref(), local));
        match it.map(|(_, id)| self.get(*id)) {
            Some(Type::Complex(complex)) if !complex.is_abstract => {
                found.push(("@xsi:type".into(), value::text(local)));
                Ok(complex)
            }
            _ => Err(MapError::new("has an `xsi:type` that cannot stand here")),
        }
    }

    fn attributes(
        &self,
        complex: &Complex,
        element: &Element,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let mut seen = 0;
        for attribute in &element.attributes {
            let namespace = attribute.namespace.as_deref();
            if namespace == Some(XSI_NAMESPACE) {
                continue;
            }
            let mut usages = complex.attributes.iter();
            let usage = usages.find(|it| it.name.is(namespace, &attribute.name));
            let (member, value) = match usage {
                Some(usage) => {
                    seen += 1;
                    let value = self.value_of(usage.ty, &attribute.value, element);
                    let value = value.map_err(|error| error.within(&usage.member, None))?;
                    (Arc::clone(&usage.member), value)
                }
                // The encoding style says nothing about literal messages.
                None if matches!(namespace, Some(SOAP11 | SOAP12)) => continue,
                None if namespace == Some(XML_NAMESPACE) || complex.any_attributes => {
                    let name = format!("@{}", attribute.name);
                    (name.into(), value::text(attribute.value.as_str()))
                }
                None => {
                    let name = format!("@{}", shown(&attribute.name));
                    return Err(MapError::new("is not declared").within(&name, None));
                }
            };
            found.push((member, value));
        }
        if seen < complex.attributes.len() {
            self.absent_attributes(complex, element, found)?;
        }
        Ok(())
    }

    fn absent_attributes(
        &self,
        complex: &Complex,
        element: &Element,
        found: &mut Found,
    ) -> Result<(), MapError> {
        for usage in &complex.attributes {
            if found.iter().any(|(name, _)| *name == usage.member) {
                continue;
            }
            let default = usage.default.as_deref().or(usage.fixed.as_deref());
            if usage.is_required {
                return Err(MapError::new("is missing").within(&usage.member, None));
            }
            if let Some(default) = default {
                let value = self.value_of(usage.ty, default, element)?;
                found.push((Arc::clone(&usage.member), value));
            }
        }
        Ok(())
    }

    fn complex(
        &self,
        complex: &Complex,
        usage: &ElementUse,
        element: &Element,
        mut found: Found,
    ) -> Result<Value, MapError> {
        let text = "#content";
        let group = match &complex.content {
            Content::Text(id) => {
                let content = self.content_text(usage, element);
                check_fixed(usage.fixed.as_deref(), content)?;
                if let Some(child) = element.children.first() {
                    return Err(unexpected(child, &[]));
                }
                let content = self.value_of(*id, content, element)?;
                // What may have attributes is always an object.
                if found.is_empty() && complex.attributes.is_empty() && !complex.any_attributes {
                    return Ok(content);
                }
                found.push((text.into(), content));
                return Ok(object(found, None));
            }
            Content::Empty => None,
            Content::Elements(group) => Some(group),
        };
        let is_blank = element.text.trim().is_empty();
        if !is_blank && !complex.is_mixed {
            return Err(MapError::new("has elements and no text"));
        }
        let mut at = 0;
        if let Some(group) = group {
            self.particle(&group.particle, &element.children, &mut at, &mut found)?;
        }
        if let Some(child) = element.children.get(at) {
            return Err(unexpected(child, &[]));
        }
        if complex.is_mixed && !element.text.is_empty() {
            found.push((text.into(), value::text(element.text.as_str())));
        }
        Ok(object(found, group))
    }

    fn particle(
        &self,
        particle: &Particle,
        children: &[Element],
        at: &mut usize,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let mut rounds = 0;
        while particle.max.is_none_or(|max| rounds < max) {
            let Some(child) = children
                .get(*at)
                .filter(|child| starts(&particle.term, child))
            else {
                break;
            };
            // A few hundred elements take less than a millisecond.
            if at.is_multiple_of(256) && expr::jq::is_stopped() {
                return Err(MapError::new("is not read any further"));
            }
            let before = *at;
            match &particle.term {
                Term::Element(usage) => {
                    let place = Some(rounds as usize).filter(|_| particle.max != Some(1));
                    let name = &usage.name.local;
                    let content = self.decode(usage, child);
                    let content = content.map_err(|error| error.within(name, place))?;
                    found.push((Arc::clone(name), content));
                    *at += 1;
                }
                Term::Any(_) => {
                    found.push((child.name.as_str().into(), free::to_value(child, None)));
                    *at += 1;
                }
                Term::Sequence(parts) => {
                    for part in parts {
                        self.particle(part, children, at, found)?;
                    }
                }
                Term::Choice(parts) => {
                    if let Some(part) = parts.iter().find(|part| starts(&part.term, child)) {
                        self.particle(part, children, at, found)?;
                    }
                }
                Term::All(parts) => self.all(parts, children, at, found)?,
            }
            rounds += 1;
            if *at == before {
                break;
            }
        }
        if rounds >= particle.min || particle.may_be_nothing() {
            return Ok(());
        }
        let first = particle.first_names();
        match children.get(*at) {
            Some(child) => Err(unexpected(child, &first)),
            None => Err(MapError::new(match first.as_slice() {
                [] => "has fewer elements than it must have".to_owned(),
                wanted => format!("has no {}", names(wanted.iter().copied())),
            })),
        }
    }

    fn all(
        &self,
        parts: &[Particle],
        children: &[Element],
        at: &mut usize,
        found: &mut Found,
    ) -> Result<(), MapError> {
        let mut left: Vec<&Particle> = parts.iter().collect();
        while let Some(child) = children.get(*at) {
            let Some(part) = left.iter().position(|part| starts(&part.term, child)) else {
                break;
            };
            self.particle(left.swap_remove(part), children, at, found)?;
        }
        match left.iter().find(|part| !part.may_be_nothing()) {
            Some(part) => {
                let missing = names(part.first_names().into_iter());
                Err(MapError::new(format!("has no {missing}")))
            }
            None => Ok(()),
        }
    }
}

/// Whether something may begin with an element.
fn starts(term: &Term, child: &Element) -> bool {
    match term {
        Term::Element(usage) => usage.name.names(child),
        Term::Any(namespaces) => namespaces.has(child.namespace.as_deref()),
        Term::Choice(parts) | Term::All(parts) => parts.iter().any(|it| starts(&it.term, child)),
        Term::Sequence(parts) => {
            for part in parts {
                if starts(&part.term, child) {
                    return true;
                }
                if !part.may_be_nothing() {
                    return false;
                }
            }
            false
        }
    }
}

fn unexpected(child: &Element, wanted: &[&str]) -> MapError {
    let error = match wanted {
        [] => MapError::new("stands where it may not stand"),
        wanted => {
            let names = names(wanted.iter().copied());
            MapError::new(format!("stands where only {names} may stand"))
        }
    };
    error.within(&shown(&child.name), None)
}

/// How many members are looked through one by one; more have an index.
const FEW: usize = 16;

/// One member of an object, or the items of a list so far.
enum Member {
    One(Value),
    Many(Vec<Value>),
}

/// An object with lists where the group has lists.
fn object(found: Found, group: Option<&Group>) -> Value {
    let is_list = |name: &str| group.and_then(|it| it.fields.get(name)).copied() == Some(true);
    let mut members: Vec<(Arc<str>, Member)> = Vec::with_capacity(found.len().min(FEW));
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for (name, member) in found {
        let place = match members.len() <= FEW {
            // Items of a list follow each other.
            true => members.iter().rposition(|(known, _)| *known == name),
            false => places.get(&name).copied(),
        };
        if let Some((_, known)) = place.and_then(|at| members.get_mut(at)) {
            known.push(member);
            continue;
        }
        let member = match is_list(&name) {
            true => Member::Many(vec![member]),
            false => Member::One(member),
        };
        members.push((name, member));
        if members.len() > FEW {
            let from = places.len();
            let new = members.iter().enumerate().skip(from);
            places.extend(new.map(|(at, (name, _))| (Arc::clone(name), at)));
        }
    }
    let members = members.into_iter().map(|(name, member)| {
        let member = match member {
            Member::One(value) => value,
            Member::Many(items) => value::array(items),
        };
        (String::from(&*name), member)
    });
    value::object(members)
}

impl Member {
    fn push(&mut self, item: Value) {
        match self {
            Self::Many(items) => items.push(item),
            Self::One(first) => {
                let first = std::mem::replace(first, Value::Null);
                *self = Self::Many(vec![first, item]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_places_however_many_there_are() {
        for count in [1, FEW, FEW + 1, 3 * FEW] {
            let name = |at: usize| Arc::from(format!("m{at}"));
            let once = (0..count).map(|at| (name(at), value::integer(at as i64)));
            let again = (0..count).rev().map(|at| (name(at), value::integer(-1)));
            let found: Found = once.chain(again.step_by(2)).collect();
            let twice = |at: usize| (count - 1 - at).is_multiple_of(2);
            let wanted = value::object((0..count).map(|at| {
                let first = value::integer(at as i64);
                let member = match twice(at) {
                    true => value::array([first, value::integer(-1)]),
                    false => first,
                };
                (format!("m{at}"), member)
            }));
            assert_eq!(object(found, None), wanted, "{count}");
        }
    }
}
