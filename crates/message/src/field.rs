//! The header fields that a proxy must understand, told apart by name in a few instructions.

/// A header field that the data path treats specially, or [`Field::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Any field that is passed on as it is.
    Other,
    /// `Connection` (RFC 9110, section 7.6.1)
    Connection,
    /// `Content-Encoding` (RFC 9110, section 8.4)
    ContentEncoding,
    /// `Content-Length` (RFC 9110, section 8.6)
    ContentLength,
    /// `Content-Type` (RFC 9110, section 8.3)
    ContentType,
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
    /// `X-Forwarded-Proto`, by custom
    XForwardedProto,
}

impl Field {
    /// Tells which field a name stands for. Names are case-insensitive.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let (candidate, text) = match (name.len(), name.first().map(u8::to_ascii_lowercase)) {
            (2, Some(b't')) => (Self::Te, "te"),
            (3, Some(b'v')) => (Self::Via, "via"),
            (4, Some(b'h')) => (Self::Host, "host"),
            (6, Some(b'e')) => (Self::Expect, "expect"),
            (7, Some(b't')) => (Self::Trailer, "trailer"),
            (7, Some(b'u')) => (Self::Upgrade, "upgrade"),
            (9, Some(b'f')) => (Self::Forwarded, "forwarded"),
            (10, Some(b'c')) => (Self::Connection, "connection"),
            (10, Some(b'k')) => (Self::KeepAlive, "keep-alive"),
            (12, Some(b'c')) => (Self::ContentType, "content-type"),
            (14, Some(b'c')) => (Self::ContentLength, "content-length"),
            (14, Some(b'h')) => (Self::Http2Settings, "http2-settings"),
            (15, Some(b'x')) => (Self::XForwardedFor, "x-forwarded-for"),
            (16, Some(b'c')) => (Self::ContentEncoding, "content-encoding"),
            (16, Some(b'p')) => (Self::ProxyConnection, "proxy-connection"),
            (16, Some(b'x')) => (Self::XForwardedHost, "x-forwarded-host"),
            (17, Some(b't')) => (Self::TransferEncoding, "transfer-encoding"),
            (17, Some(b'x')) => (Self::XForwardedProto, "x-forwarded-proto"),
            (18, Some(b'p')) => (Self::ProxyAuthenticate, "proxy-authenticate"),
            (19, Some(b'p')) => (Self::ProxyAuthorization, "proxy-authorization"),
            _ => return Self::Other,
        };
        if name.eq_ignore_ascii_case(text.as_bytes()) {
            candidate
        } else {
            Self::Other
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_whatever_their_case() {
        let cases: &[(&str, Field)] = &[
            ("te", Field::Te),
            ("VIA", Field::Via),
            ("Host", Field::Host),
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
            ("Transfer-Encoding", Field::TransferEncoding),
            ("X-Forwarded-Proto", Field::XForwardedProto),
            ("Proxy-Authenticate", Field::ProxyAuthenticate),
            ("Proxy-Authorization", Field::ProxyAuthorization),
            ("Hosts", Field::Other),
            ("Content_Length", Field::Other),
            ("X-Transfer-Encode", Field::Other),
            ("", Field::Other),
        ];
        for (name, field) in cases {
            assert_eq!(Field::of(name.as_bytes()), *field, "{name}");
        }
    }
}
