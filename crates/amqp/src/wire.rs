//! Numbers and texts as they stand in frames (section 4.2).

use crate::error::{Error, TooLong};
use crate::{SHORT_MAX, Table};

/// Reads what stands in a frame, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Syntax)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Error::Syntax)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text of at most 255 bytes.
    pub fn short(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A text with a length of four bytes.
    pub fn long(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u32()?;
        self.take(usize::try_from(length).map_err(|_| Error::Syntax)?)
    }

    pub fn table(&mut self) -> Result<Table, Error> {
        Table::read(self.long()?)
    }

    /// Nothing may follow.
    pub fn end(self) -> Result<(), Error> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Error::Syntax),
        }
    }
}

/// Writes a text of at most 255 bytes.
pub(crate) fn put_short(out: &mut Vec<u8>, text: &[u8]) -> Result<(), TooLong> {
    if text.len() > SHORT_MAX {
        return Err(TooLong);
    }
    out.push(text.len() as u8);
    out.extend_from_slice(text);
    Ok(())
}

/// Writes a text with a length of four bytes.
pub(crate) fn put_long(out: &mut Vec<u8>, text: &[u8]) -> Result<(), TooLong> {
    let length = u32::try_from(text.len()).map_err(|_| TooLong)?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text);
    Ok(())
}

/// Writes a length of four bytes and then what it is the length of.
pub(crate) fn put_sized(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>,
) -> Result<(), TooLong> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = u32::try_from(out.len() - at - 4).map_err(|_| TooLong)?;
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}
