//! `intertie test`: tests of flows, run without any other system.

use std::path::Path;
use std::process::Output;

use testkit::TempDir;

use crate::support::{command, output, repository};

/// A flow that asks another system, perhaps again and again, and calls another flow.
const FLOW: &str = r#"
flow: orders
use:
  crm: { http: http://crm.example/api }
from:
  http: POST :9090/orders/{id}
limits: { time: 2m }
steps:
  - http: GET crm:/customers/${ .customer }
    name: ask
    as: customer
    retry: { on: [timeout, 5xx], times: 3, delay: 30s, jitter: 0%, backoff: 1, delay_max: 60s }
  - choose:
      - when: .total > 1000
        raise: { type: over-limit, status: 402 }
  - call: price
    as: price
  - reply: { status: 201, body: { name: "${ $customer.name }", price: "${ $price }" } }
on_error:
  - { on: 5xx, reply: { status: 503, body: { busy: true } } }
---
flow: price
from: call
steps:
  - map: "{ unit: 7 }"
"#;

/// Writes the flow with tests of it and runs them.
fn run(tests: &str, options: &[&str]) -> (Option<i32>, String) {
    let folder = TempDir::new();
    folder.write("orders.yaml", FLOW);
    folder.write(
        "orders.test.yaml",
        &format!("test: orders\ntests:\n{tests}"),
    );
    let result = in_folder(folder.path(), &[&["test", "."][..], options].concat());
    (result.status.code(), text(&result))
}

fn in_folder(folder: &Path, arguments: &[&str]) -> Output {
    command()
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn text(result: &Output) -> String {
    let [stdout, stderr] = [&result.stdout, &result.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{stdout}{stderr}")
}

/// Runs tests that must all succeed.
fn assert_ok(tests: &str) -> String {
    let (code, report) = run(tests, &[]);
    assert_eq!(code, Some(0), "{report}");
    report
}

/// Runs tests of which one must fail with these lines in the report.
fn assert_fails(tests: &str, lines: &str) {
    let (code, report) = run(tests, &[]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains(lines), "{lines}\nis not in:\n{report}");
}

#[test]
fn a_test_that_holds() {
    let report = assert_ok(
        r#"
  - name: asks for the customer
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: { body: { name: "${ .path }" }, delay: 20ms } }
    expect:
      status: 201
      headers: { content-type: application/json, Location: null }
      body: { name: /api/customers/7, price: { unit: 7.0 } }
      body_contains: { price: { unit: 7 } }
      where: [ .price.unit < 8, $customer.name != null, $reply.status == 201 ]
      variables: { price: { unit: 7 } }
      calls: { ask: [ { method: GET, path: /api/customers/7, headers: { host: crm.example } } ] }
      took: 20ms
"#,
    );
    assert!(
        report.contains("ok      orders: asks for the customer (20ms)\n"),
        "{report}"
    );
    let summary = "1 test, all ok; reached 71 % of steps (5 of 7), 50 % of branches (2 of 4)\n";
    assert!(report.contains(summary), "{report}");
}

#[test]
fn the_clock_jumps() {
    let started = std::time::Instant::now();
    assert_ok(
        r#"
  - name: tries again
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: [ { error: timeout }, { status: 503 }, { body: { name: Ann } } ] }
    expect: { status: 201, calls: { crm: 3 }, took: 60s }
  - name: has not enough time
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: { status: 503 } }
    expect: { status: 503, body: { busy: true }, calls: { crm: 4 }, took: 90s, error: 5xx }
  - name: a delay that is too long is a time-out
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: { delay: 2h } }
    expect: { status: 504, error: { kind: timeout }, took: 120s }
"#,
    );
    assert!(started.elapsed().as_secs() < 60, "nobody has waited");
}

#[test]
fn failures_are_told() {
    assert_ok(
        r#"
  - name: over the limit
    in: { path: /orders/1, body: { customer: 7, total: 2000 } }
    mock: { crm: { body: {} } }
    expect: { error: { kind: over-limit, status: 402, step: 2.when1 (raise) } }
  - name: answered
    in: { path: /orders/1, body: { customer: 7, total: 2000 } }
    mock: { crm: { body: {} } }
    expect: { status: 402, headers: { Content-Type: application/problem+json } }
"#,
    );
    let test = "
  - name: t
    in: { path: /orders/1, body: { customer: 7, total: 2000 } }
    mock: { crm: { body: {} } }
";
    let failed = "orders.test.yaml:4: the flow failed\n      the flow failed at step 2.when1";
    assert_fails(test, failed);
    let expected = "    expect: { error: timeout }\n";
    let lines = "orders.test.yaml:7: error: kind\n      - timeout\n      + over-limit\n";
    assert_fails(&format!("{test}{expected}"), lines);
}

