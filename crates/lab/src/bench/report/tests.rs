//! Tests of the page: well-formed, and nothing is missing.
#![cfg(test)]

use super::html;
use crate::bench::outcome::{LeftOut, Machine, Method, RunFacts, SystemFacts};
use crate::bench::results::testing::row;
use crate::bench::results::{Results, Row};
use crate::bench::scenario::{HTTP, MAP, Scenario, Side, System};

const SYSTEMS: [System; 4] = [
    System::Intertie,
    System::Floor,
    System::HaProxy,
    System::Direct,
];

fn results() -> Results {
    results_of("http", &HTTP, SYSTEMS)
}

fn results_of(suite: &str, scenarios: &[Scenario], systems: [System; 4]) -> Results {
    let mut rows: Vec<Row> = Vec::new();
    for scenario in scenarios {
        for system in systems {
            let cpu: &[f64] = match system {
                System::Direct => &[],
                System::Intertie => &[9.0, 10.0],
                _ => &[12.0, 12.5],
            };
            let mut row = row(system, cpu);
            row.case.scenario = scenario.name.to_owned();
            rows.push(row);
        }
    }
    rows[1].warnings.push("a <doubt>".to_owned());
    let facts = systems.map(|system| SystemFacts {
        system,
        version: "1 & 2".to_owned(),
        runs: vec![RunFacts {
            scenario: "h1c".to_owned(),
            command: "program --flag".to_owned(),
            config: "a < b".to_owned(),
        }],
    });
    Results {
        suite: suite.to_owned(),
        command: "lab bench http".to_owned(),
        started: "2026-01-01T00:00:00Z".to_owned(),
        machine: Machine::default(),
        method: Method::default(),
        systems: facts.to_vec(),
        rows,
        left_out: vec![LeftOut {
            scenario: "h2-h2".to_owned(),
            system: System::Nginx,
            reason: "has no HTTP/2".to_owned(),
            is_failure: false,
        }],
    }
}

/// Every tag is closed in the order in which it was opened.
fn check_nesting(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag that does not end");
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "in {open:?}"),
            None => open.push(tag.split_ascii_whitespace().next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_is_well_formed() {
    let page = html(&results());
    check_nesting(&page);
    let is_good = |rest: &str| {
        ["amp;", "lt;", "gt;", "quot;"]
            .iter()
            .any(|it| rest.starts_with(it))
    };
    let style_end = page.find("</style>").unwrap();
    assert!(page[style_end..].split('&').skip(1).all(is_good));
    assert!(!page.contains("<script") && !page.contains("NaN") && !page.contains("inf"));
    assert!(
        !page.contains("src=") && !page.contains("http://"),
        "it is self-contained"
    );
}

#[test]
fn the_page_holds_all_rows() {
    let results = results();
    let page = html(&results);
    let escaped = |title: &str| title.replace('>', "&gt;");
    for scenario in &HTTP {
        let title = format!("<h2>{}</h2>", escaped(scenario.title));
        assert!(page.contains(&title), "{title}");
    }
    assert_eq!(page.matches("class=\"dot\"").count(), results.rows.len());
    let published = HTTP.iter().filter(|it| it.back != Side::H2Clear);
    assert_eq!(
        page.matches("<tr class=\"published\">").count(),
        published.count()
    );
    assert_eq!(page.matches("<svg").count(), 4 * HTTP.len());
    // Nine for twelve, and ten for twelve and a half.
    assert!(page.contains("<td class=\"less\">0.78</td>"), "{page}");
    for part in [
        "19,551",
        "a &lt;doubt&gt;",
        "nginx (has no HTTP/2)",
        "1 &amp; 2",
        "a &lt; b",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn mappings_are_told_beside_passthrough_and_other_engines() {
    let systems = [
        System::Intertie,
        System::Passthrough,
        System::RedpandaConnect,
        System::Camel,
    ];
    let mut results = results_of("map", &MAP, systems);
    results.method.jvm_warm_up = Some(20.0);
    let page = html(&results);
    check_nesting(&page);
    assert_eq!(page.matches("class=\"dot\"").count(), results.rows.len());
    assert_eq!(page.matches("<td class=\"less\">0.78</td>").count(), 12);
    for part in [
        "<title>Intertie mapping benchmark</title>",
        "<th>to passthrough</th><th>to redpanda-connect</th><th>to camel</th>",
        "load runs for 20 s before",
        "compared as JSON",
        "100 users, 50 B",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("Ballerina") && !page.contains("The floor"));
}

#[test]
fn results_from_before_the_suites_are_read() {
    let mut value = serde_json::to_value(results()).unwrap();
    value.as_object_mut().unwrap().remove("suite");
    let read: Results = serde_json::from_value(value).unwrap();
    assert_eq!(html(&read), html(&results()));
}

#[test]
fn results_survive_json() {
    let results = results();
    let text = serde_json::to_string(&results).unwrap();
    let read: Results = serde_json::from_str(&text).unwrap();
    assert_eq!(html(&read), html(&results));
}

#[test]
fn a_page_without_rows_is_a_page() {
    let mut results = results();
    results.rows.clear();
    check_nesting(&html(&results));
}
