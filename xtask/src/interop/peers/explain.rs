//! Which differences between direct and proxied are right, and why. One that nothing explains fails
//! the check. A fault of the engine has no row here: it stays a failure until it is mended.

use std::collections::BTreeSet;

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
    /// Whether it is a race, which a run may not meet. Every other row must still be needed.
    is_race: bool,
}

/// Why a difference is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub text: &'static str,
    /// The row of the table that says so, if it is not a rule.
    pub row: Option<String>,
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
    is_race: false,
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

/// What changes with the reply as a whole.
const REPLY: &str = "alone|error|version|continue|length|sha256|text|h.content-length|\
                     h.content-type|h.date|h.server|h.connection|h.transfer-encoding|h.trailer|\
                     h.vary|trailer.x-checksum";

const CADDY_413: &str = "Caddy races its limit (413) with the reply of its own back end, whose \
                         connection it has just broken (502)";
const LIGHTTPD_TRAILERS: &str =
    "lighttpd garbles trailers of its own back end, and the engine says 502";
const LIGHTTPD_411: &str = "lighttpd refuses with 411 over HTTP/2 what has no length";
const NGINX_TRAILERS: &str = "nginx 1.22 ends the connection at trailers of a request over HTTP/2";
const NGINX_EXPECT: &str = "nginx 1.22 never answers `Expect: 100-continue` over HTTP/2";
const NODE_EXPECT: &str = "http2 of Node answers 417 to `100-Continue`, as Java writes it";
const HTTPX_LIGHTTPD: &str = "lighttpd 1.4 ends every connection of Python's h2";

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
        scenario: "401|413|chunked both|chunked up",
        key: "h.connection",
        proxied: "close",
        reason: "the connection ends behind a refusal that comes before the request's end",
        ..ANY
    },
    Explanation {
        scenario: "401|413",
        key: "alone",
        direct: "reset after*|stream reset after*|eof after*|goaway after*|\
                 other: ERR_STREAM_PREMATURE_CLOSE*",
        proxied: "-",
        reason: "the back end resets a client that still sends, before it has read the refusal; \
                 the engine reads on",
        ..ANY
    },
    Explanation {
        scenario: "413",
        backend: "caddy*",
        key: "status",
        direct: "413|502",
        proxied: "413|502",
        reason: CADDY_413,
        is_race: true,
        ..ANY
    },
    Explanation {
        scenario: "413",
        backend: "caddy*",
        key: "h.content-length|length",
        direct: "0|3|-",
        proxied: "0|3|-",
        reason: CADDY_413,
        is_race: true,
        ..ANY
    },
    Explanation {
        scenario: "413",
        backend: "caddy*",
        key: "h.content-type",
        direct: "text/plain|-",
        proxied: "text/plain|-",
        reason: CADDY_413,
        is_race: true,
        ..ANY
    },
    Explanation {
        scenario: "413",
        backend: "caddy*",
        key: "sha256",
        reason: CADDY_413,
        is_race: true,
        ..ANY
    },
    Explanation {
        scenario: "trailers",
        backend: "lighttpd*",
        key: "status",
        proxied: "502",
        reason: LIGHTTPD_TRAILERS,
        ..ANY
    },
    Explanation {
        scenario: "trailers",
        backend: "lighttpd*",
        key: REPLY,
        reason: LIGHTTPD_TRAILERS,
        ..ANY
    },
    Explanation {
        scenario: "trailers up",
        backend: "nginx h2|nginx h2c",
        key: "status",
        proxied: "502",
        reason: NGINX_TRAILERS,
        ..ANY
    },
    Explanation {
        scenario: "trailers up",
        backend: "nginx h2|nginx h2c",
        key: REPLY,
        reason: NGINX_TRAILERS,
        ..ANY
    },
    Explanation {
        scenario: "trailers up",
        backend: "nginx h1|nginx h1s",
        key: "alone",
        proxied: "-",
        reason: NGINX_TRAILERS,
        ..ANY
    },
    Explanation {
        scenario: "expect",
        backend: "nginx h2|nginx h2c",
        key: REPLY,
        reason: NGINX_EXPECT,
        ..ANY
    },
    Explanation {
        scenario: "expect",
        backend: "nginx h1|nginx h1s",
        key: "alone",
        direct: "timeout*",
        proxied: "-",
        reason: NGINX_EXPECT,
        ..ANY
    },
    Explanation {
        scenario: "expect",
        backend: "caddy*",
        key: "alone",
        direct: "status 100|timeout*",
        proxied: "-",
        reason: "Caddy says `100 Continue`, and so does its own back end: the client takes the \
                 second one for the reply; the engine passes one on",
        ..ANY
    },
    Explanation {
        scenario: "expect",
        client: "java-h1|java-h1s|java-h2u",
        backend: "node h2|node h2c",
        key: "status",
        proxied: "417",
        reason: NODE_EXPECT,
        ..ANY
    },
    Explanation {
        scenario: "expect",
        client: "java-h1|java-h1s|java-h2u",
        backend: "node h2|node h2c",
        key: REPLY,
        reason: NODE_EXPECT,
        ..ANY
    },
    Explanation {
        scenario: "post empty",
        client: "undici-h2",
        key: "alone",
        direct: "timeout*",
        proxied: "-",
        reason: "undici never ends an empty stream over HTTP/2: the back end waits, the engine \
                 goes by `content-length: 0`",
        ..ANY
    },
    Explanation {
        client: "java-h2u",
        backend: "apache*",
        key: "alone",
        direct: "goaway after*|eof after*|timeout*",
        proxied: "-",
        reason: "Apache ends connections of Java's `Upgrade: h2c`, some in the middle of a reply",
        is_race: true,
        ..ANY
    },
    Explanation {
        scenario: "file",
        client: "java-h2u",
        backend: "lighttpd*",
        key: "alone",
        direct: "a wrong body*",
        proxied: "-",
        reason: "lighttpd leaves bytes out of a large reply to Java's `Upgrade: h2c`",
        is_race: true,
    },
    Explanation {
        scenario: "slow",
        client: "http2-h2|http2-h2c",
        backend: "lighttpd*",
        key: "alone",
        direct: "stream reset after*",
        proxied: "-",
        reason: "lighttpd resets a stream over HTTP/2 whose window is used up",
        ..ANY
    },
    Explanation {
        client: "httpx-h2",
        backend: "lighttpd*",
        key: "alone",
        direct: "eof after*|goaway after*|reset after*",
        proxied: "-",
        reason: HTTPX_LIGHTTPD,
        ..ANY
    },
    Explanation {
        scenario: "post empty|chunked both|chunked up|trailers up",
        backend: "lighttpd h1|lighttpd h1s",
        key: "alone",
        direct: "status 411|goaway after*|other: ERR_STREAM_PREMATURE_CLOSE*",
        proxied: "-",
        reason: LIGHTTPD_411,
        ..ANY
    },
    Explanation {
        scenario: "chunked up|chunked both",
        client: "httpx*|java-h2",
        backend: "lighttpd h2|lighttpd h2c",
        key: REPLY,
        reason: LIGHTTPD_411,
        ..ANY
    },
    Explanation {
        scenario: "chunked both|chunked up|trailers up",
        backend: "lighttpd h2|lighttpd h2c",
        key: "alone",
        direct: "status 411",
        proxied: "status 411",
        reason: LIGHTTPD_411,
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
        is_race: true,
        ..ANY
    },
];

/// The reason for a difference, if there is one.
pub fn reason(found: &Found<'_>) -> Option<Reason> {
    let difference = found.difference;
    let header = difference.key.rsplit('.').next().unwrap_or_default();
    let is_native = found.native == difference.proxied.as_deref();
    if is_native && difference.key != "alone" && !OF_CONNECTIONS.contains(&header) {
        let text = NATIVE;
        return Some(Reason { text, row: None });
    }
    let row = EXPLANATIONS.iter().find(|row| row.fits(found))?;
    Some(Reason {
        text: row.reason,
        row: Some(row.name()),
    })
}

/// The rows that no difference has needed: what they explain is no more, so they must go.
pub fn unused(used: &BTreeSet<String>) -> Vec<String> {
    let rows = EXPLANATIONS.iter().filter(|row| !row.is_race);
    let names = rows.map(Explanation::name);
    names.filter(|name| !used.contains(name)).collect()
}

impl Explanation {
    /// What tells it from all other rows, on one line.
    fn name(&self) -> String {
        let Self {
            scenario,
            client,
            backend,
            key,
            direct,
            proxied,
            ..
        } = self;
        format!("{scenario}: {client} -> {backend}: {key}: {direct} -> {proxied}")
    }

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
