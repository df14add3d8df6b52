//! Origins that are allowed, what replies say, and what a file may not say.

use message::Headers;

use super::*;

fn policy(yaml: &str) -> Arc<CorsPolicy> {
    read(yaml).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"))
}

fn read(yaml: &str) -> Result<Arc<CorsPolicy>, Vec<String>> {
    crate::testing::read_value(yaml, |node, report| {
        let config = ::config::decode::<::config::Spanned<CorsConfig>>(node, report)?;
        CorsConfig::read(&config, report)
    })
}

#[test]
fn origins_are_those_that_are_listed_or_below_a_domain() {
    let listed = policy(
        "{ origins: [\"https://shop.example\", \"https://*.shop.example:8443\", \"http://[::1]:3000\", \
         \"http://*.localhost\"] }",
    );
    for origin in [
        "https://shop.example",
        "https://SHOP.example",
        "https://a.shop.example:8443",
        "https://a.b-c_d.shop.example:8443",
        "http://[::1]:3000",
        "http://app.localhost",
    ] {
        assert!(listed.allows(origin.as_bytes()), "{origin}");
    }
    for origin in [
        "",
        "*",
        "null",
        "http://shop.example",
        "https://shop.example:443",
        "https://shop.example.evil.example",
        "https://evilshop.example",
        "https://evilshop.example:8443",
        "https://shop.example:8443",
        "https://.shop.example:8443",
        "https://a..shop.example:8443",
        "https://a.shop.example",
        "https://a.shop.example:84430",
        "http://a.shop.example:8443",
        "https://evil.example/.shop.example:8443",
        "https://evil.example#.shop.example:8443",
        "https://evil.example:1@.shop.example:8443",
        "https://a\u{0}.shop.example:8443",
        "https://*.shop.example:8443",
        "https://shop.example ",
        "https://shop.example, https://shop.example",
        "http://localhost",
    ] {
        assert!(!listed.allows(origin.as_bytes()), "{origin}");
    }
    assert!(policy("{ origins: [\"null\"] }").allows(b"null"));
    assert!(policy("\"*\"").allows(b"null"));
}

fn shown(fields: &[ReplyField]) -> Vec<String> {
    let shown = |(name, value): &ReplyField| format!("{name}: {}", value.escape_ascii());
    fields.iter().map(shown).collect()
}

#[test]
fn replies_name_the_origin_only_if_it_is_allowed() {
    let all = policy("\"*\"");
    for origin in [None, Some(&b"https://a.example"[..])] {
        let (fields, varies) = all.reply_fields(origin);
        assert_eq!(shown(&fields), ["Access-Control-Allow-Origin: *"]);
        assert!(!varies);
    }
    let listed = policy(
        "{ origins: [\"https://a.example\", \"https://b.example\"], credentials: true, expose: [ETag, X-Total] }",
    );
    let (fields, varies) = listed.reply_fields(Some(b"https://b.example"));
    let expected = [
        "Access-Control-Allow-Origin: https://b.example",
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Expose-Headers: ETag, X-Total",
    ];
    assert_eq!(shown(&fields), expected);
    assert!(varies);
    for origin in [None, Some(&b"https://c.example"[..]), Some(b"null")] {
        assert_eq!(listed.reply_fields(origin), (Vec::new(), true));
    }
}

fn preflight(policy: &CorsPolicy, fields: &[(&str, &str)]) -> Vec<String> {
    let mut asked = Headers::new();
    for (name, value) in fields {
        asked.append(name, value);
    }
    let asked = Preflight::of(asked.view()).unwrap();
    let reply = policy.preflight_fields(asked, "GET, HEAD");
    let lines = reply.view().iter().map(|(_, name, value)| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("{}: {}", text(name), text(value))
    });
    lines.collect()
}

const VARY: &str = "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

#[test]
fn preflight_requests_are_told_what_is_allowed() {
    let asked = [
        ("Origin", "https://a.example"),
        ("Access-Control-Request-Method", "PUT"),
        ("Access-Control-Request-Headers", "content-type,x-own"),
        ("Access-Control-Request-Private-Network", "true"),
    ];
    let expected = [
        VARY,
        "Access-Control-Allow-Origin: *",
        "Access-Control-Allow-Methods: GET, HEAD",
        "Access-Control-Allow-Headers: content-type,x-own",
        "Access-Control-Max-Age: 600",
    ];
    assert_eq!(preflight(&policy("\"*\""), &asked), expected);
    let own = policy(
        "{ origins: [\"https://a.example\"], methods: [GET, PUT], headers: [Content-Type], credentials: true, \
         max_age: 1h, private_network: true }",
    );
    let expected = [
        VARY,
        "Access-Control-Allow-Origin: https://a.example",
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Allow-Methods: GET, PUT",
        "Access-Control-Allow-Headers: Content-Type",
        "Access-Control-Max-Age: 3600",
        "Access-Control-Allow-Private-Network: true",
    ];
    assert_eq!(preflight(&own, &asked), expected);
    assert_eq!(preflight(&own, &asked[..2]).len(), 6, "nothing private");
    let other = [("Origin", "https://b.example"), asked[1]];
    assert_eq!(preflight(&own, &other), [VARY]);
    let none = policy("{ origins: [\"https://a.example\"], headers: [], max_age: 0s }");
    let replied = preflight(&none, &asked);
    assert_eq!(replied.last().unwrap(), "Access-Control-Max-Age: 0");
    assert!(!replied.iter().any(|it| it.contains("Allow-Headers")));
    let mut plain = Headers::new();
    plain.append("Origin", "https://a.example");
    assert!(Preflight::of(plain.view()).is_none(), "an ordinary request");
}

