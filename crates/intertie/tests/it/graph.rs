//! `intertie graph`: every example is a chart that can be read.

use std::collections::HashSet;
use std::fs;

use crate::support::{output, repository};

/// Checks a chart line by line: what edges join is there, and everything is closed.
fn check(name: &str, chart: &str) {
    let mut lines = chart.lines();
    assert_eq!(lines.next(), Some("flowchart TD"), "{name}");
    let (mut nodes, mut joined, mut open) = (HashSet::new(), Vec::new(), 0);
    for line in lines.map(str::trim) {
        let quotes = line.matches('"').count();
        assert!(quotes.is_multiple_of(2), "{name}: {line}");
        if line == "end" {
            open -= 1;
        } else if let Some(rest) = line.strip_prefix("subgraph ") {
            open += 1;
            assert!(rest.ends_with("\"]"), "{name}: {line}");
        } else if let Some((from, to)) = line.split_once(" --> ").or(line.split_once(" -.-> ")) {
            joined.push((from.to_owned(), to.to_owned(), line.to_owned()));
        } else if let Some((from, rest)) = line.split_once(" -->|\"") {
            let (_, to) = rest.split_once("\"| ").unwrap();
            joined.push((from.to_owned(), to.to_owned(), line.to_owned()));
        } else {
            let end = line
                .find(['[', '('])
                .unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(
                nodes.insert(line[..end].to_owned()),
                "{name}: twice: {line}"
            );
        }
    }
    assert_eq!(open, 0, "{name}");
    assert!(!nodes.is_empty(), "{name}");
    for (from, to, line) in joined {
        assert!(
            nodes.contains(&from) && nodes.contains(&to),
            "{name}: {line}"
        );
    }
}

#[test]
fn every_example_is_drawn() {
    let mut count = 0;
    for folder in fs::read_dir(repository().join("examples")).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let result = output(&["graph", folder.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&result.stderr).into_owned();
        assert_eq!(result.status.code(), Some(0), "{told}");
        let chart = String::from_utf8(result.stdout).unwrap();
        if chart != "flowchart TD\n" {
            check(&folder.display().to_string(), &chart);
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

#[test]
fn a_menu_shows_its_screens_and_keys() {
    let file = repository().join("examples/ussd-airtime/flows.yaml");
    let result = output(&["graph", file.to_str().unwrap()]);
    let chart = String::from_utf8(result.stdout).unwrap();
    for part in [
        "subgraph f0[\"menu airtime\"]",
        "([\"*123#35;\"])",
        "(\"start<br/>Airtime for ${ $msisdn }\")",
        "-->|\"1. Buy\"|",
        "-->|\"$amount\"|",
        "-->|\"too many tries\"|",
        "-->|\"unsure\"|",
        "-->|\"$bought.accepted\"|",
        "((\"bye<br/>Goodbye.\"))",
        "[/\"airtime (http)\"/]",
    ] {
        assert!(chart.contains(part), "{part}\n{chart}");
    }
}

#[test]
fn clauses_are_alternatives_and_systems_stand_outside() {
    let folder = repository().join("examples/enrich-order");
    let result = output(&["graph", folder.to_str().unwrap()]);
    let chart = String::from_utf8(result.stdout).unwrap();
    for part in [
        "f0_1 -->|\"customer\"| f0_2",
        "f0_4 -->|\".qty #62; $got.item.free\"| f0_5",
        "f1_1 -->|\"otherwise\"| f1_3",
        "f0_2 -.-> f0_use_crm",
    ] {
        assert!(chart.contains(part), "{part}\n{chart}");
    }
}

#[test]
fn screens_that_are_sent_and_sessions_that_flows_begin_are_drawn() {
    let folder = testkit::TempDir::new();
    let file = folder.write(
        "menu.yaml",
        r##"
menu: shop
use: { gateway: { http: "http://127.0.0.1:9310" } }
from: { ussd: { http: "POST 127.0.0.1:8080/ussd", gateway: hubtel, codes: { "*150#": start } } }
languages: [en]
answers: { do: [ { http: { to: "gateway:/screens", method: POST } } ] }
push:
  screens: { offer: [] }
  do: [ { http: { to: "gateway:/sessions", method: POST } } ]
screens:
  start: { text: Welcome, end: true }
  offer: { text: "More data?", options: [ { text: "Yes", go: start } ] }
---
flow: offers
from: { http: POST 127.0.0.1:8080/offers }
steps:
  - ussd: { menu: shop, screen: offer, to: "${ .to }" }
  - reply: { status: 202 }
"##,
    );
    let result = output(&["graph", file.to_str().unwrap()]);
    let chart = String::from_utf8(result.stdout).unwrap();
    check("sent", &chart);
    for part in [
        "f0_push([\"push\"])",
        "f0_push --> f0_s1",
        "-.-> f0_push",
        "([\"answers\"])",
    ] {
        assert!(chart.contains(part), "{part}\n{chart}");
    }
}
