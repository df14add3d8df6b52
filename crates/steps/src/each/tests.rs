//! Lists and what is done with their items.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

#[test]
fn the_results_are_in_the_order_of_the_items_however_long_each_takes() {
    let steps = "steps: [ { delay: '${ .wait }' }, { map: '[$item.name, $index]' } ]";
    let body = "[{\"name\":\"a\",\"wait\":\"30ms\"},{\"name\":\"b\",\"wait\":\"10ms\"},\
                {\"name\":\"c\",\"wait\":\"20ms\"}]";
    for (parallel, time) in [(1, 60), (2, 30), (3, 30), (1000, 30)] {
        let flow = sound_flow(&format!(
            "- each: {{ in: ., parallel: {parallel}, {steps} }}"
        ));
        let services = FakeServices::default();
        let result = flow.run(body, &services).unwrap();
        assert_eq!(result, "[[\"a\",0],[\"b\",1],[\"c\",2]]", "{parallel}");
        assert_eq!(services.done_after(), time, "{parallel}");
    }
}

#[test]
fn item_and_place_may_have_other_names_and_are_usable_within_only() {
    let flow = sound_flow(
        "- set: { item: outer }
- each: { in: .lines, as: line, index: at, steps: [ { map: '[$line, $at, $item, .]' } ] }",
    );
    let result = flow.run("{\"lines\":[7]}", &FakeServices::default());
    assert_eq!(result.unwrap(), "[[7,0,\"outer\",7]]");
    for name in ["item", "index", "seen"] {
        let yaml =
            format!("- each: {{ in: ., steps: [ {{ set: {{ seen: 1 }} }} ] }}\n- map: ${name}");
        let problems = crate::testing::flow(&yaml).err().unwrap();
        assert!(problems[0].starts_with("IT0230 2:8"), "{problems:?}");
    }
}

#[test]
fn what_an_item_changes_is_not_there_for_the_next_nor_behind() {
    let flow = sound_flow(
        "- set: { seen: none }
- each:
    in: .
    steps:
      - map: $seen
      - set: { seen: 'yes' }
- map: '[., $seen]'",
    );
    let result = flow.run("[1,2]", &FakeServices::default()).unwrap();
    assert_eq!(result, "[[\"none\",\"none\"],\"none\"]");
}

#[test]
fn lists_within_lists_have_items_of_their_own() {
    let flow = sound_flow(
        "- each:
    in: .
    steps:
      - each: { in: ., steps: [ { map: '. * 10 + $index' } ] }
        as: inner
      - map: '{ inner: $inner, outer: $item, at: $index }'",
    );
    let result = flow.run("[[1,2],[3]]", &FakeServices::default()).unwrap();
    let first = "{\"inner\":[10,21],\"outer\":[1,2],\"at\":0}";
    let second = "{\"inner\":[30],\"outer\":[3],\"at\":1}";
    assert_eq!(result, format!("[{first},{second}]"));
}

#[test]
fn without_collect_the_body_stays() {
    let flow = sound_flow("- each: { in: .a, collect: false, steps: [ { map: 1 } ] }");
    let body = "{\"a\":[1,2]}";
    assert_eq!(flow.run(body, &FakeServices::default()).unwrap(), body);
}

#[test]
fn an_empty_list_gives_an_empty_list() {
    let flow = sound_flow("- each: { in: '.a // []', steps: [ { raise: { type: no } } ] }");
    assert_eq!(flow.run("{}", &FakeServices::default()).unwrap(), "[]");
}

#[test]
fn what_is_no_list_is_an_error() {
    let flow = sound_flow("- each: { in: .a, steps: [ { map: . } ] }");
    for (body, cause) in [
        ("{}", "`.a` gives null, not an array; write `// []` behind"),
        ("{\"a\":{}}", "`.a` gives object, not an array"),
        ("{\"a\":\"x\"}", "`.a` gives string, not an array"),
    ] {
        let fault = flow.run(body, &FakeServices::default()).unwrap_err();
        assert_eq!(fault.name(), "expression");
        let found = fault.cause.as_deref().unwrap();
        assert!(found.starts_with(cause), "{found}");
    }
}

