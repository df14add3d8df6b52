//! Reads numbers, little-endian, and bytes one behind the other, never behind the end.

/// A place in bytes.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes have been read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether all has been read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Text with its length before it.
    pub fn text(&mut self) -> Option<&'a str> {
        let size = self.u32()?;
        std::str::from_utf8(self.take(size)?).ok()
    }

    pub fn take(&mut self, size: u32) -> Option<&'a [u8]> {
        let end = self.at.checked_add(size as usize)?;
        let slice = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(slice)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, _) = self.bytes.get(self.at..)?.split_first_chunk::<N>()?;
        self.at += N;
        Some(*array)
    }
}

/// Writes bytes with their length before them.
pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
