//! Which proxies are believed when they tell who the client is.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use message::{Field, HeadersView};

/// The most addresses of `X-Forwarded-For` that are looked at, from the last one on.
const HOPS_MAX: usize = 64;

/// The addresses of proxies in front of the engine. What others say about the way of a request is
/// dropped: anybody can write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

/// A block of addresses (RFC 4632; RFC 4291, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    /// The first address. IPv4 as it is mapped into IPv6.
    first: u128,
    /// How many leading bits all addresses have in common, of 128.
    bits: u32,
}

/// Why a text is no block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNetwork {
    /// It is neither `ADDRESS` nor `ADDRESS/BITS`.
    Malformed,
    /// The address has bits behind the prefix. The block may be this one.
    HasHostBits(IpAddr, u32),
}

impl fmt::Display for NoNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => formatter.write_str("this is no address and no block of addresses"),
            Self::HasHostBits(first, bits) => {
                write!(
                    formatter,
                    "the block begins with {first}: write `{first}/{bits}`"
                )
            }
        }
    }
}

impl TrustedProxies {
    /// Adds an address or a block: `10.0.0.7`, `10.0.0.0/8`, `2001:db8::/32`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn add(&mut self, text: &str) -> Result<(), NoNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoNetwork::Malformed)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let is_number = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let own_bits = match bits {
            None => width,
            Some(bits) => Some(bits)
                .filter(is_number)
                .and_then(|bits| bits.parse().ok())
                .filter(|bits| *bits <= width)
                .ok_or(NoNetwork::Malformed)?,
        };
        let bits = own_bits + 128 - width;
        let number = number(address);
        let first = number & mask(bits);
        if first != number {
            let first = Ipv6Addr::from_bits(first).to_canonical();
            return Err(NoNetwork::HasHostBits(first, own_bits));
        }
        self.0.push(Network { first, bits });
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.0.iter().any(|it| number & mask(it.bits) == it.first)
    }

    /// The address of the client of a request that came from a trusted `peer`: the last one of
    /// `X-Forwarded-For` that is not trusted itself. Each proxy has appended who it got the request
    /// from, so that everything before that address may be made up. The first one when all are
    /// trusted; what cannot be read ends the search.
    pub fn client(&self, peer: IpAddr, headers: HeadersView<'_>) -> IpAddr {
        let lines = headers.iter().rev();
        let lines = lines.filter(|(field, ..)| *field == Field::XForwardedFor);
        let hops = lines.flat_map(|(_, _, line)| line.rsplit(|byte| *byte == b','));
        let mut client = peer;
        for hop in hops.take(HOPS_MAX) {
            match parse_hop(hop) {
                Some(address) => client = address,
                None => break,
            }
            if !self.contains(client) {
                break;
            }
        }
        client
    }
}

/// An address as `X-Forwarded-For` has it: some proxies add the port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop.trim_ascii()).ok()?;
    let address = match text.parse::<IpAddr>() {
        Ok(address) => Some(address),
        Err(_) => match text.parse::<std::net::SocketAddr>() {
            Ok(socket) => Some(socket.ip()),
            Err(_) => {
                let bare = text.strip_prefix('[')?.strip_suffix(']')?;
                bare.parse().ok()
            }
        },
    };
    address.map(|address: IpAddr| address.to_canonical())
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use message::Headers;

    use super::*;

    fn trusted(texts: &[&str]) -> TrustedProxies {
        let mut trusted = TrustedProxies::default();
        for text in texts {
            trusted.add(text).unwrap();
        }
        trusted
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_in_their_blocks() {
        let list = trusted(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1"]);
        for address in [
            "10.0.0.1",
            "10.255.255.255",
            "192.0.2.7",
            "2001:db8:1::1",
            "::1",
        ] {
            assert!(list.contains(ip(address)), "{address}");
        }
        assert!(list.contains(ip("::ffff:10.1.1.1")), "mapped into IPv6");
        for address in ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::2", "::a00:1"] {
            assert!(!list.contains(ip(address)), "{address}");
        }
        assert!(trusted(&["0.0.0.0/0"]).contains(ip("203.0.113.1")));
        assert!(!trusted(&["0.0.0.0/0"]).contains(ip("2001:db8::1")));
        assert!(trusted(&["::/0"]).contains(ip("203.0.113.1")));
        assert!(!trusted(&[]).contains(ip("127.0.0.1")));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut list = TrustedProxies::default();
        for text in [
            "",
            "a",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0/8",
            "::/129",
            "/8",
        ] {
            assert_eq!(list.add(text), Err(NoNetwork::Malformed), "{text}");
        }
        let error = list.add("10.1.2.3/8").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the block begins with 10.0.0.0: write `10.0.0.0/8`"
        );
        let error = list.add("2001:db8::1/32").unwrap_err();
        assert!(
            error.to_string().ends_with("write `2001:db8::/32`"),
            "{error}"
        );
        assert!(list.is_empty());
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_trusted() {
        let list = trusted(&["10.0.0.0/8", "2001:db8::/32"]);
        let cases: &[(&[&str], &str)] = &[
            (&[], "10.0.0.1"),
            (&[""], "10.0.0.1"),
            (&["203.0.113.9"], "203.0.113.9"),
            // What a client makes up stands in front.
            (&["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
            (
                &["1.1.1.1", "203.0.113.9,10.0.0.2 , 10.0.0.3"],
                "203.0.113.9",
            ),
            (&["203.0.113.9", "10.0.0.2"], "203.0.113.9"),
            (&["10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            (&["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["203.0.113.9, 10.0.0.2, "], "10.0.0.1"),
            (&["203.0.113.9:4711"], "203.0.113.9"),
            (&["[2001:db9::1]:4711, 2001:db8::1"], "2001:db9::1"),
            (&["[2001:db9::1]"], "2001:db9::1"),
            (&["::ffff:203.0.113.9"], "203.0.113.9"),
        ];
        for (lines, expected) in cases {
            let mut headers = Headers::new();
            for line in *lines {
                headers.append("X-Forwarded-For", line);
            }
            let client = list.client(ip("10.0.0.1"), headers.view());
            assert_eq!(client, ip(expected), "{lines:?}");
        }
        let mut headers = Headers::new();
        headers.append(
            "X-Forwarded-For",
            "203.0.113.9, ".to_owned() + &["10.0.0.2"; 100].join(","),
        );
        assert_eq!(list.client(ip("10.0.0.1"), headers.view()), ip("10.0.0.2"));
    }
}