#[test]
fn what_differs_is_shown() {
    let test = |expect: &str| {
        format!(
            "  - name: t\n    in: {{ path: /orders/1, body: {{ customer: 7 }} }}\n    \
             mock: {{ crm: {{ body: {{ name: Ann }} }} }}\n    expect:\n      {expect}\n"
        )
    };
    for (expect, lines) in [
        (
            "status: 200",
            "orders.test.yaml:7: status\n      - 200\n      + 201\n",
        ),
        (
            "body: { name: Bob, price: { unit: 7 } }",
            "body\n        {\n      -   \"name\": \"Bob\",\n      +   \"name\": \"Ann\",\n          \
             \"price\": {\n            \"unit\": 7\n        ...\n",
        ),
        (
            "body_contains: { price: { unit: 8 } }",
            "      -     \"unit\": 8\n      +     \"unit\": 7\n",
        ),
        (
            "where: .price.unit > 7",
            "where\n      does not hold: .price.unit > 7\n",
        ),
        (
            "headers: { x-a: b }",
            "header x-a\n      - b\n      + (not there)\n",
        ),
        (
            "calls: { crm: 2 }",
            "calls of crm\n      - 2\n      + 1\n      GET /api/customers/7\n",
        ),
        (
            "calls: { crm: [] }",
            "- (no call)\n      + GET /api/customers/7\n",
        ),
        (
            "calls: { crm: [ { path: /x } ] }",
            "call 1 of crm: path\n      - /x\n      + /api/customers/7\n",
        ),
        ("variables: { price: 1 }", "$price\n      - 1\n      + {\n"),
        (
            "error: timeout",
            "error: the flow did not fail\n      it ended with status 201\n",
        ),
        (
            "took: { at_least: 1s }",
            "took\n      - at least 1s\n      + 0ms\n",
        ),
    ] {
        assert_fails(&test(expect), lines);
    }
}

#[test]
fn nothing_is_opened_without_a_mock() {
    let test = "\n  - name: t\n    in: { path: /orders/1, body: { customer: 7 } }\n";
    let message = "crm was called and the test has no mock for it: GET /api/customers/7";
    assert_fails(test, message);
    let used_up = "    mock: { crm: { times: 1, status: 503 } }\n";
    let message = "no answer of the mock `crm` is left for GET /api/customers/7";
    assert_fails(&format!("{test}{used_up}"), message);
    let broken = "    mock: { crm: { body: \"${ .body.x.y | error }\" } }\n";
    assert_fails(&format!("{test}{broken}"), "the mock cannot answer: ");
}

#[test]
fn a_called_flow_can_be_mocked() {
    assert_ok(
        r#"
  - name: by the name of the flow
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: { body: {} }, price: { body: "${ .body.customer }" } }
    expect: { body: { name: null, price: 7 }, calls: { price: 1 } }
"#,
    );
}

#[test]
fn unknown_names_are_problems_of_the_files() {
    let folder = TempDir::new();
    let tests =
        "test: orders\ntests:\n  - name: t\n    in: { path: /orders/1 }\n    mock: { crn: {} }\n";
    folder.write("orders.yaml", FLOW);
    folder.write("orders.test.yaml", tests);
    for arguments in [
        ["test", "orders.yaml"],
        ["check", "."],
        ["check", "orders.test.yaml"],
    ] {
        let result = in_folder(folder.path(), &arguments);
        let report = text(&result);
        assert_eq!(result.status.code(), Some(1), "{report}");
        assert!(
            report.contains("IT0229") && report.contains("did you mean `crm`?"),
            "{report}"
        );
    }
}

