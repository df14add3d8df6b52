//! The OpenAPI 3.1 document of the REST interface.

mod delivery;

use serde_json::{Map, Value, json};

use super::body::{
    DESCRIPTION_MAX, KEY_MAX, OVERLAP, OVERLAP_MAX, PAGE, PAGE_MAX, PATCH_TYPES, URL_MAX,
};

/// What an operation may answer beside its success.
const EVERYWHERE: &[&str] = &["400", "401", "403", "404", "405", "429", "500", "503"];
/// The same for operations that change a webhook.
const CHANGES: &[&str] = &["409", "412", "413"];
/// The same for operations that take a body.
const BODIES: &[&str] = &["413", "415"];

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/{name}") })
}

fn content(schema: &str) -> Value {
    json!({ "application/json": { "schema": reference(&format!("schemas/{schema}")) } })
}

/// The responses of an operation: its successes, with what they are and their schema, and all that
/// it may refuse with.
fn responses(successes: &[(&str, &str, Option<&str>)], refusals: &[&[&str]]) -> Value {
    let mut all = Map::new();
    for (status, description, schema) in successes {
        let mut response = json!({ "description": description });
        if let (Some(schema), Some(members)) = (schema, response.as_object_mut()) {
            members.insert("content".to_owned(), content(schema));
            if *schema == "Webhook" {
                let tag = json!({
                    "description": "The entity tag, for `If-Match`. Endpoints of files have none.",
                    "schema": { "type": "string" },
                });
                members.insert("headers".to_owned(), json!({ "ETag": tag }));
            }
        }
        all.insert((*status).to_owned(), response);
    }
    for status in refusals.iter().flat_map(|it| it.iter()) {
        all.insert((*status).to_owned(), reference("responses/Problem"));
    }
    Value::Object(all)
}

fn operation(id: &str, summary: &str, responses: Value) -> Map<String, Value> {
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), id.into());
    operation.insert("summary".to_owned(), summary.into());
    operation.insert("responses".to_owned(), responses);
    operation
}

/// An operation with further members.
fn with(mut operation: Map<String, Value>, members: &[(&str, Value)]) -> Value {
    for (name, value) in members {
        operation.insert((*name).to_owned(), value.clone());
    }
    Value::Object(operation)
}

fn body(media_types: &[&str], schema: &str, required: bool) -> Value {
    let schema = json!({ "schema": reference(&format!("schemas/{schema}")) });
    let types = media_types.iter();
    let content: Map<String, Value> = types.map(|it| ((*it).to_owned(), schema.clone())).collect();
    json!({ "required": required, "content": content })
}

/// What can be done with a webhook that has been created.
const OF_CREATED: &[&str] = &[
    "readWebhook",
    "updateWebhook",
    "listAttempts",
    "pauseWebhook",
    "resumeWebhook",
    "verifyWebhook",
    "testWebhook",
    "replayWebhook",
    "rotateSecret",
    "deleteWebhook",
];

/// The operations on a new webhook, as links of the response that has its id.
fn links() -> Value {
    let link = |id: &&str| {
        let to = json!({ "operationId": id, "parameters": { "id": "$response.body#/id" } });
        ((*id).to_owned(), to)
    };
    Value::Object(OF_CREATED.iter().map(link).collect())
}

fn list() -> Value {
    let page = responses(
        &[("200", "A page of webhooks, by id.", Some("Webhooks"))],
        &[EVERYWHERE],
    );
    let list = operation("listWebhooks", "List the caller's webhooks", page);
    let mut created = responses(
        &[
            (
                "200",
                "The webhook that the same `Idempotency-Key` has made before.",
                Some("Webhook"),
            ),
            (
                "201",
                "The new webhook with its secret, which is shown this once.",
                Some("Webhook"),
            ),
        ],
        &[EVERYWHERE, BODIES, &["409", "422"]],
    );
    if let Some(created) = created.pointer_mut("/201").and_then(Value::as_object_mut) {
        created.insert("links".to_owned(), links());
    }
    let create = operation("createWebhook", "Create a webhook", created);
    json!({
        "get": with(list, &[("parameters", json!([
            reference("parameters/after"),
            reference("parameters/limit"),
        ]))]),
        "post": with(create, &[
            ("parameters", json!([reference("parameters/idempotencyKey")])),
            ("requestBody", body(&["application/json"], "NewWebhook", true)),
        ]),
    })
}

