//! The codes of problems with connections to brokers, databases and SOAP services, and with the
//! steps that use them. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A connection whose URL or file is none.
pub const BAD_ADDRESS: Code = Code::new("IT0290");
/// A setting outside its range.
pub const OUT_OF_RANGE: Code = Code::new("IT0291");
/// A step whose `to` names no connection that it can use.
pub const NO_CONNECTION: Code = Code::new("IT0292");
/// A `${ }` in a text that is the same for every message.
pub const NOT_FIXED: Code = Code::new("IT0293");
/// A message for a broker that cannot be sent so.
pub const BAD_PUBLISH: Code = Code::new("IT0294");
/// The text of a statement that cannot be one.
pub const BAD_QUERY: Code = Code::new("IT0295");
/// A statement and arguments that do not belong together.
pub const BAD_ARGUMENTS: Code = Code::new("IT0296");
/// A call of a SOAP service that cannot be sent so.
pub const BAD_SOAP: Code = Code::new("IT0297");
/// TLS settings, a certificate or a key of a connection that cannot be used.
pub const BAD_TLS: Code = Code::new("IT0298");
/// A command of a Redis server that cannot be given so.
pub const BAD_COMMAND: Code = Code::new("IT0460");
/// A source of a Redis server that cannot be read so.
pub const BAD_REDIS_SOURCE: Code = Code::new("IT0461");
/// A mail that cannot be sent so.
pub const BAD_MAIL: Code = Code::new("IT0470");
/// A mail server that cannot be used so.
pub const BAD_SMTP: Code = Code::new("IT0471");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_ADDRESS,
        title: "bad address of a connection",
    },
    CodeInfo {
        code: OUT_OF_RANGE,
        title: "setting of a connector out of range",
    },
    CodeInfo {
        code: NO_CONNECTION,
        title: "no connection that the step can use",
    },
    CodeInfo {
        code: NOT_FIXED,
        title: "text must be the same for every message",
    },
    CodeInfo {
        code: BAD_PUBLISH,
        title: "message cannot be published so",
    },
    CodeInfo {
        code: BAD_QUERY,
        title: "bad SQL statement",
    },
    CodeInfo {
        code: BAD_ARGUMENTS,
        title: "statement and arguments differ",
    },
    CodeInfo {
        code: BAD_SOAP,
        title: "SOAP service cannot be called so",
    },
    CodeInfo {
        code: BAD_TLS,
        title: "bad TLS of a connection",
    },
    CodeInfo {
        code: BAD_COMMAND,
        title: "Redis cannot be given this command so",
    },
    CodeInfo {
        code: BAD_REDIS_SOURCE,
        title: "Redis cannot be read so",
    },
    CodeInfo {
        code: BAD_MAIL,
        title: "mail cannot be sent so",
    },
    CodeInfo {
        code: BAD_SMTP,
        title: "mail server cannot be used so",
    },
];
