//! Credentials of requests to other systems that are made for each request: tokens that expire,
//! and signatures. `proxy` asks for them before a head is written, and again when a system refuses
//! them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use message::{Fault, HeadersView};

use crate::handler::{LocalFuture, Services};
use crate::upstream::UpstreamPlan;

/// Makes the credentials of requests over a connection. The text of `Debug` shows no secret.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// The system that hands them out, when that is another one.
    fn upstream(&self) -> Option<&Arc<UpstreamPlan>> {
        None
    }

    /// The header fields that they may consist of. None of these names is passed on from a client.
    fn fields(&self) -> &'static [&'static str];

    /// How the names of other fields begin that are orders to the system, such as `x-amz-`. Those
    /// of a client are not passed on by `forward`: they would be signed, and count as ours.
    fn orders(&self) -> Option<&'static str> {
        None
    }

    /// What of a request they are made from.
    fn signs(&self) -> Signs;

    /// The credentials of a request.
    ///
    /// # Errors
    /// When there are none to be had.
    fn grant<'a>(
        &'a self,
        request: &'a Unsigned<'a>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Grant, Fault>>;

    /// A system has answered a request with these credentials with this status, 400 or above, at
    /// this time of day (the time since 1970 began, UTC). Whether it has refused them, and others
    /// may do: [`Credentials::grant`] then gives others, unless it is too early for that.
    fn refuses(&self, grant: &Grant, status: u16, headers: HeadersView<'_>, wall: Duration)
    -> bool;
}

/// What of a request credentials are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// Nothing: the same do for all requests.
    Nothing,
    /// Its head.
    Head,
    /// Its head and its body, which has to be in memory.
    Body,
}

/// A request as it is about to be sent, but for its credentials. Empty where they are not made from
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsigned<'a> {
    /// Its method.
    pub method: &'a str,
    /// What `Host` or `:authority` says.
    pub host: &'a [u8],
    /// Path and query, percent-encoded.
    pub target: &'a [u8],
    /// Its other header fields; none when there are none.
    pub fields: Option<HeadersView<'a>>,
    /// Its body, when that is in memory.
    pub body: Option<&'a [u8]>,
}

/// The credentials of one request.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    /// Header lines: name and value.
    pub lines: Vec<(&'static str, String)>,
}

/// Without the secrets.
impl fmt::Debug for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.lines.iter().map(|(name, _)| name);
        formatter.debug_list().entries(names).finish()
    }
}
