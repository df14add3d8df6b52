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
    /// What the test shows, in one line; unique among the tests of the flow.
    name: String,
    /// The message that starts the flow. The default is an empty one.
    #[serde(rename = "in")]
    input: Option<Input>,
    /// The time of day when the test starts, such as `2026-01-31T12:00:00Z`.
    #[schemars(extend("default" = "2026-01-01T00:00:00Z"))]
    at: Option<String>,
    /// Values of the environment variables that `engine.env` lists.
    env: Option<Texts>,
    /// Values of the secrets that `engine.secrets` lists. The default value of a secret is
    /// `secret-NAME`: tests never read real ones.
    secrets: Option<Texts>,
    /// Mocks of other systems: by the name of a connection or of a step, by the host and port of a
    /// URL, or by the name of a called flow.
    mock: Option<BTreeMap<String, Mocks>>,
    /// The turns of a dialogue with a menu, in place of the message that starts a flow.
    #[schemars(length(min = 1))]
    dialogue: Option<Vec<Turn>>,
    /// The assertions at the end of the flow. Without any, the flow must not fail.
    expect: Option<Expect>,
}

/// One turn of a dialogue: what the subscriber does, and what the phone shows then.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
pub(super) struct Turn {
    /// The code that is dialled, such as `*123#`: a new session.
    dial: Option<String>,
    /// What is typed. A key that is written as a number needs quotes when it begins with 0.
    reply: Option<Scalar>,
    /// The gateway sends the request of the turn before once more.
    again: Option<bool>,
    /// The network ends the session: the subscriber has hung up, or has been away for too long.
    end: Option<bool>,
    /// How long the subscriber takes before.
    #[schemars(extend("default" = "0s"))]
    after: Option<config::Duration>,
    /// The whole text of the screen.
    expect: Option<String>,
    /// A part of the text of the screen.
    contains: Option<String>,
    /// Whether the session ends with the screen.
    ends: Option<bool>,
}

/// The message that starts a flow.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a test to the schema")]
struct Input {
    /// The method. The default is the first one that the trigger names, otherwise `POST` with a
    /// body and `GET` without.
    method: Option<String>,
    /// The path, which may have a query. The default is the trigger's, if that has no parameters.
    path: Option<String>,
    /// Parameters of the query.
    query: Option<Fields>,
    /// Header fields.
    headers: Option<Fields>,
    /// The `Content-Type`. The default depends on the body: `application/json`, or `text/plain` for
    /// a string; for a file, on its extension.
    content_type: Option<String>,
    /// The body: a string as it is, anything else as JSON, or as XML or a form if the content type
    /// says so.
    body: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
    /// Who has sent it, as `$auth` shows; `none`, the default, is nobody. Credentials are not
    /// needed, but `scopes` and `require` of the flow are judged: a flow with `auth` answers nobody
    /// with 401, and whoever may not with 403.
    auth: Option<Auth>,
}

/// Who has sent a message: a caller or nobody.
struct Auth;

impl JsonSchema for Auth {
    fn schema_name() -> Cow<'static, str> {
        "Auth".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let caller = generator.subschema_for::<Caller>();
        json_schema!({ "anyOf": [{ "type": "string", "enum": ["none"] }, caller] })
    }
}

/// Who has sent the message that starts a flow.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a test to the schema")]
struct Caller {
    /// The caller.
    id: String,
    /// The name of the caller's authentication method, one of the flow's `auth`. The default is the
    /// first of them.
    way: Option<String>,
    /// What the caller may do.
    scopes: Option<Vec<String>>,
    /// The plan by which the caller is limited.
    plan: Option<String>,
    /// The claims of the credential.
    claims: Option<BTreeMap<String, Any>>,
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
    /// The largest number of answers.
    #[schemars(range(min = 1, max = 1_000_000))]
    times: Option<u64>,
    /// How long it takes, by the clock of the test.
    #[schemars(extend("default" = "0ms"))]
    delay: Option<config::Duration>,
    /// The failure, instead of a reply.
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
    /// Headers of the reply; others may be present. `null` asserts that a header is absent.
    headers: Option<Fields>,
    /// The body of the reply, equal as a value or as text.
    body: Option<Any>,
    /// What the body must contain: members of objects, items of lists, a substring.
    body_contains: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
    /// Conditions in jq: `.` is the body of the reply, `$reply` its status and headers; the flow's
    /// variables and `$error` are available.
    #[serde(rename = "where")]
    conditions: Option<Conditions>,
    /// The calls to other systems, by the same names as mocks: their number, or each call in order.
    calls: Option<BTreeMap<String, Calls>>,
    /// The values of variables at the end.
    variables: Option<BTreeMap<String, Any>>,
    /// The failure that ended the steps, whether or not the flow has handled it.
    error: Option<Failure>,
    /// How long the flow took, by the clock of the test.
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
    /// Query parameters; others may be present. `null` asserts that one is absent.
    query: Option<Fields>,
    /// Headers; others may be present. `null` asserts that one is absent.
    headers: Option<Fields>,
    /// The body, equal as a value or as text.
    body: Option<Any>,
    /// What the body must contain.
    body_contains: Option<Any>,
    /// A file with the body, relative to this one.
    file: Option<String>,
    /// Conditions in jq: `.` is the request, as mocks see it.
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
    /// Its kind, as in `on_error`: `timeout`, `5xx`, a type that the flow raises.
    kind: Option<String>,
    /// Its status.
    status: Option<u16>,
    /// The step that failed: its name, or its number and verb such as `4 (choose)`.
    step: Option<String>,
    /// The detail that the caller sees.
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
    /// The minimum.
    at_least: Option<config::Duration>,
    /// The maximum.
    at_most: Option<config::Duration>,
}
