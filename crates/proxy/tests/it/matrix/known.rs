//! Cells that do not hold yet. The list is to be emptied.

/// How often a cell fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// Always: one that holds is to be taken off.
    Always,
    /// It depends on what comes first.
    Sometimes,
}

use Fails::{Always, Sometimes};

/// A row, and the columns in which it fails: their names, `*` for each part that does not matter.
const KNOWN: &[(&str, &str, Fails)] = &[
    ("101 unasked", "*-h1-step-*", Always),
    ("101 unasked with bytes behind it", "*-h1-step-*", Always),
    ("204 with length", "*-h1-forward-*", Always),
    ("204 with length", "*-h1-map-*", Always),
    ("204 with length", "h2-h2-forward-*", Always),
    ("204 with length", "h2-h2-map-*", Always),
    ("Expect honoured", "h1-h2-forward-*", Always),
    ("GET forwarded as HEAD", "*-h1-forward-*", Always),
    ("GET forwarded as HEAD", "*-h1-map-*", Always),
    ("GET forwarded as HEAD", "h2-h2-forward-*", Always),
    ("GET forwarded as HEAD", "h2-h2-map-*", Always),
    ("POST forwarded as HEAD", "*-h1-forward-*", Always),
    ("POST forwarded as HEAD", "*-h1-map-*", Always),
    ("POST forwarded as HEAD", "h2-h2-forward-*", Always),
    ("POST forwarded as HEAD", "h2-h2-map-*", Always),
    (
        "HTTP/1.0, back end closes within chunks",
        "*-*-forward-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end closes within chunks",
        "*-*-map-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end drops before close",
        "*-*-forward-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end drops before close",
        "*-*-map-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end resets within chunks",
        "*-*-forward-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end resets within chunks",
        "*-*-map-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end stalls within chunks",
        "*-*-forward-clear",
        Always,
    ),
    (
        "HTTP/1.0, back end stalls within chunks",
        "*-*-map-clear",
        Always,
    ),
    (
        "POST in chunks refused by GoAway",
        "h1-h2-forward-*",
        Always,
    ),
    (
        "POST in chunks refused by Stream",
        "h1-h2-forward-*",
        Always,
    ),
    (
        "POST in chunks refused by GoAwayAndClose",
        "h1-h2-forward-*",
        Always,
    ),
    (
        "POST in chunks refused by GoAwayAndClose",
        "*-h2-*-*",
        Sometimes,
    ),
    (
        "POST with length refused by GoAwayAndClose",
        "*-h2-*-*",
        Sometimes,
    ),
    ("POST with trailers", "h1-h2-forward-*", Always),
    ("POST of 12 MB to a slow back end", "h1-h1-map-*", Always),
    (
        "back end reads nothing of 9 MB and says nothing",
        "h1-h1-forward-*",
        Always,
    ),
    (
        "early 401 to a stalled write of 60 kb, back end stops",
        "h1-h1-map-*",
        Sometimes,
    ),
    (
        "early 401 to a stalled write of 3 mb, back end stops",
        "h1-h1-map-*",
        Always,
    ),
    ("early 413 to 9 mb, back end stops", "h1-h1-map-*", Always),
    ("early 413 to 9 mb, back end drains", "h1-h1-map-*", Always),
    ("echo of 9 MB with length", "h1-h1-map-*", Always),
    ("echo of 9 MB with length", "*-*-step-*", Always),
    ("echo of 1 MB in chunks", "*-h2-step-*", Always),
    (
        "event stream begun before the request's end",
        "*-h2-step-*",
        Always,
    ),
    (
        "reply head before the request's end, content behind it",
        "*-h2-step-*",
        Always,
    ),
    (
        "kept connection reset under a stalled POST of 200 KB",
        "h1-h1-map-tls",
        Sometimes,
    ),
    ("reply head of 64 KB", "*-h2-*-*", Always),
    ("reply with 131 fields", "*-h2-*-*", Always),
    ("reply with trailers", "h2-h1-forward-*", Always),
    ("reply with trailers", "h2-h1-map-*", Always),
];

/// Whether a cell is one of them.
pub fn known(row: &str, column: &str) -> Option<Fails> {
    let mut entries = KNOWN.iter();
    let found = entries.find(|(known, pattern, _)| *known == row && fits(pattern, column));
    found.map(|(_, _, fails)| *fails)
}

fn fits(pattern: &str, column: &str) -> bool {
    let mut parts = column.split('-');
    pattern
        .split('-')
        .all(|it| parts.next().is_some_and(|part| it == "*" || it == part))
}
