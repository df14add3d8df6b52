//! What a head and its content must be like (RFC 9113, section 8).

use super::Role;
use super::state::StreamState;
use crate::http1::{Fields, values};
use crate::response::is_token;

/// Fields of one connection, which HTTP/2 has not (section 8.2.2).
const OF_CONNECTIONS: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn is_interim(head: &Fields) -> bool {
    values(head, ":status")
        .first()
        .is_some_and(|it| it.starts_with('1'))
}

/// Checks a head before it joins those of its stream.
pub(super) fn head(role: Role, stream: &StreamState, fields: &Fields) -> Result<(), String> {
    for (name, value) in fields {
        let bare = name.strip_prefix(':').unwrap_or(name);
        let has_capitals = name.bytes().any(|it| it.is_ascii_uppercase());
        if !is_token(bare) || has_capitals || OF_CONNECTIONS.contains(&name.as_str()) {
            return Err(format!("a field {name:?}"));
        }
        let is_clean = !value.contains(['\0', '\r', '\n']) && value.trim() == value;
        if !is_clean || (name == "te" && value != "trailers") {
            return Err(format!("a value {value:?} of {name}"));
        }
    }
    let pseudo: Vec<&str> = fields
        .iter()
        .filter(|(name, _)| name.starts_with(':'))
        .map(|(name, _)| name.as_str())
        .collect();
    let comes_first = fields
        .iter()
        .take(pseudo.len())
        .all(|(name, _)| name.starts_with(':'));
    if stream.final_head().is_some() {
        return match pseudo.is_empty() && stream.remote_end {
            true => Ok(()),
            false => Err(format!("trailers {fields:?} that are none")),
        };
    }
    let mut sorted = pseudo.clone();
    sorted.sort_unstable();
    let fits = match role {
        Role::Client => sorted == [":status"] && !(is_interim(fields) && stream.remote_end),
        Role::Server => sorted == [":authority", ":method", ":path", ":scheme"],
    };
    match fits && comes_first {
        true => Ok(()),
        false => Err(format!("pseudo-fields {pseudo:?}")),
    }
}

/// Checks at the end of a stream that the content is as long as the head says (section 8.1.1).
pub(super) fn length(role: Role, stream: &StreamState) -> Result<(), String> {
    let Some(head) = stream.final_head().map(|at| &stream.heads[at]) else {
        return Err("the stream ended without a head".to_owned());
    };
    let status = values(head, ":status");
    let has_none = stream.method == "HEAD" || matches!(status.as_slice(), ["204" | "304"]);
    let lengths = values(head, "content-length");
    if role == Role::Client && has_none {
        return match stream.received {
            0 => Ok(()),
            count => Err(format!("{count} bytes where none may be")),
        };
    }
    match lengths.as_slice() {
        [] => Ok(()),
        [length] if *length == stream.received.to_string() => Ok(()),
        other => Err(format!(
            "content-length is {other:?}, the content has {} bytes",
            stream.received
        )),
    }
}
