//! The JSON Schema (draft 2020-12) of flow files, made of the same definitions that the loader
//! reads. For editors and reference pages; the loader says more than a schema can.

use component::definition::StepDefinition;
use serde_json::{Map, Value, json};

use crate::names::NAME_PATTERN;
use crate::{Table, compile, engine, trigger};

const CONNECTIONS: &str = "Connections to other systems by name: `crm: { http: https://crm.example }`. \
                           Those of the `engine:` document serve every flow.";

/// The schema of one document of a flow file.
pub fn file(table: Table<'_>) -> Value {
    let steps = table.steps;
    let mut definitions = Map::new();
    place(&mut definitions, "engine-settings", engine::schema());
    place(&mut definitions, "http-trigger", trigger::schema());
    for step in steps {
        place(&mut definitions, step.name, (step.schema)());
    }
    let mut kinds = Vec::new();
    for connection in table.connections {
        let name = format!("{}-connection", connection.name);
        place(&mut definitions, &name, (connection.schema)());
        kinds.push(json!({ "$ref": format!("#/$defs/{name}") }));
    }
    let connections = json!({
        "type": "object",
        "description": CONNECTIONS,
        "additionalProperties": { "oneOf": kinds }
    });
    definitions.insert("connections".into(), connections);
    let connections = json!({ "$ref": "#/$defs/connections" });
    definitions.insert("step".into(), step_item(steps));
    let from = json!({
        "type": "object",
        "description": "What starts the flow.",
        "properties": { "http": { "$ref": "#/$defs/http-trigger" } },
        "required": ["http"],
        "additionalProperties": false
    });
    let mut flow = compile::shape(connections.clone(), from, json!({ "$ref": "#/$defs/step" }));
    if let Some(name) = flow
        .pointer_mut("/properties/flow")
        .and_then(Value::as_object_mut)
    {
        name.insert("pattern".into(), NAME_PATTERN.into());
    }
    definitions.insert("flow".into(), flow);
    let engine = engine::shape(connections, json!({ "$ref": "#/$defs/engine-settings" }));
    definitions.insert("engine".into(), engine);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Intertie flow file",
        "description": "One document of a flow file. Documents are split by lines of `---`.",
        "oneOf": [{ "$ref": "#/$defs/flow" }, { "$ref": "#/$defs/engine" }],
        "$defs": definitions
    })
}

/// The schema of the value under `engine:`.
pub fn engine_settings() -> Value {
    engine::schema()
}

/// The schema of the mapping form of the value under `http:`.
pub fn http_trigger() -> Value {
    trigger::mapping_schema()
}

/// The schema of a flow document, with anything under `from` and `steps`.
pub fn flow() -> Value {
    let from = json!({ "type": "object", "description": "What starts the flow: one trigger." });
    let connections = json!({ "type": "object", "description": CONNECTIONS });
    compile::shape(connections, from, json!({ "type": "object" }))
}

/// One step: exactly one verb of the table, and perhaps a name.
fn step_item(steps: &[StepDefinition]) -> Value {
    let mut properties = Map::new();
    let mut verbs = Vec::new();
    for step in steps {
        let reference = format!("#/$defs/{}", step.name);
        let property = json!({ "$ref": reference, "description": step.summary });
        properties.insert(step.name.into(), property);
        verbs.push(json!({ "required": [step.name] }));
    }
    let name = json!({
        "type": "string",
        "pattern": NAME_PATTERN,
        "description": "The step's name in logs, unique in the flow."
    });
    properties.insert("name".into(), name);
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "oneOf": verbs
    })
}

/// Puts a schema among the definitions, with its own definitions beside it under `NAME.`.
fn place(definitions: &mut Map<String, Value>, name: &str, mut schema: Value) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        object.remove("title");
        if let Some(Value::Object(inner)) = object.remove("$defs") {
            for (inner_name, mut inner_schema) in inner {
                prefix_references(&mut inner_schema, name);
                definitions.insert(format!("{name}.{inner_name}"), inner_schema);
            }
        }
    }
    prefix_references(&mut schema, name);
    definitions.insert(name.into(), schema);
}

fn prefix_references(schema: &mut Value, name: &str) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                let target = value
                    .as_str()
                    .and_then(|text| text.strip_prefix("#/$defs/"));
                match target {
                    Some(target) if key == "$ref" => {
                        *value = format!("#/$defs/{name}.{target}").into();
                    }
                    _ => prefix_references(value, name),
                }
            }
        }
        Value::Array(items) => {
            items
                .iter_mut()
                .for_each(|item| prefix_references(item, name));
        }
        _ => {}
    }
}
