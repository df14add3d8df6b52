//! Times to wait.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

#[test]
fn the_flow_goes_on_after_the_time() {
    for (yaml, time) in [
        ("- delay: 300ms", 300),
        ("- delay: { time: 2s }", 2000),
        ("- delay: '${ .wait }'", 1000),
        ("- delay: '${ .number }ms'", 7),
        ("- delay: { time: '${ .wait }', jitter: 50% }", 750),
        ("- delay: { time: 100ms, jitter: 20% }", 90),
    ] {
        let services = FakeServices::default();
        let body = "{\"wait\":\"1s\",\"number\":7}";
        assert_eq!(sound_flow(yaml).run(body, &services).unwrap(), body);
        assert_eq!(services.done_after(), time, "{yaml}");
    }
}

#[test]
fn a_time_of_a_message_that_is_none_is_an_error() {
    let flow = sound_flow("- delay: '${ . }'");
    for body in [
        "\"soon\"",
        "5",
        "\"2d\"",
        "null",
        "\"99999999999999999999d\"",
    ] {
        let services = FakeServices::default();
        assert_eq!(failure(flow.run(body, &services)), "invalid", "{body}");
        assert_eq!(services.done_after(), 0);
    }
}

#[test]
fn the_body_is_only_needed_for_a_time_of_it() {
    let reads = |yaml: &str| sound_flow(yaml).traits().0;
    assert!(!reads("- delay: 1s"));
    assert!(!reads("- delay: '${ $query.wait }'"));
    assert!(reads("- delay: '${ .wait }'"));
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("500", &["IT0116 1:1"]),
            ("'500'", &["IT0116 1:1"]),
            ("soon", &["IT0116 1:1"]),
            ("{ jitter: 10% }", &["IT0113 1:1"]),
            ("0s", &["IT0250 1:1 `delay` is 0ms, outside its range"]),
            ("2d", &["IT0250 1:1 `delay` is 2d, outside its range"]),
            ("{ time: 1s, jitter: 0.2 }", &["IT0119 1:21"]),
            ("{ time: 1s, jitter: 101% }", &["IT0119 1:21"]),
            ("'${ $wait }'", &["IT0230 1:1 there is no variable `$wait`"]),
        ],
    );
}
