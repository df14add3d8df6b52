//! The JSON Schema (draft 2020-12) of flow files, made of the same definitions that the loader
//! reads. For editors and reference pages; the loader says more than a schema can.

use component::definition::StepDefinition;
use component::endpoint::EndpointDefinition;
use component::flow_kind::FlowKind;
use component::source::SourceDefinition;
use serde_json::{Map, Value, json};

use crate::compile::Parts;
use crate::names::NAME_PATTERN;
use crate::{Table, compile, engine, kinds, limits, modifiers, tests_section, trigger};

const CONNECTIONS: &str = "Connections to other systems by name: `crm: { http: https://crm.example }`. \
                           Those of the `engine:` document serve every flow.";

const AUTH: &str = "Who may start the flow: see [Access control](auth.md).";

/// The schema of one document of a flow file.
pub fn file(table: Table<'_>) -> Value {
    let steps = table.steps;
    let mut definitions = Map::new();
    place(
        &mut definitions,
        "engine-settings",
        engine::schema(&table.access),
    );
    place(&mut definitions, "http-trigger", trigger::schema());
    for (name, schema) in trigger::listener_schemas() {
        if !table.documents.is_empty() {
            place(&mut definitions, name, schema);
        }
    }
    place_steps(steps, &mut definitions);
    place_connections(table, &mut definitions);
    let connections = json!({ "$ref": "#/$defs/connections" });
    for (name, schema) in modifiers::schemas() {
        place(&mut definitions, &format!("modifier-{name}"), schema);
    }
    definitions.insert("step".into(), step_item(steps));
    let from = from_schema((table.sources, table.endpoints), &mut definitions);
    let step = || json!({ "$ref": "#/$defs/step" });
    definitions.insert("clause".into(), clause_item(steps));
    place(&mut definitions, "limits", limits::schema());
    place(&mut definitions, "auth", (table.access.auth)());
    place(&mut definitions, "test", tests_section::schema());
    let test = || json!({ "$ref": "#/$defs/test" });
    definitions.insert("tests".into(), tests_section::document_shape(test()));
    let mut flow = compile::shape(Parts {
        connections: connections.clone(),
        from,
        step: step(),
        clause: json!({ "$ref": "#/$defs/clause" }),
        limits: json!({ "$ref": "#/$defs/limits" }),
        auth: json!({ "$ref": "#/$defs/auth" }),
        edge: compile::edge_schemas(),
        test: test(),
    });
    if let Some(name) = flow
        .pointer_mut("/properties/flow")
        .and_then(Value::as_object_mut)
    {
        name.insert("pattern".into(), NAME_PATTERN.into());
    }
    definitions.insert("flow".into(), flow);
    let engine = engine::shape(
        connections.clone(),
        json!({ "$ref": "#/$defs/engine-settings" }),
    );
    definitions.insert("engine".into(), engine);
    let mut kinds = vec![
        json!({ "$ref": "#/$defs/flow" }),
        json!({ "$ref": "#/$defs/engine" }),
        json!({ "$ref": "#/$defs/tests" }),
    ];
    kinds.extend(place_documents(table, &mut definitions));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Intertie flow file",
        "description": "One document of a flow file. Documents are split by lines of `---`.",
        "oneOf": kinds,
        "$defs": definitions
    })
}

/// Puts the schemas of flows of other kinds and of documents beside flows among the definitions.
/// Gives references to them.
fn place_documents(table: Table<'_>, definitions: &mut Map<String, Value>) -> Vec<Value> {
    let connections = json!({ "$ref": "#/$defs/connections" });
    for kind in table.kinds {
        place_kind(kind, &connections, definitions);
    }
    for document in table.documents {
        let mut schema = (document.schema)();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert("use".into(), connections.clone());
        }
        place(definitions, document.name, schema);
    }
    let names = table.kinds.iter().map(|kind| kind.name);
    let names = names.chain(table.documents.iter().map(|document| document.name));
    names
        .map(|name| json!({ "$ref": format!("#/$defs/{name}") }))
        .collect()
}

/// Puts the schema of a kind of flow among the definitions.
fn place_kind(kind: &FlowKind, connections: &Value, definitions: &mut Map<String, Value>) {
    let trigger = format!("{}-trigger", kind.trigger.name);
    let mut schema = (kind.trigger.schema)();
    if let Some(http) = schema.pointer_mut("/properties/http") {
        *http = json!({ "$ref": "#/$defs/http-trigger" });
    }
    place(definitions, &trigger, schema);
    let name = kind.trigger.name;
    let reference = json!({
        "$ref": format!("#/$defs/{trigger}"),
        "description": kind.trigger.summary
    });
    let from = json!({
        "type": "object",
        "description": format!("What starts the {}.", kind.name),
        "properties": { name: reference },
        "required": [name],
        "additionalProperties": false
    });
    let parts = Parts {
        connections: connections.clone(),
        from,
        limits: json!({ "$ref": "#/$defs/limits" }),
        auth: json!({ "$ref": "#/$defs/auth" }),
        edge: compile::edge_schemas(),
        test: json!({ "$ref": "#/$defs/test" }),
        ..Parts::default()
    };
    place(definitions, kind.name, kinds::shape(kind, parts));
}

