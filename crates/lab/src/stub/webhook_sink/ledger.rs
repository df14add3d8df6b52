//! What has come to a sink, in as few bytes as the report needs: 56 for each post, and with a
//! secret what its signature is checked with. Bodies that are equal are kept once.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::stamp;

/// How many posts a piece of memory has room for, so that none is ever moved.
const PIECE: usize = 64 * 1024;
/// Of posts beyond these only the number is kept.
const POSTS_MAX: usize = 20_000_000;
/// Of endpoints beyond these, too.
const ENDPOINTS_MAX: usize = 1_000_000;
/// Stands for nothing that is kept.
pub(super) const NONE: u32 = u32::MAX;

/// A post as it came.
pub(super) struct Post<'a> {
    pub path: &'a [u8],
    /// The hash of the event's name.
    pub id: u64,
    pub id_text: &'a [u8],
    /// The event's number, from 1; 0 without one.
    pub number: u64,
    /// Microseconds since 1970; 0 when nothing says so.
    pub published: u64,
    /// Whether the body is not what it says it is.
    pub is_changed: bool,
    pub at: u64,
    /// What it is answered with; 0 for nothing.
    pub status: u16,
    pub timestamp: &'a [u8],
    pub signature: &'a [u8],
    pub body: &'a [u8],
}

/// What is kept of a post.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub at: u64,
    pub published: u64,
    pub number: u64,
    pub id: u64,
    pub endpoint: u32,
    pub size: u32,
    /// The number of its body, and of what else its signature is made of.
    pub body: u32,
    pub proof: u32,
    pub status: u16,
    pub is_changed: bool,
}

impl Arrival {
    /// Whether the sender has been told that it was taken.
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What a signature is checked with, beside the body: places in the texts.
#[derive(Clone, Copy, Debug)]
struct Proof {
    id: (u32, u32),
    timestamp: u32,
    signature: u32,
}

/// Names, times and signatures.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProofTexts<'a> {
    pub id: &'a [u8],
    pub timestamp: &'a [u8],
    pub signature: &'a [u8],
}

