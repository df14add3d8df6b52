//! The codes of problems with polling and with the comparison of documents. Each has a page in
//! `docs/errors/`.

use config::{Code, CodeInfo};

/// Settings of polling that contradict each other.
pub const BAD_POLL: Code = Code::new("IT0680");
/// A time, number or size of polling outside its range.
pub const POLL_RANGE: Code = Code::new("IT0681");
/// Pages that nobody knows how to ask for.
pub const BAD_PAGES: Code = Code::new("IT0682");
/// A JSON Pointer that is none.
pub const BAD_POINTER: Code = Code::new("IT0683");
/// A comparison that nothing can come of.
pub const BAD_CHANGES: Code = Code::new("IT0684");

/// Every code of these with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_POLL,
        title: "bad settings of polling",
    },
    CodeInfo {
        code: POLL_RANGE,
        title: "setting of polling out of range",
    },
    CodeInfo {
        code: BAD_PAGES,
        title: "bad pagination",
    },
    CodeInfo {
        code: BAD_POINTER,
        title: "bad JSON Pointer",
    },
    CodeInfo {
        code: BAD_CHANGES,
        title: "bad comparison of documents",
    },
];
