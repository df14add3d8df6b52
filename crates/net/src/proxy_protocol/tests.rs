//! Headers as balancers write them, cut at every place, and what is no header.

use super::*;

/// A header of version 2.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = V2_START.to_vec();
    header.extend([0x20 | command, family]);
    header.extend((rest.len() as u16).to_be_bytes());
    header.extend(rest);
    header
}

const TCP4: [u8; 12] = [203, 0, 113, 9, 10, 0, 0, 1, 0xd4, 0x31, 0x01, 0xbb];

fn tcp6() -> Vec<u8> {
    let source: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let mut addresses = source.octets().to_vec();
    addresses.extend(Ipv6Addr::LOCALHOST.octets());
    addresses.extend([0xd4, 0x31, 0x01, 0xbb]);
    addresses
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut tlv = vec![kind];
    tlv.extend((value.len() as u16).to_be_bytes());
    tlv.extend(value);
    tlv
}

fn with_tlvs(tlvs: &[Vec<u8>]) -> Vec<u8> {
    v2(1, 0x11, &[TCP4.to_vec(), tlvs.concat()].concat())
}

/// A header with the checksum that its sender computes.
fn with_checksum() -> Vec<u8> {
    let mut header = with_tlvs(&[tlv(4, b"pad"), tlv(3, &[0; 4]), tlv(0xee, b"own")]);
    let at = header.len() - 4 - 6;
    let crc = crc32c(&header, at..at + 4);
    header[at..at + 4].copy_from_slice(&crc.to_be_bytes());
    header
}

fn sound() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_MAX - 16));
    vec![
        (
            b"PROXY TCP4 203.0.113.9 10.0.0.1 54321 443\r\n".to_vec(),
            Some("203.0.113.9"),
        ),
        (
            b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n".to_vec(),
            Some("0.0.0.0"),
        ),
        (
            b"PROXY TCP6 2001:db8::9 ::1 54321 443\r\n".to_vec(),
            Some("2001:db8::9"),
        ),
        (
            b"PROXY TCP6 ::ffff:203.0.113.9 ::1 1 2\r\n".to_vec(),
            Some("203.0.113.9"),
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), None),
        (
            b"PROXY UNKNOWN ffff::1 whatever \r stands here\r\n".to_vec(),
            None,
        ),
        (longest.into_bytes(), None),
        (v2(1, 0x11, &TCP4), Some("203.0.113.9")),
        (v2(1, 0x21, &tcp6()), Some("2001:db8::9")),
        (
            with_tlvs(&[tlv(1, b"h2"), tlv(2, b"shop.example"), tlv(0x20, &[0; 5])]),
            Some("203.0.113.9"),
        ),
        (with_checksum(), Some("203.0.113.9")),
        (v2(1, 0x31, &[b'/'; 216]), None),
        (v2(1, 0x00, &[]), None),
        (v2(1, 0x00, b"whatever"), None),
        (v2(0, 0x00, &[]), None),
        (v2(0, 0x11, &TCP4), None),
        (v2(0, 0xff, b"whatever"), None),
        (v2(0, 0x00, &[0; V2_MAX - V2_FIXED]), None),
    ]
}

#[test]
fn headers_are_read_from_any_part_of_the_stream_and_leave_the_rest() {
    for (header, client) in sound() {
        let shown = header.escape_ascii().to_string();
        let own = if header.starts_with(V1_START) {
            Versions::V1
        } else {
            Versions::V2
        };
        for versions in [own, Versions::Any] {
            for end in 0..header.len() {
                let part = parse(&header[..end], versions);
                assert_eq!(part, Ok(None), "{end} bytes of {shown}");
            }
            for behind in ["", "\r\n", "GET / HTTP/1.1\r\n\r\n", "\n", "\x16\x03\x01"] {
                let bytes = [header.as_slice(), behind.as_bytes()].concat();
                let expected = Header {
                    length: header.len(),
                    client: client.map(|text| text.parse().unwrap()),
                };
                assert_eq!(parse(&bytes, versions), Ok(Some(expected)), "{shown}");
            }
        }
    }
}

