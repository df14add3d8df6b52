//! The PROXY protocol, versions 1 and 2: a load balancer that passes TCP connections on writes the
//! client's address in front of them (proxy-protocol.txt of HAProxy, revision of 2020-03-05). Pure:
//! bytes in, an address out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest header of version 1, its line break included (section 2.1).
const V1_MAX: usize = 107;
/// How a header of version 1 begins.
const V1_START: &[u8] = b"PROXY ";
/// How a header of version 2 begins (section 2.2).
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The part of a header of version 2 that says how long the rest is.
const V2_FIXED: usize = 16;
/// The longest header of version 2 that is taken, as nginx has it. Its length field would allow
/// 64 KiB, which certificates in TLVs come near to; those are of no use here.
const V2_MAX: usize = 4096;
/// The TLV with a checksum of the header (section 2.2.3).
const TLV_CRC32C: u8 = 0x03;

/// The longest header of any version.
pub const HEADER_MAX: usize = V2_MAX;

/// The versions that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
    /// Either.
    Any,
}

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many bytes it has. What follows is the client's.
    pub length: usize,
    /// The address of the client. `None` where the header says that there is none, or none that is
    /// an IP address: `LOCAL` (the balancer itself connects, as for a health check), `UNKNOWN`,
    /// `AF_UNSPEC` and `AF_UNIX`. The connection's own address counts then.
    pub client: Option<IpAddr>,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads a header from the beginning of a connection. `None` while it is not whole: then all of
/// `bytes` belongs to it, so that the caller may take these off the socket and ask for more.
///
/// # Errors
/// When the connection does not begin with a header of one of these versions, as soon as that is
/// certain.
pub fn parse(bytes: &[u8], versions: Versions) -> Result<Option<Header>, Malformed> {
    let is_v1 = versions != Versions::V2 && begins(bytes, V1_START);
    let is_v2 = versions != Versions::V1 && begins(bytes, V2_START);
    match (is_v1, is_v2) {
        (true, true) => Ok(None),
        (true, false) => parse_v1(bytes),
        (false, true) => parse_v2(bytes),
        (false, false) => Err(Malformed("the connection has no PROXY protocol header")),
    }
}

/// Whether bytes begin like this as far as they go.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    let known = bytes.len().min(start.len());
    bytes.get(..known) == start.get(..known)
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let window = bytes.get(..V1_MAX).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return match bytes.len() < V1_MAX {
            true => Ok(None),
            false => Err(Malformed("the line is longer than 107 bytes")),
        };
    };
    let line = window.get(V1_START.len()..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r");
    let line = line.ok_or(Malformed("the line does not end with CR LF"))?;
    let client = match line.split(|byte| *byte == b' ').next() {
        Some(b"UNKNOWN") => None,
        Some(b"TCP4") => Some(IpAddr::V4(addresses_v1::<Ipv4Addr>(line)?)),
        Some(b"TCP6") => Some(IpAddr::V6(addresses_v1::<Ipv6Addr>(line)?).to_canonical()),
        _ => return Err(Malformed("the protocol is not TCP4, TCP6 or UNKNOWN")),
    };
    let length = end + 1;
    Ok(Some(Header { length, client }))
}

/// The source address of a line, whose other parts are read too: one that is malformed is not
/// believed.
fn addresses_v1<A: std::str::FromStr>(line: &[u8]) -> Result<A, Malformed> {
    let malformed = || Malformed("the addresses are malformed");
    let text = std::str::from_utf8(line).map_err(|_| malformed())?;
    let mut parts = text.split(' ').skip(1);
    let mut address = || parts.next()?.parse::<A>().ok();
    let (source, destination) = (address(), address());
    let mut port = || parts.next().filter(|text| is_port(text));
    let ports = (port(), port());
    match (source, destination, ports, parts.next()) {
        (Some(source), Some(_), (Some(_), Some(_)), None) => Ok(source),
        _ => Err(malformed()),
    }
}

/// A decimal number from 0 to 65535 without leading zeros.
fn is_port(text: &str) -> bool {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal && (text == "0" || !text.starts_with('0')) && text.parse::<u16>().is_ok()
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some(&[command, family, high, low]) = bytes.get(V2_START.len()..V2_FIXED) else {
        return match bytes.get(V2_START.len()) {
            Some(command) if command >> 4 != 2 => Err(Malformed("the version is not 2")),
            _ => Ok(None),
        };
    };
    if command >> 4 != 2 {
        return Err(Malformed("the version is not 2"));
    }
    let length = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > V2_MAX {
        return Err(Malformed("the header is longer than 4 KiB"));
    }
    let is_local = match command & 0xf {
        0 => true,
        1 => false,
        _ => return Err(Malformed("the command is neither LOCAL nor PROXY")),
    };
    let addresses = match family {
        // What stands behind LOCAL is skipped, whatever it claims to be.
        _ if is_local => 0,
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        0x31 => 216,
        _ => return Err(Malformed("the address family or protocol is not supported")),
    };
    if length < V2_FIXED + addresses {
        return Err(Malformed("the addresses are cut short"));
    }
    let Some(header) = bytes.get(..length) else {
        return Ok(None);
    };
    let rest = header.get(V2_FIXED..).unwrap_or_default();
    if addresses > 0 {
        check_tlvs(header, V2_FIXED + addresses)?;
    }
    let client = match addresses {
        12 => rest.first_chunk::<4>().map(|it| IpAddr::from(*it)),
        36 => rest.first_chunk::<16>().map(|it| IpAddr::from(*it)),
        _ => None,
    };
    let client = client.map(|address| address.to_canonical());
    Ok(Some(Header { length, client }))
}

/// Walks over the TLVs (section 2.2.1) and compares the checksum if there is one.
fn check_tlvs(header: &[u8], start: usize) -> Result<(), Malformed> {
    let cut = Malformed("a TLV is cut short");
    let mut at = start;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else {
            return Err(cut);
        };
        let value = at + 3;
        at = value + usize::from(u16::from_be_bytes([high, low]));
        let content = header.get(value..at).ok_or(cut)?;
        if kind == TLV_CRC32C {
            let wrong = Malformed("the checksum is wrong");
            let told = content.try_into().map_err(|_| wrong)?;
            if crc32c(header, value..at) != u32::from_be_bytes(told) {
                return Err(wrong);
            }
        }
    }
    Ok(())
}

/// The CRC-32C of a header with these bytes taken as zero (section 2.2.3). Bit by bit, for a header
/// is short and stands once in front of a connection; the fast one is behind the wall of `journal`.
fn crc32c(header: &[u8], zeroed: std::ops::Range<usize>) -> u32 {
    let mut crc = u32::MAX;
    for (at, byte) in header.iter().enumerate() {
        let byte = if zeroed.contains(&at) { 0 } else { *byte };
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests;
