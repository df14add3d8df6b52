//! Compression of messages (RFC 7692, section 7.2). Compressors and decompressors are lent by the
//! thread: a connection has one only while a message is under way.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Violation;

/// The largest window, as the exponent of 2.
pub(super) const BITS_MAX: u8 = 15;
/// The smallest window that our compressor can do with.
pub(super) const BITS_MIN: u8 = 9;

/// Quick: what is compressed here is text on its way to many.
const LEVEL: u32 = 4;
/// The end of what a compressor flushes, which is not sent (RFC 7692, section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// How many free decompressors a thread keeps.
const FREE_MAX: usize = 16;
/// The first room for what is decompressed.
const ROOM: usize = 1024;

/// What both sides have agreed on about compression. Messages of ours are compressed each by
/// itself, so the same frame serves every connection with the same agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deflate {
    /// The largest window that we may compress with, as the exponent of 2: 8 to 15. With 8 we do
    /// not compress at all, for our compressor cannot.
    pub window_bits: u8,
    /// Whether what the other side compresses may refer to its messages before.
    pub peer_keeps_context: bool,
}

struct Free {
    compressors: Vec<(u8, Compress)>,
    #[allow(
        clippy::vec_box,
        reason = "readers hold it in a box, and it moves in and out of one"
    )]
    decompressors: Vec<Box<Decompress>>,
}

thread_local! {
    static FREE: RefCell<Free> = const {
        RefCell::new(Free { compressors: Vec::new(), decompressors: Vec::new() })
    };
}

impl Deflate {
    /// Appends a compressed payload, without the tail; `false`, with nothing appended, when that
    /// cannot be done.
    pub(super) fn compress(self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        if self.window_bits < BITS_MIN {
            return false;
        }
        let start = out.len();
        let mut compressor = take_compressor(self.window_bits);
        let done = compress(&mut compressor, payload, out);
        compressor.reset();
        let free = |free: &mut Free| free.compressors.push((self.window_bits, compressor));
        // At the end of the thread the store may be gone already.
        let _ = FREE.try_with(|it| free(&mut it.borrow_mut()));
        if !done {
            out.truncate(start);
        }
        done
    }
}

fn take_compressor(bits: u8) -> Compress {
    let stored = FREE.try_with(|free| {
        let compressors = &mut free.borrow_mut().compressors;
        let at = compressors.iter().position(|(found, _)| *found == bits)?;
        Some(compressors.swap_remove(at).1)
    });
    let new = || Compress::new_with_window_bits(Compression::new(LEVEL), false, bits);
    stored.ok().flatten().unwrap_or_else(new)
}

/// Whether all has been compressed.
fn compress(compressor: &mut Compress, payload: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut rest = payload;
    loop {
        // With room left over the flush is complete.
        let room = (payload.len() / 2).max(64);
        out.reserve(room);
        let before = compressor.total_in();
        let result = compressor.compress_vec(rest, out, FlushCompress::Sync);
        let used = (compressor.total_in() - before) as usize;
        rest = rest.get(used..).unwrap_or_default();
        match result {
            Ok(Status::Ok | Status::BufError) => {}
            Ok(Status::StreamEnd) | Err(_) => return false,
        }
        if rest.is_empty() && out.len() < out.capacity() {
            break;
        }
    }
    let has_tail = out.get(start..).is_some_and(|it| it.ends_with(&TAIL));
    if has_tail {
        out.truncate(out.len() - TAIL.len());
    }
    has_tail
}

/// The decompressor of one message, or of all that come by a connection when they refer to each
/// other.
#[derive(Debug)]
pub(super) struct Inflater(Option<Box<Decompress>>);

impl Inflater {
    pub fn new() -> Self {
        let stored = FREE.try_with(|free| free.borrow_mut().decompressors.pop());
        let stored = stored.ok().flatten();
        Self(Some(
            stored.unwrap_or_else(|| Box::new(Decompress::new(false))),
        ))
    }

    /// Appends what these bytes decompress to; `out` may not become longer than `max`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>, max: usize) -> Result<(), Violation> {
        let Some(inflater) = &mut self.0 else {
            return Ok(());
        };
        let mut rest = bytes;
        loop {
            if out.len() == out.capacity() {
                // One byte more than may be, so that too much is noticed.
                let room = out.len().max(ROOM).min((max + 1).saturating_sub(out.len()));
                out.reserve_exact(room.max(1));
            }
            let (used, made) = (inflater.total_in(), out.len());
            let result = inflater.decompress_vec(rest, out, FlushDecompress::Sync);
            let used = (inflater.total_in() - used) as usize;
            rest = rest.get(used..).unwrap_or_default();
            if out.len() > max {
                return Err(Violation::TOO_BIG);
            }
            match result {
                // A last block (RFC 7692, section 7.2.3.5): what follows begins anew.
                Ok(Status::StreamEnd) => inflater.reset(false),
                Ok(Status::Ok | Status::BufError) => {
                    let is_stuck = used == 0 && out.len() == made && out.len() < out.capacity();
                    if is_stuck && !rest.is_empty() {
                        return Err(BROKEN);
                    }
                }
                Err(_) => return Err(BROKEN),
            }
            if rest.is_empty() && out.len() < out.capacity() {
                return Ok(());
            }
        }
    }

    /// The end of a message.
    pub fn finish(&mut self, out: &mut Vec<u8>, max: usize) -> Result<(), Violation> {
        self.push(&TAIL, out, max)
    }
}

const BROKEN: Violation = Violation::data("a compressed message is broken");

impl Drop for Inflater {
    fn drop(&mut self) {
        let Some(mut inflater) = self.0.take() else {
            return;
        };
        inflater.reset(false);
        // At the end of the thread the store may be gone already; then it is just freed.
        let _ = FREE.try_with(|free| {
            let decompressors = &mut free.borrow_mut().decompressors;
            if decompressors.len() < FREE_MAX {
                decompressors.push(inflater);
            }
        });
    }
}
