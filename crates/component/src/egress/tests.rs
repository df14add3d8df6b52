//! Tests of the egress guard.

use testkit::{EgressSpelling, egress_spellings};

use super::*;
use crate::networks::NetworkList;

fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let list = |texts: &[&str]| {
        let mut list = NetworkList::default();
        for text in texts {
            list.add(text).unwrap();
        }
        list
    };
    let (ports, schemes) = (vec![443], vec![Scheme::Https]);
    Policy::new(list(allow), list(deny), ports, schemes)
}

fn verdict(result: &Result<Target, Refusal>) -> &'static str {
    match result {
        Ok(_) => "pass",
        Err(Refusal::Malformed(_)) => "url",
        Err(Refusal::Scheme(_)) => "scheme",
        Err(Refusal::Port(_)) => "port",
        Err(Refusal::Address(..) | Refusal::Denied(_)) => "address",
    }
}

#[test]
fn every_spelling_of_the_list_gets_its_verdict() {
    let policy = Policy::default();
    let spellings = egress_spellings();
    let refused = spellings.iter().filter(|it| it.verdict != "pass");
    assert!(refused.count() >= 60);
    for spelling in spellings {
        let EgressSpelling {
            verdict: expected,
            url,
            reason,
        } = spelling;
        // A name passes here: the addresses that it leads to are checked when it is connected to.
        let expected = if expected == "name" { "pass" } else { expected };
        let result = policy.target(&url);
        assert_eq!(verdict(&result), expected, "{url:?} ({reason}): {result:?}");
    }
}

#[test]
fn an_address_is_checked_like_a_url_that_has_it() {
    let policy = Policy::default();
    for spelling in egress_spellings() {
        let EgressSpelling {
            verdict: expected,
            url,
            reason,
        } = spelling;
        let Some(address) = url.strip_prefix("https://").and_then(|rest| {
            let host = rest.split('/').next()?;
            host.trim_matches(['[', ']']).parse::<IpAddr>().ok()
        }) else {
            continue;
        };
        let result = policy.check(true, SocketAddr::new(address, 443));
        assert_eq!(result.is_ok(), expected == "pass", "{url} ({reason})");
    }
}

#[test]
fn a_url_is_taken_apart() {
    let target = |url: &str| Policy::default().target(url).unwrap();
    let expected = Target {
        is_secure: true,
        host: "example.com".to_owned(),
        port: 443,
        path: "/a@b/C".to_owned(),
        query: Some("x=%20&y".to_owned()),
    };
    assert_eq!(target("Https://EXAMPLE.com/a@b/C?x=%20&y#z"), expected);
    let plain = target("https://example.com?");
    assert_eq!((plain.path.as_str(), plain.query), ("/", None));
    let mapped = target("https://[::ffff:93.184.215.14]:443/");
    assert_eq!(mapped.host, "::ffff:93.184.215.14");
    let long = format!("https://example.com/{}", "a".repeat(8192));
    assert_eq!(verdict(&Policy::default().target(&long)), "url");
}

#[test]
fn allowing_a_block_allows_neither_what_is_never_called_nor_what_it_stands_for() {
    let is_allowed = |policy: &Policy, address: &str| {
        let address = SocketAddr::new(address.parse().unwrap(), 443);
        policy.check(true, address).is_ok()
    };
    let all = policy(&["0.0.0.0/0", "::/0"], &[]);
    for address in ["127.0.0.1", "10.0.0.1", "::1", "fe80::1", "198.18.0.1"] {
        assert!(is_allowed(&all, address), "{address}");
    }
    let never = ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"];
    let metadata = [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "fd00:ec2::254",
        "168.63.129.16",
    ];
    for address in never.into_iter().chain(metadata) {
        assert!(!is_allowed(&all, address), "{address}");
    }
    let named = policy(&["169.254.169.254", "fd00:ec2::254"], &[]);
    assert!(is_allowed(&named, "169.254.169.254"));
    assert!(is_allowed(&named, "::ffff:169.254.169.254"));
    assert!(is_allowed(&named, "fd00:ec2::254"));
    assert!(!is_allowed(&named, "169.254.169.253"));
    // A network behind NAT64, where each public IPv4 address looks like this.
    let translated = policy(&["64:ff9b::/96", "2002::/16"], &[]);
    assert!(is_allowed(&translated, "64:ff9b::8.8.8.8"));
    assert!(is_allowed(&translated, "2002:808:808::1"));
    for inner in ["64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "2002:a00:1::1"] {
        assert!(!is_allowed(&translated, inner), "{inner}");
    }
}