fn one() -> Value {
    let shown = |text| responses(&[("200", text, Some("Webhook"))], &[EVERYWHERE]);
    let read = operation("readWebhook", "Read a webhook", shown("The webhook."));
    let changed = responses(
        &[("200", "The webhook after the change.", Some("Webhook"))],
        &[EVERYWHERE, CHANGES, BODIES],
    );
    let update = operation("updateWebhook", "Change a webhook (RFC 7396)", changed);
    let deleted = responses(&[("204", "It is gone.", None)], &[EVERYWHERE, CHANGES]);
    let delete = operation("deleteWebhook", "Delete a webhook", deleted);
    let matching = json!([reference("parameters/ifMatch")]);
    json!({
        "parameters": [reference("parameters/id")],
        "get": with(read, &[]),
        "patch": with(update, &[
            ("parameters", matching.clone()),
            ("requestBody", body(PATCH_TYPES, "WebhookPatch", true)),
        ]),
        "delete": with(delete, &[("parameters", matching)]),
    })
}

fn action(id: &str, summary: &str, schema: &str) -> Value {
    let done = responses(
        &[("200", "It is done.", Some(schema))],
        &[EVERYWHERE, CHANGES, BODIES],
    );
    let mut members = vec![("parameters", json!([reference("parameters/ifMatch")]))];
    match id {
        "rotateSecret" => {
            members.push((
                "requestBody",
                body(&["application/json"], "Rotation", false),
            ));
        }
        "replayWebhook" => {
            members.push(("requestBody", body(&["application/json"], "Replay", true)));
        }
        _ => {}
    }
    json!({
        "parameters": [reference("parameters/id")],
        "post": with(operation(id, summary, done), &members),
    })
}

fn attempts() -> Value {
    let shown = responses(
        &[(
            "200",
            "The last attempts, the newest first.",
            Some("Attempts"),
        )],
        &[EVERYWHERE],
    );
    let list = operation(
        "listAttempts",
        "What the receiver has answered lately",
        shown,
    );
    json!({ "parameters": [reference("parameters/id")], "get": with(list, &[]) })
}

fn description() -> Value {
    let shown = responses(
        &[("200", "This document.", Some("Document"))],
        &[EVERYWHERE],
    );
    let read = operation("readDescription", "Read this document", shown);
    json!({ "get": with(read, &[]) })
}

fn parameters() -> Value {
    let of = |place: &str, name: &str, description: &str, schema: Value| {
        let described = json!({ "description": description, "schema": schema });
        let mut parameter = json!({ "name": name, "in": place });
        if let (Value::Object(all), Value::Object(more)) = (&mut parameter, described) {
            all.extend(more);
        }
        parameter
    };
    let query = |name: &str, description: &str, schema| of("query", name, description, schema);
    let header = |name: &str, description: &str, schema| of("header", name, description, schema);
    json!({
        "id": {
            "name": "id",
            "in": "path",
            "required": true,
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]+$", "maxLength": 100 },
        },
        "after": query(
            "after",
            "The `next` of the page before.",
            json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]*$", "maxLength": 200 }),
        ),
        "limit": query(
            "limit",
            "How many webhooks a page has at most.",
            json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE }),
        ),
        "ifMatch": header(
            "If-Match",
            "The entity tag that the webhook still has to have.",
            json!({ "type": "string" }),
        ),
        "idempotencyKey": header(
            "Idempotency-Key",
            "Tells a creation from others, so that it can be sent again.",
            json!({ "type": "string", "minLength": 1, "maxLength": KEY_MAX }),
        ),
    })
}

fn text_or_null(description: &str) -> Value {
    json!({ "type": ["string", "null"], "description": description })
}

