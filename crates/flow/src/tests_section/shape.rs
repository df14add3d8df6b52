//! What may stand in a test, for the schema: the loader reads tests from the YAML tree, which knows
//! the place of everything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Any YAML value.
struct Any;

impl JsonSchema for Any {
    fn schema_name() -> Cow<'static, str> {
        "Any".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// A text, a number or a boolean.
struct Scalar;

impl JsonSchema for Scalar {
    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// One or several of them, or null for none.
struct Scalars;

impl JsonSchema for Scalars {
    fn schema_name() -> Cow<'static, str> {
        "Scalars".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean", "array", "null"] })
    }
}

type Texts = BTreeMap<String, Scalar>;
type Fields = BTreeMap<String, Scalars>;

/// One test of a flow, with other systems mocked and a clock of its own.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
pub(super) struct Case {
    /// What is tested, in one line; unique among the tests of the flow.
    name: String,
    /// The message that starts the flow. Without it an empty one.
    #[serde(rename = "in")]
    input: Option<Input>,
    /// The time of day when the test starts, such as `2026-01-31T12:00:00Z`.
    #[schemars(extend("default" = "2026-01-01T00:00:00Z"))]
    at: Option<String>,
    /// Values of names that `engine.env` declares.
    env: Option<Texts>,
    /// Values of secrets that `engine.secrets` declares. Without one a secret is `secret-NAME`:
    /// tests never read real ones.
    secrets: Option<Texts>,
    /// What stands in for other systems: by the name of a connection or of a step, by the host and
    /// port of a URL, or by the name of a called flow.
    mock: Option<BTreeMap<String, Mocks>>,
    /// What must be so when the flow has ended. Without it, that it has not failed.
    expect: Option<Expect>,
}

/// The message that starts a flow.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
struct Input {
    /// The method. The default is the first that the trigger names; else `POST` with a body, and
    /// `GET` without.
    method: Option<String>,
    /// The path, perhaps with a query. The default is the trigger's, when it has no parameters.
    path: Option<String>,
    /// Parameters of the query.
    query: Option<Fields>,
    /// Header fields.
    headers: Option<Fields>,
    /// The `Content-Type`. The default goes by the body: `application/json`, or `text/plain` for a
    /// text; by its name for a file.
    content_type: Option<String>,
    /// The body: a text as it is, anything else as JSON, or as XML or a form when the content type
    /// says so.
    body: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
}

/// One mock, or several.
struct Mocks;

impl JsonSchema for Mocks {
    fn schema_name() -> Cow<'static, str> {
        "Mocks".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Mock>();
        json_schema!({
            "description": "One mock, or several: of these the first answers whose `when` holds. \
                            One without `when` that is not the last answers once.",
            "anyOf": [one.clone(), { "type": "array", "items": one, "minItems": 1 }]
        })
    }
}

/// What another system answers. In texts `${ }` sees the request as `.`: `method`, `path`, `query`,
/// `headers` (names in small letters) and `body`.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
pub(super) struct Mock {
    /// A condition on the request.
    when: Option<String>,
    /// How often it answers at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    times: Option<u64>,
    /// How long it takes, in the time of the test.
    #[schemars(extend("default" = "0ms"))]
    delay: Option<config::Duration>,
    /// How it fails, in place of a reply.
    error: Option<MockError>,
    /// The status.
    #[schemars(range(min = 200, max = 599), extend("default" = 200))]
    status: Option<u16>,
    /// Header fields.
    headers: Option<Fields>,
    /// The `Content-Type`, as under `in`.
    content_type: Option<String>,
    /// The body, as under `in`.
    body: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
}

/// How a mock fails.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a test to the schema")]
enum MockError {
    /// It does not answer in time.
    Timeout,
    /// It cannot be reached.
    Connection,
    /// It is busy.
    Unavailable,
    /// It is asked too often.
    Limited,
    /// It does not take the message.
    Invalid,
    /// It does not know who asks.
    Unauthorized,
    /// It does not let whoever asks.
    Forbidden,
    /// A broker does not take the message.
    Nack,
    /// A broker knows nobody who wants the message.
    Unroutable,
}

/// What must be so when the flow has ended. In texts `${ }` sees the message of `in` as `.`, as
/// mocks see requests.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
struct Expect {
    /// The status of the reply.
    #[schemars(range(min = 200, max = 599))]
    status: Option<u16>,
    /// Header fields of the reply; others may be there. `null` for one that is not.
    headers: Option<Fields>,
    /// The body of the reply: equal as a value, or as a text.
    body: Option<Any>,
    /// What the body has among other things: members of objects, items of lists, a part of a text.
    body_contains: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
    /// Conditions: `.` is the body of the reply, `$reply` its status and headers; names of the flow
    /// and `$error` have their values.
    #[serde(rename = "where")]
    conditions: Option<Conditions>,
    /// The calls to other systems, by the same names as mocks: how many, or each in order.
    calls: Option<BTreeMap<String, Calls>>,
    /// The values of names at the end.
    variables: Option<BTreeMap<String, Any>>,
    /// The failure that ended the steps, whether or not the flow has then answered it.
    error: Option<Failure>,
    /// How long the flow took, in the time of the test.
    took: Option<Took>,
}

/// One condition or several.
struct Conditions;

impl JsonSchema for Conditions {
    fn schema_name() -> Cow<'static, str> {
        "Conditions".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        })
    }
}

/// How many calls, or each in order.
struct Calls;

impl JsonSchema for Calls {
    fn schema_name() -> Cow<'static, str> {
        "Calls".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<ExpectedCall>();
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                {
                    "type": "object",
                    "properties": { "times": { "type": "integer", "minimum": 0 } },
                    "required": ["times"],
                    "additionalProperties": false
                },
                { "type": "array", "items": one }
            ]
        })
    }
}

/// One call to another system.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
pub(super) struct ExpectedCall {
    /// The method.
    method: Option<String>,
    /// The path.
    path: Option<String>,
    /// Parameters of the query; others may be there. `null` for one that is not.
    query: Option<Fields>,
    /// Header fields; others may be there. `null` for one that is not.
    headers: Option<Fields>,
    /// The body: equal as a value, or as a text.
    body: Option<Any>,
    /// What the body has among other things.
    body_contains: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
    /// Conditions: `.` is the request, as mocks see it.
    #[serde(rename = "where")]
    conditions: Option<Conditions>,
}

/// A failure: its kind, or a mapping.
struct Failure;

impl JsonSchema for Failure {
    fn schema_name() -> Cow<'static, str> {
        "Failure".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<FailureParts>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// A failure.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
struct FailureParts {
    /// Its kind, as `on_error` names it: `timeout`, `5xx`, a type that the flow raises.
    kind: Option<String>,
    /// Its status.
    status: Option<u16>,
    /// The step that failed: its name, or its number and verb such as `4 (choose)`.
    step: Option<String>,
    /// What the caller reads of it.
    detail: Option<String>,
}

/// A time, or its bounds.
struct Took;

impl JsonSchema for Took {
    fn schema_name() -> Cow<'static, str> {
        "Took".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let exact = generator.subschema_for::<config::Duration>();
        let bounds = generator.subschema_for::<TookBounds>();
        json_schema!({ "anyOf": [exact, bounds] })
    }
}

/// Bounds of a time.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
struct TookBounds {
    /// The shortest.
    at_least: Option<config::Duration>,
    /// The longest.
    at_most: Option<config::Duration>,
}
