//! All systems one worker sends to, each once, however many routes lead there.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use component::settings::Settings;
use net::upstream::Upstream;
use tokio::time::Instant;

/// All systems one worker sends to. A reload keeps them, so that connections stay open.
pub(crate) struct Upstreams {
    idle_max: usize,
    idle_time: Duration,
    known: RefCell<Vec<((String, u16), Rc<Upstream>)>>,
}

impl Upstreams {
    pub fn new(settings: &Settings) -> Self {
        Self {
            idle_max: settings.limits.upstream_idle,
            idle_time: settings.timeouts.upstream_idle,
            known: RefCell::default(),
        }
    }

    /// The upstream at this address.
    pub fn get(&self, host: &str, port: u16) -> Rc<Upstream> {
        let mut known = self.known.borrow_mut();
        let found = known.iter().find(|((name, number), _)| name == host && *number == port);
        if let Some((_, upstream)) = found {
            return Rc::clone(upstream);
        }
        let upstream = Rc::new(Upstream::new(host, port, self.idle_max, self.idle_time));
        known.push(((host.to_owned(), port), Rc::clone(&upstream)));
        upstream
    }

    /// Closes idle connections that are too old or dead, and forgets upstreams nobody uses.
    pub fn prune(&self, now: Instant) {
        self.known.borrow_mut().retain(|(_, upstream)| {
            upstream.prune(now);
            Rc::strong_count(upstream) > 1 || upstream.idle_count() > 0
        });
    }
}
