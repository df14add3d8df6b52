//! What may stand in a menu, for the schema: the loader reads menus from the YAML tree, which knows
//! the place of everything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use config::AnyValue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value as Json, json};

/// A text: for every language, or for the only one.
struct Texts;

impl JsonSchema for Texts {
    fn schema_name() -> Cow<'static, str> {
        "Texts".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "minProperties": 1
                }
            ]
        })
    }
}

/// The screen that follows: one, or the first whose condition holds.
struct Go;

impl JsonSchema for Go {
    fn schema_name() -> Cow<'static, str> {
        "Go".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let branch = generator.subschema_for::<Branch>();
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": branch, "minItems": 1 }]
        })
    }
}

/// A key of the phone: `1`, `"0"`, `"00"`, `"#"`.
struct Key;

impl JsonSchema for Key {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9#]{1,5}$" })
    }
}

/// A step, whose schema the loader has.
struct Step;

impl JsonSchema for Step {
    fn schema_name() -> Cow<'static, str> {
        "Step".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "$ref": "#/$defs/step" })
    }
}

/// A menu on phones: screens that follow each other.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Menu {
    /// The menu's name, unique among menus and flows of all files.
    menu: String,
    /// The languages that every text has, such as `[en, sw]`; the first is the default.
    #[schemars(length(min = 1, max = 20))]
    languages: Vec<String>,
    /// A folder with a JSON file for each language, such as `./texts` with `en.json` and `sw.json`:
    /// names with their texts. A text that is one string in the menu is such a name then.
    texts: Option<String>,
    /// Whether characters outside the GSM alphabet are replaced by look-alikes in it, such as `’`
    /// by `'`. One that stays turns its page to UCS-2, which holds 80 characters.
    #[schemars(extend("default" = false))]
    transliterate: Option<bool>,
    /// Where and how long sessions are kept.
    sessions: Option<SessionsConfig>,
    /// Keys that several screens have.
    keys: Option<Keys>,
    /// Sends screens in requests of their own, to gateways that do not take them in the reply.
    answers: Option<Answers>,
    /// Lets flows begin sessions that the subscriber has not dialled for, by the step `ussd`.
    push: Option<Push>,
    /// Texts of the menu itself.
    messages: Option<Messages>,
    /// Steps that run when the gateway tells that a session has ended before it came to a screen
    /// with `end`, with the variables of the session.
    #[schemars(length(min = 1))]
    on_end: Option<Vec<Step>>,
    /// The screens by their names.
    #[schemars(length(min = 1))]
    screens: BTreeMap<String, Screen>,
}

/// Where and how long sessions are kept.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct SessionsConfig {
    /// The time between two keys after which a session is over, from 10s to 1h.
    #[schemars(extend("default" = "3m"))]
    timeout: Option<config::Duration>,
    /// How long behind its end a session that was dropped, by the network or by its time, goes on
    /// at the screen where it was when its subscriber dials again, from 10s to 24h. It needs a key
    /// `home`. Without it each session begins anew.
    resume: Option<config::Duration>,
    /// The connection, of the kind `redis`, that sessions are kept in: several engines that share
    /// it take turns in a session. The default is the data folder of this engine.
    #[serde(rename = "in")]
    place: Option<String>,
    /// What the screen of a session waits for. `process`: what is kept outlives the engine, however
    /// it ends; when the machine stops, a session may go back to a screen of the last second or so,
    /// or be unknown. `disk`: it outlives the machine too, at the price of an `fsync` for each key.
    /// Actions are synced either way.
    #[schemars(extend("default" = "process"))]
    durability: Option<SessionDurability>,
    /// The most sessions in the data folder; further ones are refused.
    #[schemars(extend("default" = 100_000), range(min = 1, max = 1_000_000))]
    max: Option<u64>,
    /// The most sessions of one subscriber that are known, those that are over included. With
    /// one more the oldest is forgotten.
    #[schemars(extend("default" = 4), range(min = 1, max = 100))]
    per_subscriber: Option<u64>,
}

