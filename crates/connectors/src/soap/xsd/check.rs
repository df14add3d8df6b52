//! What can be checked of a body when a flow file is loaded: names of members, and what is the
//! same for every message.

use config::{Node, Span, Value as Yaml};
use expr::template::Template;
use expr::value;
use expr::xml::Writer;

use crate::soap::xsd::map_error::MapError;
use crate::soap::xsd::model::{
    AttributeUse, Complex, Content, ElementUse, Model, Particle, Term, Type, TypeId,
};

/// What is wrong with a body, and where it stands.
pub type Wrong = (Span, MapError);

/// Finds what is wrong with a body whatever the message is.
pub fn check(model: &Model, element: &ElementUse, body: &Node, found: &mut Vec<Wrong>) {
    let is_open = body.as_str().is_some_and(Template::has_holes);
    match model.get(element.ty) {
        _ if is_open => {}
        Type::Anything => {}
        Type::Simple(_) => check_text(model, element.ty, body, found),
        Type::Complex(complex) => check_complex(model, complex, body, found),
    }
}

fn check_text(model: &Model, ty: TypeId, body: &Node, found: &mut Vec<Wrong>) {
    let literal = match &body.value {
        Yaml::String(text) => value::text(text.as_str()),
        Yaml::Number(number) => value::number(number.text()),
        Yaml::Bool(it) => value::Value::Bool(*it),
        Yaml::Null | Yaml::Sequence(_) => return,
        Yaml::Mapping(_) => {
            found.push((body.span, MapError::new("has text and no members")));
            return;
        }
    };
    let mut out = Writer::new(1 << 20);
    if let Err(error) = model.text_of(ty, &literal, &mut out) {
        found.push((body.span, error));
    }
}

fn check_complex(model: &Model, complex: &Complex, body: &Node, found: &mut Vec<Wrong>) {
    let Some(entries) = body.as_mapping() else {
        return;
    };
    // Which type it is may depend on the message.
    if body.get("@xsi:type").is_some() {
        return;
    }
    let group = match &complex.content {
        Content::Elements(group) => Some(group),
        _ => None,
    };
    for entry in entries {
        let key = entry.key.as_str();
        if !complex.knows(group, key) {
            let near = config::suggest(key, complex.members(group));
            let near = near.map(|near| format!(": did you mean `{near}`?"));
            let what = format!("is not declared{}", near.unwrap_or_default());
            let error = MapError::new(what).within(&super::map_error::shown(key), None);
            found.push((entry.key_span, error));
            continue;
        }
        if let Some(attribute) = complex.attributes.iter().find(|it| *it.member == *key) {
            if !entry.value.as_str().is_some_and(Template::has_holes) {
                check_text(model, attribute.ty, &entry.value, found);
            }
            continue;
        }
        let usage = group.and_then(|group| group.particle.find(key));
        if let Some(usage) = usage {
            let single = std::slice::from_ref(&entry.value);
            let items = entry.value.as_sequence().unwrap_or(single);
            items
                .iter()
                .for_each(|item| check(model, usage, item, found));
        }
    }
    let mut attributes = complex.attributes.iter();
    let is_missing =
        |it: &&AttributeUse| it.is_required && it.fixed.is_none() && body.get(&it.member).is_none();
    if let Some(attribute) = attributes.find(is_missing) {
        let error = MapError::new("is missing").within(&attribute.member, None);
        found.push((body.span, error));
    }
    let missing = group.and_then(|group| missing(&group.particle, body));
    if let Some(name) = missing {
        let error = MapError::new("is missing").within(name, None);
        found.push((body.span, error));
    }
}

/// An element that must stand there and does not.
fn missing<'a>(particle: &'a Particle, body: &Node) -> Option<&'a str> {
    if particle.min == 0 {
        return None;
    }
    match &particle.term {
        Term::Element(usage) => {
            let name = &*usage.name.local;
            body.get(name).is_none().then_some(name)
        }
        Term::Sequence(parts) | Term::All(parts) => {
            parts.iter().find_map(|part| missing(part, body))
        }
        Term::Choice(_) | Term::Any(_) => None,
    }
}
