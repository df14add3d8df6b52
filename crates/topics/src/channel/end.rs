//! Why the stream of a reader ends, and what the reader is told of it.

use component::stream::StopReason;

/// What readers are told whose credential is valid no more, as JSON.
pub(crate) fn invalid_data(reason: StopReason) -> String {
    format!(r#"{{"detail":"{}"}}"#, reason.detail().unwrap_or_default())
}

/// Why a reader's stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The engine stops, the address or the topic is served no more or has other settings.
    Stop,
    /// The longest time of a stream is over.
    Time,
    /// The credential of the reader has expired.
    Expired,
    /// The credential of the reader has been revoked.
    Revoked,
    /// The reader is too slow, and its policy says so.
    Slow,
    /// The reader has taken nothing for too long.
    Stalled,
    /// The topic cannot be read.
    Failed,
}

impl StreamEnd {
    /// The end of a stream that its connection asks for.
    pub fn of(reason: StopReason) -> Self {
        match reason {
            StopReason::Engine => Self::Stop,
            StopReason::Expired => Self::Expired,
            StopReason::Revoked => Self::Revoked,
        }
    }

    /// What has become of the reader's credential, where that is why its stream ends.
    pub fn credential(self) -> Option<StopReason> {
        match self {
            Self::Expired => Some(StopReason::Expired),
            Self::Revoked => Some(StopReason::Revoked),
            _ => None,
        }
    }
}