/// What sessions outlive.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
enum SessionDurability {
    Process,
    Disk,
}

/// How screens are sent to the gateway.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Answers {
    /// Steps that send a screen: `.` has `session`, `msisdn`, `text` and `ends`.
    #[serde(rename = "do")]
    #[schemars(length(min = 1))]
    send: Vec<Step>,
    /// When the gateway's request is acknowledged. `before`: at once; the steps of the screen and
    /// its sending follow. `after`: when the screen has been sent; a problem is a status of 400 or
    /// more, for which the gateway repeats its request.
    #[schemars(extend("default" = "before"))]
    acknowledge: Option<AcknowledgeConfig>,
    /// The reply that acknowledges a request. The default is 202 without a body.
    reply: Option<AcknowledgementConfig>,
    /// How long it may take to send a screen, with all tries, from 1s to 1h.
    #[schemars(extend("default" = "60s"))]
    timeout: Option<config::Duration>,
    /// The most requests that are acknowledged and not answered yet; further ones get 503.
    #[schemars(extend("default" = 10_000), range(min = 1, max = 1_000_000))]
    max: Option<u64>,
}

/// When a request is acknowledged.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
enum AcknowledgeConfig {
    Before,
    After,
}

/// The reply that acknowledges a request.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct AcknowledgementConfig {
    /// Its status.
    #[schemars(extend("default" = 202), range(min = 200, max = 299))]
    status: Option<u64>,
    /// The media type of the body.
    #[schemars(extend("default" = "text/plain; charset=utf-8"))]
    content_type: Option<String>,
    /// The body, as it stands.
    body: Option<String>,
}

/// How flows begin sessions.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Push {
    /// The screens at which they may, each with the variables that the step `ussd` gives a value:
    /// `{ offer: [price] }`.
    #[schemars(length(min = 1))]
    screens: BTreeMap<String, Vec<String>>,
    /// Steps that have the gateway begin the session with the first screen: `.` has `session`,
    /// `msisdn`, `text` and `ends`.
    #[serde(rename = "do")]
    #[schemars(length(min = 1))]
    send: Vec<Step>,
    /// Where the gateway's id of the session is in what these steps make, an expression such as
    /// `.sessionId`. Without it the id is that in `.session`, which intertie has chosen.
    session: Option<String>,
    /// How long it may take to send the screen, with all tries, from 1s to 1h.
    #[schemars(extend("default" = "60s"))]
    timeout: Option<config::Duration>,
}

/// Keys that several screens have.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Keys {
    /// Shows the next page of a long screen. The default is `98`, `More`.
    more: Option<LabelledKey>,
    /// Shows the page before, or the screen before. Without it pages have `99`, `Back`, and screens
    /// nothing.
    back: Option<LabelledKey>,
    /// Shows the first screen of the session.
    home: Option<LabelledKey>,
    /// Ends the session with the message `exit`.
    exit: Option<LabelledKey>,
}

/// A key and what stands beside it.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct LabelledKey {
    /// What is typed.
    key: Key,
    /// What it does, without `${ }`.
    text: Texts,
}

/// Texts of the menu itself, without `${ }`. Each has an English default.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Messages {
    /// Above the screen when what was typed is none of its keys, or no such input.
    choose: Option<Texts>,
    /// When the session is not known or has timed out.
    unknown: Option<Texts>,
    /// When a step has failed.
    failed: Option<Texts>,
    /// When the session ends by the key `exit`.
    exit: Option<Texts>,
    /// When an action takes longer than its `wait`.
    pending: Option<Texts>,
    /// When an action belongs to a screen that the menu does not have any more.
    lost: Option<Texts>,
    /// Above the screen of a session that is resumed.
    resumed: Option<Texts>,
}