#[test]
fn the_page_of_its_code_shows_what_a_file_with_tests_cannot_hold() {
    let page = std::fs::read_to_string(repository().join("docs/errors/IT0305.md")).unwrap();
    let folder = TempDir::new();
    let block = blocks(&page).remove(0);
    folder.write("orders.test.yaml", &block);
    let report = text(&in_folder(folder.path(), &["check", "."]));
    assert!(report.contains("IT0305"), "{report}");
    let result = in_folder(folder.path(), &["run", "--admin", "off", "."]);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        text(&result).contains("`intertie test` runs them"),
        "{}",
        text(&result)
    );
}

#[test]
fn what_waits_for_ever_and_what_fails_to_load_are_told() {
    let folder = TempDir::new();
    let flow = "engine: { env: [HOST], secrets: { env: [TOKEN] } }\n---\nflow: a\n\
                use: { crm: { http: \"http://${ $env.HOST }\" } }\nfrom: { http: GET :1/a }\n\
                steps:\n  - http: { to: \"crm:/\", headers: { X-T: \"${ $secret.TOKEN }\" } }\n\
                tests:\n";
    let one = "  - name: one\n    env: { HOST: crm.example:81 }\n    secrets: { TOKEN: t }\n    \
               mock: { crm: { body: 1 } }\n    \
               expect: { calls: { crm: [ { headers: { host: crm.example:81, X-T: t } } ] } }\n";
    let two = "  - name: two\n    env: { HOST: other }\n    mock: { crm: { body: 1 } }\n    \
               expect: { calls: { crm: [ { headers: { host: other, X-T: t } } ] } }\n";
    folder.write("a.yaml", &format!("{flow}{one}{two}"));
    let result = in_folder(folder.path(), &["test", "."]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result));
    let three = "  - name: three\n    env: { HOST: a/b c }\n    mock: { crm: {} }\n";
    folder.write("a.yaml", &format!("{flow}{one}{three}"));
    let result = in_folder(folder.path(), &["test", "."]);
    assert_eq!(result.status.code(), Some(1));
    let report = text(&result);
    let message = "the flow cannot be loaded with the values of this test";
    assert!(
        report.contains(message) && report.contains("a.yaml:"),
        "{report}"
    );
}

#[test]
fn each_test_begins_anew() {
    let folder = TempDir::new();
    let test = "in: { path: /a }, mock: { crm: { status: 503 } }, expect: { status: 502 } }";
    let flow = "flow: a\nuse: { crm: { http: http://crm.example } }\nfrom: { http: GET :1/a }\n\
                limits: { throttle: { requests: 1, per: 1h } }\nsteps:\n  - http: GET crm:/\n\
                \x20   breaker: { tries_min: 1, open: 1h }\ntests:\n";
    let tests = format!("  - {{ name: one, {test}\n  - {{ name: two, {test}\n");
    folder.write("a.yaml", &format!("{flow}{tests}"));
    let result = in_folder(folder.path(), &["test", "."]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result));
}

/// Each test loads its flow alone.
#[test]
fn a_plan_that_another_flow_uses_is_no_problem_of_a_test() {
    let folder = TempDir::new();
    let yaml = "engine: { plans: { gold: { requests: { count: 1, per: 1s } } } }\n---\n\
                flow: a\nfrom: { http: GET :1/a }\nlimits: { plan: gold }\n\
                steps: [{ reply: {} }]\n---\n\
                flow: b\nfrom: { http: GET :1/b }\nsteps: [{ reply: {} }]\n\
                tests: [{ name: one, expect: { status: 200 } }]\n";
    folder.write("a.yaml", yaml);
    let result = in_folder(folder.path(), &["test", "."]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result));
}

const TWO: &str = r#"
  - name: one <&>
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: { body: { name: "a\u0001]]>" } } }
    expect: { body: { name: "<b>" } }
  - name: two
    in: { path: /orders/1, body: { customer: 7 } }
    mock: { crm: { body: {} } }
"#;

