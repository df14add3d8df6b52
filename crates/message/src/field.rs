//! The header fields that a proxy must understand, told apart by name in a few instructions.

/// A header field that the data path treats specially, or [`Field::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Any field that is passed on as it is.
    Other,
    /// `Authorization` (RFC 9110, section 11.6.2)
    Authorization,
    /// `Client-Cert` and `Client-Cert-Chain` (RFC 9440), or a spelling of them with underscores
    ClientCert,
    /// `Connection` (RFC 9110, section 7.6.1)
    Connection,
    /// `Content-Encoding` (RFC 9110, section 8.4)
    ContentEncoding,
    /// `Content-Length` (RFC 9110, section 8.6)
    ContentLength,
    /// `Content-Type` (RFC 9110, section 8.3)
    ContentType,
    /// `Date` (RFC 9110, section 6.6.1)
    Date,
    /// `Expect` (RFC 9110, section 10.1.1)
    Expect,
    /// `Forwarded` (RFC 7239)
    Forwarded,
    /// `Host` (RFC 9110, section 7.2)
    Host,
    /// `HTTP2-Settings` (RFC 7540, section 3.2.1): belongs to the refused h2c upgrade
    Http2Settings,
    /// `Keep-Alive` (RFC 2068, section 19.7.1)
    KeepAlive,
    /// `Proxy-Authenticate` (RFC 9110, section 11.7.1)
    ProxyAuthenticate,
    /// `Proxy-Authorization` (RFC 9110, section 11.7.2)
    ProxyAuthorization,
    /// `Proxy-Connection`, never standard, to be dropped (RFC 9112, appendix C.2.2)
    ProxyConnection,
    /// `TE` (RFC 9110, section 10.1.4)
    Te,
    /// `Trailer` (RFC 9110, section 6.6.2)
    Trailer,
    /// `Transfer-Encoding` (RFC 9112, section 6.1)
    TransferEncoding,
    /// `Upgrade` (RFC 9110, section 7.8)
    Upgrade,
    /// `Via` (RFC 9110, section 7.6.3)
    Via,
    /// `X-Forwarded-For`, by custom
    XForwardedFor,
    /// `X-Forwarded-Host`, by custom
    XForwardedHost,
    /// `X-Forwarded-Port`, by custom
    XForwardedPort,
    /// `X-Forwarded-Proto`, by custom
    XForwardedProto,
    /// Another field whose name begins `X-Forwarded-`, by custom, or a spelling of such a field or
    /// of `X-Real-IP` with underscores, which CGI and its like take for the same name
    XForwardedOther,
    /// `X-Real-IP`, by custom
    XRealIp,
}

