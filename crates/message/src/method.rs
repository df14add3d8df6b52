//! Request methods (RFC 9110, section 9).

use std::fmt;

/// A request method (RFC 9110, section 9). Methods are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `PATCH` (RFC 5789)
    Patch,
    /// `OPTIONS`
    Options,
    /// `TRACE`
    Trace,
    /// Any other method; the text is a token of RFC 9110, section 5.6.2.
    Other(Box<str>),
}

impl Method {
    /// The method with this name. The caller has checked that the name is a token.
    pub fn from_token(name: impl AsRef<[u8]>) -> Self {
        match name.as_ref() {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"PATCH" => Self::Patch,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            other => Self::Other(String::from_utf8_lossy(other).into()),
        }
    }

    /// The name as it stands in a request line.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Patch => "PATCH",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Other(name) => name,
        }
    }

    /// Whether doing the request twice has the effect of doing it once
    /// (RFC 9110, section 9.2.2). Unknown methods are taken not to be.
    pub fn is_idempotent(&self) -> bool {
        !matches!(self, Self::Post | Self::Patch | Self::Other(_))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_keeps_its_name() {
        let names = [
            "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PURGE", "get",
        ];
        for name in names {
            assert_eq!(Method::from_token(name).as_str(), name);
        }
    }

    #[test]
    fn only_repeatable_methods_are_idempotent() {
        for name in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            assert!(Method::from_token(name).is_idempotent(), "{name}");
        }
        for name in ["POST", "PATCH", "PURGE", "get"] {
            assert!(!Method::from_token(name).is_idempotent(), "{name}");
        }
    }
}
