//! What certificates that nobody can read, and rules that say nothing, come to.

use std::sync::Arc;

use component::state::States;
use message::{CertificateSource, ClientCertificate};

use crate::testing::{Worker, door, down, request, run};

#[test]
fn rules_that_match_nothing_are_refused() {
    for (rule, part) in [
        ("subject: ''", "subject"),
        ("dns: '*.'", "dns"),
        ("uri: 'spiffe://*'", "uri"),
        ("email: shop", "email"),
        ("fingerprint: 'ab:cd'", "fingerprint"),
        ("issuer: us", "issuer"),
        ("uri: []", "empty"),
    ] {
        let yaml = format!("ways: {{ us: {{ mtls: {{ {rule} }} }} }}\nauth: us\n");
        let problems = door(&yaml, &States::default()).err().unwrap_or_default();
        let text = problems.concat();
        assert!(
            text.starts_with("IT0700") && text.contains(part),
            "{rule}: {text}"
        );
    }
    let twice = "ways: { a: { mtls: {}, pass: true } }\nauth: a\n";
    assert!(door(twice, &States::default()).is_err());
}

#[test]
fn malformed_certificates_are_refused() {
    let door = door("ways: { us: { mtls: {} } }\nauth: us\n", &States::default()).unwrap();
    assert!(door.reads_certificate());
    let nobody = |_: &message::Request| (std::time::Duration::ZERO, down());
    run(nobody, |worker: Worker| async move {
        let ask = async |source: Option<CertificateSource>| {
            let mut request = request(&[]);
            request.certificate = source.map(|it| Arc::new(ClientCertificate::new(it)));
            let refused = worker.judge(&*door, &request).await.unwrap_err();
            (
                refused.status,
                refused.headers.get("WWW-Authenticate").is_some(),
            )
        };
        let field = |it: &str| Some(CertificateSource::Field(it.as_bytes().to_vec()));
        assert_eq!(ask(None).await, (403, false));
        assert_eq!(
            ask(Some(CertificateSource::Handshake(vec![0x30, 0]))).await,
            (403, false)
        );
        assert_eq!(ask(field(":MAA=:")).await, (403, false));
        for wrong in ["", "MAA=", ":MAA=:, :MAA=:", ":MAA:"] {
            assert_eq!(ask(field(wrong)).await, (400, false), "{wrong}");
        }
    });
}
