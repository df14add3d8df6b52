//! Tables for reference pages, made of schemas.

use serde_json::{Map, Value as Json};

/// The keys of a mapping's schema as a Markdown table, and tables for the mappings within it.
pub fn markdown(schema: &Json) -> String {
    let mut pages = Vec::new();
    describe(schema, schema, "", &mut pages);
    pages.join("\n")
}

fn describe(root: &Json, schema: &Json, path: &str, pages: &mut Vec<String>) {
    let mappings = mappings(root, schema);
    for mapping in mappings {
        let Some(properties) = mapping.get("properties").and_then(Json::as_object) else {
            continue;
        };
        let mut page = String::new();
        if !path.is_empty() {
            page.push_str(&format!("### `{path}`\n\n"));
        }
        page.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for (key, value) in properties {
            page.push_str(&row(root, &mapping, key, value));
        }
        pages.push(page);
        for (key, value) in properties {
            let inner = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            describe(root, value, &inner, pages);
        }
    }
}

fn row(root: &Json, mapping: &Map<String, Json>, key: &str, value: &Json) -> String {
    let value = described(value);
    let required = mapping
        .get("required")
        .and_then(Json::as_array)
        .is_some_and(|keys| keys.iter().any(|name| name.as_str() == Some(key)));
    let default = match value.get("default") {
        Some(Json::Null) | None if required => "required".to_owned(),
        Some(Json::Null) | None => String::new(),
        Some(Json::String(text)) => format!("`{text}`"),
        Some(Json::Object(members)) if !members.is_empty() => String::new(),
        Some(other) => format!("`{other}`"),
    };
    let text = meaning(root, value).replace('\n', " ").replace('|', "\\|");
    format!(
        "| `{key}` | {} | {default} | {text} |\n",
        kinds(root, value).join(" or ")
    )
}

/// What describes a value. One that may be left out has the description of its type, unless it has
/// one of its own.
fn described(value: &Json) -> &Json {
    let mut branches = branches(value);
    match (value.get("description"), branches.next(), branches.next()) {
        (None, Some(only), None) => only,
        _ => value,
    }
}

/// The description of a value. Its `title` is left out: it is the name of a Rust type.
fn meaning(root: &Json, value: &Json) -> String {
    let own = |value: &Json| value.get("description")?.as_str().map(str::to_owned);
    let shared = || own(resolve(root, value));
    own(value).or_else(shared).unwrap_or_default()
}

/// What a value may be, each in a word or two.
fn kinds(root: &Json, value: &Json) -> Vec<String> {
    let value = resolve(root, value);
    let mut found: Vec<String> = Vec::new();
    for branch in branches(value) {
        for kind in kinds(root, branch) {
            if !found.contains(&kind) {
                found.push(kind);
            }
        }
    }
    if !found.is_empty() {
        return found;
    }
    if let Some(values) = value.get("enum").and_then(Json::as_array) {
        return values
            .iter()
            .filter(|value| !value.is_null())
            .map(code)
            .collect();
    }
    if let Some(only) = value.get("const") {
        return vec![code(only)];
    }
    let names: Vec<&str> = match value.get("type") {
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
        name => name.and_then(Json::as_str).into_iter().collect(),
    };
    let format = value
        .get("format")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let words = names
        .into_iter()
        .filter(|name| *name != "null")
        .map(|name| match (name, format) {
            ("string", "duration") => "duration".to_owned(),
            ("string", "byte-size") => "size".to_owned(),
            ("string", "percentage") => "percentage".to_owned(),
            ("array", _) => match value.get("items") {
                Some(items) => match defined_elsewhere(root, items) {
                    Some(name) => format!("list of {name}s"),
                    None => format!("list of {}", kinds(root, items).join(" or ")),
                },
                None => "list".to_owned(),
            },
            ("object", _) => "mapping".to_owned(),
            ("integer", _) => "integer".to_owned(),
            (name, _) => name.to_owned(),
        });
    let mut words: Vec<String> = words.collect();
    if let (Some(range), [word]) = (range(value), words.as_mut_slice()) {
        word.push_str(&range);
    }
    if words.is_empty() {
        vec!["any".to_owned()]
    } else {
        words
    }
}

/// The range of a number, a duration or a size that has one.
fn range(value: &Json) -> Option<String> {
    let bounds = |least, most| Some((value.get(least)?, value.get(most)?));
    // That of a whole type of Rust says nothing to users.
    let is_of_type = value.get("format") == Some(&"uint16".into());
    let numbers = bounds("minimum", "maximum").filter(|_| !is_of_type);
    let (least, most) = numbers.or_else(|| bounds("x-minimum", "x-maximum"))?;
    let shown = |bound: &Json| {
        bound
            .as_str()
            .map_or_else(|| bound.to_string(), str::to_owned)
    };
    Some(format!(" from {} to {}", shown(least), shown(most)))
}

/// The name of a definition that another schema has, such as `step`.
fn defined_elsewhere<'a>(root: &Json, schema: &'a Json) -> Option<&'a str> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    let name = pointer.rsplit('/').next()?;
    root.pointer(pointer).is_none().then_some(name)
}

fn code(value: &Json) -> String {
    format!(
        "`{}`",
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    )
}

fn resolve<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let target = schema
        .get("$ref")
        .and_then(Json::as_str)
        .and_then(|text| text.strip_prefix('#'));
    target
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

fn branches(schema: &Json) -> impl Iterator<Item = &Json> {
    let list = |key| {
        schema
            .get(key)
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
    };
    list("anyOf")
        .chain(list("oneOf"))
        .filter(|branch| branch.get("type") != Some(&"null".into()))
}

/// The mappings that a schema allows: itself, or among its branches and items.
fn mappings(root: &Json, schema: &Json) -> Vec<Map<String, Json>> {
    let schema = resolve(root, schema);
    let mut found: Vec<Map<String, Json>> = branches(schema)
        .flat_map(|branch| mappings(root, branch))
        .collect();
    // Of a list the entries, of a mapping with free names the values.
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key) {
            found.extend(mappings(root, inner));
        }
    }
    if let Some(values) = schema.get("additionalProperties") {
        found.extend(mappings(root, values));
    }
    if schema.get("properties").is_some() {
        found.extend(schema.as_object().cloned());
    }
    // One that may stand alone or in a list is one.
    let mut distinct: Vec<Map<String, Json>> = Vec::new();
    for mapping in found {
        if !distinct.contains(&mapping) {
            distinct.push(mapping);
        }
    }
    distinct
}
