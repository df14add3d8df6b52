//! Which proxies are believed when they tell who the client is.

use std::net::IpAddr;

use config::{Code, Report, Spanned};
use message::{Field, HeadersView};

use crate::networks::{NetworkList, NoNetwork};

/// The most addresses of `X-Forwarded-For` that are looked at, from the last one on.
const HOPS_MAX: usize = 64;

/// The addresses of proxies in front of the engine. What others say about the way of a request is
/// dropped: anybody can write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(NetworkList);

impl TrustedProxies {
    /// Adds an address or a block: `10.0.0.7`, `10.0.0.0/8`, `2001:db8::/32`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn add(&mut self, text: &str) -> Result<(), NoNetwork> {
        self.0.add(text)
    }

    /// Adds all of a file's. Those that are none are reported.
    pub fn add_all(&mut self, texts: &[Spanned<String>], code: Code, report: &mut Report) {
        self.0.add_all(texts, code, report);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
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
