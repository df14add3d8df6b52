//! What is made of sound flow files.

use std::time::Duration;

use component::plan::{RoutePlan, RouteTarget};
use component::settings::Settings;

use config::{Report, Sources};

use super::load_files;
use crate::{Loaded, LogFormat, LogLevel, SecretSources, secret_sources};

fn load_text(text: &str) -> Loaded {
    load_files(&[("f", text)]).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"))
}

/// Each route as `address flow methods path target`.
fn routes(loaded: &Loaded) -> Vec<String> {
    let target = |route: &RoutePlan| match &route.target {
        RouteTarget::Forward(plan) => {
            format!(
                "forward {}{}",
                plan.upstream.endpoints[0].host,
                if plan.appends_rest { "+rest" } else { "" }
            )
        }
        RouteTarget::Handle { handler, body_max } if handler.reads_body() => {
            format!("message {body_max}")
        }
        RouteTarget::Handle { .. } => "message -".to_owned(),
    };
    let listeners = loaded.plan.listeners.iter();
    listeners
        .flat_map(|listener| {
            listener.routes.iter().map(move |route| {
                let methods = format!("{:?}", route.methods);
                format!(
                    "{} {} {methods} {} {}",
                    listener.address,
                    route.flow,
                    route.path,
                    target(route)
                )
            })
        })
        .collect()
}

#[test]
fn limits_of_streams_go_with_what_forwards_them() {
    use component::stream_limits::{MessageLimit, Over, Scope};
    let text = "flow: a\nfrom: { http: / }\nlimits: { connections: 3, messages: { count: 5, per: \
                2s, scope: flow, over: close } }\nsteps: [ send: b ]";
    let loaded = load_files(&[("f", text)]).unwrap();
    let route = &loaded.plan.listeners[0].routes[0];
    let RouteTarget::Forward(plan) = &route.target else {
        panic!("it only forwards")
    };
    let limits = plan.streams.as_ref().unwrap();
    let expected = MessageLimit {
        count: 5,
        per: Duration::from_secs(2),
        burst: 5,
        scope: Scope::Flow,
        over: Over::Close,
    };
    assert_eq!(limits.messages(), Some(expected));
    assert_eq!(plan.request_fields.remove, ["Accept-Encoding"]);
    let text = "flow: a\nfrom: { http: / }\nlimits: { connections: 3 }\n\
                steps: [ { change: x }, { send: b } ]";
    let loaded = load_files(&[("f", text)]).unwrap();
    let route = &loaded.plan.listeners[0].routes[0];
    let RouteTarget::Handle { handler, .. } = &route.target else {
        panic!("it does something before")
    };
    assert!(handler.stream_limits().is_some());
}

