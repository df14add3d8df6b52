//! Polling for a topic: what is published, when, and what is known of it after a restart.

use std::time::Duration;

use component::connection::Connections;
use component::definition::Surroundings;
use component::document::{Entrance, EntranceReader, Listening};
use component::evaluation::Evaluation;
use component::state::States;
use config::{Report, Sources, Span};

use super::*;
use crate::poll::testing::{TestServices, json};
use crate::settings::Settings;

/// Polling opens no listeners.
struct NoEntrances;

impl EntranceReader for NoEntrances {
    fn public_url(&self) -> Option<&str> {
        None
    }

    fn listener_auth(&self, _: &component::trigger::ListenAddress) -> Option<&Node> {
        None
    }

    fn read_gate(
        &self,
        _: &Node,
        _: (&str, &str),
        _: (&Evaluation, &Surroundings<'_>),
        _: &mut Report,
    ) -> Option<Arc<component::limits::Gate>> {
        None
    }

    fn read_http(&self, _: &Node, _: &mut Report) -> Option<Entrance> {
        None
    }

    fn read_listening(&self, _: Option<&Node>, _: &mut Report) -> Option<Listening> {
        None
    }

    fn entrance(
        &self,
        _: &str,
        _: (&str, Span),
        _: &Listening,
        _: &mut Report,
    ) -> Option<Entrance> {
        None
    }
}

/// A topic of this payload in memory that polls.
async fn polling(yaml: &str, payload: Payload, states: &States) -> (Arc<Topic>, SourcePlan) {
    let settings = Settings {
        payload,
        durability: Durability::Memory,
        ..Settings::default()
    };
    let hub = Hub::of(states);
    let topic = hub.declare("prices", settings, states);
    hub.open().await.unwrap();
    let plan = plan(yaml, &topic, states).unwrap_or_else(|problems| panic!("{problems:?}"));
    (topic, plan)
}

fn plan(yaml: &str, topic: &Arc<Topic>, states: &States) -> Result<SourcePlan, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let file = sources
        .add("test.yaml", yaml.as_bytes(), &mut report)
        .unwrap();
    let node = config::parse(&sources, file, &mut report).remove(0);
    let mut context = DocumentContext {
        report: &mut report,
        connections: &Connections::default(),
        entrances: &NoEntrances,
        evaluation: &Evaluation::default(),
        ways: &component::access::NoWays,
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states,
            dead_letters: component::testing::no_dead_letters,
        },
    };
    let read = read(&node, &mut context, topic);
    let problems = report.diagnostics().iter();
    let problems = problems.map(|it| format!("{} {}", it.code().as_str(), it.message()));
    read.map(|(plan, _)| plan).ok_or_else(|| problems.collect())
}

/// Runs until the system has been asked so often. The thread that orders events is a real one, so
/// the clock cannot jump.
async fn run(plan: &SourcePlan, services: &TestServices, count: usize) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = Box::pin(async move {
        let _ = stopped.await;
    });
    let asked = async {
        // What the last of them has brought has been handed over when the next one is made.
        while services.asked.borrow().len() <= count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stop);
    };
    tokio::join!(asked, plan.source.run(&plan.flow, services, stopped));
}

/// The events of a topic.
async fn events(topic: &Topic) -> Vec<String> {
    let attached = topic.attach().await.unwrap();
    let from = EventId {
        sequence: attached.first,
        ..attached.next
    };
    let history = topic.history(from, 1 << 20).await.unwrap();
    let crate::topic::History::Events(events) = history else {
        panic!("no history: {history:?}");
    };
    let texts = events.iter().map(|event| match &event.content {
        crate::event::Content::Event(text) => text,
        crate::event::Content::Snapshot { whole, .. } => whole,
    });
    texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

const ALWAYS: &str = "{ url: 'http://api.example/', every: 100ms, when: always }";

#[tokio::test]
async fn a_snapshot_is_published_when_it_has_changed() {
    let states = States::default();
    let (topic, plan) = polling(ALWAYS, Payload::Snapshot, &states).await;
    let bodies = [r#"{"a":1, "b":2}"#, r#"{"b":2,"a":1}"#, r#"{"a":3,"b":2}"#];
    let services = TestServices::quick(move |number, _| json(&[], bodies[number.min(2)]));
    run(&plan, &services, 5).await;
    assert_eq!(
        events(&topic).await,
        [r#"{"a":1,"b":2}"#, r#"{"a":3,"b":2}"#]
    );
}

#[tokio::test]
async fn an_event_is_published_when_it_differs_or_always() {
    for (changes, expected) in [("true", 2), ("false", 4)] {
        let yaml = ALWAYS.replace(" }", &format!(", changes: {changes} }}"));
        let states = States::default();
        let (topic, plan) = polling(&yaml, Payload::Event, &states).await;
        let services = TestServices::quick(|number, _| json(&[], &format!("[ {} ]", number / 2)));
        run(&plan, &services, 4).await;
        let mut events = events(&topic).await;
        events.retain(|event| event != "[2]");
        assert_eq!(events.len(), expected, "{changes}");
    }
}

#[tokio::test]
async fn the_system_is_asked_while_somebody_listens() {
    let states = States::default();
    let yaml = "{ url: 'http://api.example/', every: 100ms }";
    let (topic, plan) = polling(yaml, Payload::Snapshot, &states).await;
    let services = TestServices::quick(|_, _| json(&[], "1"));
    let listening = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(services.times().len(), 0);
        let listener = topic.listen();
        while services.times().len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(listener);
        tokio::time::sleep(Duration::from_millis(150)).await;
        let after = services.times().len();
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(services.times().len(), after);
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = Box::pin(async move {
        let _ = stopped.await;
    });
    let listening = async {
        listening.await;
        drop(stop);
    };
    tokio::join!(listening, plan.source.run(&plan.flow, &services, stopped));
}

#[tokio::test]
async fn what_is_no_json_or_too_large_is_a_failure() {
    let states = States::default();
    let yaml = ALWAYS.replace(" }", ", retry: { times: 0 } }");
    let (topic, plan) = polling(&yaml, Payload::Snapshot, &states).await;
    let services = TestServices::quick(|number, _| match number {
        0 => json(&[], "<html>"),
        1 => json(&[], &format!("\"{}\"", "x".repeat(1 << 20))),
        _ => json(&[], "1"),
    });
    run(&plan, &services, 4).await;
    assert_eq!(events(&topic).await, ["1"]);
    let measures = states.measures(std::time::Instant::now());
    let failures = measures
        .iter()
        .find(|it| it.1.name == "poll_failures_total");
    assert_eq!(failures.unwrap().1.value, 2.0);
}

#[tokio::test]
async fn what_is_wrong_is_told() {
    let states = States::default();
    let topic = Hub::of(&states).declare("prices", Settings::default(), &states);
    for (yaml, expected) in [
        (
            "{ url: 'http://a', every: 1s, changes: true }",
            "IT0680 `changes` has no effect on a topic of snapshots",
        ),
        ("{ url: 'http://a', every: 1s, body_max: 1KiB }", "IT0111 "),
        (
            "{ url: 'http://a', every: 25h }",
            "IT0681 `every` is 25h, outside its range",
        ),
    ] {
        let problems = plan(yaml, &topic, &states).err().unwrap_or_default();
        let [problem] = problems.as_slice() else {
            panic!("{yaml}: {problems:?}");
        };
        assert!(problem.starts_with(expected), "{yaml}: {problem}");
    }
}
