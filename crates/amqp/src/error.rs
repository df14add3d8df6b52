//! What can be wrong with bytes, in and out.

use std::fmt;

/// The other side does not speak AMQP 0-9-1, or not well. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not a frame: no known type, or no end where its end must be (section 2.3.5).
    Frame,
    /// A frame that is longer than what was agreed on.
    FrameSize,
    /// A method, a header or a table that ends too soon or holds what it may not.
    Syntax,
    /// A method that this side does not know or that has no business there.
    Unexpected,
    /// A content whose frames do not belong together (section 2.3.5.2).
    Content,
    /// The other side speaks another version.
    Version,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Frame => "what came is no frame of AMQP",
            Self::FrameSize => "a frame is longer than agreed",
            Self::Syntax => "a frame cannot be read",
            Self::Unexpected => "a method came that has no business there",
            Self::Content => "the frames of a message do not belong together",
            Self::Version => "the other side does not speak AMQP 0-9-1",
        })
    }
}

impl std::error::Error for Error {}

/// A text that is to be sent is longer than 255 bytes, or a table longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text of a message has more than 255 bytes")
    }
}

impl std::error::Error for TooLong {}