#[test]
fn flows_become_routes() {
    let cases = [
        (
            "flow: a\nfrom: { http: GET /x }\nsteps: [ send: b ]",
            "127.0.0.1:8080 a Only([Get]) /x forward b",
        ),
        (
            "flow: a\ndoc: what it is for\nfrom: { http: ':81/x/*' }\n\
             steps: [ { send: b, name: out } ]",
            ":81 a Any /x/* forward b+rest",
        ),
        (
            "flow: a\n\
             from: { http: { path: '/{id}', method: [GET, PUT], listen: 'LOCALHOST:1' } }\n\
             steps: [ note: b, send: c ]",
            "localhost:1 a Only([Get, Put]) /{id} message -",
        ),
        (
            "flow: a\nfrom: { http: { path: /, method: 'GET,PUT', body_max: 2KiB } }\n\
             steps: [ change: b, send: c ]",
            "127.0.0.1:8080 a Only([Get, Put]) / message 2048",
        ),
        (
            "flow: a\nfrom: { http: { path: /, method: any } }\nsteps: [ note: b, stop: c ]",
            "127.0.0.1:8080 a Any / message -",
        ),
        (
            "flow: a\nfrom: { http: { path: / } }\nsteps: [ send: b, note: c ]",
            "127.0.0.1:8080 a Any / message 1048576",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(routes(&load_text(text)), [expected], "{text}");
    }
}

#[test]
fn limits_of_all_clients_together_are_read() {
    let limits = |text: &str| {
        let flow = "---\nflow: a\nfrom: { http: / }\nsteps: [ change: b ]";
        let loaded = load_text(&format!("engine: {{ limits: {text} }}\n{flow}"));
        let limits = loaded.plan.settings.limits;
        (
            limits.body_memory,
            limits.min_body_rate,
            limits.connections_per_address,
        )
    };
    assert_eq!(limits("{}"), (None, 256, None));
    let text = "{ body_memory: 2GiB, min_body_rate: 0B, connections_per_address: 7 }";
    assert_eq!(limits(text), (Some(2 << 30), 0, Some(7)));
}

#[test]
fn flows_share_listeners() {
    let files = [
        (
            "1",
            "flow: z\nfrom: { http: GET :90/z }\nsteps: [ send: b ]",
        ),
        (
            "2",
            "engine: { listen: ':80', limits: { body: 5B } }\n---\n\
             flow: y\nfrom: { http: GET /y }\n\
             steps: [ change: b ]",
        ),
        (
            "3",
            "flow: x\nfrom: { http: any :90/z }\nsteps: [ send: b ]\n---\n\
             flow: w\nfrom: { http: HEAD :90/z }\nsteps: [ send: b ]",
        ),
    ];
    let loaded = load_files(&files).unwrap();
    let expected = [
        ":80 y Only([Get]) /y message 5",
        ":90 z Only([Get]) /z forward b",
        ":90 x Any /z forward b",
        ":90 w Only([Head]) /z forward b",
    ];
    assert_eq!(routes(&loaded), expected);
}

#[test]
fn steps_know_their_flow_and_place() {
    let loaded = load_text("flow: a.b\nfrom: { http: / }\nsteps: [ send: b ]");
    match &loaded.plan.listeners[0].routes[0].target {
        RouteTarget::Forward(plan) => assert_eq!(plan.via.as_deref(), Some("a.b")),
        RouteTarget::Handle { .. } => panic!("not forwarded"),
    }
}

#[test]
fn secrets_are_put_in_below_use() {
    let text = "
engine: { env: [HOME_HOST] }
use: { shared: { http: 'x-${ $secret.TOKEN }' } }
---
flow: a
use: { own: { http: '${ $env.HOME_HOST }-${$secret[\"tls.key\"]}' } }
from: { http: GET /x }
steps: [ send: own ]
---
flow: b
from: { http: GET /y }
steps: [ send: shared ]
";
    let expected = [
        // What a value brings along is no expression.
        "127.0.0.1:8080 a Only([Get]) /x forward home-${ $env.HOME_HOST }",
        "127.0.0.1:8080 b Only([Get]) /y forward x-token-value",
    ];
    assert_eq!(routes(&load_text(text)), expected);
}

#[test]
fn sources_of_secrets_are_found_before_anything_is_loaded() {
    let text = "
flow: a
---
engine:
  env: [HOME_HOST]
  secrets: { env: [A, 1, 'b c', B], folder: '/run/${ $env.HOME_HOST }', file: '${ $env.X }' }
";
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources.add("f", text.as_bytes(), &mut report).unwrap();
    let documents = config::parse(&sources, source, &mut report);
    let environment = |name: &str| (name == "HOME_HOST").then(|| "home".to_owned());
    let found = secret_sources(&documents, &environment);
    let names: Vec<&str> = found.env.iter().map(|name| name.value.as_str()).collect();
    assert_eq!(names, ["A", "B"]);
    assert_eq!(found.folder.map(|it| it.value).unwrap(), "/run/home");
    assert_eq!(found.file, None);
    assert_eq!(
        secret_sources(&documents[..1], &environment),
        SecretSources::default()
    );
}

#[test]
fn environment_values_are_put_in() {
    let text = "
engine: { env: [HOME_HOST], listen: '${ $env.HOME_HOST }:80' }
---
flow: a
from: { http: 'GET ${$env.HOME_HOST}:81/x' }
steps: [ send: 'x-${ $env.HOME_HOST }-${ $env.HOME_HOST }' ]
---
flow: b
from: { http: GET /x }
steps: [ send: plain $HOME ]
";
    let expected = [
        "home:80 b Only([Get]) /x forward plain $HOME",
        "home:81 a Only([Get]) /x forward x-home-home",
    ];
    assert_eq!(routes(&load_text(text)), expected);
}

#[test]
fn every_setting_arrives() {
    let text = "
engine:
  limits: { head: 2KiB, fields: 3, body: 4B, connections: 5, upstream_idle: 6 }
  timeouts:
    { idle: 1s, head: 2s, body: 3s, connect: 4s, response: 5s, stream: 6s,
      upstream_idle: 7s, drain: 8s }
  log: { level: warn, format: json, access: true }
  trusted_proxies: [10.0.0.0/8, '::1']
  egress: { allow: [10.1.0.0/16], deny: [10.1.2.3], ports: [8443], loop_id: shop }
---
flow: a
from: { http: / }
steps: [ send: b ]
";
    let loaded = load_text(text);
    let Settings {
        limits,
        timeouts,
        access_log,
        trusted_proxies,
        client_cert_header,
        identity_field,
        egress,
    } = loaded.plan.settings;
    let counts = (
        limits.head,
        limits.fields,
        limits.body,
        limits.connections,
        limits.upstream_idle,
    );
    assert_eq!(counts, (2048, 3, 4, 5, 6));
    let times = [
        timeouts.idle,
        timeouts.head,
        timeouts.body,
        timeouts.connect,
        timeouts.response,
        timeouts.stream,
        timeouts.upstream_idle,
        timeouts.drain,
    ];
    let expected: Vec<Duration> = (1..=8).map(Duration::from_secs).collect();
    assert_eq!(times, *expected);
    let is_trusted = |address: &str| {
        let proxies = trusted_proxies.as_ref().unwrap();
        proxies.contains(address.parse().unwrap())
    };
    assert!(is_trusted("10.1.2.3") && is_trusted("::1") && !is_trusted("127.0.0.1"));
    assert_eq!(&*egress.loop_id, "shop");
    assert!(egress.target("https://10.1.0.1:8443/").is_ok());
    assert!(egress.target("https://10.1.2.3:8443/").is_err());
    assert!(access_log && !client_cert_header && identity_field.is_none());
    assert_eq!(
        (loaded.engine.log.level, loaded.engine.log.format),
        (LogLevel::Warn, LogFormat::Json)
    );
}

#[test]
fn the_documented_defaults_are_the_real_ones() {
    let schema = crate::schema::engine_settings(super::TABLE);
    let documented = |section: &str, key: &str| {
        let definitions = schema["$defs"].as_object().unwrap();
        let named = definitions
            .iter()
            .find(|(name, _)| name.to_lowercase().starts_with(section));
        let default = &named.unwrap().1["properties"][key]["default"];
        default
            .as_str()
            .map_or_else(|| default.to_string(), str::to_owned)
    };
    let Settings {
        limits, timeouts, ..
    } = Settings::default();
    let sizes = [("head", limits.head as u64), ("body", limits.body)];
    for (key, bytes) in sizes {
        assert_eq!(
            documented("limits", key),
            config::ByteSize(bytes).to_string(),
            "{key}"
        );
    }
    let counts = [
        ("fields", limits.fields),
        ("connections", limits.connections),
        ("upstream_idle", limits.upstream_idle),
    ];
    for (key, count) in counts {
        assert_eq!(documented("limits", key), count.to_string(), "{key}");
    }
    let times = [
        ("idle", timeouts.idle),
        ("head", timeouts.head),
        ("body", timeouts.body),
        ("connect", timeouts.connect),
        ("response", timeouts.response),
        ("stream", timeouts.stream),
        ("upstream_idle", timeouts.upstream_idle),
        ("drain", timeouts.drain),
    ];
    for (key, time) in times {
        assert_eq!(
            documented("timeouts", key),
            config::Duration(time).to_string(),
            "{key}"
        );
    }
    let listen = crate::engine::Engine::default().listen.to_string();
    assert_eq!(schema["properties"]["listen"]["default"], listen.as_str());
}

#[test]
fn an_empty_engine_document_is_all_defaults() {
    let flow = "\n---\nflow: a\nfrom: { http: / }\nsteps: [ send: b ]";
    for engine in ["engine:", "engine: {}", "engine: { limits: {}, env: [] }"] {
        let loaded = load_text(&format!("{engine}{flow}"));
        assert_eq!(loaded.plan.settings.limits.fields, 100, "{engine}");
    }
}

#[test]
fn what_a_flow_says_of_its_clients_goes_before_what_its_listener_says() {
    let text = "engine:
  trusted_proxies: [192.0.2.1]
  listeners:
    \":80\":
      trusted_proxies: []
      networks: { deny: [198.51.100.0/24] }
      cors: \"*\"
      security_headers: api
---
flow: own
from: { http: \":80/own\" }
cors: { origins: [\"https://a.example\"] }
networks: [10.0.0.0/8]
security_headers: page
steps: [ send: b ]
---
flow: inherits
from: { http: \":80/inherits\" }
steps: [ send: b ]
---
flow: alone
from: { http: \":81/\" }
steps: [ send: b ]
";
    let plan = load_text(text).plan;
    let listener = &plan.listeners[0];
    assert!(listener.edge.trusted_proxies.as_ref().unwrap().is_empty());
    let edge = |at: usize| listener.routes[at].edge.as_ref().unwrap();
    let (own, inherited) = (edge(0), edge(1));
    assert_eq!(inherited.cors, listener.edge.requests.cors);
    assert_eq!(
        inherited.security_headers,
        listener.edge.requests.security_headers
    );
    assert!(
        inherited.networks.is_empty(),
        "those of the listener are looked at before"
    );
    assert!(own.cors != inherited.cors && own.security_headers != inherited.security_headers);
    assert_eq!(own.networks.len(), 1);
    let alone = &plan.listeners[1];
    assert!(alone.edge.trusted_proxies.is_none() && alone.edge.requests.is_empty());
    assert!(alone.routes[0].edge.is_none(), "it costs nothing there");
}
