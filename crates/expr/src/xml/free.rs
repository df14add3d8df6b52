//! Content that no schema describes: elements as values and back, by the rules of
//! `docs/json-xml.md`. Names lose their prefixes: the member `@xmlns` says an element's namespace
//! where it differs from that of the element around it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{Element, NotXml, Writer, XML_NAMESPACE, XSI_NAMESPACE, is_plain_name};
use crate::value::{self, Value};

/// The most levels of a value that is written.
const DEPTH_MAX: usize = 128;

/// An element as a value: null or a text when it has nothing but text, else an object. `around` is
/// the namespace of the element that it stands in.
pub fn to_value(element: &Element, around: Option<&str>) -> Value {
    let own = element.namespace.as_deref();
    let mut members: Vec<(String, Value)> = Vec::new();
    if own != around {
        let name = value::text(own.unwrap_or_default());
        members.push(("@xmlns".to_owned(), name));
    }
    let mut prefixes = 0;
    for attribute in &element.attributes {
        let text = value::text(attribute.value.as_str());
        let name = &attribute.name;
        match attribute.namespace.as_deref() {
            None => members.push((format!("@{name}"), text)),
            Some(XML_NAMESPACE) => members.push((format!("@xml:{name}"), text)),
            Some(XSI_NAMESPACE) => members.push((format!("@xsi:{name}"), text)),
            Some(namespace) => {
                prefixes += 1;
                members.push((format!("@xmlns:a{prefixes}"), value::text(namespace)));
                members.push((format!("@a{prefixes}:{name}"), text));
            }
        }
    }
    if members.is_empty() && element.children.is_empty() {
        return match element.text.as_str() {
            "" => Value::Null,
            text => value::text(text),
        };
    }
    members.extend(group(element.children.iter().map(|child| {
        let inner = to_value(child, own);
        (child.name.clone(), inner)
    })));
    if !element.text.is_empty() {
        members.push(("#content".to_owned(), value::text(element.text.as_str())));
    }
    value::object(members)
}

/// Members of one name together as an array, at the place of the first.
pub fn group(
    members: impl IntoIterator<Item = (String, Value)>,
) -> impl Iterator<Item = (String, Value)> {
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (name, member) in members {
        match places.get(&name).and_then(|at| groups.get_mut(*at)) {
            Some((_, items)) => items.push(member),
            None => {
                places.insert(name.clone(), groups.len());
                groups.push((name, vec![member]));
            }
        }
    }
    groups
        .into_iter()
        .map(|(name, mut items)| match items.len() {
            1 => (name, items.pop().unwrap_or_default()),
            _ => (name, value::array(items)),
        })
}

/// Why a value cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFree(pub String);

impl fmt::Display for NotFree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<NotXml> for NotFree {
    fn from(error: NotXml) -> Self {
        Self(error.to_string())
    }
}

/// The namespaces that are declared around a value.
#[derive(Clone, Default)]
pub struct Declared {
    default: Option<Arc<str>>,
    prefixes: Vec<(String, Arc<str>)>,
}

impl Declared {
    /// One whose elements without a prefix are in this namespace.
    pub fn of(default: Option<&str>) -> Self {
        Self {
            default: default.map(Arc::from),
            prefixes: Vec::new(),
        }
    }

    /// With what a value declares itself.
    fn within(&self, content: &Value) -> Result<Self, NotFree> {
        let mut declared = self.clone();
        for (key, member) in value::members(content).into_iter().flatten() {
            let Some(rest) = key.strip_prefix("@xmlns") else {
                continue;
            };
            let uri = value::as_text(member).ok_or_else(|| wrong(key, "is a text"))?;
            match rest.strip_prefix(':') {
                None if rest.is_empty() => {
                    declared.default = Some(uri.into()).filter(|_| !uri.is_empty());
                }
                Some(prefix) if is_plain_name(prefix) && !uri.is_empty() => {
                    declared.prefixes.push((prefix.to_owned(), uri.into()));
                }
                _ => return Err(wrong(key, "declares no namespace")),
            }
        }
        Ok(declared)
    }

