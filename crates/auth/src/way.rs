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
    /// Its proof of possession is missing or wrong, for this reason: a word for the log.
    Proof(&'static str),
    /// Nobody can tell at the moment.
    Unavailable(&'static str),
    /// Too many credentials of the address were wrong: it may ask again after this time.
    Limited(Duration),
    /// This is the reply, for this reason.
    Answered(&'static str, Box<Reply>),
}

/// The caller of a good credential, and what is told whether the request succeeds.
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

/// The outcome of a check.
pub(crate) type Checked = Result<Known, Rejection>;

/// The outcome of looking at a credential.
pub(crate) enum Check<'a> {
    Ready(Checked),
    /// Somebody has to be asked first.
    Pending(LocalFuture<'a, Checked>),
    /// The body has to be read first; nothing in the head speaks against it.
    NeedsBody,
}

/// What doors know of a way before a request comes.
#[derive(Debug)]
pub(crate) struct Properties {
    /// Its name under `engine.auth`.
    pub name: Arc<str>,
    /// How its credential is presented.
    pub carrier: Carrier,
    /// Whether the credential goes further than the door.
    pub passes: bool,
    /// Where its tokens may stand beside `Authorization`.
    pub token_sources: TokenSources,
    /// Whether its tokens may come with proofs of possession.
    pub dpop: Dpop,
    /// Whether [`Way::takes`] tells its credentials from those of others. Of the ways that do not,
    /// a door has one for each carrier: it gets what no other one takes.
    pub tells_apart: bool,
    /// Whether it can [recall](Way::recall) credentials.
    pub recalls: bool,
    /// Whether it judges a request by its body, so that [`Check::NeedsBody`] may come.
    pub reads_body: bool,
    /// Whether it needs [`RequestHead::message`].
    pub needs_message: bool,
}

impl Properties {
    /// Those of a way of this name that keeps its credential to itself and judges it alone.
    pub fn new(name: &Arc<str>, carrier: Carrier) -> Self {
        Self {
            name: Arc::clone(name),
            carrier,
            passes: false,
            token_sources: TokenSources::default(),
            dpop: Dpop::Ignored,
            tells_apart: false,
            recalls: false,
            reads_body: false,
            needs_message: false,
        }
    }
}

impl dyn Way + '_ {
    pub fn name(&self) -> &Arc<str> {
        &self.properties().name
    }

    pub fn carrier(&self) -> &Carrier {
        &self.properties().carrier
    }
}

/// A way to know a caller. One value serves all workers.
pub(crate) trait Way: Send + Sync {
    /// What doors know of it before a request comes.
    fn properties(&self) -> &Properties;

    /// Whether a credential is for this way, where several ways have the same carrier.
    fn takes(&self, _credential: &[u8], _head: RequestHead<'_>) -> bool {
        true
    }

    /// Says who has sent a credential, if it has verified the same one before. The characters of a
    /// token have not been checked yet.
    fn recall(
        &self,
        _credential: &Credential<'_>,
        _head: RequestHead<'_>,
        _services: &dyn Services,
    ) -> Option<Checked> {
        None
    }

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
