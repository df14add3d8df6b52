//! Every problem of broken flow files, with its place.

use super::load_files;

/// Puts a flow's trigger (from line 2, column 14) and steps around what is tested.
fn with_trigger(trigger: &str) -> String {
    format!("flow: a\nfrom: {{ http: {trigger} }}\nsteps: [ send: b ]")
}

/// Puts a flow around its steps (from line 4, column 3).
fn with_steps(steps: &str) -> String {
    format!("flow: a\nfrom: {{ http: / }}\nsteps:\n{steps}")
}

fn assert_problems(cases: &[(String, &[&str])]) {
    for (text, expected) in cases {
        match load_files(&[("f", text)]) {
            Ok(_) => panic!("no problem in:\n{text}"),
            Err(found) => assert_eq!(found, *expected, "{text}"),
        }
    }
}

#[test]
fn documents() {
    let flow = with_trigger("/");
    let cases: &[(String, &[&str])] = &[
        (String::new(), &["IT0209 there is no flow to run"]),
        ("engine: {}".into(), &["IT0209 there is no flow to run"]),
        (
            "- a".into(),
            &["IT0201 f:1:1 a document is a mapping, not a list"],
        ),
        (
            "text".into(),
            &["IT0201 f:1:1 a document is a mapping, not a string"],
        ),
        (
            "flows: a\nx: 1".into(),
            &["IT0201 f:1:1 a document declares a `flow:` or the `engine:`; this one does neither"],
        ),
        (
            "{}".into(),
            &["IT0201 f:1:1 a document declares a `flow:` or the `engine:`; this one does neither"],
        ),
        (
            "x: 1\nengin: {}".into(),
            &["IT0201 f:2:1 a document declares a `flow:` or the `engine:`; this one does neither"],
        ),
        (
            "flow: a\nengine: {}".into(),
            &["IT0201 f:2:1 a document declares one thing"],
        ),
        (
            format!("{flow}\n---\n{flow}"),
            &[
                "IT0202 f:5:7 a second flow named `a`",
                "IT0217 f:6:15 flow `a` takes any 127.0.0.1:8080/, which flow `a` takes already",
            ],
        ),
        (
            format!("{flow}\n---\nengine: {{}}\n---\nengine: {{}}"),
            &["IT0204 f:7:1 a second `engine:` document"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn keys_of_a_flow() {
    let flow = |head: &str| format!("{head}\nfrom: {{ http: / }}\nsteps: [ send: b ]");
    let cases: &[(String, &[&str])] = &[
        ("flow: a".into(), &["IT0113 f:1:1", "IT0113 f:1:1"]),
        (flow("flow: 5"), &["IT0112 f:1:7"]),
        (
            flow("flow: my flow"),
            &["IT0203 f:1:7 `my flow` is not a name for a flow"],
        ),
        (
            flow("flow: \"a\\u202e\""),
            &["IT0203 f:1:7 `a\\u{202e}` is not a name for a flow"],
        ),
        (flow("flow: a\nform: x"), &["IT0111 f:2:1"]),
        (flow("flow: a\ndoc: [x]"), &["IT0112 f:2:6"]),
        (
            flow("flow: a\nuse: {}\non_error: []\nlimits: { tim: 1s }"),
            &["IT0115 f:3:11", "IT0111 f:4:11"],
        ),
        (
            flow("flow: a\nuse: 5"),
            &["IT0224 f:2:6 `use` is a mapping of names, not a number"],
        ),
        (
            flow("flow: a\nuse: { b c: { http: x }, d: { redis: x }, e: { htp: x }, f: 1 }"),
            &[
                "IT0203 f:2:8 `b c` is not a name",
                "IT0224 f:2:29 connection `d` is of no kind",
                "IT0224 f:2:48 connection `e` is of no kind",
                "IT0224 f:2:61 connection `f` is of no kind",
            ],
        ),
        (
            flow("flow: a b\n---\nflow: c d"),
            &[
                "IT0113 f:1:1",
                "IT0113 f:1:1",
                "IT0203 f:1:7 `a b` is not a name for a flow",
                "IT0203 f:3:7 `c d` is not a name for a flow",
            ],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn triggers() {
    let cases: &[(String, &[&str])] = &[
        (with_trigger("5"), &["IT0112 f:2:15"]),
        (
            with_trigger("'get :0/{'"),
            &[
                "IT0212 f:2:15 `get` is not a method",
                "IT0213 f:2:15 the port 0 is out of range",
                "IT0214 f:2:15 `{` is not a whole `{name}`",
            ],
        ),
        (
            with_trigger("{ method: [get, GET, GET], listen: x, path: a, body_max: 0B }"),
            &[
                "IT0212 f:2:25 `get` is not a method",
                "IT0212 f:2:25 the method GET stands twice",
                "IT0213 f:2:50 `x` has no port",
                "IT0214 f:2:59 a path begins with `/`",
                "IT0207 f:2:72 `body_max` is 0B, outside its range",
            ],
        ),
        (with_trigger("{ path: /, method: [] }"), &["IT0115 f:2:34"]),
        (
            with_trigger("{ paht: / }"),
            &["IT0111 f:2:17", "IT0113 f:2:15"],
        ),
        (
            with_trigger("{ path: /, tls: { cert: a, key: b, client_auth: optional } }"),
            &["IT0215 f:2:63 `client_auth` has no effect without `client_ca`"],
        ),
        (
            with_trigger("{ path: /, protocols: [h2, h2] }"),
            &["IT0215 f:2:37 a protocol is named twice"],
        ),
        (
            with_trigger("{ path: /, protocols: [] }"),
            &["IT0215 f:2:37 `protocols` is empty"],
        ),
        (
            with_trigger("{ path: /, body_max: 1KiB }"),
            &["IT0219 f:2:36 `body_max` has no effect: no step of the flow reads the body"],
        ),
        (
            "flow: a\nfrom: GET /x\nsteps: [ send: b ]".into(),
            &["IT0210 f:2:7 `from` is a mapping with one trigger, not a string"],
        ),
        (
            "flow: a\nfrom: {}\nsteps: [ send: b ]".into(),
            &["IT0210 f:2:7 `from` names no trigger"],
        ),
        (
            "flow: a\nfrom: { https: /, http: GET /x }\nsteps: [ send: b ]".into(),
            &["IT0210 f:2:9 unknown trigger `https`"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn steps() {
    let cases: &[(String, &[&str])] = &[
        (with_steps("  []"), &["IT0115 f:4:3"]),
        (with_steps("  send: b"), &["IT0112 f:4:3"]),
        (
            with_steps("  - note\n  - 5\n  -\n  - {}"),
            &[
                "IT0220 f:4:5 a step is a mapping with one verb, not a string",
                "IT0220 f:5:5 a step is a mapping with one verb, not a number",
                "IT0220 f:6:4 a step is a mapping with one verb, not nothing",
                "IT0220 f:7:5 a step without a verb",
            ],
        ),
        (
            with_steps("  - name: x"),
            &["IT0220 f:4:5 a step without a verb"],
        ),
        (
            with_steps("  - sned: b\n  - { note: a, nmae: b }\n  - { zzz: a, qqq: b }"),
            &[
                "IT0221 f:4:5 unknown step `sned`",
                "IT0221 f:5:16 unknown key `nmae` in a step",
                "IT0221 f:6:7 unknown step `zzz`",
                "IT0221 f:6:15 unknown step `qqq`",
            ],
        ),
        (
            with_steps("  - { send: bad, note: bad, stop: x }"),
            &[
                "IT0220 f:4:18 a step has one verb; `note` is a second one",
                "IT0220 f:4:29 a step has one verb; `stop` is a second one",
                "FAKE f:4:13 a bad value",
                "FAKE f:4:24 a bad value",
            ],
        ),
        (
            with_steps("  - { send: b, retry: {}, as: in }"),
            &[
                "IT0219 f:4:16 `retry` has no effect on `send`, which never waits",
                "IT0226 f:4:31 `$in` is there already: every flow has it",
            ],
        ),
        (
            with_steps(
                "  - { note: a, name: x }\n  - { note: b, name: x }\n  - { note: c, name: 1 }\n\
                 \x20 - { note: d, name: a b }",
            ),
            &[
                "IT0223 f:5:22 a second step named `x`",
                "IT0203 f:6:22 this is not a name for a step",
                "IT0203 f:7:22 this is not a name for a step",
            ],
        ),
        (
            with_steps("  - stop: a\n  - note: b\n  - note: c"),
            &["IT0222 f:5:5 this step is never reached"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn expressions_and_environment() {
    let expression = "no expression can stand here";
    let cases: &[(String, &[&str])] = &[
        (
            with_steps("  - send: '${ .id }'"),
            &[&format!("IT0205 f:4:11 {expression}")],
        ),
        (
            with_steps("  - send: 'a ${ $env.A.b } ${'"),
            &[&format!("IT0205 f:4:11 {expression}")],
        ),
        (
            with_steps("  - '${ x }': b"),
            &["IT0205 f:4:5 `${ }` is not available in keys"],
        ),
        (
            format!(
                "engine: {{ env: [UNSET] }}\n---\n{}",
                with_trigger("'GET :${ $env.UNSET }/x'")
            ),
            &["IT0206 f:1:17 the environment variable UNSET is not set"],
        ),
        (
            with_trigger("'GET :${ .port }/x'"),
            &[&format!("IT0205 f:2:15 {expression}")],
        ),
        (
            with_steps("  - send: '${ $env.HOME_HOST }'"),
            &["IT0120 f:4:11"],
        ),
        (
            format!(
                "engine: {{ env: [UNSET, 1a, HOME_HOST] }}\n---\n{}",
                with_trigger("/")
            ),
            &[
                "IT0206 f:1:17 the environment variable UNSET is not set",
                "IT0206 f:1:24 `1a` is not an environment name",
            ],
        ),
        (
            format!("engine: {{ env: X }}\n---\n{}", with_trigger("/")),
            &["IT0112 f:1:16"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn secrets() {
    let used = |hole: &str| format!("flow: a\nuse: {{ b: {{ http: '{hole}' }} }}\n{REST}");
    const REST: &str = "from: { http: / }\nsteps: [ send: b ]";
    let engine = |text: &str| format!("engine: {{ secrets: {text} }}\n---\nflow: a\n{REST}");
    let place =
        "a secret can only be used under `use:`, `engine.auth` and `engine.egress` and in steps";
    let cases: &[(String, &[&str])] = &[
        (used("x-${ $secret.NONE }"), &["IT0121 f:2:19"]),
        (
            used("${ $secret.a.b }"),
            &["IT0205 f:2:19 no expression can stand here"],
        ),
        (
            with_steps("- send: ${ $secret.TOKEN }"),
            &["IT0205 f:4:9 no expression can stand here"],
        ),
        (
            with_trigger("'${ $secret.TOKEN }'"),
            &[&format!("IT0205 f:2:15 {place}")],
        ),
        (engine("{ folders: x }"), &["IT0111 f:1:22"]),
        (engine("{ env: X }"), &["IT0112 f:1:27"]),
        (engine("{ folder: '' }"), &["IT0115 f:1:30"]),
        (
            engine("{ env: [ a b ] }"),
            &["IT0206 f:1:29 `a b` is not an environment name"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn settings() {
    let flow = with_trigger("/");
    let engine = |text: &str| format!("engine: {text}\n---\n{flow}");
    let proxies = |text: &str| engine(&format!("{{ trusted_proxies: {text} }}"));
    let cases: &[(String, &[&str])] = &[
        (engine("5"), &["IT0112 f:1:9"]),
        (
            proxies("[10.0.0.0/8, lb.internal, 10.1.2.3/8]"),
            &[
                "IT0232 f:1:41 `lb.internal`: this is no address and no block of addresses",
                "IT0232 f:1:54 `10.1.2.3/8`: the block begins with 10.0.0.0: write `10.0.0.0/8`",
            ],
        ),
        (
            format!("engine: {{}}\nlisten: x\n---\n{flow}"),
            &["IT0111 f:2:1"],
        ),
        (engine("{ lisen: ':80' }"), &["IT0111 f:1:11"]),
        (
            engine("{ listen: ':0' }"),
            &["IT0213 f:1:19 the port 0 is out of range"],
        ),
        (engine("{ timeouts: { idle: 5 } }"), &["IT0116 f:1:29"]),
        (
            engine(
                "{ timeouts: { idle: 0s, drain: 25h }, limits: { head: 1B, body: 2GiB, fields: 0, \
                 connections: 0, upstream_idle: 100001 } }",
            ),
            &[
                "IT0207 f:1:73 `body` is 2GiB, outside its range",
                "IT0207 f:1:63 `head` is 1B, outside its range",
                "IT0207 f:1:87 `fields` is 0, outside its range",
                "IT0207 f:1:103 `connections` is 0, outside its range",
                "IT0207 f:1:121 `upstream_idle` is 100001, outside its range",
                "IT0207 f:1:29 `idle` is 0ms, outside its range",
                "IT0207 f:1:40 `drain` is 25h, outside its range",
            ],
        ),
        (
            engine(
                "{ limits: { body_memory: 1KiB, min_body_rate: 2MiB, connections_per_address: 0 } }",
            ),
            &[
                "IT0207 f:1:34 `body_memory` is 1KiB, outside its range",
                "IT0207 f:1:55 `min_body_rate` is 2MiB, outside its range",
                "IT0207 f:1:86 `connections_per_address` is 0, outside its range",
            ],
        ),
        (
            engine("{ limits: { body: 8MiB, body_memory: 4MiB } }"),
            &["IT0207 f:1:46 `body_memory` is 4MiB, outside its range"],
        ),
        (
            "engine: { limits: { body_memory: 4MiB } }\n---\nflow: a\n\
             from: { http: { path: /, body_max: 5MiB } }\nsteps: [ change: b ]"
                .to_owned(),
            &["IT0207 f:4:36 `body_max` is 5MiB, outside its range"],
        ),
        (
            engine("{ log: { level: loud, format: xml, access: yes } }"),
            &["IT0114 f:1:25", "IT0114 f:1:39", "IT0112 f:1:52"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn limits_of_streams() {
    let flow = |limits: &str, rest: &str| {
        format!("flow: a\nlimits: {limits}\nfrom: {{ http: / }}\nsteps: [ {rest} ]")
    };
    let both = "{ connections: 1, messages: { count: 1 } }";
    let none: &[&str] = &[
        "IT0621 f:2:11 `connections` has no effect: the flow forwards no streams",
        "IT0621 f:2:27 `messages` has no effect: the flow forwards no streams",
    ];
    let handled = "send: b ]\non_error: [ { on: any, stop: x }";
    let cases: &[(String, &[&str])] = &[
        (flow(both, "{ send: b }, { stop: x }"), none),
        (flow(both, handled), none),
        (
            flow(
                "{ connections: 0, messages: { count: 0, burst: 0, per: 0s } }",
                "send: b",
            ),
            &[
                "IT0207 f:2:24 `connections` is 0, outside its range",
                "IT0207 f:2:46 `count` is 0, outside its range",
                "IT0207 f:2:64 `per` is 0ms, outside its range",
                "IT0207 f:2:56 `burst` is 0, outside its range",
            ],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn flows_that_collide() {
    let flow = |name: &str, trigger: &str| {
        format!("flow: {name}\nfrom: {{ http: {trigger} }}\nsteps: [ send: b ]\n---\n")
    };
    let pair = |one: &str, other: &str| format!("{}{}", flow("a", one), flow("b", other));
    let conflict = |methods: &str, place: &str| {
        format!("IT0217 f:6:15 flow `b` takes {methods} {place}, which flow `a` takes already")
    };
    let cases: Vec<(String, Vec<String>)> = vec![
        (
            pair("'GET :80/{x}'", "'PUT,GET :80/{y}'"),
            vec![conflict("GET", ":80/{y}")],
        ),
        (
            pair("'GET,PUT,POST :80/a'", "'PUT,GET :80/a'"),
            vec![conflict("PUT,GET", ":80/a")],
        ),
        (pair(":80/*", "any :80/*"), vec![conflict("any", ":80/*")]),
        (
            pair("GET /x", "GET 127.0.0.1:8080/x"),
            vec![conflict("GET", "127.0.0.1:8080/x")],
        ),
        (
            pair(":80/x", "127.0.0.1:80/y"),
            vec!["IT0218 f:6:15 the addresses 127.0.0.1:80 and :80 overlap".into()],
        ),
        (
            pair(
                "{ path: /x, tls: { cert: a, key: b } }",
                "{ path: /y, tls: { cert: a, key: c } }",
            ),
            vec![
                "IT0216 f:6:15 flows `a` and `b` listen on 127.0.0.1:8080 with different `tls` or \
                 `protocols`"
                    .into(),
            ],
        ),
    ];
    for (text, expected) in &cases {
        assert_eq!(
            load_files(&[("f", text)]).err().as_ref(),
            Some(expected),
            "{text}"
        );
    }
    let fine = [
        pair("GET :80/x", "any :80/x"),
        pair("GET :80/x", "HEAD :80/x"),
        pair("GET :80/x", "GET :81/x"),
        pair("GET :80/x", "GET :80/x/"),
        pair("'GET :80/{x}'", "GET :80/x"),
    ];
    for text in &fine {
        assert_eq!(load_files(&[("f", text)]).err(), None, "{text}");
    }
}

#[test]
fn problems_of_all_files_are_told_at_once() {
    let files = [
        (
            "1.yaml",
            "flow: a\nfrom: { http: get /x }\nsteps: [ send: bad ]",
        ),
        (
            "2.yaml",
            "flow: b\nfrom: { http: GET /x }\nsteps: [ sedn: x ]",
        ),
        ("3.yaml", "flow: [\n"),
        (
            "4.yaml",
            "flow: b\nfrom: { http: GET /x }\nsteps: [ send: x ]",
        ),
    ];
    let problems = load_files(&files).err().unwrap();
    let expected = [
        "IT0103 3.yaml:2:1",
        "IT0212 1.yaml:2:15 `get` is not a method",
        "FAKE 1.yaml:3:16 a bad value",
        "IT0221 2.yaml:3:10 unknown step `sedn`",
        "IT0202 4.yaml:1:7 a second flow named `b`",
        "IT0217 4.yaml:2:15 flow `b` takes GET 127.0.0.1:8080/x, which flow `b` takes already",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn limits_per_caller_that_cannot_be_counted() {
    let with = |engine: &str, limits: &str| {
        format!(
            "engine: {{ {engine} }}\n---\nflow: a\nfrom: {{ http: / }}\nlimits: {limits}\n\
             steps: [ send: b ]"
        )
    };
    let gold = "plans: { gold: { requests: { count: 1, per: 1s } } }";
    let cases: &[(String, &[&str])] = &[
        (
            with("", "{ throttle: { by: \"${ .id }\", requests: 1 } }"),
            &["IT0234 f:5:27 `by` cannot use `.`: it is asked before the body is read"],
        ),
        (
            with(
                "",
                "{ throttle: [ { by: \"${ $in.peer }\", requests: 1 } ] }",
            ),
            &["IT0234 f:5:29 `by` cannot use `$in`: it is asked before the body is read"],
        ),
        (
            with("", "{ throttle: { by: address, requests: 1 } }"),
            &["IT0234 f:5:27 `by` is the same for all callers"],
        ),
        (
            with("", "{ throttle: { by: 7, requests: 1 } }"),
            &["IT0234 f:5:27 `by` is an expression or null, not a number"],
        ),
        (
            with("", "{ plan: gold }"),
            &["IT0235 f:5:17 there are no plans"],
        ),
        (
            with(gold, "{ plan: golf }"),
            &["IT0235 f:5:17 there is no plan `golf`"],
        ),
        (
            with(gold, "{ time: 1s }"),
            &[
                "IT0219 f:1:28 `requests` of the plan `gold` has no effect: no flow or topic says `limits.plan`",
            ],
        ),
        (
            with(
                "plans: { gold: { events: { count: 1, per: 1s } } }",
                "{ plan: gold }",
            ),
            &[
                "IT0219 f:1:28 `events` of the plan `gold` has no effect: no topic says `publish.limits.plan`",
            ],
        ),
        (
            with("plans: { gold: {} }", "{ plan: gold }"),
            &["IT0219 f:1:20 the plan `gold` limits nothing"],
        ),
        (
            with("", "{ by: null, headers: true }"),
            &[
                "IT0219 f:5:11 `by` has no effect: there is no `plan`; a throttle has a `by` of its own",
                "IT0219 f:5:21 `headers` has no effect: there is neither a `throttle` nor a `plan`",
            ],
        ),
        (
            with("", "{ throttle: { requests: 10000000, per: 1ms } }"),
            &["IT0207 f:5:33 more than a thousand million a second"],
        ),
        (
            with("", "{ throttle: { requests: 5, burst: 6 } }"),
            &["IT0207 f:5:43 `burst` is 6, outside its range"],
        ),
    ];
    assert_problems(cases);
}

#[test]
fn what_clients_meet() {
    let flow =
        |more: &str| format!("flow: a\nfrom: {{ http: \":80/\" }}\n{more}\nsteps: [ send: b ]");
    let listeners = |text: &str| format!("engine: {{ listeners: {text} }}\n---\n{}", flow(""));
    let cases: &[(String, &[&str])] = &[
        (
            flow("cors: { origins: [\"*\"], credentials: true }"),
            &[
                "IT0237 f:3:19 `*` with `credentials: true` would let every page act for its visitor",
            ],
        ),
        (
            flow("cors: { origin: [\"*\"] }"),
            &["IT0111 f:3:9", "IT0113 f:3:7"],
        ),
        (flow("networks: []"), &["IT0115 f:3:11"]),
        (
            flow("networks: [10.0.0.1/8]"),
            &["IT0236 f:3:12 `10.0.0.1/8`: the block begins with 10.0.0.0: write `10.0.0.0/8`"],
        ),
        (flow("security_headers: strict"), &["IT0114 f:3:19"]),
        (
            "flow: a\nfrom: call\ncors: \"*\"\nnetworks: [10.0.0.0/8]\nsteps: [ send: b ]".into(),
            &[
                "IT0219 f:3:1 `cors` has no effect: no request starts the flow",
                "IT0219 f:4:1 `networks` has no effect: no request starts the flow",
            ],
        ),
        (
            listeners("{ ':81': { cors: '*' } }"),
            &["IT0239 f:1:24 no flow or topic listens on :81"],
        ),
        (
            listeners("{ ':x': {} }"),
            &["IT0213 f:1:24 `x` is not a port"],
        ),
        (
            listeners("{ 'localhost:80': {}, 'LOCALHOST:80': {} }"),
            &["IT0239 f:1:44 localhost:80 stands twice"],
        ),
        (
            listeners("{ ':80': { proxy_protocol: v2, trusted_proxies: [] } }"),
            &[
                "IT0239 f:1:49 `trusted_proxies` is empty: nobody could send the PROXY protocol header",
            ],
        ),
        (
            listeners("{ ':80': { proxy_protocol: v3 } }"),
            &["IT0114 f:1:49"],
        ),
        (
            listeners("{ ':80': { trusted_proxies: [lb.internal] } }"),
            &["IT0232 f:1:51 `lb.internal`: this is no address and no block of addresses"],
        ),
    ];
    assert_problems(cases);
}
