//! Which route a path finds.

use std::sync::atomic::{AtomicBool, Ordering};

use component::access::{Door, Judgement, RequestHead};
use component::forward::ForwardPlan;
use component::handler::Services;
use component::trigger::{ListenAddress, PathPattern};

use super::*;

fn pattern(text: &str) -> PathPattern {
    let rest = text.ends_with("/*");
    let text = text.trim_end_matches("/*").trim_start_matches('/');
    let segments = text.split('/').filter(|_| !text.is_empty()).map(|segment| {
        match segment
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(name) => Segment::Parameter(name.to_owned()),
            None => Segment::Literal(segment.to_owned()),
        }
    });
    PathPattern {
        segments: segments.collect(),
        rest,
    }
}

/// A door through which nobody comes.
struct Shut([Arc<str>; 1]);

impl Door for Shut {
    fn judge<'a>(&'a self, _: RequestHead<'a>, _: &'a dyn Services) -> Judgement<'a> {
        Judgement::Ready(Err(Box::new(message::Reply::new(401))))
    }

    fn secret_parameters(&self) -> &[Arc<str>] {
        &self.0
    }
}

/// A handler that judges credentials itself, as long as this says so.
struct Judging(Arc<AtomicBool>);

impl component::handler::Handler for Judging {
    fn reads_body(&self) -> bool {
        false
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn handle<'a>(
        &'a self,
        _: message::Request,
        _: &'a dyn Services,
    ) -> component::handler::LocalFuture<'a, Result<component::handler::Outcome, message::Fault>>
    {
        Box::pin(async { Err(message::Fault::invalid("nobody is let in")) })
    }
}

fn methods(text: &str) -> Methods {
    match text {
        "any" => Methods::Any,
        list => Methods::Only(list.split(',').map(Method::from_token).collect()),
    }
}

fn table(routes: &[&str]) -> Table {
    table_judged(routes, &Arc::new(AtomicBool::new(true)))
}

/// The same, with a word for the handlers that judge.
fn table_judged(routes: &[&str], judging: &Arc<AtomicBool>) -> Table {
    let upstream = component::upstream::UpstreamPlan::single("127.0.0.1", 1, None);
    let plan = Arc::new(ForwardPlan::new(Arc::new(upstream), "/"));
    let routes = routes.iter().map(|route| {
        let (names, path) = route.split_once(' ').unwrap();
        let names = names.strip_prefix("locked:").unwrap_or(names);
        let judges = names.strip_prefix("judging:");
        let names = judges.unwrap_or(names);
        RoutePlan {
            door: route
                .starts_with("locked:")
                .then(|| Arc::new(Shut(["key".into()])) as _),
            flow: (*route).into(),
            methods: methods(names),
            path: pattern(path),
            edge: None,
            target: match judges {
                None => RouteTarget::Forward(Arc::clone(&plan)),
                Some(_) => RouteTarget::Handle {
                    handler: Arc::new(Judging(Arc::clone(judging))),
                    body_max: 1,
                },
            },
        }
    });
    let address = ListenAddress {
        host: None,
        port: 1,
    };
    let listener = ListenerPlan {
        address,
        tls: None,
        protocols: Vec::new(),
        edge: Default::default(),
        routes: routes.collect(),
    };
    Table::new(
        &listener,
        0,
        &Registry::default(),
        &Upstreams::new(
            &Arc::default(),
            &net::deadline::Deadlines::new(),
            &Arc::default(),
        ),
    )
}

/// The flow that takes the request and the parameters it gets, or what is said instead.
fn find(table: &Table, request: &str) -> String {
    let (method, path) = request.split_once(' ').unwrap();
    let mut captures = Captures::new();
    match table.find(&Method::from_token(method), path.as_bytes(), &mut captures) {
        Found::Nothing => "404".to_owned(),
        Found::Ambiguous => "400".to_owned(),
        Found::Server => "204".to_owned(),
        Found::OtherMethods(names) => format!("405 {names}"),
        Found::Route(route) => {
            let mut text = route.flow.to_string();
            for (name, (start, end)) in route.parameters.iter().zip(captures) {
                text.push_str(&format!(" {name}={}", &path[start as usize..end as usize]));
            }
            text
        }
    }
}