impl Field {
    /// Tells which field a name stands for. Names are case-insensitive.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let Some(first) = name.first() else {
            return Self::Other;
        };
        match (name.len(), first.to_ascii_lowercase()) {
            (2, b't') if is_name(name, b"te") => Self::Te,
            (3, b'v') if is_name(name, b"via") => Self::Via,
            (4, b'd') if is_name(name, b"date") => Self::Date,
            (4, b'h') if is_name(name, b"host") => Self::Host,
            (6, b'e') if is_name(name, b"expect") => Self::Expect,
            (7, b't') if is_name(name, b"trailer") => Self::Trailer,
            (7, b'u') if is_name(name, b"upgrade") => Self::Upgrade,
            (9, b'x') if is_name(name, b"x-real-ip") => Self::XRealIp,
            (9, b'f') if is_name(name, b"forwarded") => Self::Forwarded,
            (10, b'c') if is_name(name, b"connection") => Self::Connection,
            (10, b'k') if is_name(name, b"keep-alive") => Self::KeepAlive,
            (12, b'c') if is_name(name, b"content-type") => Self::ContentType,
            (13, b'a') if is_name(name, b"authorization") => Self::Authorization,
            (14, b'c') if is_name(name, b"content-length") => Self::ContentLength,
            (14, b'h') if is_name(name, b"http2-settings") => Self::Http2Settings,
            (15, b'x') if is_name(name, b"x-forwarded-for") => Self::XForwardedFor,
            (16, b'c') if is_name(name, b"content-encoding") => Self::ContentEncoding,
            (16, b'p') if is_name(name, b"proxy-connection") => Self::ProxyConnection,
            (16, b'x') if is_name(name, b"x-forwarded-host") => Self::XForwardedHost,
            (16, b'x') if is_name(name, b"x-forwarded-port") => Self::XForwardedPort,
            (17, b't') if is_name(name, b"transfer-encoding") => Self::TransferEncoding,
            (17, b'x') if is_name(name, b"x-forwarded-proto") => Self::XForwardedProto,
            (18, b'p') if is_name(name, b"proxy-authenticate") => Self::ProxyAuthenticate,
            (19, b'p') if is_name(name, b"proxy-authorization") => Self::ProxyAuthorization,
            (9.., b'x') if is_forwarding_name(name) => Self::XForwardedOther,
            (11 | 17, b'c') if is_client_cert_name(name) => Self::ClientCert,
            _ => Self::Other,
        }
    }

    /// Whether the field means this connection only and must not be passed on as it came
    /// (RFC 9110, section 7.6.1), whatever `Connection` lists.
    #[inline]
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::Http2Settings
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Te
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }

    /// Whether the field is one in which proxies say who the client is and how it has asked.
    /// Anybody can write such a field, so that it is dropped unless it comes from a trusted proxy.
    #[inline]
    pub fn is_forwarding(self) -> bool {
        matches!(
            self,
            Self::ClientCert
                | Self::Forwarded
                | Self::XForwardedFor
                | Self::XForwardedHost
                | Self::XForwardedOther
                | Self::XForwardedPort
                | Self::XForwardedProto
                | Self::XRealIp
        )
    }

    /// Whether a name is this one, which stands in small letters: in any case, and with `_` taken
    /// for `-`, as CGI and its like do.
    pub fn is_spelling(name: &[u8], wanted: &[u8]) -> bool {
        let same = |(byte, wanted): (&u8, &u8)| match byte {
            b'_' => *wanted == b'-',
            byte => byte.to_ascii_lowercase() == *wanted,
        };
        name.len() == wanted.len() && name.iter().zip(wanted).all(same)
    }

    /// Whether a field of this name may stand in a trailer section. Those that frame, route or
    /// authenticate a message, change how it is taken, control caches or tell how its content is
    /// read belong to the head (RFC 9110, section 6.5.1): what looks at the head alone would not
    /// see them, and what takes trailers for part of the head would obey them.
    ///
    /// One that [frames](Self::is_framing) or belongs to [one connection](Self::is_hop_by_hop)
    /// makes the message malformed. Any other one is dropped.
    pub fn is_trailer(self, name: &[u8]) -> bool {
        let is_condition = || {
            name.get(..3)
                .is_some_and(|it| it.eq_ignore_ascii_case(b"if-"))
        };
        let is_of_head = |it: &&[u8]| it.eq_ignore_ascii_case(name);
        self == Self::Other && !is_condition() && !HEAD_ONLY.iter().any(is_of_head)
    }

    /// Whether a message with this field in its trailer section is malformed.
    pub fn breaks_trailers(self) -> bool {
        self.is_framing() || self.is_hop_by_hop()
    }

    /// Whether the field decides where a message ends or whom it is for. Such a field may not
    /// stand in a trailer section, be named by `Connection`, or be set by a flow.
    #[inline]
    pub fn is_framing(self) -> bool {
        matches!(
            self,
            Self::ContentLength | Self::Host | Self::TransferEncoding
        )
    }
}

/// Fields of a head that the data path does not tell apart: none of them may be a trailer.
const HEAD_ONLY: [&[u8]; 18] = [
    // Authentication.
    b"cookie",
    b"set-cookie",
    b"www-authenticate",
    // Routing.
    b"max-forwards",
    // How a request is taken.
    b"range",
    b"pragma",
    b"prefer",
    // Control of caches and redirects.
    b"age",
    b"cache-control",
    b"expires",
    b"location",
    b"retry-after",
    b"vary",
    b"warning",
    // How content is read.
    b"content-disposition",
    b"content-language",
    b"content-location",
    b"content-range",
];

/// Whether a name is `X-Real-IP` or begins `X-Forwarded-`, with `_` taken for `-`.
fn is_forwarding_name(name: &[u8]) -> bool {
    let start = name.get(..12).unwrap_or_default();
    Field::is_spelling(name, b"x-real-ip") || Field::is_spelling(start, b"x-forwarded-")
}

