//! Percent-encoding (RFC 3986, section 2.1), looked at without copying.

/// A byte of an encoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it stands there; `%` when no two hexadecimal digits follow it.
    Plain(u8),
    /// What an escape means.
    Escaped(u8),
}

/// The bytes of an encoded text, one by one.
#[derive(Clone, Debug)]
pub struct Pieces<'a>(pub &'a [u8]);

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        if let [b'%', high, low, rest @ ..] = self.0
            && let Some((high, low)) = digit(*high).zip(digit(*low))
            && let Ok(byte) = u8::try_from(high << 4 | low)
        {
            self.0 = rest;
            return Some(Piece::Escaped(byte));
        }
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(Piece::Plain(*byte))
    }
}
