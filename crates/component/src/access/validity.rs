//! How long what a credential has opened may go on: until the credential expires or is revoked.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::sync::watch;

use super::Caller;

/// The validity of a credential, shared by all streams that it has opened. Looking at it costs a
/// load: no stream checks a signature again.
#[derive(Debug, Default)]
pub struct Validity {
    /// When the credential expires, in seconds since 1970.
    expires: Option<NonZeroU64>,
    is_revoked: AtomicBool,
    /// The credentials of which this one is made up, when a stream needs several.
    parts: Box<[Arc<Self>]>,
}

/// Counts revocations, and wakes those who have to look at their streams.
static REVOCATIONS: LazyLock<watch::Sender<u64>> = LazyLock::new(watch::Sender::default);

impl Validity {
    /// The validity of a credential that expires at this time, in seconds since 1970.
    #[must_use]
    pub fn new(expires: Option<u64>) -> Self {
        Self {
            expires: expires.and_then(NonZeroU64::new),
            ..Self::default()
        }
    }

    /// The validity of a stream that needs all of these.
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Arc<Self>>) -> Option<Arc<Self>> {
        let mut all: Vec<Arc<Self>> = Vec::new();
        for part in parts {
            if !all.iter().any(|it| Arc::ptr_eq(it, &part)) {
                all.push(part);
            }
        }
        if all.len() < 2 {
            return all.pop();
        }
        Some(Arc::new(Self {
            expires: all.iter().filter_map(|it| it.expires).min(),
            is_revoked: AtomicBool::new(false),
            parts: all.into(),
        }))
    }

    /// When it expires, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        self.expires.map(NonZeroU64::get)
    }

    /// Whether the credential has been revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        let part_is_revoked = || self.parts.iter().any(|it| it.is_revoked());
        self.is_revoked.load(Ordering::Acquire) || part_is_revoked()
    }

    /// Revokes the credential: streams that it has opened end. Call [`notify_streams`] after one or
    /// several of these.
    pub fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
    }
}

/// Has streams look whether their credentials have been revoked.
pub fn notify_streams() {
    REVOCATIONS.send_modify(|count| *count = count.wrapping_add(1));
}

/// Resolves each time when credentials have been revoked, from here on.
#[must_use]
pub fn revocations() -> watch::Receiver<u64> {
    REVOCATIONS.subscribe()
}

/// A credential that may be revoked while streams are open that it has opened.
pub trait Revocable: Send + Sync {
    /// Whether the credential has been denied although it is good. `now` gives the time of day in
    /// seconds since 1970. It is asked about each request, and costs a load while nothing is
    /// denied.
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool;

    /// The validity of the credential for a stream that is about to be opened. All streams of one
    /// credential share one, and it is revoked already when the credential was revoked meanwhile.
    fn validity(&self, caller: &Caller) -> Arc<Validity>;
}

impl std::fmt::Debug for dyn Revocable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Revocable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_several_credentials_ends_with_the_first_of_them() {
        let one = Arc::new(Validity::new(Some(20)));
        let other = Arc::new(Validity::new(Some(10)));
        let endless = Arc::new(Validity::new(None));
        let both = [&one, &other, &endless].map(Arc::clone);
        let both = Validity::of_all(both).unwrap();
        assert_eq!(both.expires(), Some(10));
        assert!(!both.is_revoked());
        let alone = Validity::of_all([Arc::clone(&one), Arc::clone(&one)]).unwrap();
        assert!(Arc::ptr_eq(&alone, &one));
        assert!(Validity::of_all([]).is_none());
        let mut changes = revocations();
        endless.revoke();
        notify_streams();
        assert!(both.is_revoked() && !alone.is_revoked());
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
    }
}