/// Whether a name is one of RFC 9440, with `_` taken for `-`.
fn is_client_cert_name(name: &[u8]) -> bool {
    Field::is_spelling(name, b"client-cert") || Field::is_spelling(name, b"client-cert-chain")
}

/// Whether a name is this one, which stands in small letters. Its length is known when this is
/// compiled, so that no byte needs a branch. Out of line each call costs as much as the comparison.
#[inline(always)]
fn is_name<const N: usize>(name: &[u8], wanted: &[u8; N]) -> bool {
    let Ok(name) = <&[u8; N]>::try_from(name) else {
        return false;
    };
    let mut differs = 0;
    for (byte, wanted) in name.iter().zip(wanted) {
        // Only letters have two cases.
        let case = u8::from(wanted.is_ascii_lowercase()) << 5;
        differs |= (byte | case) ^ wanted;
    }
    differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_whatever_their_case() {
        let cases: &[(&str, Field)] = &[
            ("te", Field::Te),
            ("VIA", Field::Via),
            ("dAte", Field::Date),
            ("Host", Field::Host),
            ("AUTHORIZATION", Field::Authorization),
            ("Authorisation", Field::Other),
            ("eXpect", Field::Expect),
            ("Trailer", Field::Trailer),
            ("upgrade", Field::Upgrade),
            ("Forwarded", Field::Forwarded),
            ("Connection", Field::Connection),
            ("Keep-Alive", Field::KeepAlive),
            ("Content-Type", Field::ContentType),
            ("Content-Length", Field::ContentLength),
            ("HTTP2-Settings", Field::Http2Settings),
            ("X-Forwarded-For", Field::XForwardedFor),
            ("Content-Encoding", Field::ContentEncoding),
            ("Proxy-Connection", Field::ProxyConnection),
            ("X-Forwarded-Host", Field::XForwardedHost),
            ("X-Forwarded-Port", Field::XForwardedPort),
            ("X-Forwarded-Prefix", Field::XForwardedOther),
            ("x_forwarded_for", Field::XForwardedOther),
            ("X_Real-IP", Field::XForwardedOther),
            ("X-Forwarded", Field::Other),
            ("X-Forward-To-Me", Field::Other),
            ("X-Real-IP", Field::XRealIp),
            ("Client-Cert", Field::ClientCert),
            ("client_cert", Field::ClientCert),
            ("Client-Cert_Chain", Field::ClientCert),
            ("Client-Certs", Field::Other),
            ("Transfer-Encoding", Field::TransferEncoding),
            ("X-Forwarded-Proto", Field::XForwardedProto),
            ("Proxy-Authenticate", Field::ProxyAuthenticate),
            ("Proxy-Authorization", Field::ProxyAuthorization),
            ("Hosts", Field::Other),
            ("Content_Length", Field::Other),
            ("Content\rLength", Field::Other),
            ("HTTP\u{12}-Settings", Field::Other),
            ("X-Transfer-Encode", Field::Other),
            ("", Field::Other),
        ];
        for (name, field) in cases {
            assert_eq!(Field::of(name.as_bytes()), *field, "{name}");
        }
    }

    #[test]
    fn fields_of_the_head_are_no_trailers() {
        let is_trailer = |name: &str| Field::of(name.as_bytes()).is_trailer(name.as_bytes());
        for name in [
            "X-Sum",
            "grpc-status",
            "ETag",
            "Content-Digest",
            "Server-Timing",
            "if",
        ] {
            assert!(is_trailer(name), "{name}");
        }
        let of_head = [
            "Authorization",
            "authorization",
            "Cookie",
            "Date",
            "Set-Cookie",
            "Content-Type",
            "Via",
            "Content-Encoding",
            "Forwarded",
            "X-Forwarded-For",
            "X-Real-IP",
            "If-Match",
            "Range",
            "Cache-Control",
            "Trailer",
            "Expect",
            "Host",
            "Content-Length",
            "TE",
        ];
        for name in of_head {
            assert!(!is_trailer(name), "{name}");
        }
        assert!(Field::Host.breaks_trailers() && Field::Te.breaks_trailers());
        assert!(!Field::Forwarded.breaks_trailers() && !Field::Trailer.breaks_trailers());
    }
}