#[test]
fn tests_are_chosen_by_their_names() {
    let (code, report) = run(TWO, &["--filter", "two"]);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains("1 test, all ok"), "{report}");
    let (code, report) = run(TWO, &["--filter", "three"]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("there is no test to run"), "{report}");
    assert_eq!(run(TWO, &["--filter", "three", "--allow-empty"]).0, Some(0));
    let missing = output(&["test", "no/such/file.yaml"]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn what_no_test_reaches_is_listed() {
    let (_, report) = run(TWO, &["--coverage"]);
    let missed = "not reached: ./orders.yaml:14: orders: step 2.when1 (raise)";
    assert!(report.contains(missed), "{report}");
}

#[test]
fn programs_read_junit_and_json() {
    let folder = TempDir::new();
    let file = folder.path().join("results.xml");
    let (code, report) = run(
        TWO,
        &["--format", "json", "--junit", file.to_str().unwrap()],
    );
    assert_eq!(code, Some(1), "{report}");
    let lines: Vec<serde_json::Value> = report
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (&lines[0]["test"], &lines[0]["ok"]),
        (&"one <&>".into(), &false.into())
    );
    assert_eq!(
        (&lines[2]["tests"], &lines[2]["failed"]),
        (&2.into(), &1.into())
    );
    let xml = std::fs::read(&file).unwrap();
    let document = expr::format::from_xml(&xml.into(), 64).unwrap();
    let suites = expr::value::get(&document, "testsuites").unwrap();
    let suite = expr::value::get(suites, "testsuite").unwrap();
    let name = |value| expr::value::get(value, "@name").and_then(expr::value::as_text);
    assert_eq!(name(suite), Some("orders"));
    let cases = expr::value::get(suite, "testcase")
        .and_then(expr::value::as_array)
        .unwrap();
    assert_eq!(name(&cases[0]), Some("one <&>"));
    assert!(expr::value::get(&cases[0], "failure").is_some());
    assert!(expr::value::get(&cases[1], "failure").is_none());
}

#[test]
fn hundreds_of_tests_are_one_run() {
    let tests: String = (0..300)
        .map(|number| {
            format!(
                "  - name: t{number}\n    in: {{ path: /orders/1, body: {{ customer: 7 }} }}\n    \
                 mock: {{ crm: {{ body: {{ name: \"${{ .path }}\" }} }} }}\n    \
                 expect: {{ status: 201, where: .price.unit == 7 }}\n"
            )
        })
        .collect();
    let report = assert_ok(&tests);
    assert!(report.contains("300 tests, all ok"), "{report}");
}

/// The YAML blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let rest = page.split("```yaml\n").skip(1);
    let blocks = rest.filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| block.to_owned()).collect()
}

#[test]
fn the_page_about_tests_is_true() {
    let page = std::fs::read_to_string(repository().join("docs/testing.md")).unwrap();
    for block in blocks(&page) {
        let folder = TempDir::new();
        folder.write("orders.yaml", &block);
        let result = in_folder(folder.path(), &["test", "orders.yaml"]);
        let report = text(&result);
        assert_eq!(result.status.code(), Some(0), "{report}");
        assert!(report.contains("3 tests, all ok"), "{report}");
    }
}

#[test]
fn other_forms_of_flows_are_tested_too() {
    let folder = TempDir::new();
    folder.write("order.xml", "<order><id>7</id></order>");
    let flows = r#"
flow: through
from: { http: "any :9090/api/*" }
steps:
  - forward: { to: "http://backend.example:8080/v1?k=1", reply_headers: { set: { X-By: us } } }
tests:
  - name: forwards
    in: { method: PUT, path: /api/a/b?q=2, file: ./order.xml }
    mock: { backend.example:8080: { status: 202, file: ./order.xml, delay: 1s } }
    expect:
      status: 202
      headers: { X-By: us, Content-Type: application/xml }
      body: { order: { id: "7" } }
      file: ./order.xml
      took: 1s
      calls:
        backend.example:8080:
          - { method: PUT, path: /v1/a/b, query: { k: 1, q: 2, x: null }, body: { order: { id: "7" } } }
  - name: fails
    in: { path: /api/ }
    mock: { backend.example:8080: { error: connection } }
    expect: { status: 502, error: connection }
---
flow: texts
from: { http: GET :9090/texts }
steps: [ reply: { body: "hello ${ $query.name }", headers: { X-Time: "${ now | floor }" } } ]
tests:
  - name: greets
    in: { query: { name: Ann B } }
    at: 1970-01-02T00:00:00+01:00
    expect: { body: hello Ann B, body_contains: Ann, headers: { X-Time: 82800 } }
  - name: sees the message
    in: { query: { name: Ann } }
    expect: { body: "hello ${ .query.name }" }
"#;
    folder.write("flows.yaml", flows);
    let result = in_folder(folder.path(), &["test", "flows.yaml"]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result));
}