/// A screen: `options`, an `input` with `go`, `go` alone, or `end`.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Screen {
    /// Steps that run each time the screen is entered. Names from `as` and `set` last for the
    /// session.
    #[serde(rename = "do")]
    #[schemars(length(min = 1))]
    work: Option<Vec<Step>>,
    /// Makes the steps in `do` an action that happens once.
    once: Option<Once>,
    /// What is shown, with `${ }`.
    text: Option<Texts>,
    /// What can be chosen, in the order in which it is shown.
    #[schemars(length(min = 1))]
    options: Option<Vec<Choice>>,
    /// What is typed.
    input: Option<Input>,
    /// The screen that follows an `input`, or, without a `text`, this one at once.
    go: Option<Go>,
    /// Whether the session ends with this screen.
    end: Option<bool>,
}

/// An action: steps that happen once.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Once {
    /// The screen when nobody knows what became of the action: the engine ended within its steps,
    /// or they have failed. Its `do` can ask the other system for `$ussd.action`.
    unsure: String,
    /// How long the subscriber waits before the message `pending` ends the session, from 1s to 60s:
    /// less than the gateway waits.
    #[schemars(extend("default" = "7s"))]
    wait: Option<config::Duration>,
    /// How long the steps may take, from 1s to 1h.
    #[schemars(extend("default" = "60s"))]
    timeout: Option<config::Duration>,
}

/// A condition and the screen that follows where it holds; the last one has no condition.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Branch {
    /// The condition, an expression.
    #[serde(rename = "if")]
    condition: Option<String>,
    /// The screen.
    go: String,
}

/// An option, or one for each item of a value.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Choice {
    /// The key. Options without one count from 1.
    key: Option<Key>,
    /// What is shown behind the key, with `${ }`.
    text: Texts,
    /// The screen that follows.
    go: String,
    /// The condition under which it is there, an expression.
    #[serde(rename = "if")]
    condition: Option<String>,
    /// The language of the session from then on.
    language: Option<String>,
    /// An expression that gives a list: there is an option for each item, at most 200.
    each: Option<String>,
    /// The variable that is the item in `text`, and from then on the one that was chosen.
    #[serde(rename = "as")]
    variable: Option<String>,
}

/// What may be typed: `text`, `number`, `decimal` or `pin`.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Input {
    /// The variable that it becomes.
    #[serde(rename = "as")]
    variable: String,
    /// A text.
    text: Option<TextRule>,
    /// A whole number.
    number: Option<NumberRule>,
    /// A number with digits behind the point.
    decimal: Option<DecimalRule>,
    /// A secret number. Its variable is there only while the reply to it is made: it is never kept.
    pin: Option<PinRule>,
    /// A condition on it, an expression whose `.` is the value.
    #[serde(rename = "where")]
    condition: Option<String>,
    /// Above the screen when it is refused, without `${ }`. The default is the message `choose`.
    invalid: Option<Texts>,
    /// How often it may be tried. Without it as often as one likes.
    #[schemars(range(min = 1, max = 20))]
    tries: Option<u64>,
    /// The screen that follows the last try. Without it the session ends.
    after_tries: Option<String>,
}

/// A text.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct TextRule {
    /// The fewest characters.
    #[schemars(extend("default" = 1), range(min = 1, max = 160))]
    min: Option<u64>,
    /// The most characters.
    #[schemars(extend("default" = 160), range(min = 1, max = 160))]
    max: Option<u64>,
    /// A regular expression for the whole text, such as `[A-Z]{2}[0-9]{6}`.
    pattern: Option<String>,
}

/// A whole number of at most 15 digits.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct NumberRule {
    /// The least.
    #[schemars(extend("default" = 0))]
    min: Option<i64>,
    /// The greatest.
    max: Option<i64>,
}

/// A number with digits behind the point.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct DecimalRule {
    /// The least.
    #[schemars(extend("default" = 0))]
    min: Option<f64>,
    /// The greatest.
    max: Option<f64>,
    /// The most digits behind the point.
    #[schemars(extend("default" = 2), range(min = 1, max = 6))]
    places: Option<u64>,
}