#[test]
fn a_list_that_is_too_long_is_refused() {
    let flow = sound_flow("- each: { in: ., max: 2, steps: [ { map: . } ] }");
    let services = FakeServices::default();
    assert!(flow.run("[1,2]", &services).is_ok());
    let fault = flow.run("[1,2,3]", &services).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("invalid", 400));
}

#[test]
fn the_first_failure_cancels_the_rest() {
    let flow = sound_flow(
        "- try:
    steps:
      - each:
          in: .
          parallel: 2
          steps:
            - delay: '${ .wait }'
            - raise: { type: bad, detail: '${ .name }' }
              if: .name != \"a\"
            - http: POST crm:/done
    catch:
      - { on: bad, map: $error.message }
- delay: 1h",
    );
    let body = "[{\"name\":\"a\",\"wait\":\"50ms\"},{\"name\":\"b\",\"wait\":\"10ms\"},\
                {\"name\":\"c\",\"wait\":\"1ms\"}]";
    let services = FakeServices::default();
    assert_eq!(flow.run(body, &services).unwrap(), "\"b\"");
    assert!(services.sent().is_empty(), "the first item was cancelled");
    assert_eq!(services.done_after(), 3_600_010);
}

#[test]
fn a_failure_can_be_left_out_or_stand_in_its_place() {
    let steps = "steps: [ { raise: { type: odd, status: 422 }, if: . % 2 == 1 } ]";
    let run = |handling: &str| {
        let flow = sound_flow(&format!(
            "- each: {{ in: ., on_item_error: {handling}, {steps} }}"
        ));
        flow.run("[0,1,2]", &FakeServices::default())
    };
    assert_eq!(failure(run("fail")), "odd");
    assert_eq!(run("skip").unwrap(), "[0,2]");
    let error = "{\"kind\":\"odd\",\"step\":\"1.1.each.1 (raise)\",\"status\":422,\
                 \"message\":\"\",\"cause\":null}";
    let kept = format!("[0,{{\"error\":{error},\"index\":1,\"item\":1}},2]");
    assert_eq!(run("collect").unwrap(), kept);
}

#[test]
fn a_reply_cancels_the_others_and_ends_the_flow() {
    let flow = sound_flow(
        "- each:
    in: .
    parallel: 10
    steps:
      - delay: '${ . }'
      - reply: { status: 299, body: '${ $index }' }
- raise: { type: never }",
    );
    let services = FakeServices::default();
    let result = flow.run("[\"3s\",\"1s\",\"2s\"]", &services).unwrap();
    assert_eq!((result.as_str(), services.done_after()), ("299 1", 1000));
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("[1]", &["IT0112 1:1"]),
            ("{ in: . }", &["IT0113 1:1"]),
            ("{ in: ., steps: [ { map: . } ], of: 1 }", &["IT0111 1:33"]),
            (
                "{ in: '.[', steps: [ { map: . } ] }",
                &["IT0230 1:7 `[` is never closed"],
            ),
            (
                "{ in: [1], steps: [ { map: . } ] }",
                &["IT0253 1:7 an expression is a text, not a list"],
            ),
            (
                "{ in: ., parallel: 0, max: 1000001, steps: [ { map: . } ] }",
                &[
                    "IT0250 1:20 `parallel` is 0, outside its range",
                    "IT0250 1:28 `max` is 1000001, outside its range",
                ],
            ),
            (
                "{ in: ., as: headers, index: 1st, steps: [ { map: . } ] }",
                &[
                    "IT0254 1:14 `$headers` is there already: every flow has it",
                    "IT0254 1:30 this is not a name for a variable",
                ],
            ),
            (
                "{ in: ., as: index, steps: [ { map: . } ] }",
                &["IT0254 1:1 `$index` cannot be both the item and its place"],
            ),
            (
                "{ in: ., collect: false, on_item_error: collect, steps: [ { map: . } ] }",
                &["IT0245 1:41 `on_item_error: collect` has no effect without `collect`"],
            ),
        ],
    );
}
