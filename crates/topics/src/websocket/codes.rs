//! The codes of problems with WebSocket triggers. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// An origin of browsers that is none.
pub const BAD_ORIGIN: Code = Code::new("IT0601");
/// A subprotocol that cannot be one.
pub const BAD_SUBPROTOCOL: Code = Code::new("IT0602");
/// A setting of a WebSocket trigger outside its range.
pub const WEBSOCKET_RANGE: Code = Code::new("IT0603");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_ORIGIN,
        title: "bad origin",
    },
    CodeInfo {
        code: BAD_SUBPROTOCOL,
        title: "bad subprotocol",
    },
    CodeInfo {
        code: WEBSOCKET_RANGE,
        title: "setting of a WebSocket trigger out of range",
    },
];
