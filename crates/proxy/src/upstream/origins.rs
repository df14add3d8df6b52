//! The systems behind URLs that become known when messages come: anybody can name another one, so
//! there are as many as a bound allows, each for as long as it has connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use component::settings::Settings;
use component::upstream::UpstreamPlan;
use tokio::time::Instant;

use crate::upstream::Upstream;

/// The most that one worker keeps. Requests to others go over connections of their own, which are
/// closed behind them.
const ORIGINS_MAX: usize = 16 * 1024;

/// One in so many makes room when there are as many as may be.
const MAKE_ROOM: usize = 8;

/// Host and port, within what the files say of such URLs.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// The address of the template, which lives for as long as the upstream.
    template: usize,
    is_secure: bool,
    host: String,
    port: u16,
}

impl Key {
    fn of(plan: &UpstreamPlan) -> Option<Self> {
        let template = plan.template.as_ref()?;
        let endpoint = plan.endpoints.first()?;
        Some(Self {
            template: Arc::as_ptr(template).addr(),
            is_secure: plan.tls.is_some(),
            host: endpoint.host.clone(),
            port: endpoint.port,
        })
    }
}

struct Origin {
    upstream: Rc<Upstream>,
    /// When it was asked for last.
    used: Cell<Instant>,
}

impl Origin {
    /// Whether nobody has a request there.
    fn is_idle(&self) -> bool {
        Rc::strong_count(&self.upstream) == 1
    }
}

/// The upstreams of one worker that were made for URLs.
pub(super) struct Origins {
    known: RefCell<HashMap<Key, Origin>>,
    max: usize,
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            known: RefCell::default(),
            max: ORIGINS_MAX,
        }
    }
}

impl Origins {
    /// The upstream of a plan that was made for a URL. One that is not there yet is made, and kept
    /// where there is room.
    pub fn get(
        &self,
        plan: &UpstreamPlan,
        make: impl FnOnce() -> Upstream,
        now: Instant,
    ) -> Rc<Upstream> {
        let Some(key) = Key::of(plan) else {
            return Rc::new(make());
        };
        let mut known = self.known.borrow_mut();
        if let Some(origin) = known.get(&key) {
            origin.used.set(now);
            return Rc::clone(&origin.upstream);
        }
        if known.len() >= self.max {
            make_room(&mut known, self.max / MAKE_ROOM);
        }
        let upstream = Rc::new(make());
        if known.len() < self.max {
            let origin = Origin {
                upstream: Rc::clone(&upstream),
                used: Cell::new(now),
            };
            known.insert(key, origin);
        }
        upstream
    }

    /// Has all of them take new settings over.
    pub fn update(&self, settings: &Settings) {
        for Origin { upstream, .. } in self.known.borrow().values() {
            upstream.update(settings, &upstream.plan.connections);
        }
    }

    /// Closes connections that are idle for too long, and forgets those without any.
    pub fn prune(&self, now: Instant) {
        self.known.borrow_mut().retain(|_, origin| {
            origin.upstream.prune(now);
            !origin.is_idle() || !origin.upstream.is_unused()
        });
    }

    /// How many are kept.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.known.borrow().len()
    }

    /// The same with another bound.
    #[cfg(test)]
    pub fn with_max(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }
}

/// Forgets so many of those that nobody has asked for for the longest time, with their connections;
/// none of those with requests under way.
fn make_room(known: &mut HashMap<Key, Origin>, count: usize) {
    let idle = known.values().filter(|origin| origin.is_idle());
    let mut times: Vec<Instant> = idle.map(|origin| origin.used.get()).collect();
    if times.is_empty() {
        return;
    }
    let last = count.clamp(1, times.len()) - 1;
    let (_, until, _) = times.select_nth_unstable(last);
    let until = *until;
    known.retain(|_, origin| !origin.is_idle() || origin.used.get() > until);
}
