//! A way to know a caller: one kind of credential, and who says whether it is right.

use std::borrow::Cow;
use std::sync::Arc;

use component::access::{Caller, RequestHead};
use component::handler::{LocalFuture, Services};
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;

use crate::credential::Carrier;

/// Why a credential does not let its sender in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// It is wrong, for this reason: a word for the log.
    Invalid(&'static str),
    /// Nobody can tell at the moment.
    Unavailable(&'static str),
}

/// Who has sent a credential.
pub(crate) type Checked = Result<Arc<Caller>, Rejection>;

/// The outcome of looking at a credential.
pub(crate) enum Check<'a> {
    Ready(Checked),
    /// Somebody has to be asked first.
    Pending(LocalFuture<'a, Checked>),
}

/// A way to know a caller. One value serves all workers.
pub(crate) trait Way: Send + Sync {
    /// Its name under `engine.auth`.
    fn name(&self) -> &Arc<str>;

    /// How its credential is presented.
    fn carrier(&self) -> &Carrier;

    /// Whether a credential is for this way, where several ways have the same carrier.
    fn takes(&self, _credential: &[u8]) -> bool {
        true
    }

    /// Whether the credential goes further than the door.
    fn passes(&self) -> bool;

    /// Says who has sent a credential.
    fn check<'a>(
        &'a self,
        credential: Cow<'a, [u8]>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a>;

    /// What it does by itself.
    fn source(&self) -> Option<SourcePlan> {
        None
    }

    /// The system that it asks.
    fn upstream(&self) -> Option<&Arc<UpstreamPlan>> {
        None
    }
}
