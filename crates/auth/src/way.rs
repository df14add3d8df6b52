//! A way to know a caller: one kind of credential, and who says whether it is right.

use std::sync::Arc;
use std::time::Duration;

use component::access::{AccessPage, Caller, RequestHead, Settlement};
use component::handler::{LocalFuture, Services};
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;
use message::Reply;

use crate::credential::{Carrier, Credential, TokenSources};
use crate::possession::Dpop;

/// Why a credential does not let its sender in.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// It is wrong, for this reason: a word for the log.
    Invalid(&'static str),
    /// It is not proved that it is the sender's, for this reason: a word for the log.
    Proof(&'static str),
    /// Nobody can tell at the moment.
    Unavailable(&'static str),
    /// Too many credentials of the address were wrong: it may ask again after this time.
    Limited(Duration),
    /// This is the reply, for this reason.
    Answered(&'static str, Box<Reply>),
}

/// Who has sent a credential, and what wants to know how the request ends.
#[derive(Debug)]
pub(crate) struct Known {
    pub caller: Arc<Caller>,
    pub settlement: Option<Settlement>,
}

impl From<Arc<Caller>> for Known {
    fn from(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            settlement: None,
        }
    }
}

/// Who has sent a credential.
pub(crate) type Checked = Result<Known, Rejection>;

/// The outcome of looking at a credential.
pub(crate) enum Check<'a> {
    Ready(Checked),
    /// Somebody has to be asked first.
    Pending(LocalFuture<'a, Checked>),
    /// The body has to be read first; nothing in the head speaks against it.
    NeedsBody,
}

/// A way to know a caller. One value serves all workers.
pub(crate) trait Way: Send + Sync {
    /// Its name under `engine.auth`.
    fn name(&self) -> &Arc<str>;

    /// How its credential is presented.
    fn carrier(&self) -> &Carrier;

    /// Where its tokens may stand beside `Authorization`.
    fn token_sources(&self) -> TokenSources {
        TokenSources::default()
    }

    /// Whether a credential is for this way, where several ways have the same carrier.
    fn takes(&self, _credential: &[u8], _head: RequestHead<'_>) -> bool {
        true
    }

    /// Whether its tokens may come with proofs of possession.
    fn dpop(&self) -> Dpop {
        Dpop::Ignored
    }

    /// Whether [`Way::takes`] tells its credentials from those of others. Of the ways that do not,
    /// a door has one for each carrier: it gets what no other one takes.
    fn tells_apart(&self) -> bool {
        false
    }

    /// Whether it judges a request by its body, so that [`Check::NeedsBody`] may come.
    fn reads_body(&self) -> bool {
        false
    }

    /// Whether it needs [`RequestHead::message`].
    fn needs_message(&self) -> bool {
        false
    }

    /// Whether the credential goes further than the door.
    fn passes(&self) -> bool;

    /// Says who has sent a credential.
    fn check<'a>(
        &'a self,
        credential: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a>;

    /// What it does about a request without a credential, in place of a refusal: one that sends
    /// browsers to log in answers those that navigate. The check never lets it in.
    fn invite<'a>(
        &'a self,
        _head: RequestHead<'a>,
        _services: &'a dyn Services,
    ) -> Option<Check<'a>> {
        None
    }

    /// The pages that it needs on each listener where it is used.
    fn pages(&self) -> Vec<AccessPage> {
        Vec::new()
    }

    /// What it does by itself.
    fn source(&self) -> Option<SourcePlan> {
        None
    }

    /// The systems that it asks.
    fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        Vec::new()
    }
}
