//! The codes of problems with expressions, and with what clients meet first. Each has a page in
//! `docs/errors/`.

use config::{Code, CodeInfo};

/// An expression that is no jq, or uses a name that is not there.
pub const BAD_EXPRESSION: Code = Code::new("IT0230");
/// A member of `$secret` or `$env` that is not declared.
pub const UNKNOWN_NAME: Code = Code::new("IT0231");
/// `networks` that are none.
pub const BAD_NETWORK: Code = Code::new("IT0236");
/// A `cors` that browsers would not understand, or that is not safe.
pub const BAD_CORS: Code = Code::new("IT0237");
/// `security_headers` that cannot be sent.
pub const BAD_SECURITY_HEADERS: Code = Code::new("IT0238");
/// Settings of the egress guard that cannot be, or a target that it would refuse.
pub const BAD_EGRESS: Code = Code::new("IT0740");

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
    CodeInfo {
        code: BAD_NETWORK,
        title: "bad network",
    },
    CodeInfo {
        code: BAD_CORS,
        title: "bad CORS policy",
    },
    CodeInfo {
        code: BAD_SECURITY_HEADERS,
        title: "bad security headers",
    },
    CodeInfo {
        code: BAD_EGRESS,
        title: "refused by the egress guard",
    },
];
