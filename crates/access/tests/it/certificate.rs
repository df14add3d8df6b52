//! Callers with certificates.

use std::time::SystemTime;

use access::certificate::{
    CERTIFICATE_MAX, Certificate, DistinguishedName, HeaderProblem, IdSource, Malformed, Refused,
    Rules, client_cert,
};
use base64ct::{Base64, Encoding as _};
use fastrand::Rng;
use testkit::{Authority, ClientNames, Issued};

const CN: &[u64] = &[2, 5, 4, 3];
const O: &[u64] = &[2, 5, 4, 10];
const C: &[u64] = &[2, 5, 4, 6];
const SPIFFE: &str = "spiffe://prod.example/ns/shop/sa/orders";

fn der(issued: &Issued) -> Vec<u8> {
    let lines = issued.cert.lines().filter(|it| !it.starts_with('-'));
    Base64::decode_vec(&lines.collect::<String>()).unwrap()
}

fn issue(names: &ClientNames<'_>) -> Certificate {
    Certificate::parse(&der(&Authority::new("Staff CA").issue_client(names))).unwrap()
}

fn shop() -> Certificate {
    issue(&ClientNames {
        subject: &[(C, "KE"), (O, "Shop, \"Inc\" "), (CN, "#shop=1")],
        dns: &["API.shop.example", "www.shop.example"],
        uris: &[SPIFFE],
        emails: &["Ops@Shop.Example"],
    })
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

#[test]
fn everything_about_the_holder_is_read() {
    let shop = shop();
    assert_eq!(
        shop.subject.to_string(),
        r#"CN=\#shop\=1,O=Shop\, \"Inc\"\ ,C=KE"#
    );
    assert_eq!(shop.subject.common_name(), Some("#shop=1"));
    assert_eq!(shop.issuer.to_string(), "CN=Staff CA");
    assert_eq!(shop.dns, ["api.shop.example", "www.shop.example"]);
    assert_eq!(
        (&*shop.uris, &*shop.emails),
        (&[SPIFFE.into()][..], &["Ops@Shop.Example".into()][..])
    );
    assert!(shop.is_current(now()) && shop.is_current(shop.not_after));
    assert!(!shop.is_current(shop.not_after + 1) && !shop.is_current(shop.not_before - 1));
}

#[test]
fn what_is_no_certificate_or_says_two_things_is_refused() {
    let authority = Authority::new("Staff CA");
    let parse = |names: &ClientNames<'_>| Certificate::parse(&der(&authority.issue_client(names)));
    let none = ClientNames::default();
    let two = [SPIFFE, "https://shop.example/"];
    assert_eq!(
        parse(&ClientNames { uris: &two, ..none }),
        Err(Malformed::Spiffe)
    );
    assert!(
        parse(&ClientNames {
            uris: &two[1..],
            ..none
        })
        .is_ok()
    );
    let control = [(CN, "shop\n")];
    assert_eq!(
        parse(&ClientNames {
            subject: &control,
            ..none
        }),
        Err(Malformed::Name)
    );
    let spaces = ["a b"];
    assert_eq!(
        parse(&ClientNames {
            uris: &spaces,
            ..none
        }),
        Err(Malformed::Name)
    );
    let many: Vec<String> = (0..101).map(|it| format!("h{it}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(
        parse(&ClientNames { dns: &many, ..none }),
        Err(Malformed::TooLong)
    );
    let long = "x".repeat(CERTIFICATE_MAX);
    assert_eq!(
        parse(&ClientNames {
            subject: &[(CN, &long)],
            ..none
        }),
        Err(Malformed::TooLong)
    );
    let bytes = der(&authority.issue_client(&none));
    assert!(Certificate::parse(&bytes).is_ok());
    let longer = [&bytes[..], &[0]].concat();
    for wrong in [&[][..], &bytes[1..], &bytes[..bytes.len() - 1], &longer] {
        assert_eq!(Certificate::parse(wrong), Err(Malformed::Der));
    }
}

/// Whatever comes instead of a certificate: an error, or another certificate, but no panic.
#[test]
fn twenty_thousand_damaged_certificates_do_no_harm() {
    let names = ClientNames {
        subject: &[(O, "Shop"), (CN, "shop")],
        dns: &["a.example"],
        uris: &[SPIFFE],
        emails: &["a@b.example"],
    };
    let bytes = der(&Authority::new("CA").issue_client(&names));
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let mut damaged = bytes.clone();
        for _ in 0..random.u8(1..=3) {
            let at = random.usize(..damaged.len());
            damaged[at] = random.u8(..);
        }
        if random.u8(..4) == 0 {
            damaged.truncate(random.usize(..damaged.len()));
        }
        if let Ok(certificate) = Certificate::parse(&damaged) {
            let _ = Rules::new().check(&certificate, now());
        }
    }
}

#[test]
fn rules_name_holders_and_issuers() {
    let shop = shop();
    let fingerprint: String = shop
        .fingerprint
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    let pairs: Vec<String> = shop
        .fingerprint
        .iter()
        .map(|it| format!("{it:02X}"))
        .collect();
    let pairs = pairs.join(":");
    let judge = |add: &dyn Fn(&mut Rules) -> Result<(), &'static str>| {
        let mut rules = Rules::new();
        add(&mut rules).unwrap();
        rules.check(&shop, now()).map(|_| ())
    };
    let holder = Err(Refused::Holder);
    for (subject, expected) in [
        (r#"CN=\#shop\=1,O=Shop\, \"Inc\"\ ,C=KE"#, Ok(())),
        // As OpenSSL and as hand-written: other escapes, spaces, cases of types.
        (r"cn=\23shop=1, o=Shop\2C \22Inc\22\20 , c=KE", Ok(())),
        (r#"C=KE,O=Shop\, \"Inc\"\ ,CN=\#shop\=1"#, holder),
        (r"CN=\#shop\=1", holder),
        (r#"CN=\#SHOP\=1,O=Shop\, \"Inc\"\ ,C=KE"#, holder),
    ] {
        assert_eq!(judge(&|it| it.subject(subject)), expected, "{subject}");
    }
    for (name, expected) in [
        ("api.shop.example", Ok(())),
        ("API.Shop.example", Ok(())),
        ("*.shop.example", Ok(())),
        ("*.example", holder),
        ("shop.example", holder),
        ("xapi.shop.example", holder),
    ] {
        assert_eq!(judge(&|it| it.dns(name)), expected, "{name}");
    }
    for (uri, expected) in [
        (SPIFFE, Ok(())),
        ("spiffe://prod.example/ns/shop/*", Ok(())),
        ("spiffe://prod.example/*", Ok(())),
        ("spiffe://prod.example/ns/sho/*", holder),
        ("spiffe://prod.example/ns/shop/sa/orders/*", holder),
        ("spiffe://prod.example/ns/shop/sa/order", holder),
        ("SPIFFE://prod.example/ns/shop/sa/orders", holder),
    ] {
        assert_eq!(judge(&|it| it.uri(uri)), expected, "{uri}");
    }
    assert_eq!(judge(&|it| it.email("Ops@shop.example")), Ok(()));
    assert_eq!(judge(&|it| it.email("ops@shop.example")), holder);
    for hash in [&fingerprint, &fingerprint.to_uppercase(), &pairs] {
        assert_eq!(judge(&|it| it.fingerprint(hash)), Ok(()));
    }
    assert_eq!(judge(&|it| it.fingerprint(&"00".repeat(32))), holder);
    assert_eq!(judge(&|it| it.issuer("CN=Staff CA")), Ok(()));
    assert_eq!(judge(&|it| it.issuer("CN=Other CA")), Err(Refused::Issuer));
    // One of the holders is enough; the issuer has to fit as well.
    let mut rules = Rules::new();
    rules.dns("other.example").unwrap();
    rules.uri(SPIFFE).unwrap();
    assert!(rules.check(&shop, now()).is_ok());
    rules.issuer("CN=Other CA").unwrap();
    assert_eq!(rules.check(&shop, now()), Err(Refused::Issuer));
    assert_eq!(
        Rules::new().check(&shop, shop.not_after + 1),
        Err(Refused::Time)
    );
}

#[test]
fn nobody_is_below_a_uri_by_a_trick() {
    for below in ["a/../../x", "./a", "", "a//b", "%2e%2e/x", "a?b", "a#b"] {
        let uri = format!("spiffe://prod.example/ns/shop/{below}");
        let certificate = issue(&ClientNames {
            uris: &[&uri],
            ..ClientNames::default()
        });
        let mut rules = Rules::new();
        rules.uri("spiffe://prod.example/ns/shop/*").unwrap();
        assert_eq!(
            rules.check(&certificate, now()),
            Err(Refused::Holder),
            "{uri}"
        );
    }
    let wild = issue(&ClientNames {
        dns: &["*.shop.example"],
        ..ClientNames::default()
    });
    let mut rules = Rules::new();
    rules.dns("*.shop.example").unwrap();
    assert_eq!(rules.check(&wild, now()), Err(Refused::Holder));
}

#[test]
fn impossible_rules_are_refused() {
    let mut rules = Rules::new();
    for text in [
        "", "a\n", "CN", "CN=a,", "CN=a\"", "1..2=a", "XY=a", "CN=a\\", "CN=#0",
    ] {
        let is_name = text == "CN";
        assert_eq!(rules.subject(text).is_ok(), is_name, "{text:?}");
        assert!(rules.issuer(text).is_err(), "{text:?}");
    }
    for text in ["", "*", "*.", "a b", "a*.b", "*.*.b", "ä.example"] {
        assert!(rules.dns(text).is_err(), "{text}");
    }
    for text in [
        "",
        "shop",
        ":",
        "spiffe:",
        "spiffe://*",
        "https:///*",
        "1:a",
    ] {
        assert!(rules.uri(text).is_err(), "{text}");
    }
    for text in ["", "a", "@b", "a@"] {
        assert!(rules.email(text).is_err(), "{text}");
    }
    let almost = format!("{}:0", "00:".repeat(30) + "0:00");
    for text in ["", "00", &"0g".repeat(32), &"00".repeat(33), &almost] {
        assert!(rules.fingerprint(text).is_err(), "{text}");
    }
}

#[test]
fn holders_have_one_id() {
    let of = |certificate: &Certificate, source: Option<IdSource>| {
        let mut rules = Rules::new();
        source.into_iter().for_each(|it| rules.id(it));
        rules.check(certificate, now())
    };
    let shop = shop();
    for (source, id) in [
        (None, SPIFFE),
        (Some(IdSource::Uri), SPIFFE),
        (Some(IdSource::Dns), "api.shop.example"),
        (Some(IdSource::Email), "Ops@Shop.Example"),
        (Some(IdSource::CommonName), "#shop=1"),
        (
            Some(IdSource::Subject),
            r#"CN=\#shop\=1,O=Shop\, \"Inc\"\ ,C=KE"#,
        ),
    ] {
        assert_eq!(of(&shop, source).unwrap(), id);
    }
    assert_eq!(of(&shop, Some(IdSource::Fingerprint)).unwrap().len(), 64);
    let none = ClientNames::default();
    let named = issue(&ClientNames {
        subject: &[(O, "x"), (CN, "shop")],
        ..none
    });
    assert_eq!(of(&named, None).unwrap(), "shop");
    assert_eq!(of(&named, Some(IdSource::Uri)), Err(Refused::Id));
    // Who may choose a common name may not choose to be somebody with a URI.
    let posing = issue(&ClientNames {
        subject: &[(CN, SPIFFE)],
        ..none
    });
    assert_eq!(of(&posing, None).unwrap().len(), 64);
    assert_eq!(of(&posing, Some(IdSource::CommonName)), Err(Refused::Id));
    assert_eq!(of(&issue(&none), None).unwrap().len(), 64);
    assert_eq!(of(&issue(&none), Some(IdSource::Subject)), Err(Refused::Id));
}

/// What is written is read as the same name, whatever letters are in it.
#[test]
fn names_are_read_as_they_are_written() {
    let letters: Vec<char> = " #,+;=\\\"<>aB0ü€'/".chars().collect();
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let mut value = || {
            let count = random.u8(..6);
            let letter = |_| letters[random.usize(..letters.len())];
            (0..=count).map(letter).collect::<String>()
        };
        let (first, second) = (value(), value());
        let certificate = issue(&ClientNames {
            subject: &[(O, &first), (CN, &second), (&[1, 2, 3, 4], "x")],
            ..ClientNames::default()
        });
        let text = certificate.subject.to_string();
        let read: DistinguishedName = text.parse().unwrap();
        assert_eq!(read, certificate.subject, "seed {seed}: {text}");
        assert_eq!(
            certificate.subject.common_name(),
            Some(&*second),
            "seed {seed}"
        );
    }
    // What `openssl x509 -noout -subject -nameopt RFC2253` prints.
    let of_openssl = r#"serialNumber=12,emailAddress=a@b.example,CN=a,O=Sh\C3\B6p\, \"Inc\",C=KE"#;
    let certificate = issue(&ClientNames {
        subject: &[
            (C, "KE"),
            (O, "Shöp, \"Inc\""),
            (CN, "a"),
            (&[1, 2, 840, 113_549, 1, 9, 1], "a@b.example"),
            (&[2, 5, 4, 5], "12"),
        ],
        ..ClientNames::default()
    });
    assert_eq!(of_openssl.parse(), Ok(certificate.subject));
    let sets: DistinguishedName = "CN=a+O=b,C=x".parse().unwrap();
    assert_eq!("O=b+CN=a,C=x".parse(), Ok(sets));
    let other: DistinguishedName = "1.2.3=#0C0141,CN=a".parse().unwrap();
    assert_eq!(other.to_string(), "1.2.3=#0c0141,CN=a");
}

#[test]
fn a_trusted_proxy_passes_a_certificate_on() {
    let read = |values: &[&str]| client_cert(values.iter().map(|it| it.as_bytes()));
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[" :YWJj: "]), Ok(Some(b"abc".to_vec())));
    assert_eq!(read(&[":YWJj:", ":YWJj:"]), Err(HeaderProblem::Repeated));
    for value in [
        "",
        ":",
        "::",
        "YWJj",
        ":YWJj",
        ":YWI:",
        ":YWJ=:",
        ":YW Jj:",
        ":YWJj:;a=1",
        "\"x\"",
    ] {
        assert_eq!(read(&[value]), Err(HeaderProblem::Malformed), "{value}");
    }
    let long = format!(":{}:", "A".repeat(CERTIFICATE_MAX * 2));
    assert_eq!(read(&[&long]), Err(HeaderProblem::TooLong));
}
