//! The codes of problems with WebSub. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// Settings of a subscription to another hub that cannot work.
pub const BAD_WEBSUB: Code = Code::new("IT0670");

/// Every code of these with its title.
pub const ALL: &[CodeInfo] = &[CodeInfo {
    code: BAD_WEBSUB,
    title: "bad settings of a WebSub subscription",
}];