#[test]
fn a_version_that_is_not_taken_is_refused_by_its_first_byte() {
    for (header, _) in sound() {
        let other = if header.starts_with(V1_START) {
            Versions::V2
        } else {
            Versions::V1
        };
        assert!(parse(&header[..1], other).is_err());
        assert!(parse(&header, other).is_err());
    }
    assert_eq!(parse(b"", Versions::Any), Ok(None));
}

#[test]
fn what_is_no_header_of_version_1_is_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_MAX - 15));
    let cases: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n",
        b"PROXY TCP4 1.1.1.1  2.2.2.2 1 2\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 -2\r\n",
        b"PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 256.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 1.1.1.1 localhost 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP6 ::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP4\t1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 1.1.1.1\xff 2.2.2.2 1 2\r\n",
        b"PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY UNKNOWNX\r\n",
        b"PROXY \r\n",
        b"PROXY \n",
        long.as_bytes(),
    ];
    for bytes in cases {
        let shown = bytes.escape_ascii();
        assert!(parse(bytes, Versions::V1).is_err(), "{shown}");
        assert!(parse(bytes, Versions::Any).is_err(), "{shown}");
    }
}

#[test]
fn what_is_no_header_of_version_2_is_refused() {
    let mut version_1 = v2(1, 0x11, &TCP4);
    version_1[12] = 0x11;
    let mut bad_start = v2(1, 0x11, &TCP4);
    bad_start[11] = b'\r';
    let cases = [
        version_1,
        bad_start,
        v2(2, 0x11, &TCP4),
        v2(0xf, 0x11, &TCP4),
        // UDP has no connections, and other families are none.
        v2(1, 0x12, &TCP4),
        v2(1, 0x22, &tcp6()),
        v2(1, 0x32, &[0; 216]),
        v2(1, 0x10, &TCP4),
        v2(1, 0x01, &TCP4),
        v2(1, 0x41, &TCP4),
        v2(1, 0x11, &TCP4[..11]),
        v2(1, 0x21, &tcp6()[..35]),
        v2(1, 0x31, &[0; 215]),
        v2(0, 0x00, &[0; V2_MAX - V2_FIXED + 1]),
        with_tlvs(&[vec![1]]),
        with_tlvs(&[vec![1, 0]]),
        with_tlvs(&[vec![1, 0, 2, b'h']]),
        with_tlvs(&[vec![1, 0xff, 0xff]]),
        with_tlvs(&[tlv(3, &[0; 4])]),
        with_tlvs(&[tlv(3, &[0; 3])]),
        with_tlvs(&[tlv(3, &[])]),
    ];
    for bytes in cases {
        let shown = bytes.escape_ascii();
        assert!(parse(&bytes, Versions::V2).is_err(), "{shown}");
        assert!(parse(&bytes, Versions::Any).is_err(), "{shown}");
    }
}

#[test]
fn a_checksum_covers_every_byte_of_the_header() {
    let header = with_checksum();
    for at in 0..header.len() {
        for bit in 0..8 {
            let mut changed = header.clone();
            changed[at] ^= 1 << bit;
            let read = parse(&changed, Versions::V2);
            // A longer one waits for its end; a kind that is none any more has no checksum; LOCAL
            // is taken without.
            let is_harmless = match at {
                14 | 15 => read == Ok(None),
                12 => bit == 0 && matches!(read, Ok(Some(Header { client: None, .. }))),
                13 => matches!(read, Ok(Some(Header { client: None, .. }))),
                at if at == header.len() - 13 => read.is_ok(),
                _ => false,
            };
            assert!(
                read.is_err() || is_harmless,
                "byte {at}, bit {bit}: {read:?}"
            );
        }
    }
    // The test value of RFC 3720, appendix B.4.
    assert_eq!(crc32c(&[0; 32], 0..0), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32], 0..32), 0x8a91_36aa);
}
