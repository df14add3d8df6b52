//! CRC-32C (Castagnoli), eight bytes at a time (RFC 3720, appendix B.4, has its test values).

/// The polynomial, its bits in reverse.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 1;
            crc = (crc >> 1) ^ (POLYNOMIAL * carry);
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of bytes behind others that have this one; 0 for none.
pub(crate) fn extend(before: u32, bytes: &[u8]) -> u32 {
    let mut crc = !before;
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let word = u64::from_le_bytes(*eight) ^ u64::from(crc);
        crc = (0..8).fold(0, |crc, at| {
            let byte = (word >> (8 * at)) as u8;
            crc ^ TABLES[7 - at][usize::from(byte)]
        });
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    !crc
}

/// The checksum of bytes.
pub(crate) fn of(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_rfc_come_out() {
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(of(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn parts_one_after_the_other_give_the_same() {
        let bytes: Vec<u8> = (0..=255).collect();
        for at in [0, 1, 7, 8, 100, 256] {
            let (first, second) = bytes.split_at(at);
            assert_eq!(extend(of(first), second), of(&bytes));
        }
    }
}
