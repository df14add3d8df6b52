//! What a `GET` shows: the WSDL file and all that it imports, with the addresses that the client
//! knows them by.

use message::{Reply, Request};

use super::Endpoint;

/// The page that a request asks for.
pub(super) fn page(endpoint: &Endpoint, request: &Request) -> Reply {
    let query = request.query.as_deref().unwrap_or_default();
    let (name, value) = query.split_once('=').unwrap_or((query, ""));
    let files = &endpoint.wsdl.files;
    let file = match name.to_ascii_lowercase().as_str() {
        "wsdl" => files.first(),
        "file" => crate::url::decode(value)
            .and_then(|wanted| files.iter().find(|(name, _)| **name == *wanted)),
        _ => None,
    };
    let Some((name, bytes)) = file else {
        let text = "This is a SOAP service: `?wsdl` shows its description, POST calls it.\n";
        let mut reply =
            Reply::with_content(404, "text/plain; charset=utf-8", text.as_bytes().to_vec());
        if query.is_empty() {
            reply.status = 405;
            reply.headers.append("Allow", "GET, POST");
        }
        return reply;
    };
    let text = String::from_utf8_lossy(bytes);
    let text = rewrite(endpoint, name, &text, &base(request));
    Reply::with_content(200, "text/xml; charset=utf-8", text.into_bytes())
}

/// The address that the client has called.
fn base(request: &Request) -> String {
    let scheme = if request.is_secure { "https" } else { "http" };
    let host = request.headers.get("Host").unwrap_or_default();
    let host = String::from_utf8_lossy(host);
    // A host has none of these; whoever sends them only misleads themselves, but not our XML.
    let is_odd = |it: char| matches!(it, '<' | '>' | '&' | '"' | '\'') || it.is_control();
    let host = host.replace(is_odd, "");
    let path = request.path.replace(is_odd, "");
    format!("{scheme}://{host}{path}")
}

/// The text of a file with the addresses of ports and the places of imports that are served here.
fn rewrite(endpoint: &Endpoint, name: &str, text: &str, base: &str) -> String {
    let mut text = text.to_owned();
    for address in endpoint.wsdl.addresses() {
        text = replace(&text, "location", &address, base);
    }
    let imports = endpoint
        .wsdl
        .imports
        .iter()
        .filter(|(file, ..)| **file == *name);
    for (_, location, target) in imports {
        let place = format!("{base}?file={}", encoded(target));
        for attribute in ["location", "schemaLocation"] {
            text = replace(&text, attribute, location, &place);
        }
    }
    text
}

/// The text with another value of an attribute where it had this one.
fn replace(text: &str, attribute: &str, from: &str, to: &str) -> String {
    let from = from.replace('&', "&amp;").replace('<', "&lt;");
    let mut text = text.to_owned();
    for quote in ['"', '\''] {
        let before = format!(" {attribute}={quote}{from}{quote}");
        let after = format!(" {attribute}=\"{to}\"");
        text = text.replace(&before, &after);
    }
    text
}

fn encoded(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
