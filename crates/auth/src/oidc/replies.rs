//! Cookies, redirects and the few pages that people see.

use component::cookies::pairs;
use message::{Headers, HeadersView, Reply};

/// The names and attributes of a way's cookies.
#[derive(Debug)]
pub(super) struct Cookies {
    /// The one of the session.
    pub session: String,
    /// What the names of those of logins in progress begin with.
    login: String,
    attributes: &'static str,
}

/// How many logins one browser may have in progress. Each is a cookie that goes with every request.
const LOGINS_MAX: usize = 4;
/// How much of a state stands in the name of its cookie.
const STATE_PART: usize = 10;

impl Cookies {
    /// Those of the way of this name, which is part of theirs. With the prefix `__Host-` no other
    /// host can set them, nor plain HTTP (RFC 6265bis, section 4.1.3.2).
    pub fn new(way: &str, is_secure: bool) -> Self {
        let prefix = if is_secure { "__Host-" } else { "" };
        let attributes = match is_secure {
            true => "Path=/; HttpOnly; SameSite=Lax; Secure",
            false => "Path=/; HttpOnly; SameSite=Lax",
        };
        Self {
            session: format!("{prefix}intertie-{way}"),
            login: format!("{prefix}intertie-{way}-login-"),
            attributes,
        }
    }

    /// The name of the cookie of a login with this state.
    pub fn login(&self, state: &str) -> String {
        let part: String = state.chars().take(STATE_PART).collect();
        format!("{}{part}", self.login)
    }

    /// Sets a cookie for so many seconds.
    pub fn set(&self, name: &str, value: &str, seconds: u64, reply: &mut Reply) {
        let attributes = self.attributes;
        let line = format!("{name}={value}; Max-Age={seconds}; {attributes}");
        reply.headers.append("Set-Cookie", line);
    }

    /// Has the browser forget a cookie.
    pub fn clear(&self, name: &str, reply: &mut Reply) {
        self.set(name, "", 0, reply);
    }

    /// Has the browser forget its logins in progress when there are too many.
    pub fn bound_logins(&self, headers: HeadersView<'_>, reply: &mut Reply) {
        let prefix = self.login.as_bytes();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let names: Vec<&[u8]> = pairs(headers)
            .map(|(name, _)| name)
            .filter(|name| name.starts_with(prefix) && name.iter().all(is_part))
            .collect();
        if names.len() >= LOGINS_MAX {
            for name in names.iter().take(64) {
                self.clear(&String::from_utf8_lossy(name), reply);
            }
        }
    }
}

/// The value of a cookie; `None` when it is not there, or there twice.
pub(super) fn cookie<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    let mut values = pairs(headers.view()).filter(|(it, _)| *it == name.as_bytes());
    let (_, value) = values.next()?;
    values.next().is_none().then_some(value)
}

/// Sends a browser to another URL, by `GET`.
pub(super) fn redirect(to: &str) -> Reply {
    let mut reply = Reply::new(303);
    reply.headers.append("Location", to);
    no_store(&mut reply);
    reply
}

/// Nobody keeps it, and no other site learns the URL of the page that it was for.
pub(super) fn no_store(reply: &mut Reply) {
    reply.headers.append("Cache-Control", "no-store");
    reply.headers.append("Referrer-Policy", "no-referrer");
}

/// A page with a sentence and a link. All texts are our own, but for the link, which is escaped.
pub(super) fn page(status: u16, sentence: &str, link: Option<(&str, &str)>) -> Reply {
    let link = link.map(|(to, text)| format!("<p><a href=\"{}\">{text}</a></p>", escape(to)));
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{sentence}</title>\
         <p>{sentence}.</p>{}</html>\n",
        link.unwrap_or_default()
    );
    let mut reply = Reply::with_content(status, "text/html; charset=utf-8", html.into_bytes());
    let policy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    reply.headers.append("Content-Security-Policy", policy);
    reply.headers.append("X-Content-Type-Options", "nosniff");
    no_store(&mut reply);
    reply
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
