//! What connectors keep on a worker from one message to the next: connections, pools. Each worker
//! has its own, so nothing here is shared between threads.

use std::any::Any;
use std::cell::RefCell;
use std::future::ready;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::handler::LocalFuture;

/// What a connector keeps on a worker.
pub trait Resource: Any {
    /// Ends it in good order: no flow has its connection any more, or the worker stops.
    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(ready(()))
    }
}

/// Which of the workers asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub number: usize,
    /// How many there are, at least 1.
    pub count: usize,
}

impl Share {
    /// The only worker.
    pub const WHOLE: Self = Self {
        number: 0,
        count: 1,
    };

    /// This worker's part of a limit that holds for all together. It may be 0.
    pub fn of(self, total: usize) -> usize {
        total / self.count + usize::from(self.number < total % self.count)
    }
}

/// What all connectors keep on one worker.
#[derive(Default)]
pub struct Resources(RefCell<Vec<Entry>>);

struct Entry {
    /// The connections of plans; when no plan has one of them any more, the resource ends.
    owners: Vec<Weak<dyn Any + Send + Sync>>,
    settings: String,
    /// The settings of a connection, when it is of the kind that this resource belongs to.
    describe: Describe,
    resource: Rc<dyn Resource>,
}

type Describe = Box<dyn Fn(&dyn Any) -> Option<String>>;

impl Entry {
    fn is_of(&self, owner: *const ()) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|it| std::ptr::eq(it.as_ptr().cast::<()>(), owner))
    }
}

impl Resources {
    /// The resource of a connection, made when it is not there yet. One of another plan with the
    /// same settings goes on: a reload does not interrupt what has not changed. The settings are
    /// all that makes a difference to the resource, secrets included; they are shown to nobody.
    /// The resource must not hold the owner, or it would never end.
    pub fn get<O: Any + Send + Sync, T: Resource>(
        &self,
        owner: &Arc<O>,
        settings: fn(&O) -> String,
        make: impl FnOnce() -> Rc<T>,
    ) -> Rc<T> {
        let at = Arc::as_ptr(owner).cast::<()>();
        for entry in self.0.borrow().iter() {
            if entry.is_of(at)
                && let Some(found) = downcast(&entry.resource)
            {
                return found;
            }
        }
        let describe = move |owner: &dyn Any| owner.downcast_ref().map(settings);
        let settings = settings(owner);
        let owner: Arc<dyn Any + Send + Sync> = Arc::clone(owner) as _;
        let owner = Arc::downgrade(&owner);
        for entry in self.0.borrow_mut().iter_mut() {
            if entry.settings == settings
                && let Some(found) = downcast(&entry.resource)
            {
                entry.owners.push(owner);
                return found;
            }
        }
        let made = make();
        self.0.borrow_mut().push(Entry {
            owners: vec![owner],
            settings,
            describe: Box::new(describe),
            resource: Rc::clone(&made) as _,
        });
        made
    }

    /// Notes that a new plan has these connections: what is there for one of them goes on, whether
    /// it is used before the old plan is gone or not.
    pub fn adopt(&self, connections: &[Arc<dyn Any + Send + Sync>]) {
        for entry in self.0.borrow_mut().iter_mut() {
            for connection in connections {
                let is_known = entry.is_of(Arc::as_ptr(connection).cast());
                let settings = (entry.describe)(&**connection);
                if !is_known && settings.as_ref() == Some(&entry.settings) {
                    entry.owners.push(Arc::downgrade(connection));
                }
            }
        }
    }

    /// Takes out the resources whose connections are in no plan any more; all of them when the
    /// worker stops. Whoever takes them closes them.
    pub fn take(&self, all: bool) -> Vec<Rc<dyn Resource>> {
        let mut entries = self.0.borrow_mut();
        let is_over = |entry: &mut Entry| {
            entry.owners.retain(|owner| owner.strong_count() > 0);
            all || entry.owners.is_empty()
        };
        entries
            .extract_if(.., is_over)
            .map(|entry| entry.resource)
            .collect()
    }
}

fn downcast<T: Resource>(resource: &Rc<dyn Resource>) -> Option<Rc<T>> {
    let any: Rc<dyn Any> = Rc::clone(resource) as _;
    any.downcast().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pool(u32);

    impl Resource for Pool {}

    #[test]
    fn a_resource_outlives_a_plan_while_its_settings_stay() {
        let resources = Resources::default();
        let get = |owner: &Arc<&'static str>, number| {
            let settings = |owner: &&'static str| (*owner).to_owned();
            resources.get(owner, settings, || Rc::new(Pool(number))).0
        };
        let first = Arc::new("a");
        assert_eq!(get(&first, 1), 1);
        assert_eq!(get(&first, 2), 1);
        let (same, other) = (Arc::new("a"), Arc::new("b"));
        assert_eq!((get(&same, 3), get(&other, 4)), (1, 4));
        drop(first);
        assert_eq!(resources.take(false).len(), 0);
        drop(other);
        assert_eq!(resources.take(false).len(), 1);
        assert_eq!(get(&same, 5), 1);
        assert_eq!(resources.take(true).len(), 1);
        assert_eq!(get(&same, 6), 6);
    }

    #[test]
    fn a_reload_that_changes_nothing_ends_no_resource() {
        let resources = Resources::default();
        let get = |owner: &Arc<String>, number| {
            let settings = |owner: &String| owner.clone();
            resources.get(owner, settings, || Rc::new(Pool(number))).0
        };
        fn connection(owner: &Arc<String>) -> Arc<dyn Any + Send + Sync> {
            Arc::clone(owner) as _
        }
        let named = |name: &str| Arc::new(name.to_owned());
        // The new plan has the connection and does not use it before the old one is gone.
        let old = named("a");
        assert_eq!(get(&old, 1), 1);
        let new = named("a");
        resources.adopt(&[connection(&new), connection(&named("b")), Arc::new(7)]);
        drop(old);
        assert_eq!(resources.take(false).len(), 0);
        assert_eq!(get(&new, 2), 1);
        // A long flow of the old plan uses it after the new one has.
        let newer = named("a");
        assert_eq!((get(&newer, 3), get(&new, 3)), (1, 1));
        drop(new);
        assert_eq!(resources.take(false).len(), 0);
        drop(newer);
        assert_eq!(resources.take(false).len(), 1);
        assert_eq!(resources.take(false).len(), 0);
    }

    #[test]
    fn limits_are_divided_without_a_rest() {
        let parts = |total, count| -> Vec<usize> {
            (0..count)
                .map(|number| Share { number, count }.of(total))
                .collect()
        };
        assert_eq!(parts(7, 3), [3, 2, 2]);
        assert_eq!(parts(1, 2), [1, 0]);
        assert_eq!(Share::WHOLE.of(5), 5);
    }
}
