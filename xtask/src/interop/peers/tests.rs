//! Outcomes are read and compared right, so that nothing that differs counts as the same.

use std::collections::BTreeSet;

use super::explain::{self, Found};
use super::outcome::{self, Addresses, Difference};
use super::scenario::{self, Body};

fn outcome(pairs: &[(&str, &str)]) -> outcome::Outcome {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn lines_of_clients_are_read() {
    let line = r#"{"status": "200", "text":"a\n\"b\" \u00e9\\"}"#;
    let wanted = outcome(&[("status", "200"), ("text", "a\n\"b\" \u{e9}\\")]);
    assert_eq!(outcome::parse(line), Some(wanted));
    assert_eq!(outcome::parse("{}"), Some(outcome(&[])));
    for bad in ["", "Traceback", "{\"status", "{\"status\": 200}"] {
        assert_eq!(outcome::parse(bad), None, "{bad}");
    }
}

#[test]
fn addresses_and_dates_are_no_difference_but_all_else_is() {
    let get = scenario::small().swap_remove(0);
    let backend = ["127.0.0.1:7".to_owned()];
    let seen = |asked, location, etag| {
        let pairs = [
            ("h.date", location),
            ("h.location", location),
            ("h.etag", etag),
        ];
        outcome::normalize(
            &get,
            outcome(&pairs),
            Addresses {
                asked,
                backend: &backend,
            },
        )
    };
    let one = seen("127.0.0.1:5", "http://127.0.0.1:5/a", "1");
    assert_eq!(one, seen("127.0.0.1:6", "http://127.0.0.1:6/a", "1"));
    let other = seen("127.0.0.1:6", "http://127.0.0.1:7/a", "2");
    let keys: Vec<String> = outcome::differences(&one, &other)
        .into_iter()
        .map(|it| it.key)
        .collect();
    assert_eq!(keys, ["h.etag", "h.location"]);
    assert_eq!(outcome::differences(&one, &outcome(&[])).len(), 3);
}

#[test]
fn a_wrong_body_is_found() {
    let all = scenario::large(100);
    let hash = |size: u64| format!("hash of {size}");
    let down = |length, hash| [("status", "200"), ("length", length), ("sha256", hash)];
    let check =
        |index: usize, pairs: &[(&str, &str)]| outcome::check(&all[index], &outcome(pairs), hash);
    assert_eq!(all[0].body, Body::Pattern(100));
    assert!(check(0, &down("100", "hash of 100")).is_ok());
    assert!(check(0, &down("100", "hash of 99")).is_err());
    assert!(check(0, &down("99", "hash of 100")).is_err());
    assert!(check(0, &[("error", "reset")]).is_err());
    assert!(check(1, &[("status", "200"), ("text", "100 hash of 100\n")]).is_ok());
    assert!(check(1, &[("status", "200"), ("text", "99 hash of 99\n")]).is_err());
}

#[test]
fn only_what_the_table_says_is_explained() {
    let with_native = |key: &str, native: Option<&str>| {
        let difference = Difference {
            key: key.to_owned(),
            direct: Some("close".to_owned()),
            proxied: native.map(str::to_owned).or(Some("keep-alive".to_owned())),
        };
        explain::reason(&Found {
            scenario: "get",
            client: "go-h1",
            backend: "go h1",
            difference: &difference,
            native,
        })
    };
    let reason = |key: &str| with_native(key, None);
    assert!(reason("h.transfer-encoding").is_none() && reason("h.etag").is_none());
    // What the back end says of its connection is not the engine's to say.
    assert!(with_native("h.etag", Some("1")).is_some());
    assert!(with_native("h.connection", Some("1")).is_none());
    assert!(reason("sha256").is_none());
    assert!(explain::fits("a|b*", "bc") && !explain::fits("a|b*", "ab"));
    assert!(explain::fits("*", "") && explain::fits("-", "-") && !explain::fits("-", "x"));
}

/// A row that explains nothing any more would hide the next fault of its kind.
#[test]
fn explanations_that_nothing_needs_are_told() {
    let difference = Difference {
        key: "seen.via".to_owned(),
        direct: None,
        proxied: Some("1.1 intertie".to_owned()),
    };
    let reason = explain::reason(&Found {
        scenario: "request",
        client: "go-h1",
        backend: "go h1",
        difference: &difference,
        native: None,
    });
    let row = reason.unwrap().row.unwrap();
    let all = explain::unused(&BTreeSet::new());
    assert!(all.contains(&row), "{row}");
    let names: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(names.len(), all.len(), "two rows of one name");
    let others = explain::unused(&BTreeSet::from([row.clone()]));
    assert!(!others.contains(&row) && others.len() == all.len() - 1);
}
