//! The codes of problems with steps. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A target that is no URL, or none that can be forwarded to.
pub const BAD_TARGET: Code = Code::new("IT0240");
/// TLS settings that do not fit the target or contradict each other.
pub const BAD_TLS: Code = Code::new("IT0241");
/// A header name or value that cannot be sent.
pub const BAD_FIELD: Code = Code::new("IT0242");
/// A header field that belongs to the engine.
pub const RESERVED_FIELD: Code = Code::new("IT0243");
/// A `host` or `via` that cannot be sent.
pub const BAD_HOST: Code = Code::new("IT0244");
/// A setting that has no effect where the step stands.
pub const NO_EFFECT: Code = Code::new("IT0245");
/// A pair of formats that cannot be converted.
pub const UNKNOWN_CONVERSION: Code = Code::new("IT0246");
/// An option that the conversion does not have, or a value that it cannot take.
pub const BAD_CONVERSION_OPTION: Code = Code::new("IT0247");
/// A status that a reply cannot have.
pub const BAD_STATUS: Code = Code::new("IT0248");
/// A body for a status that has none.
pub const BODY_NOT_ALLOWED: Code = Code::new("IT0249");
/// A time, count or part outside its range.
pub const OUT_OF_RANGE: Code = Code::new("IT0250");
/// A target that names a connection that `use:` does not declare, or one of another kind.
pub const UNKNOWN_CONNECTION: Code = Code::new("IT0251");
/// Settings of an HTTP connection that contradict each other.
pub const BAD_UPSTREAM: Code = Code::new("IT0252");
/// A text that looks like an expression and is none, or the other way round.
pub const NOT_EVALUATED: Code = Code::new("IT0253");
/// A name that a variable cannot have.
pub const BAD_VARIABLE: Code = Code::new("IT0254");
/// Branches or parts of a step with steps that do not fit together.
pub const BAD_BRANCH: Code = Code::new("IT0255");
/// An error that cannot be raised.
pub const BAD_RAISE: Code = Code::new("IT0256");
/// Settings of a call that contradict each other or cannot be sent.
pub const BAD_CALL: Code = Code::new("IT0257");
/// A forward whose reply could not be the reply to the client's request.
pub const BAD_FORWARD: Code = Code::new("IT0258");
/// Groups of messages that are never complete.
pub const BAD_AGGREGATE: Code = Code::new("IT0260");
/// A JSON Schema that is none.
pub const BAD_SCHEMA: Code = Code::new("IT0270");
/// A file that a step names and that cannot be read.
pub const BAD_FILE: Code = Code::new("IT0271");
/// A format that there is not, or an option that the format does not have.
pub const BAD_FORMAT: Code = Code::new("IT0272");
/// A key that does not tell messages apart.
pub const BAD_KEY: Code = Code::new("IT0273");
/// A text template whose settings contradict each other.
pub const BAD_TEXT: Code = Code::new("IT0274");
/// A folder that failed messages cannot be kept in.
pub const BAD_DEAD_LETTER: Code = Code::new("IT0275");
/// A name that a store cannot have.
pub const BAD_STORE_NAME: Code = Code::new("IT0490");
/// A setting of the source `store` that has no effect.
pub const STORE_NO_EFFECT: Code = Code::new("IT0491");
/// A `retry` or `dead_letter` of a source that cannot be.
pub const BAD_DELIVERY: Code = Code::new("IT0492");
/// Client credentials of a connection that cannot be used.
pub const BAD_OAUTH2: Code = Code::new("IT0690");
/// A step that does itself what the credentials of its connection do.
pub const NO_CREDENTIALS: Code = Code::new("IT0691");
/// Settings of AWS signatures that cannot be used.
pub const BAD_AWS_SIGV4: Code = Code::new("IT0692");
/// A schedule that cannot be read or never comes.
pub const BAD_SCHEDULE: Code = Code::new("IT0280");
/// A time zone that nobody knows.
pub const UNKNOWN_ZONE: Code = Code::new("IT0281");
/// A time, size or count of a source outside its range.
pub const SOURCE_OUT_OF_RANGE: Code = Code::new("IT0282");
/// Settings of a source that contradict each other or have no effect.
pub const SOURCE_NO_EFFECT: Code = Code::new("IT0283");
/// A folder that cannot be watched or moved to.
pub const BAD_FOLDER: Code = Code::new("IT0284");
/// A pattern of file names that cannot be read or fits none.
pub const BAD_PATTERN: Code = Code::new("IT0285");
/// The folder of a file step that is none, or that a value decides.
pub const BAD_FILE_FOLDER: Code = Code::new("IT0480");
/// The name of a file that leads out of its folder or is none.
pub const BAD_FILE_NAME: Code = Code::new("IT0481");

