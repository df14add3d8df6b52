//! The codes of problems with documents, triggers and routes. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A document that is neither a flow nor engine settings.
pub const UNKNOWN_DOCUMENT: Code = Code::new("IT0201");
/// Two flows of one name.
pub const FLOW_NAME_TAKEN: Code = Code::new("IT0202");
/// A name that flows or steps cannot have.
pub const BAD_NAME: Code = Code::new("IT0203");
/// A second `engine:` document.
pub const SECOND_ENGINE: Code = Code::new("IT0204");
/// A `${ }` where no expression can stand.
pub const EXPRESSION: Code = Code::new("IT0205");
/// An entry of `engine.env` that is unset or no name.
pub const ENVIRONMENT: Code = Code::new("IT0206");
/// A limit, time-out or size outside its range.
pub const OUT_OF_RANGE: Code = Code::new("IT0207");
/// Nothing to run.
pub const NO_FLOW: Code = Code::new("IT0209");
/// A `from:` that names no trigger, several, or an unknown one.
pub const UNKNOWN_TRIGGER: Code = Code::new("IT0210");
/// An `http:` text that is not `METHOD [host]:port/path`.
pub const BAD_TRIGGER: Code = Code::new("IT0211");
/// A method that cannot be taken.
pub const BAD_METHOD: Code = Code::new("IT0212");
/// A listening address that is none.
pub const BAD_LISTEN: Code = Code::new("IT0213");
/// A path pattern that is none.
pub const BAD_PATH: Code = Code::new("IT0214");
/// TLS settings or protocols of a listener that contradict each other.
pub const LISTENER_TLS: Code = Code::new("IT0215");
/// One address with two different TLS settings.
pub const DIFFERENT_TLS: Code = Code::new("IT0216");
/// Two flows that take the same requests.
pub const ROUTE_CONFLICT: Code = Code::new("IT0217");
/// Two addresses that overlap.
pub const OVERLAPPING_LISTENERS: Code = Code::new("IT0218");
/// A setting that has no effect in this flow.
pub const NO_EFFECT: Code = Code::new("IT0219");
/// A step that is not a mapping with one verb.
pub const BAD_STEP: Code = Code::new("IT0220");
/// A verb or key that no step has.
pub const UNKNOWN_STEP: Code = Code::new("IT0221");
/// A step that is never reached.
pub const UNREACHABLE_STEP: Code = Code::new("IT0222");
/// Two steps of one name.
pub const STEP_NAME_TAKEN: Code = Code::new("IT0223");
/// A connection under `use:` of an unknown kind.
pub const UNKNOWN_CONNECTION: Code = Code::new("IT0224");
/// Something beside a verb that cannot be used.
pub const BAD_MODIFIER: Code = Code::new("IT0226");
/// A called flow that is not there, or is none to be called.
pub const UNKNOWN_FLOW: Code = Code::new("IT0227");
/// A test that says what cannot be.
pub const BAD_TEST: Code = Code::new("IT0228");
/// An entry of `engine.trusted_proxies` that is no address.
pub const BAD_PROXY: Code = Code::new("IT0232");
/// An `engine.public_url` that is none.
pub const BAD_PUBLIC_URL: Code = Code::new("IT0233");
/// An entry of `engine.listeners` that cannot be.
pub const BAD_LISTENER: Code = Code::new("IT0239");
/// A name in a test that stands for nothing.
pub const UNKNOWN_IN_TEST: Code = Code::new("IT0229");

/// Limits of streams in a flow that forwards none.
pub const NO_STREAMS: Code = Code::new("IT0621");
/// A public endpoint, although `engine.auth` has authentication methods.
pub const OPEN_TO_ALL: Code = Code::new("IT0720");
/// A secret that stands in a file as plain text.
pub const PLAIN_SECRET: Code = Code::new("IT0722");
/// Credentials that come without TLS.
pub const CLEAR_CREDENTIALS: Code = Code::new("IT0723");
/// An admin port that cannot be as it is described.
pub const BAD_ADMIN: Code = Code::new("IT0724");
/// An audit stream that cannot be as it is described.
pub const BAD_AUDIT: Code = Code::new("IT0730");
/// A limit per caller that cannot be counted as it is written.
pub const BAD_LIMIT: Code = Code::new("IT0234");
/// A plan that is not there.
pub const UNKNOWN_PLAN: Code = Code::new("IT0235");

