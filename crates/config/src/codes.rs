//! The codes of problems that this crate finds. Each has a page in `docs/errors/`.

use std::fmt;

/// The code of a kind of problem, such as `IT0103`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code(&'static str);

impl Code {
    /// A code, by its text.
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    /// The code's text.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// A code and what it stands for.
#[derive(Copy, Clone, Debug)]
pub struct CodeInfo {
    /// The code.
    pub code: Code,
    /// What it stands for, in a few words.
    pub title: &'static str,
}

macro_rules! codes {
    ($($name:ident = $text:literal, $title:literal;)*) => {
        $(#[doc = $title] pub const $name: Code = Code::new($text);)*
        /// All codes of this crate.
        pub const ALL: &[CodeInfo] = &[$(CodeInfo { code: $name, title: $title }),*];
    };
}

codes! {
    TOO_LARGE = "IT0101", "the file is too large";
    NOT_UTF8 = "IT0102", "the file is not UTF-8";
    SYNTAX = "IT0103", "the file is not YAML";
    TOO_DEEP = "IT0104", "nested too deeply";
    TOO_MANY = "IT0105", "too many values, or a recursive alias";
    DUPLICATE_KEY = "IT0106", "duplicate key";
    BAD_KEY = "IT0107", "a key is not plain text";
    TAG = "IT0108", "a YAML tag";
    MERGE_KEY = "IT0109", "a YAML merge key";
    BAD_NUMBER = "IT0110", "a number that is not finite";
    UNKNOWN_KEY = "IT0111", "unknown key";
    WRONG_TYPE = "IT0112", "wrong type of value";
    MISSING_KEY = "IT0113", "a key is missing";
    NOT_ONE_OF = "IT0114", "not one of the allowed values";
    OUT_OF_RANGE = "IT0115", "too small, too large, too short or too long";
    BAD_DURATION = "IT0116", "not a duration";
    BAD_SIZE = "IT0117", "not a size";
    BAD_VALUE = "IT0118", "a value that cannot be used";
    BAD_PERCENTAGE = "IT0119", "not a percentage";
    ENV_UNDECLARED = "IT0120", "an environment name that is not declared";
    SECRET_UNDECLARED = "IT0121", "a secret that is not declared";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_each_stands_once() {
        assert!(ALL.windows(2).all(|pair| pair[0].code < pair[1].code));
    }
}
