//! What is signed, when clocks differ, and what is refused when files are loaded.

use component::connection::HttpConnection;
use component::state::States;
use message::Headers;

use super::*;
use crate::testing::{FakeServices, http_connection};

fn connection(url: &str, keys: &str) -> Result<Arc<HttpConnection>, Vec<String>> {
    let yaml = format!(
        "http: {url}\nauth:\n  aws_sigv4: {{ region: eu-west-1, access_key: AKID, secret_key: s3cr3t, \
         {keys} }}"
    );
    http_connection("aws", &yaml, &States::default())
}

fn value<'a>(grant: &'a Grant, name: &str) -> &'a str {
    let mut lines = grant.lines.iter();
    lines.find(|(it, _)| *it == name).map_or("", |it| &it.1)
}

#[test]
fn fields_of_aws_and_the_type_are_signed() {
    let aws = connection("https://a", "service: s3, session_token: t0k").unwrap();
    let credentials = aws.credentials.as_ref().unwrap();
    assert_eq!(credentials.signs(), Signs::Body);
    let mut headers = Headers::new();
    headers.append("x-amz-acl", "private");
    headers.append("Content-Type", "a/b");
    headers.append("X-Forwarded-For", "::1");
    let request = Unsigned {
        method: "PUT",
        host: b"a",
        target: b"/x?y=1",
        fields: Some(headers.view()),
        body: Some(b"abc"),
    };
    let services = FakeServices::default();
    let grant = services.run_to_end(credentials.grant(&request, &services));
    let grant = grant.unwrap();
    assert_eq!(value(&grant, HASH), sigv4::hash(b"abc"));
    assert_eq!(value(&grant, TOKEN), "t0k");
    let authorization = value(&grant, AUTHORIZATION);
    let names = "SignedHeaders=content-type;host;x-amz-acl;x-amz-content-sha256;x-amz-date;\
                 x-amz-security-token, ";
    assert!(authorization.contains(names), "{authorization}");
    let shown = format!("{grant:?} {credentials:?}");
    assert!(
        !shown.contains("t0k") && !shown.contains("s3cr3t") && !shown.contains("AKID"),
        "{shown}"
    );
}

#[test]
fn a_refusal_by_a_clock_that_differs_is_made_up_for() {
    let aws = connection("https://a", "service: sqs").unwrap();
    let credentials = aws.credentials.as_ref().unwrap();
    let services = FakeServices::default();
    let request = Unsigned::default();
    let date = || {
        let grant = services.run_to_end(credentials.grant(&request, &services));
        value(&grant.unwrap(), DATE).to_owned()
    };
    let grant = Grant { lines: Vec::new() };
    let wall = services.wall();
    let refuses = |status, ahead: i64| {
        let seconds = i64::try_from(wall.as_secs()).unwrap() + ahead;
        let time = Timestamp::from_second(seconds).unwrap();
        let mut headers = Headers::new();
        headers.append(
            "Date",
            time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        );
        credentials.refuses(&grant, status, headers.view(), wall)
    };
    let first = date();
    assert!(!refuses(403, 200), "the signature itself is wrong");
    assert!(!refuses(404, 4000));
    assert_eq!(date(), first);
    assert!(refuses(403, 3600));
    let hour_later = i64::try_from(wall.as_secs()).unwrap() + 3600;
    let hour_later = Timestamp::from_second(hour_later).unwrap();
    assert_eq!(date(), hour_later.strftime("%Y%m%dT%H%M%SZ").to_string());
    assert!(!refuses(403, 3600), "nothing more can be done");
    assert!(refuses(400, 0));
    assert_eq!(date(), first);
}

#[test]
fn invalid_settings_are_reported_without_the_keys() {
    let problems = |url: &str, keys: &str| connection(url, keys).unwrap_err();
    assert_eq!(
        problems("https://a", "service: sqs, payload: unsigned"),
        ["IT0692 3:96 only S3 takes bodies that are not signed"]
    );
    assert_eq!(
        problems("http://a", "service: s3, payload: unsigned"),
        ["IT0692 3:95 bodies that are not signed are sent over `https` only"]
    );
    assert_eq!(
        problems("http://a", "service: 's3/x'"),
        ["IT0692 3:82 this is no `service`"]
    );
    let broken = problems("http://a", "service: s3, session_token: 'a b'");
    assert_eq!(
        broken,
        ["IT0692 3:101 `session_token` is empty or has white space"]
    );
}
