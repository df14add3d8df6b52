//! Events compressed once for all readers: blocks of a deflate stream (RFC 1951) that refer to
//! nothing before them, so that a reader can begin with any.

use flate2::{Compress, Compression, FlushCompress};

/// The head of a gzip stream (RFC 1952, section 2.3): deflate, no name, no time, any system.
pub(crate) const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Makes blocks of deflate streams.
pub(crate) struct Gzip(Compress);

impl Gzip {
    /// Nothing compressed yet.
    pub fn new() -> Self {
        Self(Compress::new(Compression::fast(), false))
    }

    /// The block of these bytes. It ends on a whole byte, and what follows refers to nothing in it.
    pub fn block(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(plain.len() / 2 + 64);
        let before = self.0.total_in();
        loop {
            let taken = (self.0.total_in() - before) as usize;
            let rest = plain.get(taken..).unwrap_or_default();
            // What it answers is told by what it has taken and what room is left.
            let _ = self.0.compress_vec(rest, &mut out, FlushCompress::Full);
            let is_taken = (self.0.total_in() - before) as usize >= plain.len();
            if is_taken && out.len() < out.capacity() {
                return out;
            }
            out.reserve(out.capacity().max(64));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn plain(blocks: &[&[u8]]) -> Vec<u8> {
        let mut whole = HEAD.to_vec();
        blocks
            .iter()
            .for_each(|block| whole.extend_from_slice(block));
        let mut out = vec![0; 1 << 20];
        let mut reader = flate2::read::GzDecoder::new(&whole[..]);
        let mut length = 0;
        // The stream has no end yet, which the reader tells when there is nothing more.
        while let Ok(count) = reader.read(&mut out[length..]) {
            length += count;
        }
        out.truncate(length);
        out
    }

    #[test]
    fn a_reader_can_begin_with_any_block() {
        let mut gzip = Gzip::new();
        let texts: Vec<Vec<u8>> = (0..20_usize)
            .map(|at| format!("id: {at}\ndata: {}\n\n", "same ".repeat(at * at * 7)).into_bytes())
            .collect();
        let blocks: Vec<Vec<u8>> = texts.iter().map(|text| gzip.block(text)).collect();
        for first in 0..texts.len() {
            let parts: Vec<&[u8]> = blocks[first..].iter().map(Vec::as_slice).collect();
            assert_eq!(plain(&parts), texts[first..].concat());
        }
        assert!(blocks[19].len() < texts[19].len() / 10);
    }
}