/// The schema of a document of a kind, with anything under the keys that all flows have.
pub fn kind(kind: &FlowKind) -> Value {
    let object = |text: &str| json!({ "type": "object", "description": text });
    kinds::shape(
        kind,
        Parts {
            connections: object(CONNECTIONS),
            from: object(kind.trigger.summary),
            limits: object("Limits of the flow."),
            auth: json!({ "description": AUTH }),
            edge: compile::edge_schemas(),
            ..Parts::default()
        },
    )
}

/// The schema of the value under `engine:`.
pub fn engine_settings(table: Table<'_>) -> Value {
    engine::schema(&table.access)
}

/// The schema of the mapping form of the value under `http:`.
pub fn http_trigger() -> Value {
    trigger::mapping_schema()
}

/// The schema of a flow document, with anything under `from` and `steps`.
pub fn flow() -> Value {
    let connections = json!({ "type": "object", "description": CONNECTIONS });
    compile::shape(Parts {
        connections,
        from: json!({ "type": "object", "description": "What starts the flow: one trigger." }),
        step: json!({ "type": "object" }),
        clause: json!({ "type": "object" }),
        limits: json!({ "type": "object", "description": "Limits of the flow." }),
        auth: json!({ "description": AUTH }),
        edge: compile::edge_schemas(),
        test: json!({ "type": "object" }),
    })
}

/// The schema of the value under `limits`.
pub fn limits() -> Value {
    limits::schema()
}

/// The schema of one test of a flow.
pub fn test_case() -> Value {
    tests_section::schema()
}

/// The schemas of what may stand beside a verb, by key.
pub fn modifiers() -> Vec<(&'static str, Value)> {
    modifiers::schemas()
}

fn from_schema(
    (sources, endpoints): (&[SourceDefinition], &[EndpointDefinition]),
    definitions: &mut Map<String, Value>,
) -> Value {
    let mut properties = Map::new();
    let mut triggers = vec![json!({ "required": ["http"] })];
    properties.insert("http".into(), json!({ "$ref": "#/$defs/http-trigger" }));
    for source in sources {
        let name = format!("{}-source", source.name);
        place(definitions, &name, (source.schema)());
        let property = json!({ "$ref": format!("#/$defs/{name}"), "description": source.summary });
        properties.insert(source.name.into(), property);
        triggers.push(json!({ "required": [source.name] }));
    }
    for endpoint in endpoints {
        let name = format!("{}-endpoint", endpoint.name);
        place(definitions, &name, endpoint_keys(endpoint));
        let description = endpoint.summary;
        let property = json!({ "$ref": format!("#/$defs/{name}"), "description": description });
        properties.insert(endpoint.name.into(), property);
        triggers.push(json!({ "required": [endpoint.name] }));
    }
    json!({
        "description": "What starts the flow.",
        "anyOf": [
            { "const": "call", "description": "Other flows call it, by the step `call`." },
            {
                "type": "object",
                "properties": properties,
                "additionalProperties": false,
                "oneOf": triggers
            }
        ]
    })
}

/// The schema of all keys of an endpoint: its own, and those that each has.
pub fn endpoint_keys(endpoint: &EndpointDefinition) -> Value {
    let mut schema = (endpoint.schema)();
    let common = trigger::endpoint_schema(endpoint);
    for part in ["properties", "$defs"] {
        let Some(Value::Object(more)) = common.get(part).cloned() else {
            continue;
        };
        match schema.get_mut(part) {
            Some(Value::Object(known)) => known.extend(more),
            _ => schema[part] = Value::Object(more),
        }
    }
    match schema.get_mut("required") {
        Some(Value::Array(required)) => required.push(json!("path")),
        _ => schema["required"] = json!(["path"]),
    }
    schema
}

/// The steps by their verbs, each with its forms.
pub fn forms(steps: &[StepDefinition]) -> Vec<Vec<&StepDefinition>> {
    let mut all: Vec<Vec<&StepDefinition>> = Vec::new();
    for step in steps {
        let same = |it: &&mut Vec<&StepDefinition>| it.iter().any(|it| it.name == step.name);
        match all.iter_mut().find(same) {
            Some(forms) => forms.push(step),
            None => all.push(vec![step]),
        }
    }
    all
}

