//! `engine.public_url`: how others reach the engine.

use std::sync::Arc;

use component::text::{check_path, parse_authority};
use config::{Report, Spanned};

use crate::codes::BAD_PUBLIC_URL;

/// Reads it; without a `/` at its end. A problem is reported.
pub(crate) fn read(url: &Spanned<String>, report: &mut Report) -> Option<Arc<str>> {
    match parse(&url.value) {
        Ok(url) => Some(url.into()),
        Err(problem) => {
            let message = format!("`public_url` cannot be used: {problem}");
            report
                .error(BAD_PUBLIC_URL, url.span, message)
                .hint("write `https://HOST`, with a port and a path where they are needed");
            None
        }
    }
}

fn parse(text: &str) -> Result<&str, String> {
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or("it does not begin with `https://` or `http://`".to_owned())?;
    if rest.contains(['?', '#', '@']) {
        return Err("it has neither a query, nor a fragment, nor a user name".to_owned());
    }
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match parse_authority(authority) {
        Ok((Some(_), _)) => {}
        Ok((None, _)) => return Err("it has no host".to_owned()),
        Err(error) => return Err(error.message),
    }
    if !path.is_empty() {
        check_path(path).map_err(|error| error.message)?;
    }
    Ok(text.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_scheme_host_and_perhaps_port_and_path() {
        for (text, expected) in [
            ("https://api.example", "https://api.example"),
            ("https://api.example/", "https://api.example"),
            ("http://127.0.0.1:8080/in/", "http://127.0.0.1:8080/in"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected));
        }
        for text in [
            "api.example",
            "ftp://api.example",
            "https://",
            "https://:8443",
            "https://a b/",
            "https://api.example/?x",
            "https://api.example/#x",
            "https://me@api.example",
            "https://api.example:0x50",
            "https://api.example/a b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