#[test]
fn what_is_denied_is_denied_in_every_form() {
    let policy = policy(&["10.0.0.0/8", "64:ff9b::/96"], &["10.1.0.0/16", "8.8.8.8"]);
    let check = |address: &str| {
        let address = SocketAddr::new(address.parse().unwrap(), 443);
        policy.check(true, address)
    };
    assert_eq!(check("10.2.0.1"), Ok(()));
    assert_eq!(check("64:ff9b::8.8.4.4"), Ok(()));
    for address in [
        "10.1.0.1",
        "::ffff:10.1.0.1",
        "64:ff9b::10.1.0.1",
        "8.8.8.8",
        "64:ff9b::8.8.8.8",
    ] {
        let refusal = check(address).unwrap_err();
        assert!(matches!(refusal, Refusal::Denied(_)), "{address}");
    }
}

#[test]
fn scheme_and_port_are_checked_for_each_connection_too() {
    let policy = Policy::default();
    let public = |port| SocketAddr::from(([93, 184, 215, 14], port));
    assert_eq!(policy.check(true, public(443)), Ok(()));
    assert_eq!(policy.check(true, public(8443)), Err(Refusal::Port(8443)));
    let clear = policy.check(false, public(443));
    assert_eq!(clear, Err(Refusal::Scheme("http".to_owned())));
    assert_eq!(policy.check_endpoint(true, "intranet", 443), Ok(()));
    assert!(policy.check_endpoint(true, "::1", 443).is_err());
}

#[test]
fn whoever_set_the_url_does_not_learn_where_its_name_leads() {
    let policy = Policy::default();
    let fault = policy.target("https://10.1.2.3/").unwrap_err().into_fault();
    assert_eq!((fault.status, fault.kind.name()), (403, "forbidden"));
    assert_eq!(fault.detail, "this address may not be called");
    let cause = fault.cause.unwrap();
    assert!(cause.contains("10.1.2.3, a private address"), "{cause}");
    let secret = "https://user:s3cr3t@example.com/";
    let fault = policy.target(secret).unwrap_err().into_fault();
    assert!(!format!("{fault:?}").contains("s3cr3t"));
}

#[test]
fn requests_that_come_back_are_known() {
    let headers = |lines: &[&str]| {
        let mut headers = message::Headers::new();
        for line in lines {
            headers.append("cdn-loop", line);
        }
        headers
    };
    let check = |lines: &[&str]| loops::check("shop", headers(lines).view()).is_ok();
    for lines in [
        &[][..],
        &[""],
        &["other"],
        &["shop2, ashop", "shop.example;shop"],
        &["a; b=\"shop\""],
    ] {
        assert!(check(lines), "{lines:?}");
    }
    for lines in [
        &["shop"][..],
        &["Shop"],
        &["a, shop;v=1 , b"],
        &["a", "b,\tshop"],
        &[",,shop"],
    ] {
        assert!(!check(lines), "{lines:?}");
    }
    let many = vec!["other"; loops::HOPS_MAX];
    assert!(check(&many));
    assert!(!check(&[many.as_slice(), &["one more"]].concat()));
    let fault = loops::check("shop", headers(&["shop"]).view()).unwrap_err();
    assert_eq!(fault.status, 508);
    assert_eq!(
        loops::passed_on(headers(&["a;b", "c"]).view()).as_deref(),
        Some(&b"a;b, c"[..])
    );
    assert_eq!(loops::passed_on(headers(&[]).view()), None);
}

#[test]
fn plans_for_urls_have_the_guard_and_no_more_tls_than_the_url_asks_for() {
    let origins = Origins::new(crate::tls::UpstreamTls::default(), None);
    assert!(origins.template().endpoints.is_empty());
    let nothing = NetworkList::default();
    let schemes = vec![Scheme::Https, Scheme::Http];
    let policy = Policy::new(nothing.clone(), nothing, vec![443, 80], schemes);
    for (url, has_tls) in [
        ("https://a.example/x?y", true),
        ("http://a.example/x?y", false),
    ] {
        let plan = origins.plan(&policy.target(url).unwrap());
        assert!(plan.upstream.egress.is_guarded(), "{url}");
        assert_eq!(plan.upstream.tls.is_some(), has_tls, "{url}");
        assert_eq!(plan.upstream.authority(), "a.example", "{url}");
        assert_eq!(
            (plan.path.as_str(), plan.query.as_deref()),
            ("/x", Some("y"))
        );
        let template = plan.upstream.template.as_ref().unwrap();
        assert!(Arc::ptr_eq(template, origins.template()));
    }
}
