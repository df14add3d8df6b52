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
/// A statement that a connection cannot run by itself.
pub const BAD_STATEMENT: Code = Code::new("IT0420");
/// A transaction that cannot be one.
pub const BAD_TRANSACTION: Code = Code::new("IT0421");
/// A call of a procedure that cannot be one.
pub const BAD_PROCEDURE: Code = Code::new("IT0422");
/// A source of rows that would miss some, or take some again and again.
pub const BAD_SOURCE: Code = Code::new("IT0423");
/// An exchange, queue or binding that cannot be declared so.
pub const BAD_DECLARE: Code = Code::new("IT0400");
/// A source of messages of a broker that cannot be run so.
pub const BAD_CONSUME: Code = Code::new("IT0401");
/// A WSDL file, or a schema that it uses, that cannot be used.
pub const BAD_WSDL: Code = Code::new("IT0440");
/// A body or header of a SOAP message that is not what the WSDL file says.
pub const BAD_SOAP_BODY: Code = Code::new("IT0441");
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
        title: "expression not allowed: the text is the same for every message",
    },
    CodeInfo {
        code: BAD_PUBLISH,
        title: "invalid settings of a published message",
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
        title: "invalid call of a SOAP service",
    },
    CodeInfo {
        code: BAD_TLS,
        title: "bad TLS of a connection",
    },
    CodeInfo {
        code: BAD_STATEMENT,
        title: "statement not allowed here",
    },
    CodeInfo {
        code: BAD_TRANSACTION,
        title: "bad transaction",
    },
    CodeInfo {
        code: BAD_PROCEDURE,
        title: "bad call of a procedure",
    },
    CodeInfo {
        code: BAD_SOURCE,
        title: "bad source of rows",
    },
    CodeInfo {
        code: BAD_DECLARE,
        title: "invalid declaration of an exchange, queue or binding",
    },
    CodeInfo {
        code: BAD_CONSUME,
        title: "invalid settings of a RabbitMQ consumer",
    },
    CodeInfo {
        code: BAD_WSDL,
        title: "WSDL file cannot be used",
    },
    CodeInfo {
        code: BAD_SOAP_BODY,
        title: "SOAP message does not match the WSDL file",
    },
    CodeInfo {
        code: BAD_COMMAND,
        title: "invalid Redis command",
    },
    CodeInfo {
        code: BAD_REDIS_SOURCE,
        title: "invalid settings of a Redis trigger",
    },
    CodeInfo {
        code: BAD_MAIL,
        title: "invalid settings of a mail",
    },
    CodeInfo {
        code: BAD_SMTP,
        title: "invalid settings of a mail server",
    },
];
