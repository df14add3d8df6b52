//! Warns where access control asks somebody over a network without TLS.

use std::net::IpAddr;

use config::{Report, Spanned};

use crate::codes::CLEAR_TEXT;

/// Warns about a URL of `http` beyond this machine: whoever is on the way can answer in the place
/// of `whom`, and let everybody in.
pub(crate) fn warn(url: &Spanned<String>, whom: &str, report: &mut Report) {
    if !is_exposed(&url.value) {
        return;
    }
    let message =
        format!("{whom} is asked without TLS: whoever is on the way decides who comes in");
    report
        .warning(CLEAR_TEXT, url.span, message)
        .hint("write `https://`; only what is asked on this machine needs no TLS");
}

/// Whether a URL is one of `http` whose host is not this machine.
fn is_exposed(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |it| it.1);
    let name = match host.strip_prefix('[') {
        Some(host) => host.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.to_ascii_lowercase();
    let is_local = match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    };
    scheme.eq_ignore_ascii_case("http") && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_text_beyond_this_machine_is_exposed() {
        for (url, expected) in [
            ("http://id.example", true),
            ("HTTP://id.example:8080/x", true),
            ("http://10.0.0.1/keys", true),
            ("http://127.0.0.1@id.example/", true),
            ("http://[2001:db8::1]:80/", true),
            ("http://localhost.example/", true),
            ("https://id.example", false),
            ("http://127.0.0.1:8080/x", false),
            ("http://127.9.9.9", false),
            ("http://[::1]:8080/x", false),
            ("http://LocalHost/x", false),
            ("http://id.localhost:80/x", false),
            ("id.example", false),
        ] {
            assert_eq!(is_exposed(url), expected, "{url}");
        }
    }
}
