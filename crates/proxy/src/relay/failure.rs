//! What can go wrong between a request and the end of its reply.

use std::io;

use message::Fault;
use net::http1::{HeadError, ReadError, TransferError};

/// Why there is no reply to relay.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client has left: there is nobody to answer.
    ClientGone,
    /// The client's body is malformed.
    ClientInvalid(&'static str),
    /// The client's body stands still.
    ClientSlow,
    /// No connection could be made.
    Connect(io::Error),
    /// No connection could be made in time.
    ConnectTimeout,
    /// All connections are in use, and too many wait or this one has waited too long.
    QueueFull,
    /// The upstream has refused the request and not acted on it (RFC 9113, section 8.7).
    Refused,
    /// The client wants to switch to WebSocket, which HTTP/2 to the upstream does not carry.
    NoUpgrade,
    /// A limit of the flow stands against it, or there are no credentials for it.
    Limited(Box<Fault>),
    /// The connection ended before the reply began.
    Closed(io::Error),
    /// The stream was reset before the reply began; its connection goes on.
    Reset(io::Error),
    /// The reply's head is malformed.
    Invalid(HeadError),
    /// The reply did not come in time.
    ReplyTimeout,
}

/// A failure, and whether the request may be sent again.
#[derive(Debug)]
pub(crate) struct Failed {
    pub failure: Failure,
    /// Nothing of the request has been acted on, or acting twice is no harm, and all of it is at
    /// hand.
    pub repeatable: bool,
}

/// The client has left: there is nobody to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientGone;

impl Failure {
    /// A reply that cannot be used.
    pub fn invalid(reason: &'static str) -> Self {
        Self::Invalid(HeadError {
            status: 400,
            reason,
        })
    }

    /// The client's body cannot be read.
    pub fn of_request(error: TransferError) -> Self {
        match error {
            TransferError::Source(ReadError::Malformed(reason)) => Self::ClientInvalid(reason),
            _ => Self::ClientGone,
        }
    }

    /// A failure behind which the request is not sent again.
    pub fn finally(self) -> Failed {
        Failed {
            failure: self,
            repeatable: false,
        }
    }
}

/// Why a reply stops in the middle.
#[derive(Debug)]
pub(crate) enum Break {
    /// The client has left.
    ClientGone,
    /// The client's body is malformed.
    ClientInvalid(&'static str),
    /// The client is slower than the least rate.
    ClientSlow,
    /// The upstream's reply broke off.
    Upstream(ReadError),
    /// Nothing has moved for too long.
    Idle,
    /// The engine stops.
    Stopped,
}

impl Break {
    /// Logs it, as a warning when the client is not the cause.
    pub fn log(&self) {
        match self {
            Self::ClientGone => tracing::debug!(target: "proxy", "the client left"),
            Self::ClientInvalid(cause) => {
                tracing::debug!(target: "proxy", cause, "the client's body is malformed");
            }
            Self::ClientSlow => tracing::debug!(target: "proxy", "the client is too slow"),
            Self::Upstream(cause) => {
                tracing::warn!(target: "proxy", %cause, "the back end's reply broke off");
            }
            Self::Stopped => tracing::debug!(target: "proxy", "a stream is cut by the stop"),
            Self::Idle => tracing::warn!(target: "proxy", "a reply stood still for too long"),
        }
    }
}
