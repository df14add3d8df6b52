//! Endpoints that come, change and go while a driver serves the topic: those that users have made
//! by REST, and those of the topic's hub.
//!
//! One of REST that has changed is served anew from where it is: nothing more is begun for it, and
//! when nothing is under way and its record is written, it takes its own place with the new plan.
//! One that is deleted goes in the same way, and its record with it.

use std::sync::Arc;

use journal::Change;

use super::entry::Entry;
use super::names::Names;
use super::{Arrivals, Driver, NOTE_AFTER, View};
use crate::webhooks::machine::Now;
use crate::webhooks::plan::EndpointPlan;
use crate::webhooks::roster::Arrival;
use crate::webhooks::subscriptions::registry::Known;
use crate::webhooks::view::{Ring, ViewPlan};

/// What a driver knows of endpoints that come and go.
#[derive(Default)]
pub(super) struct Passing {
    arrivals: Option<Arc<Arrivals>>,
    names: Names,
    /// Those that are about to go.
    retired: Vec<usize>,
    /// The records of those that have gone.
    gone: Vec<Change>,
}

impl Passing {
    /// Whether records have to be removed.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The removals of records.
    pub fn take_gone(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.gone)
    }
}

impl Driver {
    /// Serves these endpoints too, from now on.
    pub fn receiving(mut self, arrivals: &Arc<Arrivals>) -> Self {
        self.bell = Arc::clone(arrivals.bell());
        self.passing.arrivals = Some(Arc::clone(arrivals));
        self
    }

    /// Takes up what has come, and retires what has changed or gone.
    pub(super) fn take_arrivals(&mut self) {
        self.notice_changes();
        let Some(arrivals) = self.passing.arrivals.as_ref().filter(|_| !self.is_stopping) else {
            return;
        };
        for arrival in arrivals.take() {
            match arrival {
                Arrival::Put(plan) => self.put(plan),
                // Another one of this name may come at once.
                Arrival::Remove(name) => {
                    if let Some(at) = self.passing.names.find(&name, &self.entries) {
                        self.passing.names.remove(&name, at);
                        self.retire(at, true);
                    }
                }
            }
        }
    }

    /// Serves a subscriber of a hub, or goes on with one whose subscription has been renewed.
    fn put(&mut self, plan: Arc<EndpointPlan>) {
        let known = self.passing.names.find(&plan.state.name, &self.entries);
        let Some(at) = known else {
            return self.add(plan);
        };
        if let Some(entry) = self.entries.get_mut(at) {
            entry.renew(plan);
        }
        self.wake(at);
    }

    /// Adds an endpoint.
    pub(super) fn add(&mut self, plan: Arc<EndpointPlan>) {
        let view = self.view(&plan.view);
        let is_passing = plan.host().is_some();
        let at = self.entries.add(Entry::new(plan, view));
        if is_passing {
            self.passing.names.add(at, &self.entries);
        }
        self.ready.push_back(at);
    }

    /// The number of a view, which is used once more from here on.
    fn view(&mut self, plan: &Arc<ViewPlan>) -> usize {
        let is_it =
            |it: &View| it.users > 0 && (Arc::ptr_eq(&it.plan, plan) || it.plan.is_same(plan));
        if let Some(at) = self.views.iter().position(is_it)
            && let Some(view) = self.views.get_mut(at)
        {
            view.users += 1;
            return at;
        }
        let view = View {
            plan: Arc::clone(plan),
            ring: Ring::at(*self.published.borrow()),
            viewer: None,
            is_extending: false,
            waiting: Vec::new(),
            users: 1,
        };
        let is_free = |it: &View| it.users == 0 && !it.is_extending;
        let free = self.views.iter().position(is_free);
        if let Some(at) = free
            && let Some(place) = self.views.get_mut(at)
        {
            *place = view;
            return at;
        }
        self.views.push(view);
        self.views.len() - 1
    }

    /// Adds the subscriptions that belong to this worker.
    pub(super) fn add_subscribed(&mut self) {
        let Some(managed) = self.managed.clone() else {
            return;
        };
        let all = managed.subscriptions.watch(&self.bell);
        for known in all {
            self.add_known(&known);
        }
    }

    fn add_known(&mut self, known: &Known) {
        let Some(managed) = &self.managed else {
            return;
        };
        if crate::webhooks::is_here(&known.state, self.share)
            && let Some(plan) = managed.plan(known)
        {
            self.add(plan);
        }
    }

    /// Takes notice of what has happened to subscriptions.
    fn notice_changes(&mut self) {
        let Some(managed) = self.managed.clone() else {
            return;
        };
        for id in self.bell.take_changed() {
            let known = managed.subscriptions.get(&id);
            if let Some(at) = self.passing.names.find(&id, &self.entries) {
                self.retire(at, known.is_none());
            } else if let Some(known) = known.filter(|_| !self.is_stopping) {
                self.add_known(&known);
            }
        }
    }

    /// Begins nothing more for an endpoint.
    fn retire(&mut self, at: usize, is_deleted: bool) {
        self.leaves_host(at);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.is_deleted |= is_deleted;
            if !std::mem::replace(&mut entry.is_retired, true) {
                self.passing.retired.push(at);
            }
        }
    }

    /// Lets endpoints go that have changed or are deleted, and for which nothing is under way: no
    /// note that is being written can come after that.
    pub(super) fn let_go(&mut self, now: Now) {
        if self.is_noting || self.passing.retired.is_empty() {
            return;
        }
        for at in std::mem::take(&mut self.passing.retired) {
            match self.entries.get(at).is_none_or(Entry::is_done) {
                true => self.replace(at, now),
                false => self.passing.retired.push(at),
            }
        }
    }

    fn replace(&mut self, at: usize, now: Now) {
        let Some(mut entry) = self.entries.remove(at) else {
            return;
        };
        if let Some(view) = self.views.get_mut(entry.view()) {
            view.users = view.users.saturating_sub(1);
            if entry.is_waiting {
                view.waiting.retain(|it| *it != at);
            }
            if view.users == 0 {
                view.ring.restart(*self.published.borrow());
                view.viewer = None;
            }
        }
        if entry.counts_as_behind() {
            self.behind = self.behind.saturating_sub(1);
        }
        let was_taken = entry.is_taken();
        // Its record is written, or goes with it.
        entry.release(true, now);
        let (state, is_deleted) = (Arc::clone(&entry.plan.state), entry.is_deleted);
        drop(entry);
        self.passing.names.remove(&state.name, at);
        if is_deleted {
            // A note may have been written when the deletion had not been heard of yet. Another
            // driver that still has the endpoint has heard of it, or will.
            if was_taken && self.keyed.is_some() {
                self.passing.gone.push(Change::Delete {
                    table: state.table().into(),
                    key: state.key(),
                });
                self.note_at.get_or_insert(now.us + NOTE_AFTER);
            }
            return;
        }
        let managed = self.managed.clone().filter(|_| !self.is_stopping);
        let known = managed.and_then(|it| it.subscriptions.get(&state.name));
        if let Some(known) = known {
            self.add_known(&known);
        }
    }
}
