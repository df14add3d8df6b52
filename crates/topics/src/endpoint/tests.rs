//! What putting topics into the directory costs, and what is found there.

use super::*;
use crate::testing::endpoint_settings;

/// A directory, and what it takes to put topics into it.
struct Start {
    states: States,
    directory: Arc<Directory>,
    listen: ListenAddress,
}

impl Start {
    fn new() -> Self {
        let states = States::default();
        Self {
            directory: Directory::of(&states),
            states,
            listen: ListenAddress {
                host: None,
                port: 1,
            },
        }
    }

    fn put(&self, name: &str) -> Arc<Endpoint> {
        let hub = Hub::of(&self.states);
        let topic = hub.declare(name, Default::default(), &self.states);
        topic.set_served(true);
        let settings = endpoint_settings(&self.listen);
        self.directory
            .put(&topic, (settings, Default::default()), Default::default())
    }

    /// How many entries have been looked at while topics of these numbers were put in.
    fn visits(&self, topics: usize) -> (usize, Vec<Arc<Endpoint>>) {
        let before = self.directory.known().visits;
        let put = (0..topics).map(|number| self.put(&format!("t{number}")));
        let put = put.collect();
        (self.directory.known().visits - before, put)
    }

    fn find(&self, name: &str) -> Option<Arc<Endpoint>> {
        self.directory.find(&self.listen, name, |_| true)
    }
}

#[test]
fn the_start_of_many_topics_looks_at_each_a_few_times() {
    let start = Start::new();
    let (visits, first) = start.visits(4096);
    assert!(visits < 4096 * 4, "{visits} visits for 4096 topics");
    // A reload reads all of them again while the first plan is still served.
    let (visits, second) = start.visits(4096);
    assert!(visits < 4096 * 4, "{visits} visits for a reload");
    for (one, other) in first.iter().zip(&second) {
        assert!(Arc::ptr_eq(&one.identity, &other.identity));
    }
}

#[test]
fn the_newest_topic_of_a_name_is_found_as_long_as_a_plan_has_it() {
    let start = Start::new();
    let first = start.put("prices");
    let second = start.put("prices");
    assert!(Arc::ptr_eq(&start.find("prices").unwrap(), &second));
    drop(second);
    assert!(Arc::ptr_eq(&start.find("prices").unwrap(), &first));
    assert!(start.find("orders").is_none());
    let is_first = |it: &Endpoint| Arc::ptr_eq(&it.identity, &first.identity);
    assert!(start.directory.search(&start.listen, is_first).is_some());
    let mut seen = 0;
    start.directory.each(&start.listen, |_| seen += 1);
    assert_eq!(seen, 1);
}

#[test]
fn topics_that_no_plan_has_any_more_are_forgotten() {
    let start = Start::new();
    for round in 0..100 {
        let put: Vec<_> = (0..10)
            .map(|number| start.put(&format!("t{round}-{number}")))
            .collect();
        drop(put);
    }
    assert!(start.directory.known().topics.len() <= 16);
}

#[test]
fn topics_of_a_plan_that_is_not_served_are_not_found() {
    let start = Start::new();
    let first = start.put("prices");
    let changes = || start.directory.hub.changes().load(Ordering::Acquire);
    let before = changes();
    let loading = start.put("prices");
    loading.topic.set_served(false);
    let other = start.put("orders");
    other.topic.set_served(false);
    assert!(changes() > before);
    assert!(Arc::ptr_eq(&start.find("prices").unwrap(), &first));
    assert!(start.find("orders").is_none());
    let mut seen = Vec::new();
    let look = |it: &Endpoint| seen.push(Arc::clone(&it.identity));
    start.directory.each(&start.listen, look);
    assert!(seen.len() == 1 && Arc::ptr_eq(&seen[0], &first.identity));
}

#[tokio::test]
async fn topics_are_found_from_when_they_are_served_until_they_are_withdrawn() {
    let start = Start::new();
    let hub = Hub::of(&start.states);
    let declare = || {
        let settings = crate::settings::Settings {
            durability: crate::settings::Durability::Memory,
            ..Default::default()
        };
        let topic = hub.declare("prices", settings, &start.states);
        let settings = (endpoint_settings(&start.listen), Default::default());
        start.directory.put(&topic, settings, Default::default())
    };
    let changes = || start.directory.hub.changes().load(Ordering::Acquire);
    let _endpoint = declare();
    assert!(start.find("prices").is_none());
    let prepared = hub.prepare().await.unwrap();
    assert!(
        start.find("prices").is_none(),
        "the plan can still be refused"
    );
    let before = changes();
    prepared.serve();
    assert!(start.find("prices").is_some());
    assert!(
        changes() > before,
        "what is gathered of all topics is gathered again"
    );
    prepared.withdraw().await;
    assert!(start.find("prices").is_none());
    let served = declare();
    hub.open().await.unwrap();
    assert!(Arc::ptr_eq(&start.find("prices").unwrap(), &served));
}

/// A connection keeps the directory when a reload has taken all topics away. What is served later
/// has to be noticed there, or locks that were gathered before would hold.
#[test]
fn a_directory_that_outlives_its_topics_notices_what_is_served_later() {
    let start = Start::new();
    start.states.measures(std::time::Instant::now());
    let before = start.directory.hub.changes().load(Ordering::Acquire);
    Hub::of(&start.states).note_change();
    assert!(start.directory.hub.changes().load(Ordering::Acquire) > before);
    assert!(Arc::ptr_eq(&Directory::of(&start.states), &start.directory));
}
