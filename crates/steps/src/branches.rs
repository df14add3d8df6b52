//! Named branches of a step: a mapping of names to lists of steps, or to one step each.

use component::block::Block;
use component::definition::BuildContext;
use config::{Entry, Node};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::codes::BAD_BRANCH;

/// What one branch looks like, for the schema.
pub(crate) fn branch_schema() -> serde_json::Value {
    serde_json::json!({ "anyOf": [
        { "type": "array", "items": { "$ref": "#/$defs/step" }, "minItems": 1 },
        { "$ref": "#/$defs/step" }
    ] })
}

/// A mapping of branches, for the schema alone.
pub(crate) struct Branches;

impl JsonSchema for Branches {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Branches".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "Names of branches and their steps.",
            "minProperties": 1,
            "additionalProperties": branch_schema()
        })
    }
}

/// Reads branches by their names. Every problem is reported.
pub(crate) fn read_named(
    entries: &[Entry],
    context: &mut BuildContext<'_>,
) -> Vec<(String, Block)> {
    let mut branches = Vec::new();
    for entry in entries {
        let is_name = !entry.key.is_empty()
            && entry.key.len() <= 100
            && entry
                .key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if !is_name {
            let message = "this is not a name for a branch";
            let diagnostic = context.report.error(BAD_BRANCH, entry.key_span, message);
            diagnostic.hint("a name has letters, digits, `_` and `-`");
            continue;
        }
        let block = read(&entry.key, &entry.value, context);
        branches.extend(block.map(|block| (entry.key.clone(), block)));
    }
    branches
}

/// Reads the steps of a branch: a list, or one step. Names that they declare are not usable behind
/// them.
pub(crate) fn read(name: &str, node: &Node, context: &mut BuildContext<'_>) -> Option<Block> {
    if node.as_mapping().is_none() {
        return context.inner_branch(name, node);
    }
    let mark = context.scope.enter();
    let block = context.single(name, node, &[], false);
    context.scope.leave(mark);
    block
}