/// What callers set.
fn members() -> Map<String, Value> {
    let url = json!({
        "type": "string",
        "format": "uri",
        "maxLength": URL_MAX,
        "description": "Where events are sent.",
    });
    let described = json!({ "type": ["string", "null"], "maxLength": DESCRIPTION_MAX });
    let mode = json!({
        "type": ["string", "null"],
        "enum": ["event", "snapshot", "patch", null],
        "description": "What is sent: of a topic of events each `event`, else each whole document \
                        (`snapshot`) or what has changed (`patch`).",
    });
    let mut members = Map::new();
    members.insert("url".to_owned(), url);
    members.insert("description".to_owned(), described);
    members.insert("mode".to_owned(), mode);
    for (name, text) in [
        (
            "filter",
            "Which events are sent: a jq condition, where the topic allows expressions.",
        ),
        (
            "select",
            "What is sent of an event: a jq expression, where the topic allows them.",
        ),
    ] {
        members.insert(name.to_owned(), text_or_null(text));
    }
    members.extend(delivery::members());
    members
}

fn new_webhook() -> Value {
    let mut members = members();
    let start = json!({
        "type": "string",
        "enum": ["latest", "earliest"],
        "default": "latest",
        "description": "With which event it begins: the next one, or the oldest that is kept.",
    });
    members.insert("start".to_owned(), start);
    json!({
        "type": "object",
        "required": ["url"],
        "examples": [{ "url": "https://shop.example/hooks/orders", "description": "The shop" }],
        "additionalProperties": false,
        "properties": members,
    })
}

fn webhook() -> Value {
    let time = json!({ "type": "string", "format": "date-time" });
    let mut webhook = json!({
        "type": "object",
        "required": ["id", "managed_by", "mode", "state", "reason", "cursor", "lag"],
        "properties": {
            "id": { "type": "string" },
            "managed_by": {
                "type": "string",
                "enum": ["api", "file"],
                "description": "An endpoint of a file is shown to operators, and changed there.",
            },
            "url": { "type": "string" },
            "description": text_or_null("What its owner says of it."),
            "mode": { "type": "string", "enum": ["event", "snapshot", "patch"] },
            "filter": text_or_null("Which events are sent."),
            "select": text_or_null("What is sent of an event."),
            "state": {
                "type": "string",
                "enum": ["unverified", "active", "down", "paused", "disabled"],
            },
            "reason": text_or_null("Why nothing is sent, or why it has not got the last event."),
            "cursor": text_or_null("The last event that is done."),
            "lag": { "type": "integer", "description": "How many events it has not got yet." },
            "created": time,
            "updated": time,
            "secrets": {
                "type": "array",
                "description": "The secrets that sign, the current one first.",
                "items": {
                    "type": "object",
                    "required": ["secret", "created", "expires"],
                    "properties": {
                        "secret": {
                            "type": "string",
                            "description": "Shown when it is made, and masked from then on.",
                        },
                        "created": time,
                        "expires": { "type": ["string", "null"], "format": "date-time" },
                    },
                },
            },
            "owner": {
                "type": "object",
                "description": "Whose it is; shown to operators.",
                "properties": { "way": { "type": "string" }, "id": { "type": "string" } },
            },
        },
    });
    let properties = webhook.pointer_mut("/properties");
    if let Some(properties) = properties.and_then(Value::as_object_mut) {
        properties.extend(delivery::members());
    }
    webhook
}

fn replay() -> Value {
    let bound = |text: &str| json!({ "type": "string", "description": text });
    json!({
        "type": "object",
        "additionalProperties": false,
        "description": "One event, those from one to another, or all that are kept. Events keep \
                        their ids.",
        "properties": {
            "event": bound("The id of one event."),
            "from": bound("The first one: its id, or a time."),
            "to": bound("The last one: its id, or a time. Not for patches and batches."),
        },
    })
}

