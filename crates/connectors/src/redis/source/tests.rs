//! What can be read, and what cannot.

use component::connection::Connections;
use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::intake::DeadLetter;
use component::state::States;
use component::testing::no_dead_letters;

use super::*;
use crate::testing::{parse, source};

const STREAM: &str = "connection: cache, stream: s, group: g";
const CHANNEL: &str = "connection: cache, channel: c";

/// What becomes of messages, and the stream that they are moved to.
fn policy(yaml: &str) -> (IntakePolicy, Option<String>) {
    let (node, _, _, mut report) = parse(yaml);
    let mut config: SourceConfig = config::decode(&node, &mut report).unwrap();
    let (flow, states): (Arc<str>, _) = ("test".into(), States::default());
    let mut context = SourceContext {
        report: &mut report,
        flow: &flow,
        connections: &Connections::default(),
        read_http: &|_, _| None,
        evaluation: &Evaluation::default(),
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states: &states,
            dead_letters: no_dead_letters,
        },
    };
    config.policy(&node, &mut context).unwrap()
}

#[test]
fn sources_are_read() {
    for yaml in [
        format!("{{ {STREAM}, consumer: me, start: all, batch: 1, idle: 100ms, concurrent: 1 }}"),
        format!("{{ {STREAM}, retry: {{ times: 0 }}, dead_letter: {{ stream: dead }} }}"),
        format!("{{ {STREAM}, field: body, decode: json, dead_letter: {{ store: failed }} }}"),
        format!("{{ {STREAM}, retry: {{ on: [5xx, timeout], delay: 1s, jitter: 0% }} }}"),
        format!("{{ {CHANNEL}, buffer: 1, dead_letter: stop }}"),
        "{ connection: cache, pattern: 'c.*', decode: json, dead_letter: drop }".to_owned(),
    ] {
        source(&DEFINITION, &yaml).unwrap();
    }
}

#[test]
fn entries_are_retried_and_kept_unless_a_file_says_otherwise() {
    let (found, stream) = policy(&format!("{{ {STREAM} }}"));
    assert_eq!((found.retry.times, stream), (20, None));
    assert!(matches!(found.dead_letter, DeadLetter::Keep(_)));
    let moved = format!("{{ {STREAM}, dead_letter: {{ stream: dead }} }}");
    let (found, stream) = policy(&moved);
    assert!(matches!(found.dead_letter, DeadLetter::Reject));
    assert_eq!(stream.as_deref(), Some("dead"));
}

#[test]
fn messages_of_channels_are_retried_only_where_a_file_says_so() {
    let times = |rest: &str| policy(&format!("{{ {CHANNEL}{rest} }}")).0.retry.times;
    assert_eq!(times(""), 0);
    assert_eq!(times(", retry: { delay: 2s }"), 20);
    assert_eq!(times(", retry: { times: 3 }"), 3);
    let (found, _) = policy(&format!("{{ {CHANNEL} }}"));
    assert!(matches!(found.dead_letter, DeadLetter::Keep(_)));
}

#[test]
fn every_problem_has_its_place() {
    let cases = [
        ("{ connection: mq, channel: c }", "IT0292 1:15"),
        ("{ connection: cache }", "IT0461 1:1"),
        (
            "{ connection: cache, channel: c, pattern: p }",
            "IT0461 1:43",
        ),
        ("{ connection: cache, stream: s }", "IT0461 1:1"),
        ("{ connection: cache, channel: c, group: g }", "IT0461 1:34"),
        (
            "{ connection: cache, channel: c, dead_letter: { stream: dead } }",
            "IT0461 1:57",
        ),
        (
            "{ connection: cache, stream: s, group: g, dead_letter: { stream: s } }",
            "IT0461 1:66",
        ),
        (
            "{ connection: cache, stream: s, group: g, dead_letter: { stream: '' } }",
            "IT0461 1:66",
        ),
        (
            "{ connection: cache, stream: s, group: g, dead_letter: reject }",
            "IT0114 1:56",
        ),
        (
            "{ connection: cache, stream: s, group: g, retry: { times: -1 } }",
            "IT0115 1:59",
        ),
        (
            "{ connection: cache, stream: s, group: g, retry: { delay: 2s, delay_max: 1s } }",
            "IT0461 1:74",
        ),
    ];
    for (yaml, expected) in cases {
        let found = source(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}

#[test]
fn old_words_are_refused_with_the_new_ones() {
    let yaml = format!(
        "{{ {STREAM}, parallel: 2, on_failure: dead-letter, dead_letter: dead, deliveries: 3 }}"
    );
    let (node, _, _, mut report) = parse(&yaml);
    assert!(config::decode::<SourceConfig>(&node, &mut report).is_none());
    let told = report.diagnostics().iter();
    let told: Vec<_> = told
        .map(|it| (it.code().as_str(), it.hint_text().unwrap_or_default()))
        .collect();
    assert_eq!(
        told,
        [
            ("IT0111", "it is called `concurrent` now"),
            ("IT0111", "it is called `dead_letter` now"),
            ("IT0114", "or write `{ store: ... }` or `{ stream: ... }`"),
            ("IT0111", "it is called `retry` now"),
        ]
    );
}