/// A secret number.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct PinRule {
    /// How many digits it has.
    #[schemars(extend("default" = 4), range(min = 3, max = 12))]
    digits: Option<u64>,
}

/// Where the sessions come from.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct Ussd {
    /// Where the gateway sends its requests, such as `POST :8080/ussd`: written like an `http`
    /// trigger.
    http: AnyValue,
    /// Whose requests and replies they are.
    gateway: Gateway,
    /// The codes that are dialled and the screens that they show: `"*123#": start`, or
    /// `"*123*{amount}#": confirm`, which makes what stands there a variable.
    #[schemars(length(min = 1))]
    codes: BTreeMap<String, String>,
    /// What stands between the lines of a screen: `lf` or `crlf`.
    #[schemars(extend("default" = "lf"))]
    line_breaks: Option<LineBreaks>,
    /// The most septets of a screen; UCS-2 has the same octets.
    #[schemars(extend("default" = 182), range(min = 60, max = 182))]
    limit: Option<u64>,
    /// The calling code of the country of numbers that are written with one leading 0, such as
    /// `"254"`. Without it such numbers are refused.
    country: Option<String>,
}

/// A gateway of which the requests are known, or a description of one.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes a menu to the schema")]
enum Gateway {
    /// One that is known.
    Known(KnownGateway),
    /// Any other.
    Described(DescribedGateway),
}

/// A gateway of which the requests are known.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "kebab-case")]
#[allow(dead_code, reason = "describes a menu to the schema")]
enum KnownGateway {
    /// Africa's Talking: a form, and `CON` or `END` in front of the text.
    AfricasTalking,
    /// Hubtel: JSON with `Type` and `Sequence`.
    Hubtel,
    /// A query with `type`, `session`, `msisdn`, `text` and `sequence`, and `CON` or `END` in front
    /// of the text.
    Get,
    /// XML: `<ussd>` with `type`, `sessionid`, `msisdn`, `msg` and `sequence`.
    Xml,
}

/// What requests of a gateway say where, and what it is replied.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct DescribedGateway {
    /// Where everything stands in a request: expressions whose `.` has `body`, read as its
    /// `Content-Type` says, `query`, and `headers` with names in small letters.
    request: GatewayRequest,
    /// The reply.
    reply: GatewayReply,
}

/// Where everything stands in a request of a gateway.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct GatewayRequest {
    /// The id of the session.
    session: String,
    /// The number of the subscriber.
    msisdn: String,
    /// What has happened: `"dial"`, `"reply"`, `"typed"` for all that was typed so far, joined by
    /// `*`, or `"end"`.
    event: String,
    /// The code that was dialled, or what was typed.
    text: String,
    /// The service code, for `typed`.
    code: Option<String>,
    /// The number of the request within its session, which tells one that is repeated.
    sequence: Option<String>,
}

/// The reply to a gateway.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes a menu to the schema")]
struct GatewayReply {
    /// Its media type.
    #[schemars(extend("default" = "text/plain; charset=utf-8"))]
    content_type: Option<String>,
    /// The body, with `${ }`, whose `.` has `text`, `ends` and `session`. A text that is one `${ }`
    /// may give an object, which becomes JSON; `@html` escapes for XML.
    body: String,
}

/// What stands between lines.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes a menu to the schema")]
enum LineBreaks {
    /// A line feed.
    Lf,
    /// A carriage return and a line feed.
    CrLf,
}

/// The schema of the keys of a menu.
pub(crate) fn menu() -> Json {
    let mut schema = config::schema_for::<Menu>();
    // The loader has a pattern of its own.
    if let Some(Json::Object(name)) = schema.pointer_mut("/properties/menu") {
        name.insert("minLength".to_owned(), json!(1));
    }
    schema
}

/// The schema of the keys of the trigger.
pub(crate) fn ussd() -> Json {
    config::schema_for::<Ussd>()
}
