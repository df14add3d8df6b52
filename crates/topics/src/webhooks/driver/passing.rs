//! Endpoints that come and go while a driver serves the topic.

use std::collections::HashMap;
use std::sync::Arc;

use journal::Change;

use super::entry::Entry;
use super::{Arrivals, Driver, NOTE_AFTER, View};
use crate::webhooks::machine::Now;
use crate::webhooks::plan::EndpointPlan;
use crate::webhooks::roster::Arrival;
use crate::webhooks::view::{Ring, ViewPlan};

/// What a driver knows of endpoints that come and go.
#[derive(Default)]
pub(super) struct Passing {
    arrivals: Option<Arc<Arrivals>>,
    /// Where they are among the driver's entries.
    by_name: HashMap<Arc<str>, usize>,
    /// Those that have gone, and have something under way.
    retired: Vec<usize>,
    /// Entries of those that have gone, for others.
    free: Vec<usize>,
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

    /// Takes up what has come, and lets go of what has gone.
    pub(super) fn take_arrivals(&mut self) {
        let Some(arrivals) = self.passing.arrivals.as_ref().filter(|_| !self.is_stopping) else {
            return;
        };
        for arrival in arrivals.take() {
            match arrival {
                Arrival::Put(plan) => self.put(plan),
                Arrival::Remove(name) => {
                    if let Some(at) = self.passing.by_name.remove(&name) {
                        self.retire(at);
                    }
                }
            }
        }
    }

    /// Serves an endpoint, or goes on with one as it is described now.
    fn put(&mut self, plan: Arc<EndpointPlan>) {
        let view = self.view_of(&plan.view);
        let name = Arc::clone(&plan.state.name);
        if let Some(at) = self.passing.by_name.get(&name).copied() {
            if let Some(entry) = self.entries.get_mut(at) {
                entry.plan = plan;
            }
            return self.wake(at);
        }
        let entry = Entry::new(plan, view);
        let at = match self.passing.free.pop() {
            Some(at) => {
                if let Some(place) = self.entries.get_mut(at) {
                    *place = entry;
                }
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.passing.by_name.insert(name, at);
        self.ready.push_back(at);
    }

    fn view_of(&mut self, plan: &Arc<ViewPlan>) -> usize {
        let same = self.views.iter().position(|it| it.plan.is_same(plan));
        same.unwrap_or_else(|| {
            self.views.push(View {
                plan: Arc::clone(plan),
                ring: Ring::at(*self.published.borrow()),
                viewer: None,
                is_extending: false,
                waiting: Vec::new(),
            });
            self.views.len() - 1
        })
    }

    fn retire(&mut self, at: usize) {
        self.leaves_host(at);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.is_retired = true;
            self.passing.retired.push(at);
        }
    }

    /// Has the records of endpoints removed that have gone, once nothing of them is under way: no
    /// note that is being written can come after that.
    pub(super) fn clear_retired(&mut self, now: Now) {
        if self.is_noting || self.passing.retired.is_empty() {
            return;
        }
        for at in std::mem::take(&mut self.passing.retired) {
            let Some(entry) = self.entries.get_mut(at) else {
                continue;
            };
            if entry.has_work() {
                self.passing.retired.push(at);
                continue;
            }
            if entry.turned_behind_at_end() {
                self.behind = self.behind.saturating_sub(1);
            }
            let was_taken = entry.is_taken();
            entry.release();
            // Another driver that still has it has noted it, or will.
            if was_taken && self.keyed.is_some() {
                self.passing.gone.push(Change::Delete {
                    table: entry.plan.state.table.into(),
                    key: entry.plan.state.key(),
                });
                self.note_at.get_or_insert(now.us + NOTE_AFTER);
            }
            self.passing.free.push(at);
        }
    }
}
