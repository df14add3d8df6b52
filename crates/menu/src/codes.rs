//! The codes of problems with menus. Each has a page in `docs/errors/`.

use config::{Code, CodeInfo};

/// A part of a menu that cannot be.
pub const BAD_MENU: Code = Code::new("IT0801");
/// A screen that nothing leads to.
pub const UNREACHABLE_SCREEN: Code = Code::new("IT0802");
/// A text that a language lacks, or a language that the menu lacks.
pub const BAD_LANGUAGE: Code = Code::new("IT0803");
/// Two things on one key.
pub const KEY_TAKEN: Code = Code::new("IT0804");
/// A screen that does not go on and does not end.
pub const DEAD_END: Code = Code::new("IT0805");
/// A character outside the GSM alphabet.
pub const OUTSIDE_ALPHABET: Code = Code::new("IT0806");
/// A code to dial, or a gateway's setting, that cannot be.
pub const BAD_CODE: Code = Code::new("IT0807");

/// Every code of this crate with its title.
pub const ALL: &[CodeInfo] = &[
    CodeInfo {
        code: BAD_MENU,
        title: "bad menu",
    },
    CodeInfo {
        code: UNREACHABLE_SCREEN,
        title: "unreachable screen",
    },
    CodeInfo {
        code: BAD_LANGUAGE,
        title: "missing or unknown language",
    },
    CodeInfo {
        code: KEY_TAKEN,
        title: "two things on one key",
    },
    CodeInfo {
        code: DEAD_END,
        title: "dead end",
    },
    CodeInfo {
        code: OUTSIDE_ALPHABET,
        title: "character outside the GSM alphabet",
    },
    CodeInfo {
        code: BAD_CODE,
        title: "bad code to dial",
    },
];
