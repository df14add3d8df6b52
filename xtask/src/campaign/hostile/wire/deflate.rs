//! Zeros as DEFLATE packs them best (RFC 1951): two bits for each 258 of them.

/// What a match repeats at most.
const MATCH: u64 = 258;

struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    /// Bits of a number, the lowest first.
    fn number(&mut self, value: u32, bits: u32) {
        for at in 0..bits {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> at & 1) as u8) << (self.count % 8);
            }
            self.count += 1;
        }
    }

    /// A Huffman code, whose highest bit comes first.
    fn code(&mut self, code: u32, bits: u32) {
        for at in (0..bits).rev() {
            self.number(code >> at & 1, 1);
        }
    }
}

/// A block of zeros, so many at least. As the last block it ends the stream; otherwise an empty
/// stored block follows it, whose lengths are left out (RFC 7692, section 7.2.1).
pub fn zeros(count: u64, is_last: bool) -> Vec<u8> {
    let mut bits = Bits {
        bytes: Vec::new(),
        count: 0,
    };
    bits.number(u32::from(is_last), 1);
    bits.number(2, 2);
    // 286 literals and lengths, one distance, lengths of the codes of code lengths up to that of 1.
    bits.number(29, 5);
    bits.number(0, 5);
    bits.number(14, 4);
    // In the order of section 3.2.7; the length 18 has one bit, 1 and 2 have two.
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1] {
        bits.number(
            match symbol {
                18 => 1,
                1 | 2 => 2,
                _ => 0,
            },
            3,
        );
    }
    let one = |bits: &mut Bits| bits.code(0b10, 2);
    let two = |bits: &mut Bits| bits.code(0b11, 2);
    let nothing = |bits: &mut Bits, count: u32| {
        bits.code(0, 1);
        bits.number(count - 11, 7);
    };
    // The byte 0 and the end of the block have two bits, a match of 258 has one, and so has its
    // distance of 1.
    two(&mut bits);
    nothing(&mut bits, 138);
    nothing(&mut bits, 117);
    two(&mut bits);
    nothing(&mut bits, 28);
    one(&mut bits);
    one(&mut bits);
    bits.code(0b10, 2);
    for _ in 0..count.saturating_sub(1).div_ceil(MATCH) {
        bits.number(0, 2);
    }
    bits.code(0b11, 2);
    if !is_last {
        bits.number(0, 3);
    }
    bits.bytes
}

/// How many zeros there are when so many were asked for.
fn length(count: u64) -> u64 {
    1 + count.saturating_sub(1).div_ceil(MATCH) * MATCH
}

/// The zeros as a file of gzip (RFC 1952).
pub fn gzip_zeros(count: u64) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(zeros(count, true));
    bytes.extend(crc_of_zeros(length(count)).to_le_bytes());
    bytes.extend((length(count) as u32).to_le_bytes());
    bytes
}

/// CRC-32 of zeros. What a byte of zero does to the sum is linear over its bits, so that doing it
/// twice, four times and so on is a matrix of 32 columns.
fn crc_of_zeros(count: u64) -> u32 {
    let byte = |crc: u32| {
        (0..8).fold(crc, |crc, _| match crc & 1 {
            1 => crc >> 1 ^ 0xedb8_8320,
            _ => crc >> 1,
        })
    };
    let apply = |matrix: &[u32; 32], crc: u32| {
        let columns = matrix.iter().zip(0..32);
        let chosen = columns.filter(|(_, bit)| crc >> bit & 1 == 1);
        chosen.fold(0, |sum, (column, _)| sum ^ column)
    };
    let mut matrix = [0; 32];
    for (column, bit) in matrix.iter_mut().zip(0..32) {
        *column = byte(1 << bit);
    }
    let mut crc = u32::MAX;
    for power in 0..u64::BITS {
        if count >> power & 1 == 1 {
            crc = apply(&matrix, crc);
        }
        matrix = matrix.map(|column| apply(&matrix, column));
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        assert_eq!(crc_of_zeros(0), 0);
        assert_eq!(crc_of_zeros(4), 0x2144_df1c);
        assert_eq!(crc_of_zeros(32), 0x190a_55ad);
    }

    #[test]
    fn gzip_unpacks_what_was_packed() -> std::io::Result<()> {
        let packed = gzip_zeros(1_000_000);
        assert!(packed.len() < 1100, "{}", packed.len());
        let mut gzip = Command::new("gzip")
            .arg("-dc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = gzip.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(&packed)?;
        }
        drop(input);
        let output = gzip.wait_with_output()?;
        assert!(output.status.success());
        assert_eq!(output.stdout.len() as u64, length(1_000_000));
        assert!(output.stdout.iter().all(|byte| *byte == 0));
        Ok(())
    }
}
