//! Which differences between direct and proxied are right, and why. One that nothing explains fails
//! the check. A fault of the engine has no row here: it stays a failure until it is mended.

use super::outcome::Difference;

/// A row of the table. A pattern is one or more alternatives between `|`, of which each may end in
/// `*`.
struct Explanation {
    scenario: &'static str,
    /// The client's mode.
    client: &'static str,
    /// The back end and the protocol it is spoken to with: `nginx h2c`.
    backend: &'static str,
    key: &'static str,
    /// The value; `-` for none.
    direct: &'static str,
    proxied: &'static str,
    reason: &'static str,
}

/// Where and in what a difference was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub scenario: &'a str,
    pub client: &'a str,
    pub backend: &'a str,
    pub difference: &'a Difference,
    /// What Go's client gets from the back end without the engine, by the protocol that the engine
    /// speaks to it.
    pub native: Option<&'a str>,
}

/// All that is not said in a row.
const ANY: Explanation = Explanation {
    scenario: "*",
    client: "*",
    backend: "*",
    key: "*",
    direct: "*",
    proxied: "*",
    reason: "",
};

/// Headers of one connection. That the back end sends one is no reason for the engine to do so.
const OF_CONNECTIONS: [&str; 5] = [
    "connection",
    "keep-alive",
    "upgrade",
    "transfer-encoding",
    "proxy-connection",
];

const NATIVE: &str = "the back end is so in the protocol in which the engine asks it";

const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        key: "h.connection|h.keep-alive|h.upgrade|then.h.connection|then.h.keep-alive|\
              then.h.upgrade|seen.connection|seen.keep-alive|seen.upgrade|seen.http2-settings",
        proxied: "-",
        reason: "it speaks of one connection and is never passed on (RFC 9110, section 7.6.1)",
        ..ANY
    },
    Explanation {
        key: "h.transfer-encoding|then.h.transfer-encoding|seen.transfer-encoding",
        proxied: "-|chunked",
        reason: "each connection has its own framing (RFC 9112, section 6.1)",
        ..ANY
    },
    Explanation {
        key: "seen.via",
        direct: "-",
        proxied: "1.1 intertie|2.0 intertie",
        reason: "a proxy says that it is there (RFC 9110, section 7.6.3)",
        ..ANY
    },
    Explanation {
        key: "seen.x-forwarded-for|seen.x-forwarded-host|seen.x-forwarded-proto",
        reason: "it tells the back end about the client (`forwarded`)",
        ..ANY
    },
    Explanation {
        key: "seen.host|seen.x-host",
        direct: "ASKED",
        proxied: "BACKEND",
        reason: "the back end is asked by its own name (`host: keep` keeps the client's)",
        ..ANY
    },
    Explanation {
        scenario: "redirect",
        key: "h.location",
        direct: "http://ASKED/hello|https://ASKED/hello",
        proxied: "http://BACKEND/hello|https://BACKEND/hello",
        reason: "the back end makes an URL of the name that it is asked by (`host: keep`)",
        ..ANY
    },
    Explanation {
        scenario: "redirect",
        backend: "apache*",
        key: "h.content-length|length|sha256",
        reason: "the text of the redirect holds the URL",
        ..ANY
    },
    Explanation {
        scenario: "gzip",
        backend: "nginx*",
        key: "h.content-encoding|h.content-length|h.transfer-encoding|h.vary|length|sha256",
        reason: "nginx compresses no reply to a request with `Via` (gzip_proxied)",
        ..ANY
    },
    Explanation {
        scenario: "gzip",
        backend: "apache*",
        key: "h.content-length|length|sha256",
        reason: "mod_deflate flushes where its own back end's reply came in pieces",
        ..ANY
    },
    Explanation {
        scenario: "trailers",
        backend: "lighttpd*",
        reason: "lighttpd garbles trailers of its own back end, and the engine says 502",
        ..ANY
    },
    Explanation {
        scenario: "trailers up",
        backend: "nginx h2|nginx h2c",
        reason: "nginx 1.22 ends the connection at trailers of a request over HTTP/2",
        ..ANY
    },
    Explanation {
        scenario: "trailers",
        client: "*",
        backend: "go h2|go h2c|apache h2|apache h2c",
        key: "trailer.x-checksum|h.trailer",
        reason: "HTTP/1.1 has no trailers behind a `Content-Length`, which the back end sent",
        ..ANY
    },
    Explanation {
        scenario: "expect",
        backend: "nginx*",
        reason: "nginx 1.22 never answers `Expect: 100-continue` over HTTP/2",
        ..ANY
    },
    Explanation {
        scenario: "expect",
        client: "java-h1|java-h1s|java-h2u",
        backend: "node h2|node h2c",
        reason: "http2 of Node answers 417 to `100-Continue`, as Java writes it",
        ..ANY
    },
    Explanation {
        scenario: "chunked up|chunked both",
        client: "httpx*|java-h2",
        backend: "lighttpd h2|lighttpd h2c",
        reason: "lighttpd refuses with 411 what has no length, and the client does not look \
                 before it has sent all",
        ..ANY
    },
    Explanation {
        client: "java-h2u",
        key: "version|then.version",
        direct: "2",
        proxied: "1",
        reason: "`Upgrade: h2c` is dropped: RFC 9113 has done away with it",
        ..ANY
    },
    Explanation {
        backend: "lighttpd*",
        key: "h.accept-ranges",
        reason: "lighttpd adds it when it has the reply of its own back end at once",
        ..ANY
    },
];

/// The reason for a difference, if there is one.
pub fn reason(found: &Found<'_>) -> Option<&'static str> {
    let difference = found.difference;
    let header = difference.key.rsplit('.').next().unwrap_or_default();
    let is_native = found.native == difference.proxied.as_deref();
    if is_native && difference.key != "alone" && !OF_CONNECTIONS.contains(&header) {
        return Some(NATIVE);
    }
    let row = EXPLANATIONS.iter().find(|row| row.fits(found));
    row.map(|row| row.reason)
}

impl Explanation {
    fn fits(&self, found: &Found<'_>) -> bool {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        fits(self.scenario, found.scenario)
            && fits(self.client, found.client)
            && fits(self.backend, found.backend)
            && fits(self.key, &found.difference.key)
            && fits(self.direct, &value(&found.difference.direct))
            && fits(self.proxied, &value(&found.difference.proxied))
    }
}

/// Whether a text fits a pattern.
pub fn fits(pattern: &str, text: &str) -> bool {
    pattern
        .split('|')
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => text.starts_with(start),
            None => text == pattern,
        })
}
