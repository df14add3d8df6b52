//! What can go wrong, as the codes of RFC 9113, section 7, and as answers to the caller.

use std::fmt;

/// An error code of RFC 9113, section 7. Unknown codes are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// NO_ERROR
    pub const NONE: Self = Self(0);
    /// PROTOCOL_ERROR
    pub const PROTOCOL: Self = Self(1);
    /// INTERNAL_ERROR
    pub const INTERNAL: Self = Self(2);
    /// FLOW_CONTROL_ERROR
    pub const FLOW_CONTROL: Self = Self(3);
    /// SETTINGS_TIMEOUT
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// STREAM_CLOSED
    pub const STREAM_CLOSED: Self = Self(5);
    /// FRAME_SIZE_ERROR
    pub const FRAME_SIZE: Self = Self(6);
    /// REFUSED_STREAM
    pub const REFUSED: Self = Self(7);
    /// CANCEL
    pub const CANCEL: Self = Self(8);
    /// COMPRESSION_ERROR
    pub const COMPRESSION: Self = Self(9);
    /// CONNECT_ERROR
    pub const CONNECT: Self = Self(10);
    /// ENHANCE_YOUR_CALM
    pub const CALM: Self = Self(11);
    /// INADEQUATE_SECURITY
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// HTTP_1_1_REQUIRED
    pub const HTTP_1_1_REQUIRED: Self = Self(13);
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "error {:#x}", self.0),
        }
    }
}

/// The connection cannot go on (RFC 9113, section 5.4.1). GOAWAY is in the output; once that is
/// written the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code that GOAWAY carries.
    pub code: Code,
    /// What the peer did, for a log.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::new(Code::PROTOCOL, reason)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for ConnectionError {}

/// Why a client may not open a stream now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// As many streams are open as the server allows (RFC 9113, section 5.1.2).
    TooManyStreams,
    /// GOAWAY was sent or received, or the stream numbers are used up.
    GoingAway,
    /// A reply is overdue, and no sign of life has come since.
    Suspected,
    /// The connection has failed.
    Closed,
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooManyStreams => "as many streams are open as the server allows",
            Self::GoingAway => "the connection takes no more streams",
            Self::Suspected => "a sign of life is awaited on the connection",
            Self::Closed => "the connection has failed",
        })
    }
}

impl std::error::Error for OpenError {}

/// Nothing can be sent on this stream: it was reset or released, or its sending side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOpen;

impl fmt::Display for NotOpen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("nothing can be sent on this stream")
    }
}

impl std::error::Error for NotOpen {}
