//! The codes of problems with topics. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A setting of a topic outside its range.
pub const OUT_OF_RANGE: Code = Code::new("IT0640");
/// A way to publish by HTTP that cannot be one.
pub const BAD_PUBLISHER: Code = Code::new("IT0641");
/// A topic that no document declares.
pub const UNKNOWN_TOPIC: Code = Code::new("IT0642");

/// A source `topic` that cannot be run so.
pub const BAD_TOPIC_SOURCE: Code = Code::new("IT0643");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: OUT_OF_RANGE,
        title: "setting of a topic out of range",
    },
    CodeInfo {
        code: BAD_PUBLISHER,
        title: "bad way to publish by HTTP",
    },
    CodeInfo {
        code: UNKNOWN_TOPIC,
        title: "unknown topic",
    },
    CodeInfo {
        code: BAD_TOPIC_SOURCE,
        title: "bad source of a topic",
    },
];