#[test]
fn the_most_specific_route_wins() {
    let table = table(&[
        "any /*",
        "GET /",
        "GET /a",
        "POST /a",
        "GET /a/{id}",
        "any /a/{id}",
        "GET /a/b",
        "GET /a/{id}/c",
        "PUT /a/b/c",
        "GET /a/b/*",
    ]);
    let cases = [
        ("GET /", "GET /"),
        ("POST /", "any /* rest="),
        ("GET /a", "GET /a"),
        ("HEAD /a", "GET /a"),
        ("POST /a", "POST /a"),
        ("PUT /a", "any /* rest=a"),
        ("GET /a/", "any /* rest=a/"),
        ("GET /a/b", "GET /a/b"),
        ("PUT /a/b", "any /a/{id} id=b"),
        ("GET /a/x", "GET /a/{id} id=x"),
        ("GET /a/x/c", "GET /a/{id}/c id=x"),
        ("GET /a/b/c", "GET /a/b/* rest=c"),
        ("PUT /a/b/c", "PUT /a/b/c"),
        ("GET /a/b/d/e", "GET /a/b/* rest=d/e"),
        ("GET /x/y", "any /* rest=x/y"),
        ("OPTIONS *", "204"),
        ("GET *", "404"),
    ];
    for (request, expected) in cases {
        assert_eq!(find(&table, request), expected, "{request}");
    }
}

#[test]
fn what_no_route_takes_is_told_apart() {
    let table = table(&["GET /a", "PUT,DELETE /a", "POST /b/{x}"]);
    assert_eq!(find(&table, "POST /a"), "405 DELETE, GET, HEAD, PUT");
    assert_eq!(find(&table, "GET /b/1"), "405 POST");
    for request in [
        "GET /",
        "GET /b",
        "GET /b/",
        "GET /b/1/2",
        "GET /A",
        "GET //a",
        "GET /a/",
    ] {
        assert_eq!(find(&table, request), "404", "{request}");
    }
}

#[test]
fn trace_is_taken_by_routes_that_name_it_and_names_of_methods_have_their_case() {
    let table = table(&["any /a", "GET /b", "any /c", "TRACE /c"]);
    let others = "405 DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
    assert_eq!(find(&table, "TRACE /a"), others);
    assert_eq!(find(&table, "TRACE /b"), "405 GET, HEAD");
    assert_eq!(find(&table, "TRACE /c"), "TRACE /c");
    // `get` is another method than `GET` (RFC 9110, section 9.1).
    assert_eq!(find(&table, "get /b"), "405 GET, HEAD");
    assert_eq!(find(&table, "get /a"), "any /a");
}

/// Routes come in any order; so many that they are not looked at one after the other.
#[test]
fn each_of_many_routes_is_found() {
    let mut routes = Vec::new();
    for number in 0..500_u32 {
        let number = number.wrapping_mul(2_654_435_761) % 1000;
        for rest in ["", "/{id}", "/{id}/items", "/*"] {
            routes.push(format!("GET /topics/t{number}{rest}"));
        }
        routes.push(format!("POST /topics/t{number}"));
        routes.push(format!("any /t{number}"));
    }
    let texts: Vec<&str> = routes.iter().map(String::as_str).collect();
    let table = table(&texts);
    for route in &routes {
        let path = route.replace("{id}", "7").replace('*', "a/b");
        let request = path.replace("any", "PUT");
        let found = find(&table, &request);
        assert!(found.starts_with(route.as_str()), "{request}: {found}");
    }
    assert!(find(&table, "GET /topics/t1001/7").starts_with("404"));
}

/// What an open route takes must not be what a back end reads as the locked path.
#[test]
fn an_open_route_is_no_way_around_a_door() {
    let locked = table(&[
        "locked:any /admin/*",
        "locked:POST /orders/{id}",
        "any /*",
        "GET /ADMIN",
    ]);
    for path in ["/admin/users", "/admin/", "/orders/7"] {
        let found = find(&locked, &format!("POST {path}"));
        assert!(found.starts_with("locked:"), "{path}: {found}");
    }
    for path in [
        "/Admin/users",
        "/ADMIN/",
        "//admin/users",
        "/x/..;/admin/users",
        "/admin;a/users",
        "/%61dmin%2fusers",
        "/admin%5cusers",
        "/x%2f..%2fadmin",
        "/Orders/7",
        "/orders/7/",
        "/\u{1}admin",
        "/./admin/users",
        "/admin//users",
        "/admin%00",
        "/%c0%afadmin",
    ] {
        assert_eq!(find(&locked, &format!("POST {path}")), "400", "{path}");
    }
    // Another method of the locked path is open, and so is a path that stands in the file.
    assert!(find(&locked, "GET /Orders/7").starts_with("any /*"));
    assert_eq!(find(&locked, "GET /ADMIN"), "GET /ADMIN");
    assert!(find(&locked, "GET /other/path").starts_with("any /*"));
    // Without a door nobody is locked out.
    let open = table(&["any /*"]);
    assert!(find(&open, "GET //a;b%2fc").starts_with("any /*"));
}