    fn resolve<'n>(
        &self,
        name: &'n str,
        is_attribute: bool,
    ) -> Result<(Option<Arc<str>>, &'n str), NotFree> {
        let (namespace, local) = match name.split_once(':') {
            Some(("xml", local)) => (Some(XML_NAMESPACE.into()), local),
            Some(("xsi", local)) => (Some(XSI_NAMESPACE.into()), local),
            Some((prefix, local)) => {
                let mut known = self.prefixes.iter().rev();
                let found = known.find(|(known, _)| known == prefix);
                let found = found.ok_or_else(|| wrong(name, "has a prefix without a namespace"))?;
                (Some(Arc::clone(&found.1)), local)
            }
            None => (self.default.clone().filter(|_| !is_attribute), name),
        };
        match is_plain_name(local) {
            true => Ok((namespace, local)),
            false => Err(wrong(name, "is no name of XML")),
        }
    }
}

fn wrong(name: &str, what: &str) -> NotFree {
    let shown: String = name.chars().take(60).collect();
    NotFree(format!("`{}` {what}", shown.escape_debug()))
}

/// Writes an element of this name with a value as its content; an array writes several.
///
/// # Errors
/// When the value says what XML cannot, or is nested deeper than 128.
pub fn write(
    name: &str,
    content: &Value,
    declared: &Declared,
    out: &mut Writer,
) -> Result<(), NotFree> {
    write_at(name.trim(), content, declared, out, 0)
}

fn write_at(
    name: &str,
    content: &Value,
    declared: &Declared,
    out: &mut Writer,
    depth: usize,
) -> Result<(), NotFree> {
    if depth > DEPTH_MAX {
        return Err(NotFree("the value has too many levels".to_owned()));
    }
    if let Value::Arr(items) = content {
        let mut items = items.iter();
        return items.try_for_each(|item| write_at(name, item, declared, out, depth + 1));
    }
    let declared = declared.within(content)?;
    let (namespace, local) = declared.resolve(name, false)?;
    out.start(namespace.as_deref(), local)?;
    for (key, member) in value::members(content).into_iter().flatten() {
        let attribute = key.strip_prefix('@').filter(|it| !it.starts_with("xmlns"));
        if let Some(attribute) = attribute.filter(|_| !matches!(member, Value::Null)) {
            let text = value::scalar_text(member).ok_or_else(|| wrong(key, "is no text"))?;
            let (namespace, local) = declared.resolve(attribute, true)?;
            out.attribute(namespace.as_deref(), local, &text)?;
        }
    }
    match content {
        Value::Null => {}
        Value::Obj(_) => {
            for (key, member) in value::members(content).into_iter().flatten() {
                if key == "#content" {
                    let text = value::scalar_text(member).unwrap_or_default();
                    out.text(&text)?;
                } else if !key.starts_with('@') {
                    write_at(key.trim(), member, &declared, out, depth + 1)?;
                }
            }
        }
        scalar => {
            let text = value::scalar_text(scalar).ok_or_else(|| wrong(name, "is no text"))?;
            out.text(&text)?;
        }
    }
    out.end(namespace.as_deref(), local);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_value_comes_back_as_it_was() {
        for text in [
            r##"{"@xmlns":"u:a","b":["1","2"],"c":null,"#content":"t"}"##,
            r##"{"@id":"7","b":{"@xmlns":"u:b","#content":"x"}}"##,
            r#"{"@xmlns:a1":"u:c","@a1:x":"1","@xml:lang":"en","b":null}"#,
            r#""plain""#,
            "null",
        ] {
            let content = json::parse(&text.to_owned().into(), 50).unwrap();
            let mut out = Writer::new(10_000);
            out.start(None, "root").unwrap();
            write("e", &content, &Declared::default(), &mut out).unwrap();
            out.end(None, "root");
            let root = super::super::parse(out.finish().as_bytes(), 50).unwrap();
            assert_eq!(to_value(&root.children[0], None), content, "{text}");
        }
    }

    #[test]
    fn what_is_no_xml_is_told() {
        for (text, expected) in [
            (r#"{"a b":1}"#, "`a b` is no name of XML"),
            (r#"{"p:a":1}"#, "`p:a` has a prefix without a namespace"),
            (r#"{"@a":{}}"#, "`@a` is no text"),
            (r#"{"@xmlns":1}"#, "`@xmlns` is a text"),
            (r#"{"@xmlnsx":"u"}"#, "`@xmlnsx` declares no namespace"),
            (r#""\u0001""#, "a character that XML does not have"),
        ] {
            let content = json::parse(&text.to_owned().into(), 50).unwrap();
            let mut out = Writer::new(10_000);
            let error = write("e", &content, &Declared::default(), &mut out).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
