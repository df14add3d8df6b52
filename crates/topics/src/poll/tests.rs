//! Polling, with a clock that jumps.

use std::time::Duration;

use component::state::States;
use message::{Fault, Kind, Origin, Reply};

use super::testing::{TestServices, TestSink, json, read, run, sound};

const EVERY: &str = "{ url: 'http://api.example/prices', every: 500ms }";

fn down() -> Fault {
    Fault::new(Kind::Connection, Origin::Upstream, "it is down")
}

#[tokio::test(start_paused = true)]
async fn requests_come_at_equal_times_and_documents_when_they_change() {
    let services = TestServices::new(|number, _| {
        (
            Duration::from_millis(120),
            Ok(json(&[], &format!("[{}]", number / 2))),
        )
    });
    let (read, sink) = (sound(EVERY), TestSink::default());
    run(&read, &sink, &services, 2200).await;
    assert_eq!(services.times(), [0, 500, 1000, 1500, 2000]);
    let taken = sink.taken.lock().unwrap().clone();
    let expected = [(120, "[0]"), (1120, "[1]"), (2120, "[2]")];
    assert_eq!(taken, expected.map(|(at, text)| (at, text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_leaves_requests_out_and_keeps_the_times() {
    let services = TestServices::new(|number, _| {
        let time = if number == 1 { 1300 } else { 20 };
        (Duration::from_millis(time), Ok(json(&[], "{}")))
    });
    let (states, sink) = (States::default(), TestSink::default());
    let read = read(EVERY, &states).unwrap();
    run(&read, &sink, &services, 2800).await;
    assert_eq!(services.times(), [0, 500, 2000, 2500]);
    assert_eq!(measure(&states, "poll_skipped_total"), 2.0);
    assert_eq!(measure(&states, "poll_polls_total"), 4.0);
    assert_eq!(measure(&states, "poll_unchanged_total"), 3.0);
    assert_eq!(measure(&states, "poll_changes_total"), 1.0);
}

fn measure(states: &States, name: &str) -> f64 {
    let now = tokio::time::Instant::now().into_std();
    let measures = states.measures(now);
    let found = measures.iter().find(|(_, it)| it.name == name);
    found.map_or(f64::NAN, |(_, measure)| measure.value)
}

#[tokio::test(start_paused = true)]
async fn a_hundred_milliseconds_do_not_drift() {
    let services = TestServices::new(|_, _| (Duration::from_millis(37), Ok(json(&[], "1"))));
    let yaml = "{ url: 'http://api.example/', every: 100ms }";
    run(&sound(yaml), &TestSink::default(), &services, 60_000).await;
    let times = services.times();
    assert_eq!((times.len(), times.last()), (600, Some(&59_900)));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_while_nobody_wants_to_know() {
    let services = TestServices::quick(|number, _| json(&[], &number.to_string()));
    let (read, sink) = (sound(EVERY), TestSink::default());
    sink.want(false);
    let wants = async {
        for (time, wanted) in [(3210, true), (1090, false), (100, true), (500, false)] {
            tokio::time::sleep(Duration::from_millis(time)).await;
            sink.want(wanted);
        }
    };
    tokio::join!(wants, run(&read, &sink, &services, 9000));
    // Somebody who comes back within the period does not have the system asked more often.
    assert_eq!(services.times(), [3210, 3710, 4210, 4710]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_up_what_is_under_way_and_a_reload_asks_no_more_than_before() {
    let states = States::default();
    let services = TestServices::new(|number, _| {
        let time = if number == 2 { 60_000 } else { 10 };
        (Duration::from_millis(time), Ok(json(&[], "1")))
    });
    let (first, sink) = (read(EVERY, &states).unwrap(), TestSink::default());
    run(&first, &sink, &services, 800).await;
    // The next plan has the same settings: its first request is the one that was due next.
    let second = read(EVERY, &states).unwrap();
    drop(first);
    let ended = run(&second, &sink, &services, 900).await;
    assert_eq!(ended, Duration::ZERO);
    assert_eq!(services.times(), [0, 500, 1000]);
    // What was given up is asked for at once.
    run(&second, &sink, &services, 100).await;
    assert_eq!(services.times(), [0, 500, 1000, 1700]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_and_then_wait_for_the_next_time() {
    let services = TestServices::new(|number, _| match number {
        0..5 => (Duration::ZERO, Ok(Reply::new(503))),
        5 => (Duration::ZERO, Err(down())),
        6 => (Duration::ZERO, Ok(Reply::new(404))),
        _ => (Duration::ZERO, Ok(json(&[], "1"))),
    });
    let yaml = "{ url: 'http://api.example/', every: 10s, retry: { times: 3, delay: 1s, backoff: 2, \
                delay_max: 3s, jitter: 0% } }";
    let (states, sink) = (States::default(), TestSink::default());
    let read = read(yaml, &states).unwrap();
    run(&read, &sink, &services, 35_000).await;
    // 0, 1, 3 and 6: the last try of four; 404 is not tried again.
    let expected = [0, 1000, 3000, 6000, 10_000, 11_000, 13_000, 20_000, 30_000];
    assert_eq!(services.times(), expected);
    assert_eq!(measure(&states, "poll_failures_total"), 2.0);
    assert_eq!(measure(&states, "poll_failing"), 0.0);
    assert_eq!(measure(&states, "poll_last_success_seconds"), 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_system_that_asks_for_patience_gets_it() {
    let services = TestServices::quick(|number, _| match number {
        0 => {
            let mut reply = Reply::new(429);
            reply.headers.append("Retry-After", "7");
            reply
        }
        _ => json(&[], "1"),
    });
    run(&sound(EVERY), &TestSink::default(), &services, 8200).await;
    assert_eq!(services.times(), [0, 7000, 7500, 8000]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_system_is_given_up_in_time() {
    let services = TestServices::new(|_, _| (Duration::from_secs(600), Ok(json(&[], "1"))));
    let yaml = "{ url: 'http://api.example/', every: 1s, timeout: 300ms, retry: { times: 0 } }";
    let (states, sink) = (States::default(), TestSink::default());
    let read = read(yaml, &states).unwrap();
    run(&read, &sink, &services, 2500).await;
    assert_eq!(services.times(), [0, 1000, 2000]);
    assert_eq!(measure(&states, "poll_failures_total"), 3.0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_not_changed_is_asked_for_by_its_etag() {
    let services = TestServices::quick(|number, request| {
        let tag = if number < 3 { "\"a\"" } else { "\"b\"" };
        match request.headers.get("If-None-Match") == Some(tag.as_bytes()) {
            true => Reply::new(304),
            false => json(&[("ETag", tag)], &format!("[{number}]")),
        }
    });
    let (states, sink) = (States::default(), TestSink::default());
    let first = read(EVERY, &states).unwrap();
    run(&first, &sink, &services, 2200).await;
    assert_eq!(sink.documents(), ["[0]", "[3]"]);
    let tag = |text: &str| Some(text.to_owned());
    let (a, b) = (tag("\"a\""), tag("\"b\""));
    let expected = [None, a.clone(), a.clone(), a, b.clone()];
    assert_eq!(services.fields("If-None-Match"), expected);
    assert_eq!(measure(&states, "poll_not_modified_total"), 3.0);
    // A restart goes on with what was written down, with other settings it does not.
    let second = sound(EVERY);
    run(&second, &sink, &services, 100).await;
    assert_eq!(services.fields("If-None-Match").last(), Some(&b));
}

#[tokio::test(start_paused = true)]
async fn an_etag_is_of_no_use_for_another_log() {
    let states = States::default();
    let services = TestServices::quick(|_, _| json(&[("ETag", "\"a\"")], "1"));
    let mut sink = TestSink {
        place: Some("1".to_owned()),
        ..TestSink::default()
    };
    run(&read(EVERY, &states).unwrap(), &sink, &services, 100).await;
    run(&read(EVERY, &states).unwrap(), &sink, &services, 500).await;
    sink.place = Some("2".to_owned());
    run(&read(EVERY, &states).unwrap(), &sink, &services, 500).await;
    let tag = Some("\"a\"".to_owned());
    assert_eq!(services.fields("If-None-Match"), [None, tag, None]);
}

#[tokio::test(start_paused = true)]
async fn what_may_lag_is_written_down_now_and_then() {
    for (lags, written) in [(true, "\"0\""), (false, "\"4\"")] {
        let services = TestServices::quick(|number, _| {
            let tag = format!("\"{number}\"");
            json(&[("ETag", &tag)], &number.to_string())
        });
        let sink = TestSink {
            lags,
            ..TestSink::default()
        };
        run(&sound(EVERY), &sink, &services, 2200).await;
        assert_eq!(sink.documents(), ["0", "1", "2", "3", "4"]);
        let last = sink.disk.lock().unwrap().clone().unwrap();
        let mut headers = message::Headers::new();
        assert!(last.validators.unwrap().put(&mut headers));
        assert_eq!(headers.get("If-None-Match"), Some(written.as_bytes()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_refused_is_asked_for_again() {
    let services = TestServices::quick(|_, _| json(&[("ETag", "\"a\"")], "1"));
    let sink = TestSink {
        refuses: "1",
        ..TestSink::default()
    };
    run(&sound(EVERY), &sink, &services, 700).await;
    assert_eq!(services.fields("If-None-Match"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn the_last_success_can_be_asked_from() {
    let yaml = "
        url: http://api.example/changes
        every: 1s
        query: { since: '${ $last.success }', from: '${ $last.kept }', now: '${ $now }' }
        keep: .next
        pointer: /items
        map: 'if length == 0 then null else map(.id) end'";
    let services = TestServices::quick(|number, _| {
        let items = ["[{\"id\":1}]", "[]"]
            .get(number)
            .copied()
            .unwrap_or("[{\"id\":2}]");
        json(&[], &format!("{{\"items\":{items},\"next\":{number}}}"))
    });
    let sink = TestSink::default();
    run(&sound(yaml), &sink, &services, 2500).await;
    assert_eq!(
        services.targets(),
        [
            "/changes?now=2023-11-14T22%3A13%3A20.000Z",
            "/changes?since=2023-11-14T22%3A13%3A20.000Z&from=0&now=2023-11-14T22%3A13%3A21.000Z",
            "/changes?since=2023-11-14T22%3A13%3A21.000Z&from=1&now=2023-11-14T22%3A13%3A22.000Z",
        ]
    );
    assert_eq!(sink.documents(), ["[1]", "nothing", "[2]"]);
}

/// The worker has other clients, and what is begun again must find the answer as it was.
#[tokio::test(start_paused = true)]
async fn costly_expressions_are_evaluated_beside_the_worker() {
    let costly = "([range(180000)] | length)";
    let paged = "pagination: { cursor: { param: c, next: NEXT }, items: /list }";
    for (beside, yaml) in [
        (1, "query: { a: '${ COSTLY }' }".to_owned()),
        (
            2,
            "pointer: /list, keep: 'COSTLY', map: '{n: COSTLY, list: .}'".to_owned(),
        ),
        (
            2,
            paged.replace("NEXT", "'if COSTLY > 0 and .more then \"x\" else null end'"),
        ),
    ] {
        let yaml = format!("{{ url: 'http://api.example/', every: 1h, {yaml} }}");
        let services = TestServices::quick(|number, _| {
            let more = number == 0;
            json(&[], &format!("{{\"list\":[{number}],\"more\":{more}}}"))
        });
        let sink = TestSink::default();
        run(
            &sound(&yaml.replace("COSTLY", costly)),
            &sink,
            &services,
            1000,
        )
        .await;
        assert_eq!(services.beside.get(), beside, "{yaml}");
        let expected = match beside {
            1 => "{\"list\":[0],\"more\":true}",
            _ if yaml.contains("keep") => "{\"n\":180000,\"list\":[0]}",
            _ => "[0,1]",
        };
        assert_eq!(sink.documents(), [expected], "{yaml}");
    }
}

/// The documents and the targets of one poll with this pagination.
async fn pages(
    pagination: &str,
    script: impl Fn(usize, &message::Request) -> Reply + 'static,
) -> (Vec<String>, Vec<String>, f64) {
    let yaml = format!(
        "{{ url: 'http://api.example/v1/items?a=1', every: 1h, pagination: {pagination}, \
         body_max: 200B }}"
    );
    let services = TestServices::quick(script);
    let (states, sink) = (States::default(), TestSink::default());
    let read = read(&yaml, &states).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"));
    run(&read, &sink, &services, 60_000).await;
    let failures = measure(&states, "poll_failures_total");
    (sink.documents(), services.targets(), failures)
}

#[tokio::test(start_paused = true)]
async fn pages_by_number_end_with_one_that_is_not_full() {
    let pagination = "{ page: { param: p, size_param: n, size: 2 }, items: /data }";
    let bodies = ["{\"data\":[1,2]}", "{\"data\":[3,4]}", "{\"data\":[5]}"];
    let (documents, targets, _) = pages(pagination, move |at, _| json(&[], bodies[at])).await;
    assert_eq!(documents, ["[1,2,3,4,5]"]);
    let expected = [
        "/v1/items?a=1&p=1&n=2",
        "/v1/items?a=1&p=2&n=2",
        "/v1/items?a=1&p=3&n=2",
    ];
    assert_eq!(targets, expected);

    let (documents, targets, _) = pages("{ page: { start: 0 } }", |at, _| {
        json(&[], if at == 1 { "[]" } else { "[7]" })
    })
    .await;
    assert_eq!((documents, targets.len()), (vec!["[7]".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn pages_by_offset_go_on_behind_what_came() {
    let (documents, targets, _) = pages("{ offset: { size: 2 } }", |at, _| {
        json(&[], ["[1,2]", "[3,4]", "[]"][at])
    })
    .await;
    assert_eq!(documents, ["[1,2,3,4]"]);
    let ends: Vec<&str> = targets.iter().map(|it| it.split_at(14).1).collect();
    assert_eq!(
        ends,
        ["offset=0&limit=2", "offset=2&limit=2", "offset=4&limit=2"]
    );
}

#[tokio::test(start_paused = true)]
async fn pages_by_cursor_end_where_there_is_none() {
    for next in ["/next", "'.next | if . then tostring else null end'"] {
        let pagination = format!("{{ cursor: {{ param: c, next: {next} }}, items: /d }}");
        let bodies = [
            r#"{"d":[1],"next":"x y&"}"#,
            r#"{"d":[2],"next":7}"#,
            r#"{"d":[3]}"#,
        ];
        let script = move |at: usize, _: &message::Request| json(&[], bodies[at]);
        let (documents, targets, failures) = pages(&pagination, script).await;
        assert_eq!(
            (documents, failures),
            (vec!["[1,2,3]".to_owned()], 0.0),
            "{next}"
        );
        let expected = [
            "/v1/items?a=1",
            "/v1/items?a=1&c=x%20y%26",
            "/v1/items?a=1&c=7",
        ];
        assert_eq!(targets, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn pages_by_link_stay_on_the_host() {
    let (documents, targets, _) = pages("{ link: true }", |at, _| match at {
        0 => json(
            &[("Link", "<http://api.example/v1/items?a=1&page=2>; rel=next")],
            "[1]",
        ),
        1 => json(
            &[
                ("Link", "<first>; rel=first"),
                ("Link", "<more?b>; rel=\"next\""),
            ],
            "[2]",
        ),
        2 => json(&[("link", "<?c>; rel=\"next\"")], "[3]"),
        _ => json(&[], "[4]"),
    })
    .await;
    assert_eq!(documents, ["[1,2,3,4]"]);
    let expected = [
        "/v1/items?a=1",
        "/v1/items?a=1&page=2",
        "/v1/more?b",
        "/v1/more?c",
    ];
    assert_eq!(targets, expected);

    let (documents, targets, failures) = pages("{ link: true }", |_, _| {
        json(&[("Link", "<http://evil.example/>; rel=next")], "[1]")
    })
    .await;
    assert_eq!((documents.len(), targets.len(), failures), (0, 1, 1.0));
}

#[tokio::test(start_paused = true)]
async fn pages_by_a_url_in_the_body() {
    let (documents, targets, _) = pages("{ next: /links/next, items: /d }", |at, _| match at {
        0 => json(&[], r#"{"d":[1],"links":{"next":"/v1/items?page=2"}}"#),
        _ => json(&[], r#"{"d":[2],"links":{"next":null}}"#),
    })
    .await;
    assert_eq!(documents, ["[1,2]"]);
    assert_eq!(targets, ["/v1/items?a=1", "/v1/items?page=2"]);
}

#[tokio::test(start_paused = true)]
async fn too_many_pages_too_many_bytes_and_no_list_are_failures() {
    let endless = |at: usize, _: &message::Request| json(&[], &format!("[{at}]"));
    let (documents, targets, failures) = pages("{ page: {}, max_pages: 3 }", endless).await;
    assert_eq!((documents.len(), targets.len(), failures), (0, 3, 1.0));
    let large = |_: usize, _: &message::Request| json(&[], &format!("[\"{}\"]", "x".repeat(80)));
    let (documents, _, failures) = pages("{ page: {} }", large).await;
    assert_eq!((documents.len(), failures), (0, 1.0));
    let (documents, _, failures) = pages("{ page: {} }", |_, _| json(&[], "{}")).await;
    assert_eq!((documents.len(), failures), (0, 1.0));
    let same = |_: usize, _: &message::Request| json(&[], r#"{"d":[1],"c":"a"}"#);
    let (documents, targets, failures) = pages("{ cursor: { next: /c }, items: /d }", same).await;
    assert_eq!((documents.len(), targets.len(), failures), (0, 2, 1.0));
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_of_no_use_are_failures() {
    let yaml = "{ url: 'http://api.example/', every: 1h, map: ., retry: { times: 0 } }";
    let mut encoded = json(&[], "{}");
    encoded.headers.append("Content-Encoding", "gzip");
    for reply in [
        json(&[], "{"),
        json(&[], ""),
        encoded,
        Reply::new(304),
        Reply::new(302),
    ] {
        for yaml in [yaml.to_owned(), yaml.replace("map: .,", "")] {
            let (states, sink) = (States::default(), TestSink::default());
            let reply = reply.clone();
            let is_json = reply.body.as_bytes() != b"{" || yaml.contains("map");
            let services = TestServices::quick(move |_, _| reply.clone());
            let read = read(&yaml, &states).unwrap();
            run(&read, &sink, &services, 100).await;
            // What is not looked into here is looked into by whoever takes it.
            let expected = if is_json { 1.0 } else { 0.0 };
            assert_eq!(measure(&states, "poll_failures_total"), expected, "{yaml}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn redirects_are_followed_on_the_host() {
    let services = TestServices::quick(|number, _| match number {
        0 => {
            let mut reply = Reply::new(302);
            reply.headers.append("Location", "/v2");
            reply
        }
        _ => json(&[], "1"),
    });
    let sink = TestSink::default();
    run(&sound(EVERY), &sink, &services, 100).await;
    assert_eq!(
        (services.targets(), sink.documents()),
        (
            vec!["/prices".to_owned(), "/v2".to_owned()],
            vec!["1".to_owned()]
        )
    );
}

#[tokio::test(start_paused = true)]
async fn xml_and_csv_become_json() {
    for (decode, body, expected) in [
        ("xml", "<a><b>1</b></a>", r#"{"a":{"b":"1"}}"#),
        ("csv", "a,b\n1,2\n", r#"[{"a":"1","b":"2"}]"#),
    ] {
        let yaml = format!("{{ url: 'http://api.example/', every: 1h, decode: {decode} }}");
        let services = TestServices::quick(move |_, _| json(&[], body));
        let sink = TestSink::default();
        run(&sound(&yaml), &sink, &services, 100).await;
        assert_eq!(sink.documents(), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_has_a_body() {
    let yaml = "
        url: http://api.example/search
        every: 1h
        headers: { X-Key: '${ \"k\" }' }
        body: { since: '${ $last.success }' }";
    let services = TestServices::quick(|_, _| json(&[], "1"));
    run(&sound(yaml), &TestSink::default(), &services, 100).await;
    let asked = services.asked.borrow();
    let request = &asked[0].1;
    assert_eq!(request.method, message::Method::Post);
    assert_eq!(request.body.as_bytes(), br#"{"since":null}"#);
    assert_eq!(request.headers.get("X-Key"), Some(&b"k"[..]));
}

#[test]
fn what_is_wrong_is_told() {
    let url = "url: http://a.example/\nevery: 1s\n";
    for (rest, expected) in [
        ("jitter: 2s", "IT0681 3:9 `jitter` is 2s, outside its range"),
        (
            "timeout: 1ms",
            "IT0681 3:10 `timeout` is 1ms, outside its range",
        ),
        ("retry: { backoff: 0.5 }", "IT0115 3:19"),
        (
            "retry: { on: [nonsense] }",
            "IT0680 3:14 no request fails with `nonsense`",
        ),
        ("pointer: a", "IT0683 3:10 `a` is no JSON Pointer"),
        ("map: .a[", "IT0230 3:6"),
        ("map: $page", "IT0230 3:6"),
        (
            "pagination: {}",
            "IT0682 3:13 `pagination` has one of `page`, `offset`, `cursor`, `link` \
          and `next`",
        ),
        (
            "pagination: { page: { size_param: n } }",
            "IT0682 3:35 `size_param` has no effect without \
          `size`",
        ),
        (
            "pagination: { link: true, max_pages: 0 }",
            "IT0681 3:38 `max_pages` is 0, outside its \
          range",
        ),
        (
            "pagination: { link: true }\nconditional: true",
            "IT0680 4:14 only a `GET` without \
          `pagination` can be asked whether it has changed",
        ),
        (
            "pointer: '/${ .a }'",
            "IT0680 3:10 no expression can stand here",
        ),
        ("headers: { Host: a }", "IT0243 3:12"),
        ("redirects: 21", "IT0257 3:12"),
        (
            "auth: { bearer: x }",
            "IT0680 3:1 who asks is said with a connection",
        ),
        (
            "body_max: 65MiB",
            "IT0681 3:11 `body_max` is 65MiB, outside its range",
        ),
    ] {
        let problems = read(&format!("{url}{rest}"), &States::default()).err();
        assert_eq!(problems.unwrap_or_default(), [expected], "{rest}");
    }
    let every = read(
        "{ url: 'http://a.example/', every: 50ms }",
        &States::default(),
    );
    let expected = "IT0681 1:36 `every` is 50ms, outside its range";
    assert_eq!(every.err().unwrap_or_default(), [expected]);
}