/// Topics have no door at their routes: they judge those who name them.
#[test]
fn an_open_route_does_not_bypass_a_handler_that_judges() {
    let judging = Arc::new(AtomicBool::new(true));
    let routes = [
        "judging:GET /topics/sse",
        "judging:GET /topics/{name}/ws",
        "any /*",
    ];
    let locked = table_judged(&routes, &judging);
    for path in ["/topics/sse", "/topics/prices/ws"] {
        assert!(
            find(&locked, &format!("GET {path}")).starts_with("judging:"),
            "{path}"
        );
    }
    for path in [
        "/topics/sse/",
        "/Topics/SSE",
        "/topics/prices/ws/",
        "/topics/prices/W%53",
    ] {
        assert_eq!(find(&locked, &format!("GET {path}")), "400", "{path}");
    }
    assert!(find(&locked, "GET /other/sse/").starts_with("any /*"));
    // The last topic with a lock was one of the plan before, and is gone.
    judging.store(false, Ordering::Relaxed);
    assert!(find(&locked, "GET /Topics/SSE").starts_with("any /*"));
}

/// A back end that decodes more than unreserved characters reads both spellings as one path.
#[test]
fn an_escaped_spelling_is_no_way_around_a_door() {
    let table_of = table(&[
        "locked:POST /v1/users:export",
        "locked:any /caf%C3%A9/*",
        "any /v1/*",
        "any /*",
    ]);
    assert!(find(&table_of, "POST /v1/users:export").starts_with("locked:"));
    for path in [
        "/v1/users%3Aexport",
        "/v1/users%3aexport",
        "/v1/Users%3Aexport/",
        "/caf%c3%a9/menu",
        "/CAF%C3%89/menu",
        "/caf%C3%A9",
    ] {
        assert_eq!(find(&table_of, &format!("POST {path}")), "400", "{path}");
    }
    assert!(find(&table_of, "POST /v1/users%3Aimport").starts_with("any /v1/*"));
}

/// Requests come with escapes of unreserved characters undone.
#[test]
fn a_pattern_with_needless_escapes_takes_what_it_means() {
    let locked = table(&["locked:any /%61dmin/%7e", "any /*", "GET /b%20c"]);
    assert!(find(&locked, "GET /admin/~").starts_with("locked:"));
    assert_eq!(find(&locked, "GET /Admin/~"), "400");
    assert_eq!(find(&locked, "GET /b%20c"), "GET /b%20c");
    // Two spellings of one path: the door holds.
    let twice = table(&["any /admin", "locked:any /%61dmin"]);
    assert!(find(&twice, "GET /admin").starts_with("locked:"));
}

/// What is opened under a locked wildcard is open.
#[test]
fn an_open_route_more_specific_than_the_locked_one_takes_its_requests() {
    let inside = table(&[
        "locked:any /*",
        "GET /public/*",
        "GET /items/{id}",
        "locked:any /items/secret",
        "locked:any /users/{id}",
        "GET /users/me/*",
    ]);
    for (request, route) in [
        ("GET /public/x", "GET /public/*"),
        ("GET /public/x/", "GET /public/*"),
        ("GET /public/", "GET /public/*"),
        ("GET /items/7", "GET /items/{id}"),
        ("GET /users/me/x", "GET /users/me/*"),
        ("GET /Public/x", "locked:any /*"),
        ("GET /items/7/", "locked:any /*"),
        ("POST /public/x", "locked:any /*"),
    ] {
        let found = find(&inside, request);
        assert!(found.starts_with(route), "{request}: {found}");
    }
    // A back end may read these as paths that a route with a door takes by more than `*`.
    for request in ["GET /items/Secret", "GET /users/me/"] {
        assert_eq!(find(&inside, request), "400", "{request}");
    }
}

/// The path of a request may be mistyped, and its credential right.
#[test]
fn logs_show_no_credential_of_a_request_that_no_route_takes() {
    use crate::client::door::masked;
    let locked = table(&["locked:GET /a", "locked:GET /b", "GET /open"]);
    let target = "/A?x=1&k%65y=secret";
    let shown = masked(target, None, &locked);
    assert_eq!(shown.as_deref(), Some("/A?x=1&key=***"));
    let cases = [
        ("/A?KEY=secret&x", "/A?KEY=***&x"),
        ("/A?x=1;Key=secret;y&z", "/A?x=1;Key=***&z"),
        ("/A?key=sec;ret", "/A?key=***"),
    ];
    for (target, shown) in cases {
        assert_eq!(masked(target, None, &locked).as_deref(), Some(shown));
    }
    assert_eq!(masked("/A", None, &locked), None);
    assert_eq!(masked(target, None, &table(&["GET /open"])), None);
}
