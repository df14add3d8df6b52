//! The codes of problems with authentication and authorization. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// An authentication method with invalid settings.
pub const BAD_WAY: Code = Code::new("IT0700");
/// An `auth` with a method that `engine.auth` does not have.
pub const UNKNOWN_WAY: Code = Code::new("IT0701");
/// An `auth` with invalid settings.
pub const BAD_AUTH: Code = Code::new("IT0702");
/// A key file that cannot be used.
pub const BAD_KEY_FILE: Code = Code::new("IT0703");
/// An `auth` with a method that is never used.
pub const UNUSED_WAY: Code = Code::new("IT0704");

/// An `engine.identity` with invalid settings.
pub const BAD_IDENTITY: Code = Code::new("IT0710");

/// An issuer or authorization service that is called without TLS.
pub const CLEAR_TEXT: Code = Code::new("IT0721");

/// All of them.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_WAY,
        title: "invalid authentication method",
    },
    CodeInfo {
        code: UNKNOWN_WAY,
        title: "unknown authentication method",
    },
    CodeInfo {
        code: BAD_AUTH,
        title: "invalid `auth`",
    },
    CodeInfo {
        code: BAD_KEY_FILE,
        title: "unusable key file",
    },
    CodeInfo {
        code: UNUSED_WAY,
        title: "authentication method that is never used",
    },
    CodeInfo {
        code: BAD_IDENTITY,
        title: "invalid `engine.identity`",
    },
    CodeInfo {
        code: CLEAR_TEXT,
        title: "issuer or authorization service without TLS",
    },
];
