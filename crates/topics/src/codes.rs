//! The codes of problems with topics. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A setting of a topic outside its range.
pub const OUT_OF_RANGE: Code = Code::new("IT0640");
/// A way to publish by HTTP that cannot be one.
pub const BAD_PUBLISHER: Code = Code::new("IT0641");
/// A topic that no document declares.
pub const UNKNOWN_TOPIC: Code = Code::new("IT0642");
/// Settings of subscriptions that contradict each other or have no effect.
pub const BAD_SUBSCRIBE: Code = Code::new("IT0660");
/// A form in which a topic does not come.
pub const BAD_MODES: Code = Code::new("IT0661");
/// A way to subscribe that is no protocol by which clients connect.
pub const BAD_VIA: Code = Code::new("IT0662");

/// Settings of a webhook that contradict each other, cannot be used or have no effect.
pub const BAD_WEBHOOK: Code = Code::new("IT0663");

/// Settings of a WebSub hub that contradict each other or cannot be used.
pub const BAD_HUB: Code = Code::new("IT0671");

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
        title: "bad settings for publishing by HTTP",
    },
    CodeInfo {
        code: UNKNOWN_TOPIC,
        title: "unknown topic",
    },
    CodeInfo {
        code: BAD_SUBSCRIBE,
        title: "contradictory settings of a subscription",
    },
    CodeInfo {
        code: BAD_MODES,
        title: "mode that the topic does not have",
    },
    CodeInfo {
        code: BAD_VIA,
        title: "no protocol that clients connect by",
    },
    CodeInfo {
        code: BAD_WEBHOOK,
        title: "bad settings of a webhook",
    },
    CodeInfo {
        code: BAD_HUB,
        title: "bad settings of a WebSub hub",
    },
    CodeInfo {
        code: BAD_TOPIC_SOURCE,
        title: "bad source of a topic",
    },
];
