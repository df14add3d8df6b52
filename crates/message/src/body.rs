//! The content of a message.

use bytes::Bytes;

/// The content of a message.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// There is no content.
    #[default]
    Empty,
    /// The content, whole.
    Bytes(Bytes),
    /// The content is still on the connection it comes from: whoever forwards the message relays
    /// it as it arrives, and nobody has looked at it.
    Unread,
}

impl Body {
    /// The same content in memory of its own, for whoever keeps it longer than its message: what is
    /// reserved for it in [`crate::memory`] is given back.
    pub fn detached(self) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(Bytes::copy_from_slice(&bytes)),
            body => body,
        }
    }

    /// The content, when it is in memory. Empty for [`Body::Empty`] and [`Body::Unread`].
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Empty | Self::Unread => &[],
        }
    }

    /// Whether the content has not been read from its connection yet.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Unread)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Bytes(Bytes::from(bytes))
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Bytes(bytes)
        }
    }
}
