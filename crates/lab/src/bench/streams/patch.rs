//! JSON Patch (RFC 6902) as a subscriber applies it, so that what an engine has sent can be
//! compared with the document that must come of it.

use serde::Deserialize;
use serde_json::Value;

/// One operation.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation {
    Add { path: String, value: Value },
    Replace { path: String, value: Value },
    Remove { path: String },
    Move { from: String, path: String },
    Copy { from: String, path: String },
    Test { path: String, value: Value },
}

/// Applies a patch to a document.
///
/// # Errors
/// When it is no patch, or does not fit the document.
pub(super) fn apply(document: &mut Value, patch: &[u8]) -> Result<(), String> {
    let operations: Vec<Operation> =
        serde_json::from_slice(patch).map_err(|error| format!("no JSON Patch: {error}"))?;
    for operation in operations {
        operate(document, operation)?;
    }
    Ok(())
}

fn operate(document: &mut Value, operation: Operation) -> Result<(), String> {
    match operation {
        Operation::Add { path, value } => add(document, &path, value),
        Operation::Replace { path, value } => {
            let there = document.pointer_mut(&path);
            *there.ok_or_else(|| format!("nothing to replace at {path}"))? = value;
            Ok(())
        }
        Operation::Remove { path } => remove(document, &path).map(drop),
        Operation::Move { from, path } => {
            let value = remove(document, &from)?;
            add(document, &path, value)
        }
        Operation::Copy { from, path } => {
            let value = document.pointer(&from).cloned();
            let value = value.ok_or_else(|| format!("nothing to copy at {from}"))?;
            add(document, &path, value)
        }
        Operation::Test { path, value } => match document.pointer(&path) == Some(&value) {
            true => Ok(()),
            false => Err(format!("another value at {path}")),
        },
    }
}

/// The parent of a place, and the last token of its path.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let missing = || format!("no place such as {path}");
    let (above, last) = path.rsplit_once('/').ok_or_else(missing)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let parent = document.pointer_mut(above).ok_or_else(missing)?;
    Ok((parent, last))
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    let (parent, last) = parent(document, path)?;
    match parent {
        Value::Object(members) => {
            members.insert(last, value);
            Ok(())
        }
        Value::Array(elements) if last == "-" => {
            elements.push(value);
            Ok(())
        }
        Value::Array(elements) => match last.parse::<usize>() {
            Ok(at) if at <= elements.len() => {
                elements.insert(at, value);
                Ok(())
            }
            _ => Err(format!("no place such as {path}")),
        },
        _ => Err(format!("no place such as {path}")),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let missing = || format!("nothing to remove at {path}");
    let (parent, last) = parent(document, path)?;
    match parent {
        Value::Object(members) => members.shift_remove(&last).ok_or_else(missing),
        Value::Array(elements) => match last.parse::<usize>() {
            Ok(at) if at < elements.len() => Ok(elements.remove(at)),
            _ => Err(missing()),
        },
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_are_those_of_the_rfc() {
        let cases = [
            (
                json!({"a": 1}),
                json!([{"op":"add","path":"/b","value":[1]}]),
                json!({"a":1,"b":[1]}),
            ),
            (
                json!([1, 3]),
                json!([{"op":"add","path":"/1","value":2}]),
                json!([1, 2, 3]),
            ),
            (
                json!([1]),
                json!([{"op":"add","path":"/-","value":2}]),
                json!([1, 2]),
            ),
            (
                json!({"a/b": {"~": 1}}),
                json!([{"op":"replace","path":"/a~1b/~0","value":2}]),
                json!({"a/b": {"~": 2}}),
            ),
            (
                json!({"a": 1, "b": 2}),
                json!([{"op":"remove","path":"/a"}]),
                json!({"b": 2}),
            ),
            (
                json!({"a": [1, 2]}),
                json!([{"op":"remove","path":"/a/0"}]),
                json!({"a": [2]}),
            ),
            (
                json!({"a": 1}),
                json!([{"op":"move","from":"/a","path":"/b"}]),
                json!({"b": 1}),
            ),
            (
                json!({"a": 1}),
                json!([{"op":"copy","from":"/a","path":"/b"}]),
                json!({"a": 1, "b": 1}),
            ),
            (
                json!(1),
                json!([{"op":"test","path":"","value":1},
                {"op":"add","path":"","value":2}]),
                json!(2),
            ),
        ];
        for (mut document, patch, wanted) in cases {
            apply(&mut document, patch.to_string().as_bytes()).unwrap();
            assert_eq!(document, wanted, "{patch}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        for patch in [
            r#"{"op":"add"}"#,
            r#"[{"op":"other","path":"/a"}]"#,
            r#"[{"op":"replace","path":"/x","value":1}]"#,
            r#"[{"op":"remove","path":"/x"}]"#,
            r#"[{"op":"remove","path":"/l/9"}]"#,
            r#"[{"op":"add","path":"/l/9","value":1}]"#,
            r#"[{"op":"add","path":"/a/b","value":1}]"#,
            r#"[{"op":"copy","from":"/x","path":"/a"}]"#,
            r#"[{"op":"test","path":"/a","value":2}]"#,
        ] {
            let mut document = json!({"a": 1, "l": [1]});
            assert!(apply(&mut document, patch.as_bytes()).is_err(), "{patch}");
        }
    }
}
