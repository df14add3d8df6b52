//! Which subscriptions a topic has, and whose they are: without input or output, so that tests can
//! run it through any order of changes. What is about to be written is reserved first, so that no
//! bound is passed by requests that come at once.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::record::{Owner, RequestKey, Subscription, ViewText};
use crate::webhooks::state::EndpointState;

/// A subscription with what is known of its delivery.
#[derive(Clone)]
pub(in crate::webhooks) struct Known {
    pub subscription: Arc<Subscription>,
    pub state: Arc<EndpointState>,
}

/// The same in the order of the ids.
struct ById(Known);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        &self.0.subscription.id
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ById {}

impl PartialOrd for ById {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ById {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.subscription.id.cmp(&other.0.subscription.id)
    }
}

/// What an owner has.
struct Owned {
    owner: Arc<Owner>,
    ids: BTreeSet<Arc<str>>,
    /// How many are being written.
    reserved: usize,
    /// What `Idempotency-Key`s have made, or are making when there is no id.
    requests: HashMap<String, Option<Arc<str>>>,
}

/// Bounds on what there is.
#[derive(Clone, Copy, Debug)]
pub(in crate::webhooks) struct Bounds {
    pub per_caller: usize,
    pub total: usize,
    /// How many different views with expressions there may be.
    pub distinct: usize,
}

/// Why nothing can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::webhooks) enum Refusal {
    /// The owner has as many as it may have.
    TooMany,
    /// The topic has as many as it may have.
    Full,
    /// There are as many different expressions as there may be.
    TooManyViews,
    /// The `Idempotency-Key` has come with another request before.
    OtherRequest,
    /// The request with this `Idempotency-Key` is under way.
    InProgress,
}

/// What comes of the wish to create one.
pub(in crate::webhooks) enum Start {
    /// It may be written; [`Registry::finish`] has to be called.
    Reserved(Reserved),
    /// This one was created by the same request before.
    Before(Known),
}

/// One that is being written.
#[derive(Debug)]
pub(in crate::webhooks) struct Reserved {
    pub owner: Arc<Owner>,
    pub view: Arc<ViewText>,
    request: Option<String>,
}

/// The subscriptions of a topic.
#[derive(Default)]
pub(in crate::webhooks) struct Registry {
    known: BTreeSet<ById>,
    owners: HashMap<Arc<Owner>, Owned>,
    views: HashSet<Arc<ViewText>>,
    reserved: usize,
    /// Those that are being changed.
    busy: HashSet<Arc<str>>,
}

impl Registry {
    /// All of them, by id.
    pub fn all(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().map(|it| &it.0)
    }

    pub fn get(&self, id: &str) -> Option<&Known> {
        self.known.get(id).map(|it| &it.0)
    }

    /// Those of one owner, or all, in the order of their ids.
    pub fn list(&self, owner: Option<&Owner>) -> impl Iterator<Item = &Known> {
        self.behind(owner, "")
    }

