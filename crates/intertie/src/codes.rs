//! The codes of problems with the files that flow files name. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A certificate, key or authority that cannot be read or used.
pub const BAD_CERTIFICATE: Code = Code::new("IT0301");
/// A certificate that ends soon.
pub const EXPIRES_SOON: Code = Code::new("IT0302");
/// A secret that cannot be read or used.
pub const BAD_SECRET: Code = Code::new("IT0303");
/// A secret that two sources have.
pub const SECRET_TWICE: Code = Code::new("IT0304");
/// A document among tests that is none.
pub const NOT_A_TEST: Code = Code::new("IT0305");
/// A connection that this build cannot open.
pub const MISSING_DRIVER: Code = Code::new("IT0306");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_CERTIFICATE,
        title: "certificate or key cannot be used",
    },
    CodeInfo {
        code: EXPIRES_SOON,
        title: "certificate expires soon",
    },
    CodeInfo {
        code: BAD_SECRET,
        title: "secret cannot be read",
    },
    CodeInfo {
        code: SECRET_TWICE,
        title: "secret given twice",
    },
    CodeInfo {
        code: NOT_A_TEST,
        title: "a file with tests has only tests",
    },
    CodeInfo {
        code: MISSING_DRIVER,
        title: "this build has no driver",
    },
];
