//! The codes of problems with expressions. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// An expression that is no jq, or uses a name that is not there.
pub const BAD_EXPRESSION: Code = Code::new("IT0230");
/// A member of `$secret` or `$env` that is not declared.
pub const UNKNOWN_NAME: Code = Code::new("IT0231");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_EXPRESSION,
        title: "bad expression",
    },
    CodeInfo {
        code: UNKNOWN_NAME,
        title: "secret or environment name not declared",
    },
];