/// Hashes that are hashes already.
#[derive(Default)]
pub(super) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = stamp::hash(self.0, bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type Hashed<K, V> = HashMap<K, V, BuildHasherDefault<Same>>;

/// What has come so far. A copy for a report shares what is full.
#[derive(Clone)]
pub(super) struct Ledger {
    full: Vec<Arc<Vec<Arrival>>>,
    last: Vec<Arrival>,
    /// Posts that are not kept.
    pub beyond: u64,
    /// Posts that were answered with 2xx.
    pub accepted: u64,
    pub bytes: u64,
    pub endpoints: Vec<Arc<[u8]>>,
    by_path: Hashed<Arc<[u8]>, u32>,
    /// How often each mode of verification came, and was denied.
    pub verifications: BTreeMap<String, u64>,
    /// How many bytes may be kept of bodies and signatures.
    room: Option<usize>,
    left: usize,
    bodies: Vec<Arc<[u8]>>,
    by_hash: Hashed<u64, u32>,
    texts: Vec<u8>,
    proofs: Vec<Proof>,
}

impl Ledger {
    /// An empty one. `room` is what may be kept to check signatures with, in bytes.
    pub fn new(room: Option<usize>) -> Self {
        Self {
            full: Vec::new(),
            last: Vec::new(),
            beyond: 0,
            accepted: 0,
            bytes: 0,
            endpoints: Vec::new(),
            by_path: Hashed::default(),
            verifications: BTreeMap::new(),
            room,
            left: room.unwrap_or(0),
            bodies: Vec::new(),
            by_hash: Hashed::default(),
            texts: Vec::new(),
            proofs: Vec::new(),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.room);
    }

    /// Notes that a hub has asked whether it was meant.
    pub fn verified(&mut self, mode: &str, is_denied: bool) {
        let name = match mode {
            "subscribe" | "unsubscribe" | "denied" => mode,
            _ => "other",
        };
        let name = if is_denied {
            format!("{name}, denied")
        } else {
            name.to_owned()
        };
        *self.verifications.entry(name).or_default() += 1;
    }

    /// How many posts are kept.
    pub fn len(&self) -> usize {
        self.full.len() * PIECE + self.last.len()
    }

    /// All posts in the order in which they came.
    pub fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.full
            .iter()
            .flat_map(|piece| piece.iter())
            .chain(&self.last)
    }

    pub fn add(&mut self, post: &Post<'_>) {
        self.bytes += post.body.len() as u64;
        self.accepted += u64::from((200..300).contains(&post.status));
        let Some(endpoint) = self.endpoint(post.path).filter(|_| self.len() < POSTS_MAX) else {
            self.beyond += 1;
            return;
        };
        let (body, proof) = self.keep(post).unwrap_or((NONE, NONE));
        if self.last.capacity() == 0 {
            self.last.reserve_exact(PIECE);
        }
        self.last.push(Arrival {
            at: post.at,
            published: post.published,
            number: post.number,
            id: post.id,
            endpoint,
            size: u32::try_from(post.body.len()).unwrap_or(u32::MAX),
            body,
            proof,
            status: post.status,
            is_changed: post.is_changed,
        });
        if self.last.len() == PIECE {
            self.full.push(Arc::new(std::mem::take(&mut self.last)));
        }
    }

    fn endpoint(&mut self, path: &[u8]) -> Option<u32> {
        if let Some(number) = self.by_path.get(path) {
            return Some(*number);
        }
        if self.endpoints.len() >= ENDPOINTS_MAX {
            return None;
        }
        let number = u32::try_from(self.endpoints.len()).ok()?;
        let path: Arc<[u8]> = path.into();
        self.endpoints.push(Arc::clone(&path));
        self.by_path.insert(path, number);
        Some(number)
    }

    /// Keeps what the signature is checked with, where there is room.
    fn keep(&mut self, post: &Post<'_>) -> Option<(u32, u32)> {
        self.room?;
        let body = self.body(post.body)?;
        let parts = [post.id_text, post.timestamp, post.signature];
        let length = parts.iter().map(|it| it.len()).sum::<usize>();
        self.left = self.left.checked_sub(length + size_of::<Proof>())?;
        let start = u32::try_from(self.texts.len()).ok()?;
        let mut ends = [start; 3];
        for (part, end) in parts.into_iter().zip(&mut ends) {
            self.texts.extend_from_slice(part);
            *end = u32::try_from(self.texts.len()).ok()?;
        }
        let [id, timestamp, signature] = ends;
        self.proofs.push(Proof {
            id: (start, id),
            timestamp,
            signature,
        });
        let proof = u32::try_from(self.proofs.len() - 1).ok()?;
        Some((body, proof))
    }

    fn body(&mut self, body: &[u8]) -> Option<u32> {
        // One that has the same hash and is another one has its place behind it.
        let mut hash = stamp::hash(4, body);
        while let Some(known) = self.by_hash.get(&hash) {
            if self
                .bodies
                .get(*known as usize)
                .is_some_and(|it| **it == *body)
            {
                return Some(*known);
            }
            hash = hash.wrapping_add(1);
        }
        self.left = self.left.checked_sub(body.len())?;
        let number = u32::try_from(self.bodies.len()).ok()?;
        self.bodies.push(body.into());
        self.by_hash.insert(hash, number);
        Some(number)
    }

    /// What the signature of a post is checked with, where that is kept.
    pub fn proof(&self, arrival: &Arrival) -> Option<(ProofTexts<'_>, &[u8])> {
        let body = self.bodies.get(arrival.body as usize)?;
        let Proof {
            id: (start, id),
            timestamp,
            signature,
        } = *self.proofs.get(arrival.proof as usize)?;
        let text = |from: u32, to: u32| self.texts.get(from as usize..to as usize);
        let texts = ProofTexts {
            id: text(start, id)?,
            timestamp: text(id, timestamp)?,
            signature: text(timestamp, signature)?,
        };
        Some((texts, body))
    }
}
