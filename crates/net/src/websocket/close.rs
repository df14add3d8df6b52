//! Why connections end: status codes of close frames, and what breaks the protocol.

use std::fmt;

/// The status code of a close frame (RFC 6455, section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The side stops, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The other side has broken the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A kind of data that the side does not take.
    pub const UNSUPPORTED: Self = Self(1003);
    /// Data that is not what it claims to be, such as a text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// A message that the side does not want.
    pub const POLICY: Self = Self(1008);
    /// A message that is too big.
    pub const TOO_BIG: Self = Self(1009);
    /// The client misses an extension.
    pub const EXTENSION: Self = Self(1010);
    /// The side cannot go on.
    pub const INTERNAL: Self = Self(1011);
    /// The side is overloaded; the other one may connect again later (IANA's registry).
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// Whether a close frame may hold the code: those that RFC 6455, section 7.4.1, and the
    /// registry of IANA define for frames, and those of libraries and applications (7.4.2).
    pub fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// What the other side has done that ends the connection (RFC 6455, section 7.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The code of the close frame that tells it.
    pub code: CloseCode,
    /// The same in words.
    pub reason: &'static str,
}

impl Violation {
    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self {
            code: CloseCode::PROTOCOL_ERROR,
            reason,
        }
    }

    pub(super) const fn data(reason: &'static str) -> Self {
        Self {
            code: CloseCode::INVALID_DATA,
            reason,
        }
    }

    pub(super) const TOO_BIG: Self = Self {
        code: CloseCode::TOO_BIG,
        reason: "the message is too big",
    };
    pub(super) const NO_MEMORY: Self = Self {
        code: CloseCode::TRY_AGAIN_LATER,
        reason: "there is no memory left for the message",
    };
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.reason, self.code)
    }
}

impl std::error::Error for Violation {}
