//! All systems one worker sends to, each once, however many routes lead there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use component::settings::Settings;
use net::upstream::{IdleLimits, Upstream};
use tokio::time::Instant;

/// All systems one worker sends to. A reload keeps them, so that connections stay open.
pub(crate) struct Upstreams {
    limits: Cell<IdleLimits>,
    known: RefCell<Vec<Known>>,
}

/// An upstream by its host and port.
type Known = ((String, u16), Rc<Upstream>);

impl Upstreams {
    pub fn new() -> Self {
        Self {
            limits: Cell::new(idle_limits(&Settings::default())),
            known: RefCell::default(),
        }
    }

    /// Changes how many idle connections are kept and for how long.
    pub fn set_limits(&self, settings: &Settings) {
        let limits = idle_limits(settings);
        self.limits.set(limits);
        for (_, upstream) in self.known.borrow().iter() {
            upstream.set_limits(limits);
        }
    }

    /// The upstream at this address.
    pub fn get(&self, host: &str, port: u16) -> Rc<Upstream> {
        let mut known = self.known.borrow_mut();
        let found = known
            .iter()
            .find(|((name, number), _)| name == host && *number == port);
        if let Some((_, upstream)) = found {
            return Rc::clone(upstream);
        }
        let upstream = Rc::new(Upstream::new(host, port, self.limits.get()));
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

fn idle_limits(settings: &Settings) -> IdleLimits {
    IdleLimits {
        count: settings.limits.upstream_idle,
        time: settings.timeouts.upstream_idle,
    }
}