#[test]
fn two_policies_together_allow_what_both_allow() {
    let first = policy(
        "{ origins: [\"https://a.example\", \"https://b.example\"], credentials: true, expose: [ETag, X-A], \
         headers: [X-A, X-B] }",
    );
    let second = policy(
        "{ origins: [\"https://b.example\", \"https://c.example\"], credentials: true, expose: [etag], \
         max_age: 5m }",
    );
    let both = first.and(&second);
    assert!(!both.allows(b"https://a.example") && !both.allows(b"https://c.example"));
    let (fields, varies) = both.reply_fields(Some(b"https://b.example"));
    assert!(varies);
    let expected = [
        "Access-Control-Allow-Origin: https://b.example",
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Expose-Headers: ETag",
    ];
    assert_eq!(shown(&fields), expected);
    let open = policy("\"*\"").and(&first);
    assert_eq!(
        shown(&open.reply_fields(Some(b"https://a.example")).0).len(),
        1
    );
    assert!(!open.allows(b"https://c.example"));
    assert!(Arc::ptr_eq(&first.and(&first), &first));
}

#[test]
fn policies_that_browsers_would_not_understand_are_refused() {
    let origin = "is not the origin of a web page";
    let cases = [
        ("all", "IT0237 `all` is no CORS policy"),
        (
            "https://a.example",
            "IT0237 `https://a.example` is no CORS policy",
        ),
        (
            "{ origins: [] }",
            "IT0237 `origins` is empty: no page could do anything",
        ),
        (
            "{ origins: [\"*\"], credentials: true }",
            "IT0237 `*` with `credentials: true` would let every page act for its visitor",
        ),
        (
            "{ origins: [\"null\"], credentials: true }",
            "IT0237 `null` with `credentials: true` would let every page act for its visitor",
        ),
        (
            "{ origins: [\"*\", \"https://a.example\"] }",
            "IT0237 `*` stands for all origins: the others have no effect",
        ),
        (
            "{ origins: [\"https://a.example\", \"https://a.example\"] }",
            "IT0237 `https://a.example` stands twice",
        ),
        (
            "{ origins: [\"*\"], methods: [] }",
            "IT0237 `methods` is empty: no page could do anything",
        ),
        (
            "{ origins: [\"*\"], methods: [get] }",
            "IT0237 `get` is not a method",
        ),
        (
            "{ origins: [\"*\"], headers: [\"a b\"] }",
            "IT0237 `a b` is no header",
        ),
        (
            "{ origins: [\"*\"], headers: [\"*\"] }",
            "IT0237 `*` would leave `Authorization` out and means nothing to requests with credentials: leave \
             `headers` out to allow all",
        ),
        (
            "{ origins: [\"https://a.example\"], expose: [\"*\"], credentials: true }",
            "IT0237 `*` means nothing to requests with credentials: name the headers",
        ),
        (
            "{ origins: [\"*\"], max_age: 25h }",
            "IT0237 `max_age` is outside its range",
        ),
        (
            "{ origins: [\"*\"], max_age: 1500ms }",
            "IT0237 `max_age` is outside its range",
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(read(yaml).unwrap_err(), [expected], "{yaml}");
    }
    for text in [
        "a.example",
        "https://",
        "https://a.example/",
        "https://a.example/x",
        "https://a.example?x",
        "https://A.example",
        "https://a.example:443",
        "http://a.example:80",
        "https://*.a.example:443",
        "ftp://a.example",
        "https://*",
        "https://*.",
        "https://a.*.example",
        "https://*.*.example",
        "https://*a.example",
        "https://*.10.0.0.1",
        "https://user@a.example",
        "https://a.example, https://b.example",
    ] {
        let problems = read(&format!("{{ origins: [\"{text}\"] }}")).unwrap_err();
        let starts = problems[0].starts_with(&format!("IT0237 `{text}` {origin}"));
        assert!(starts && problems.len() == 1, "{text}: {problems:?}");
    }
}

#[test]
fn a_page_of_the_host_that_it_asks_is_of_the_same_origin() {
    let same = |is_secure, believes, fields: &[(&str, &str)]| {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        is_same_origin(headers.view(), is_secure, believes)
    };
    let origin = |origin| [("Host", "a:1"), ("Origin", origin)];
    assert!(same(false, false, &origin("http://A:1")));
    assert!(same(false, false, &origin("https://a:1")));
    assert!(!same(true, false, &origin("http://a:1")));
    assert!(!same(false, false, &origin("http://a:2")));
    assert!(!same(false, false, &origin("null")));
    assert!(!same(false, false, &[("Host", "a:1")]));
    assert!(!same(false, false, &[("Host", ""), ("Origin", "http://")]));
    let behind = [
        ("Host", "inner"),
        ("X-Forwarded-Host", "a"),
        ("Origin", "https://a"),
    ];
    assert!(same(true, true, &behind));
    assert!(!same(true, false, &behind));
}