    /// Those behind an id, in the order of their ids, of one owner or of all.
    fn behind(&self, owner: Option<&Owner>, after: &str) -> Box<dyn Iterator<Item = &Known> + '_> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        match owner.map(|it| self.owners.get(it)) {
            None => Box::new(self.known.range::<str, _>(range).map(|it| &it.0)),
            Some(None) => Box::new(std::iter::empty()),
            Some(Some(owned)) => {
                let ids = owned.ids.range::<str, _>(range);
                Box::new(ids.filter_map(|id| self.get(id)))
            }
        }
    }

    /// At most so many behind an id, of one owner or of all.
    pub fn page(&self, owner: Option<&Owner>, after: &str, most: usize) -> Vec<Known> {
        self.behind(owner, after).take(most).cloned().collect()
    }

    /// How many there are, of one owner or of all.
    pub fn count(&self, owner: Option<&Owner>) -> usize {
        match owner {
            None => self.known.len(),
            Some(owner) => self.owners.get(owner).map_or(0, |it| it.ids.len()),
        }
    }

    /// At most so many without the first ones, of one owner or of all.
    pub fn part(&self, owner: Option<&Owner>, skipped: usize, most: usize) -> Vec<Known> {
        let behind = self.list(owner).skip(skipped);
        behind.take(most).cloned().collect()
    }

    /// The one that stands for all that are equal: they share what it takes.
    pub fn view(&mut self, view: &ViewText) -> Arc<ViewText> {
        if let Some(known) = self.views.get(view) {
            return Arc::clone(known);
        }
        // Those that nothing has any more make room.
        self.views.retain(|it| Arc::strong_count(it) > 1);
        let view = Arc::new(view.clone());
        self.views.insert(Arc::clone(&view));
        view
    }

    fn distinct_without(&self, view: &ViewText) -> usize {
        let counts = |it: &&Arc<ViewText>| {
            it.has_expressions() && ***it != *view && Arc::strong_count(it) > 1
        };
        self.views.iter().filter(counts).count()
    }

    /// Whether a view fits beside the others.
    ///
    /// # Errors
    /// When there are too many with expressions.
    pub fn check_view(&self, view: &ViewText, bounds: Bounds) -> Result<(), Refusal> {
        match view.has_expressions() && self.distinct_without(view) >= bounds.distinct {
            true => Err(Refusal::TooManyViews),
            false => Ok(()),
        }
    }

    /// The wish of somebody to create one.
    ///
    /// # Errors
    /// When that may not be.
    pub fn start(
        &mut self,
        (owner, view): (&Owner, &ViewText),
        request: Option<&RequestKey>,
        bounds: Bounds,
    ) -> Result<Start, Refusal> {
        let owned = self.owners.get(owner);
        if let (Some(owned), Some(request)) = (owned, request)
            && let Some(before) = owned.requests.get(&request.key)
        {
            let before = before.as_ref().ok_or(Refusal::InProgress)?;
            let before = self.get(before).ok_or(Refusal::InProgress)?;
            let is_same = before.subscription.details().request.as_ref() == Some(request);
            return match is_same {
                true => Ok(Start::Before(before.clone())),
                false => Err(Refusal::OtherRequest),
            };
        }
        if owned.map_or(0, |it| it.ids.len() + it.reserved) >= bounds.per_caller {
            return Err(Refusal::TooMany);
        }
        if self.known.len() + self.reserved >= bounds.total {
            return Err(Refusal::Full);
        }
        self.check_view(view, bounds)?;
        let view = self.view(view);
        let owned = self.owned(owner);
        owned.reserved += 1;
        let request = request.map(|it| it.key.clone());
        if let Some(request) = &request {
            owned.requests.insert(request.clone(), None);
        }
        let owner = Arc::clone(&owned.owner);
        self.reserved += 1;
        Ok(Start::Reserved(Reserved {
            owner,
            view,
            request,
        }))
    }

    fn owned(&mut self, owner: &Owner) -> &mut Owned {
        let shared = match self.owners.get(owner) {
            Some(owned) => Arc::clone(&owned.owner),
            None => Arc::new(owner.clone()),
        };
        let make = || Owned {
            owner: Arc::clone(&shared),
            ids: BTreeSet::new(),
            reserved: 0,
            requests: HashMap::new(),
        };
        self.owners.entry(Arc::clone(&shared)).or_insert_with(make)
    }

    /// What has been reserved is on the disk, or is given up.
    pub fn finish(&mut self, reserved: &Reserved, made: Option<Known>) {
        self.reserved = self.reserved.saturating_sub(1);
        if let Some(owned) = self.owners.get_mut(&reserved.owner) {
            owned.reserved = owned.reserved.saturating_sub(1);
            if let Some(request) = &reserved.request {
                owned.requests.remove(request);
            }
        }
        match made {
            Some(known) => self.put(known),
            None => self.forget_owner(&reserved.owner),
        }
    }

    /// Adds one that is on the disk, or puts it in the place of what it was before.
    pub fn put(&mut self, mut known: Known) {
        let owner = Arc::clone(&known.subscription.owner);
        let view = self.view(&known.subscription.view);
        let owned = self.owned(&owner);
        let id = Arc::clone(&known.subscription.id);
        owned.ids.insert(Arc::clone(&id));
        if let Some(request) = &known.subscription.details().request {
            let of_request = Some(Arc::clone(&id));
            owned.requests.insert(request.key.clone(), of_request);
        }
        let shared = Arc::clone(&owned.owner);
        let is_shared =
            Arc::ptr_eq(&shared, &owner) && Arc::ptr_eq(&view, &known.subscription.view);
        if !is_shared {
            let subscription = Arc::make_mut(&mut known.subscription);
            (subscription.owner, subscription.view) = (shared, view);
        }
        self.known.replace(ById(known));
    }

    /// Forgets one.
    pub fn remove(&mut self, id: &str) -> Option<Known> {
        let ById(known) = self.known.take(id)?;
        let owner = &known.subscription.owner;
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.ids.remove(id);
            if let Some(request) = &known.subscription.details().request {
                owned.requests.remove(&request.key);
            }
        }
        self.forget_owner(owner);
        Some(known)
    }

    fn forget_owner(&mut self, owner: &Arc<Owner>) {
        let is_empty = |it: &Owned| it.ids.is_empty() && it.reserved == 0;
        if self.owners.get(owner).is_some_and(is_empty) {
            self.owners.remove(owner);
        }
    }

    /// Takes one to change it; false when somebody else does.
    pub fn begin_change(&mut self, id: &Arc<str>) -> bool {
        self.busy.insert(Arc::clone(id))
    }

    pub fn end_change(&mut self, id: &str) {
        self.busy.remove(id);
    }
}