/// A `ws` or `wss` target where none can be.
pub const BAD_WEBSOCKET: Code = Code::new("IT0620");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_TARGET,
        title: "bad forward target",
    },
    CodeInfo {
        code: BAD_TLS,
        title: "bad TLS settings of a target",
    },
    CodeInfo {
        code: BAD_FIELD,
        title: "bad header field",
    },
    CodeInfo {
        code: RESERVED_FIELD,
        title: "header field belongs to the engine",
    },
    CodeInfo {
        code: BAD_HOST,
        title: "bad host or via",
    },
    CodeInfo {
        code: NO_EFFECT,
        title: "setting without effect here",
    },
    CodeInfo {
        code: UNKNOWN_CONVERSION,
        title: "unknown conversion",
    },
    CodeInfo {
        code: BAD_CONVERSION_OPTION,
        title: "bad conversion option",
    },
    CodeInfo {
        code: BAD_STATUS,
        title: "bad status",
    },
    CodeInfo {
        code: BODY_NOT_ALLOWED,
        title: "status has no body",
    },
    CodeInfo {
        code: OUT_OF_RANGE,
        title: "value out of range",
    },
    CodeInfo {
        code: UNKNOWN_CONNECTION,
        title: "unknown connection",
    },
    CodeInfo {
        code: BAD_UPSTREAM,
        title: "bad settings of an HTTP connection",
    },
    CodeInfo {
        code: NOT_EVALUATED,
        title: "text looks like an expression, but is not evaluated",
    },
    CodeInfo {
        code: BAD_VARIABLE,
        title: "bad name for a variable",
    },
    CodeInfo {
        code: BAD_BRANCH,
        title: "branches that do not fit together",
    },
    CodeInfo {
        code: BAD_RAISE,
        title: "bad error to raise",
    },
    CodeInfo {
        code: BAD_CALL,
        title: "bad call",
    },
    CodeInfo {
        code: BAD_FORWARD,
        title: "bad forward",
    },
    CodeInfo {
        code: BAD_AGGREGATE,
        title: "groups that are never complete",
    },
    CodeInfo {
        code: BAD_SCHEMA,
        title: "bad JSON Schema",
    },
    CodeInfo {
        code: BAD_FILE,
        title: "file cannot be read",
    },
    CodeInfo {
        code: BAD_FORMAT,
        title: "unknown format or option",
    },
    CodeInfo {
        code: BAD_KEY,
        title: "key is the same for every message",
    },
    CodeInfo {
        code: BAD_TEXT,
        title: "bad text template",
    },
    CodeInfo {
        code: BAD_DEAD_LETTER,
        title: "bad folder",
    },
    CodeInfo {
        code: BAD_SCHEDULE,
        title: "bad schedule",
    },
    CodeInfo {
        code: UNKNOWN_ZONE,
        title: "unknown time zone",
    },
    CodeInfo {
        code: SOURCE_OUT_OF_RANGE,
        title: "setting of a source out of range",
    },
    CodeInfo {
        code: SOURCE_NO_EFFECT,
        title: "setting of a source without effect",
    },
    CodeInfo {
        code: BAD_FOLDER,
        title: "bad folder",
    },
    CodeInfo {
        code: BAD_PATTERN,
        title: "bad pattern of file names",
    },
    CodeInfo {
        code: BAD_STORE_NAME,
        title: "bad name of a store",
    },
    CodeInfo {
        code: STORE_NO_EFFECT,
        title: "setting of a store without effect",
    },
    CodeInfo {
        code: BAD_DELIVERY,
        title: "bad `retry` or `dead_letter` of a trigger",
    },
    CodeInfo {
        code: BAD_OAUTH2,
        title: "bad client credentials",
    },
    CodeInfo {
        code: NO_CREDENTIALS,
        title: "a header that the credentials of the connection set",
    },
    CodeInfo {
        code: BAD_AWS_SIGV4,
        title: "bad settings of AWS signatures",
    },
    CodeInfo {
        code: BAD_FILE_FOLDER,
        title: "bad folder of a file step",
    },
    CodeInfo {
        code: BAD_WEBSOCKET,
        title: "WebSocket target not allowed here",
    },
    CodeInfo {
        code: BAD_FILE_NAME,
        title: "bad name of a file",
    },
];