fn place_connections(table: Table<'_>, definitions: &mut Map<String, Value>) {
    let mut kinds = Vec::new();
    for connection in table.connections {
        let name = format!("{}-connection", connection.name);
        place(definitions, &name, (connection.schema)());
        kinds.push(json!({ "$ref": format!("#/$defs/{name}") }));
    }
    let connections = json!({
        "type": "object",
        "description": CONNECTIONS,
        "additionalProperties": { "oneOf": kinds }
    });
    definitions.insert("connections".into(), connections);
}

fn place_steps(steps: &[StepDefinition], definitions: &mut Map<String, Value>) {
    for forms in forms(steps) {
        let [step] = forms.as_slice() else {
            let mut references = Vec::new();
            for form in &forms {
                let name = format!("{}-{}", form.name, form.form().unwrap_or_default());
                place(definitions, &name, (form.schema)());
                references.push(json!({ "$ref": format!("#/$defs/{name}") }));
            }
            let name = forms.first().map_or("", |form| form.name);
            definitions.insert(name.into(), json!({ "oneOf": references }));
            continue;
        };
        place(definitions, step.name, (step.schema)());
    }
}

/// A clause for failures: `on` beside one step, or beside `steps` and perhaps a `reply`.
fn clause_item(steps: &[StepDefinition]) -> Value {
    let mut clause = step_item(steps);
    if let Some(object) = clause.as_object_mut() {
        object.remove("oneOf");
        object.insert("required".into(), json!(["on"]));
    }
    if let Some(Value::Object(properties)) = clause.get_mut("properties") {
        let name = json!({ "type": ["string", "integer"] });
        let on = json!({
            "description": "The failures to handle: kinds, `4xx`, statuses, types that the flow \
                            raises, `any`.",
            "anyOf": [name, { "type": "array", "items": name, "minItems": 1 }]
        });
        properties.insert("on".into(), on);
        let steps = json!({
            "type": "array",
            "description": "The steps to run.",
            "items": { "$ref": "#/$defs/step" },
            "minItems": 1
        });
        properties.insert("steps".into(), steps);
    }
    clause
}

/// One step: exactly one verb of the table, and what may stand beside it.
fn step_item(steps: &[StepDefinition]) -> Value {
    let mut properties = Map::new();
    let mut verbs = Vec::new();
    for forms in forms(steps) {
        let Some(step) = forms.first() else {
            continue;
        };
        let reference = format!("#/$defs/{}", step.name);
        let summaries: Vec<&str> = forms.iter().map(|form| form.summary).collect();
        let property = json!({ "$ref": reference, "description": summaries.join(" Or: ") });
        properties.insert(step.name.into(), property);
        verbs.push(match step.name {
            "if" => json!({ "properties": { "if": { "type": "object" } }, "required": ["if"] }),
            name => json!({ "required": [name] }),
        });
    }
    let name = json!({
        "type": "string",
        "pattern": NAME_PATTERN,
        "description": "The step's name in logs, unique in the flow."
    });
    properties.insert("name".into(), name);
    for (name, _) in modifiers::schemas() {
        let condition = json!({ "$ref": format!("#/$defs/modifier-{name}") });
        let verb = properties.remove(name);
        let schema = match verb {
            // `if` is both: a condition, or steps under a condition.
            Some(verb) => json!({ "anyOf": [condition, verb] }),
            None => condition,
        };
        properties.insert(name.into(), schema);
    }
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "oneOf": verbs
    })
}

/// Puts a schema among the definitions, with its own definitions beside it under `NAME.`.
fn place(definitions: &mut Map<String, Value>, name: &str, mut schema: Value) {
    let mut inner = Map::new();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        object.remove("title");
        if let Some(Value::Object(own)) = object.remove("$defs") {
            inner = own;
        }
    }
    let own: Vec<String> = inner.keys().cloned().collect();
    for (inner_name, mut inner_schema) in inner {
        prefix_references(&mut inner_schema, name, &own);
        definitions.insert(format!("{name}.{inner_name}"), inner_schema);
    }
    prefix_references(&mut schema, name, &own);
    definitions.insert(name.into(), schema);
}

/// Has references to definitions of a schema's own name them as they are called beside it. Others,
/// such as those to steps within a step, are left as they are.
fn prefix_references(schema: &mut Value, name: &str, own: &[String]) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                let target = value
                    .as_str()
                    .and_then(|text| text.strip_prefix("#/$defs/"));
                match target {
                    Some(target) if key == "$ref" => {
                        if own.iter().any(|own| own == target) {
                            *value = format!("#/$defs/{name}.{target}").into();
                        }
                    }
                    _ => prefix_references(value, name, own),
                }
            }
        }
        Value::Array(items) => {
            items
                .iter_mut()
                .for_each(|item| prefix_references(item, name, own));
        }
        _ => {}
    }
}