fn schemas() -> Value {
    let attempt = json!({
        "type": "object",
        "required": ["time", "milliseconds", "event", "status", "accepted", "reply"],
        "properties": {
            "time": { "type": "string", "format": "date-time" },
            "milliseconds": { "type": "integer" },
            "event": { "type": "string", "description": "The `webhook-id` of the request." },
            "status": { "type": ["integer", "null"] },
            "accepted": { "type": "boolean" },
            "reply": {
                "type": "string",
                "description": "The beginning of the reply, or why there was none.",
            },
        },
    });
    let items =
        |name: &str| json!({ "type": "array", "items": reference(&format!("schemas/{name}")) });
    json!({
        "NewWebhook": new_webhook(),
        "WebhookPatch": {
            "type": "object",
            "additionalProperties": false,
            "properties": members(),
        },
        "Webhook": webhook(),
        "Webhooks": {
            "type": "object",
            "required": ["items", "next"],
            "properties": {
                "items": items("Webhook"),
                "next": text_or_null("What `after` is for the next page."),
            },
        },
        "Attempt": attempt,
        "Attempts": {
            "type": "object",
            "required": ["items"],
            "properties": { "items": items("Attempt") },
        },
        "Rotation": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "overlap": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": OVERLAP_MAX,
                    "default": OVERLAP,
                    "description": "How many seconds the secret before signs beside the new one.",
                },
            },
        },
        "Replay": replay(),
        "Document": { "type": "object" },
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status"],
            "properties": {
                "type": { "type": "string" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "detail": { "type": "string" },
            },
        },
    })
}

/// The document for a topic whose own path is this one.
pub(super) fn document(topic: &str, base: &str) -> String {
    let mut paths = Map::new();
    let webhook = "Webhook";
    for (path, item) in [
        ("", list()),
        ("/openapi.json", description()),
        ("/{id}", one()),
        ("/{id}/attempts", attempts()),
        (
            "/{id}/pause",
            action("pauseWebhook", "Send nothing until it is resumed", webhook),
        ),
        (
            "/{id}/resume",
            action(
                "resumeWebhook",
                "Go on, whatever it was stopped for",
                webhook,
            ),
        ),
        (
            "/{id}/verify",
            action("verifyWebhook", "Have the URL answer a challenge", webhook),
        ),
        (
            "/{id}/test",
            action(
                "testWebhook",
                "Send a test event and wait for the answer",
                "Attempt",
            ),
        ),
        (
            "/{id}/replay",
            action(
                "replayWebhook",
                "Send events again that it has got",
                webhook,
            ),
        ),
        (
            "/{id}/rotate-secret",
            action("rotateSecret", "Make a new secret", webhook),
        ),
    ] {
        paths.insert(format!("{base}/webhooks{path}"), item);
    }
    let problem = json!({
        "description": "Why it was not done (RFC 9457).",
        "content": {
            "application/problem+json": { "schema": reference("schemas/Problem") },
        },
    });
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": format!("Webhooks of the topic {topic}"),
            "version": "1",
            "description": "Webhooks get a topic's events as signed `POST` requests. A webhook \
                            belongs to the caller that has made it.",
        },
        "paths": paths,
        "components": {
            "parameters": parameters(),
            "responses": { "Problem": problem },
            "schemas": schemas(),
        },
    });
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [&str; 4] = ["get", "post", "patch", "delete"];

    #[test]
    fn every_reference_leads_somewhere_and_ids_are_unique() {
        let document: Value = serde_json::from_str(&document("orders", "/topics/orders")).unwrap();
        let (mut waiting, mut references) = (vec![&document], 0);
        while let Some(value) = waiting.pop() {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(to)) = members.get("$ref") {
                        let found = document.pointer(to.strip_prefix('#').unwrap());
                        assert!(found.is_some(), "{to}");
                        references += 1;
                    }
                    waiting.extend(members.values());
                }
                Value::Array(items) => waiting.extend(items),
                _ => {}
            }
        }
        assert!(references > 50, "{references}");
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|item| {
            METHODS
                .iter()
                .filter_map(|it| item.get(*it)?.get("operationId")?.as_str())
        });
        let mut ids: Vec<&str> = operations.collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), count), (13, 13));
    }
}
