//! A key as it is in the data folder, and what its steps have left.

use std::time::Duration;

use bytes::Bytes;
use message::{Headers, Reply};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The table of the keyed state.
pub(super) const TABLE: &str = "idempotent";
/// The version of a record.
const VERSION: u8 = 1;
/// A larger result is not kept over a restart: a value of the keyed state has at most 16 MiB.
const BODY_MAX: usize = 15 << 20;

/// A key whose steps have succeeded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub key: String,
    /// Until when it is remembered: since 1970.
    pub until: Duration,
    pub result: Stored,
}

/// What its steps have left.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    /// It is not kept.
    Nothing,
    /// A content, as the body of a reply and what describes it.
    Content(Reply),
    /// The reply that ended the flow.
    Reply(Reply),
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        let shown = |it: &Self| format!("{it:?}");
        shown(self) == shown(other)
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    key: String,
    until_ms: u64,
    result: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Each byte of a value is one letter: values need not be UTF-8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Nothing,
    Content,
    Reply,
}

/// What the keys of a step begin with in the table.
pub(super) fn scope(flow: &str, step: &str, made_of: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [flow, step, made_of] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A key of a step in the table.
pub(super) fn name(scope: &[u8; 32], key: &str) -> Bytes {
    let digest: [u8; 32] = Sha256::digest(key).into();
    Bytes::from([&scope[..], &digest].concat())
}

impl Record {
    /// As it is in the table.
    pub fn encode(&self) -> Bytes {
        let letters = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect();
        let (kind, reply) = match &self.result {
            Stored::Content(reply) if reply.body.as_bytes().len() <= BODY_MAX => {
                (Kind::Content, Some(reply))
            }
            Stored::Reply(reply) if reply.body.as_bytes().len() <= BODY_MAX => {
                (Kind::Reply, Some(reply))
            }
            _ => (Kind::Nothing, None),
        };
        let headers = reply.map(|reply| reply.headers.view().iter());
        let head = Head {
            key: self.key.clone(),
            until_ms: u64::try_from(self.until.as_millis()).unwrap_or(u64::MAX),
            result: kind,
            status: reply.map(|reply| reply.status),
            headers: headers
                .into_iter()
                .flatten()
                .map(|(_, name, value)| (letters(name), letters(value)))
                .collect(),
        };
        // Nothing in it is what JSON cannot say.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let body = reply.map_or(&[][..], |reply| reply.body.as_bytes());
        let size = (head.len() as u32).to_le_bytes();
        Bytes::from([&[VERSION][..], &size, &head, body].concat())
    }

    /// What is in the table; `None` when that is of another version.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (size, rest) = rest.split_first_chunk()?;
        let size = u32::from_le_bytes(*size) as usize;
        let (head, body) = rest.split_at_checked(size)?;
        let head: Head = serde_json::from_slice(head).ok()?;
        let reply = || {
            let mut reply = Reply::new(head.status.unwrap_or(200));
            for (name, value) in &head.headers {
                let value: Vec<u8> = value.chars().map(|letter| letter as u8).collect();
                reply.headers.append(name, value);
            }
            reply.body = bytes.slice_ref(body).into();
            reply
        };
        (*version == VERSION).then(|| Self {
            until: Duration::from_millis(head.until_ms),
            result: match head.result {
                Kind::Nothing => Stored::Nothing,
                Kind::Content => Stored::Content(reply()),
                Kind::Reply => Stored::Reply(reply()),
            },
            key: head.key,
        })
    }
}

/// About how many bytes a reply takes.
pub(super) fn weight(reply: &Reply) -> usize {
    let head = |headers: &Headers| -> usize {
        let fields = headers.view().iter();
        fields
            .map(|(_, name, value)| name.len() + value.len())
            .sum()
    };
    head(&reply.headers) + reply.body.as_bytes().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut reply = Reply::with_content(201, "text/plain", b"\xffabc".to_vec());
        reply.headers.append("X-Odd", vec![0xe5, b'a']);
        for result in [
            Stored::Nothing,
            Stored::Content(reply.clone()),
            Stored::Reply(reply),
        ] {
            let record = Record {
                key: "=a\u{e5}".to_owned(),
                until: Duration::from_millis(7),
                result,
            };
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        for other in [&b""[..], b"\x01", b"\x01\0\0\0\0", b"\x02\x02\0\0\0{}"] {
            assert_eq!(Record::decode(&Bytes::from_static(other)), None);
        }
    }

    #[test]
    fn keys_of_other_steps_begin_otherwise() {
        let own = scope("a", "b", "c");
        assert!(name(&own, "k").starts_with(&own));
        for other in [
            scope("ab", "", "c"),
            scope("a", "bc", ""),
            scope("a", "b", "d"),
        ] {
            assert_ne!(own, other);
        }
        assert_ne!(name(&own, "k"), name(&own, "l"));
    }
}
