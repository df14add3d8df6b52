//! HPACK, the compression of header sections (RFC 7541).

mod decode;
mod encode;
mod huffman;
mod integer;
mod table;

pub(crate) use decode::{Decoder, Line, Sink};
pub(crate) use encode::Encoder;

/// The table size that both sides begin with (RFC 9113, section 6.5.2).
pub(crate) const TABLE_SIZE: usize = 4096;

/// Why a header section could not be decoded. The connection cannot go on after either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// It is not HPACK (RFC 9113, section 4.3: COMPRESSION_ERROR).
    Malformed,
    /// The receiver of the lines gave up because there are far too many.
    TooLarge,
}
