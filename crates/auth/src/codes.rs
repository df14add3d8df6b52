//! The codes of problems with access control. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A way that is not described as it must be.
pub const BAD_WAY: Code = Code::new("IT0700");
/// An `auth` that names a way that `engine.auth` does not have.
pub const UNKNOWN_WAY: Code = Code::new("IT0701");
/// An `auth` that says what cannot be.
pub const BAD_AUTH: Code = Code::new("IT0702");
/// A file of keys that cannot be used.
pub const BAD_KEY_FILE: Code = Code::new("IT0703");
/// An `auth` with a way that is never used.
pub const UNUSED_WAY: Code = Code::new("IT0704");

/// An `engine.identity` that says what cannot be.
pub const BAD_IDENTITY: Code = Code::new("IT0710");

/// Somebody who decides who comes in and is asked without TLS.
pub const CLEAR_TEXT: Code = Code::new("IT0721");

/// All of them.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_WAY,
        title: "bad way to know a caller",
    },
    CodeInfo {
        code: UNKNOWN_WAY,
        title: "unknown way to know a caller",
    },
    CodeInfo {
        code: BAD_AUTH,
        title: "bad `auth`",
    },
    CodeInfo {
        code: BAD_KEY_FILE,
        title: "unusable file of keys",
    },
    CodeInfo {
        code: UNUSED_WAY,
        title: "way to know a caller that is never used",
    },
    CodeInfo {
        code: BAD_IDENTITY,
        title: "bad `engine.identity`",
    },
    CodeInfo {
        code: CLEAR_TEXT,
        title: "access control over a network without TLS",
    },
];