/// A kind of flow that nobody guards where everybody reaches it.
pub const UNGUARDED: Code = Code::new("IT0800");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: UNKNOWN_DOCUMENT,
        title: "unknown document",
    },
    CodeInfo {
        code: FLOW_NAME_TAKEN,
        title: "duplicate flow name",
    },
    CodeInfo {
        code: BAD_NAME,
        title: "bad name",
    },
    CodeInfo {
        code: SECOND_ENGINE,
        title: "second engine document",
    },
    CodeInfo {
        code: EXPRESSION,
        title: "expression not allowed here",
    },
    CodeInfo {
        code: ENVIRONMENT,
        title: "environment name cannot be used",
    },
    CodeInfo {
        code: OUT_OF_RANGE,
        title: "value out of range",
    },
    CodeInfo {
        code: UNGUARDED,
        title: "menu open to everybody",
    },
    CodeInfo {
        code: NO_FLOW,
        title: "no flow",
    },
    CodeInfo {
        code: UNKNOWN_TRIGGER,
        title: "unknown trigger",
    },
    CodeInfo {
        code: BAD_TRIGGER,
        title: "malformed HTTP trigger",
    },
    CodeInfo {
        code: BAD_METHOD,
        title: "bad method",
    },
    CodeInfo {
        code: BAD_LISTEN,
        title: "bad listening address",
    },
    CodeInfo {
        code: BAD_PATH,
        title: "bad path pattern",
    },
    CodeInfo {
        code: LISTENER_TLS,
        title: "bad TLS settings of a listener",
    },
    CodeInfo {
        code: DIFFERENT_TLS,
        title: "duplicate listener with different TLS",
    },
    CodeInfo {
        code: ROUTE_CONFLICT,
        title: "two flows match the same requests",
    },
    CodeInfo {
        code: OVERLAPPING_LISTENERS,
        title: "listening addresses overlap",
    },
    CodeInfo {
        code: NO_EFFECT,
        title: "setting without effect",
    },
    CodeInfo {
        code: BAD_STEP,
        title: "a step has exactly one verb",
    },
    CodeInfo {
        code: UNKNOWN_STEP,
        title: "unknown step",
    },
    CodeInfo {
        code: UNREACHABLE_STEP,
        title: "unreachable step",
    },
    CodeInfo {
        code: STEP_NAME_TAKEN,
        title: "duplicate step name",
    },
    CodeInfo {
        code: UNKNOWN_CONNECTION,
        title: "unknown kind of connection",
    },
    CodeInfo {
        code: BAD_MODIFIER,
        title: "bad key beside a verb",
    },
    CodeInfo {
        code: UNKNOWN_FLOW,
        title: "unknown flow",
    },
    CodeInfo {
        code: BAD_TEST,
        title: "contradictory test",
    },
    CodeInfo {
        code: BAD_LISTENER,
        title: "bad listener",
    },
    CodeInfo {
        code: BAD_PROXY,
        title: "bad address of a trusted proxy",
    },
    CodeInfo {
        code: BAD_PUBLIC_URL,
        title: "bad public URL",
    },
    CodeInfo {
        code: UNKNOWN_IN_TEST,
        title: "unknown name in a test",
    },
    CodeInfo {
        code: NO_STREAMS,
        title: "limits of streams without effect",
    },
    CodeInfo {
        code: OPEN_TO_ALL,
        title: "endpoint without authentication",
    },
    CodeInfo {
        code: PLAIN_SECRET,
        title: "secret in plain text",
    },
    CodeInfo {
        code: CLEAR_CREDENTIALS,
        title: "credentials without TLS",
    },
    CodeInfo {
        code: BAD_ADMIN,
        title: "invalid settings of the admin port",
    },
    CodeInfo {
        code: BAD_AUDIT,
        title: "invalid audit log settings",
    },
    CodeInfo {
        code: BAD_LIMIT,
        title: "bad limit per caller",
    },
    CodeInfo {
        code: UNKNOWN_PLAN,
        title: "unknown plan",
    },
];
