//! What browsers say about their requests by themselves, so that pages cannot forge it: fetch
//! metadata (W3C Fetch Metadata Request Headers) and `Origin` (RFC 6454, section 7).

/// The fields of a request that tell where it comes from; names in lower case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetch<'a> {
    /// `Accept`
    pub accept: Option<&'a [u8]>,
    /// `Sec-Fetch-Mode`
    pub mode: Option<&'a [u8]>,
    /// `Sec-Fetch-Site`
    pub site: Option<&'a [u8]>,
    /// `Sec-Fetch-Dest`
    pub destination: Option<&'a [u8]>,
    /// `Origin`
    pub origin: Option<&'a [u8]>,
    /// `Upgrade`
    pub upgrade: Option<&'a [u8]>,
}

impl Fetch<'_> {
    /// Whether a person waits for a page, who can log in: a `GET` that takes HTML and is no
    /// script's. Everything else would follow a redirect to a login page and choke on it.
    #[must_use]
    pub fn is_navigation(&self, is_get: bool) -> bool {
        let is = |field: Option<&[u8]>, wanted: &[u8]| {
            field.is_none_or(|it| it.trim_ascii().eq_ignore_ascii_case(wanted))
        };
        // A frame cannot be logged in: providers refuse to be framed.
        is_get
            && self.upgrade.is_none()
            && self.accept.is_some_and(takes_html)
            && is(self.mode, b"navigate")
            && is(self.destination, b"document")
    }

    /// Whether a request may act with a cookie: it comes from a page of this origin, or the
    /// browser's user has typed it. Without `Sec-Fetch-Site` the `Origin` decides; without both
    /// nobody knows, which is no.
    #[must_use]
    pub fn is_same_origin(&self, own: &str) -> bool {
        let origin = self.origin.map(|it| it.trim_ascii() == own.as_bytes());
        match self.site.map(<[u8]>::trim_ascii) {
            // Both, where both are there.
            Some(b"same-origin") => origin.unwrap_or(true),
            Some(b"none") => origin.unwrap_or(true),
            Some(_) => false,
            None => origin.unwrap_or(false),
        }
    }

    /// Whether a request may change something: by its method, or since a WebSocket handshake opens
    /// a way to do so that no rule of origins bounds (RFC 6455, section 10.2).
    #[must_use]
    pub fn may_change(&self, method: &str) -> bool {
        !matches!(method, "GET" | "HEAD" | "OPTIONS") || self.upgrade.is_some()
    }

    /// Whether a page of another site has caused the request.
    #[must_use]
    pub fn is_cross_site(&self) -> bool {
        let is_own = |site: &[u8]| matches!(site.trim_ascii(), b"same-origin" | b"none");
        self.site.is_some_and(|it| !is_own(it))
    }
}

/// Whether `Accept` names HTML; `*/*` alone is what scripts and tools send.
fn takes_html(accept: &[u8]) -> bool {
    accept.split(|&byte| byte == b',').any(|range| {
        let kind = range.split(|&byte| byte == b';').next().unwrap_or_default();
        let kind = kind.trim_ascii();
        kind.eq_ignore_ascii_case(b"text/html")
            || kind.eq_ignore_ascii_case(b"application/xhtml+xml")
    })
}
