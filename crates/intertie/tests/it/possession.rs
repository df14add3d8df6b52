//! Tokens that are bound to keys: DPoP (RFC 9449).

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use testkit::{Response, StrictBackend, TempDir};

use crate::auth::{Issuer, Signer, ask, base64, now, run};

/// The thumbprint of a key (RFC 7638).
fn thumbprint(key: &Signer) -> String {
    let x = key.jwk()["x"].as_str().unwrap().to_owned();
    let text = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    base64(digest(&SHA256, text.as_bytes()).as_ref())
}

/// A proof by a key with these claims beside `iat` and `ath`.
fn proof(key: &Signer, token: &str, claims: &Value) -> String {
    let mut all = json!({
        "iat": now(),
        "ath": base64(digest(&SHA256, token.as_bytes()).as_ref()),
    });
    let members = all.as_object_mut().unwrap();
    members.extend(claims.as_object().unwrap().clone());
    let mut jwk = key.jwk();
    jwk.as_object_mut().unwrap().remove("kid");
    let header = json!({ "alg": "EdDSA", "typ": "dpop+jwt", "jwk": jwk });
    let signed = format!(
        "{}.{}",
        base64(header.to_string().as_bytes()),
        base64(all.to_string().as_bytes())
    );
    let signature = key.pair.sign(signed.as_bytes());
    format!("{signed}.{}", base64(signature.as_ref()))
}

struct Client {
    port: u16,
    key: Signer,
    token: String,
}

impl Client {
    fn send(&self, path: &str, proof: &str, more: &[(&str, &str)]) -> Response {
        let authorization = format!("DPoP {}", self.token);
        let mut fields = vec![("Authorization", &*authorization), ("DPoP", proof)];
        fields.extend(more);
        ask(self.port, &format!("GET {path}"), &fields)
    }

    fn proof(&self, url: &str, id: &str) -> String {
        let claims = json!({ "htm": "GET", "htu": url, "jti": id });
        proof(&self.key, &self.token, &claims)
    }

    fn bearer(&self, path: &str, token: &str) -> Response {
        let authorization = format!("Bearer {token}");
        ask(
            self.port,
            &format!("GET {path}"),
            &[("Authorization", &authorization)],
        )
    }
}

#[test]
fn a_bound_token_is_taken_with_a_fresh_proof_for_this_request_only() {
    let signer = Signer::new("a");
    let (issuer, backend) = (Issuer::new(&[&signer]), StrictBackend::start());
    let (url, back) = (issuer.url(), backend.port());
    let folder = TempDir::new();
    let jwt = format!("issuer: \"{url}\", audience: shop");
    let flow = |name: &str, way: &str| {
        format!(
            "flow: {name}\nfrom: {{ http: any /{name} }}\nauth: {way}\n\
             steps: [ forward: http://127.0.0.1:{back}/ ]\n---\n"
        )
    };
    let (engine, port) = run(
        &folder,
        &format!(
            "  trusted_proxies: [127.0.0.1]\n  auth:\n    both: {{ jwt: {{ {jwt}, dpop: true }} }}\n    \
             only: {{ jwt: {{ {jwt}, dpop: required }} }}\n    \
             kept: {{ jwt: {{ {jwt}, dpop: true }}, pass: true }}\n    \
             plain: {{ jwt: {{ {jwt} }} }}\n"
        ),
        &format!(
            "{}{}{}{}flow: message\nfrom: {{ http: any /message }}\nauth: both\n\
             steps: [ map: '[$auth.id, $headers.dpop, $headers.authorization]' ]\n",
            flow("both", "both"),
            flow("only", "only"),
            flow("kept", "kept"),
            flow("plain", "plain")
        ),
    );
    let key = Signer::new("client");
    let token = signer.token(&url, json!({ "cnf": { "jkt": thumbprint(&key) } }));
    let client = Client { port, key, token };
    let at = |path: &str| format!("http://test{path}");

    assert_eq!(
        client
            .send("/both?a=1", &client.proof(&at("/both"), "1"), &[])
            .status,
        200
    );
    let seen = backend.requests().pop().unwrap();
    assert_eq!(
        (seen.header("Authorization"), seen.header("DPoP")),
        (None, None)
    );
    let message = client.send("/message", &client.proof(&at("/message"), "1b"), &[]);
    assert_eq!(message.text(), r#"["ann",null,null]"#);
    let passed = client.proof(&at("/kept"), "2");
    assert_eq!(client.send("/kept", &passed, &[]).status, 200);
    assert_eq!(
        backend.requests().pop().unwrap().header("DPoP"),
        Some(&*passed)
    );

    // The same proof once more, whichever worker gets it.
    for _ in 0..4 {
        let again = client.send("/kept", &passed, &[]);
        assert_eq!(again.status, 401);
        let challenges = again.all("WWW-Authenticate").concat();
        assert!(
            challenges.contains(r#"error="invalid_dpop_proof""#),
            "{challenges}"
        );
        assert!(challenges.contains(r#"algs="ES256 "#), "{challenges}");
    }
    // What the client has asked for is what the proxy says.
    let forwarded = [
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "api.example"),
    ];
    let public = client.proof("https://api.example/both", "3");
    assert_eq!(client.send("/both", &public, &forwarded).status, 200);
    let twice = [
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "api.example"),
        ("X-Forwarded-Host", "evil.example"),
    ];
    let public = client.proof("https://api.example/both", "3b");
    assert_eq!(client.send("/both", &public, &twice).status, 401);

    let other = Signer::new("thief");
    let claims = |change: Value| {
        let mut all = json!({ "htm": "GET", "htu": at("/both"), "jti": now().to_string() });
        all.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        proof(&client.key, &client.token, &all)
    };
    for (name, wrong) in [
        ("another path", client.proof(&at("/only"), "4")),
        ("another host", client.proof("http://other/both", "5")),
        ("another scheme", client.proof("https://test/both", "6")),
        ("another method", claims(json!({ "htm": "POST" }))),
        ("old", claims(json!({ "iat": now() - 120 }))),
        ("of the future", claims(json!({ "iat": now() + 120 }))),
        ("another token's", claims(json!({ "ath": "x" }))),
        ("no proof", "nonsense".to_owned()),
        (
            "another key's",
            proof(
                &other,
                &client.token,
                &json!({ "htm": "GET", "htu": at("/both"), "jti": "7" }),
            ),
        ),
    ] {
        assert_eq!(client.send("/both", &wrong, &[]).status, 401, "{name}");
    }
    // A bound token is no bearer's, and a bearer's token is not bound by a proof.
    let free = signer.token(&url, json!({}));
    for path in ["/both", "/only", "/plain"] {
        assert_eq!(client.bearer(path, &client.token).status, 401, "{path}");
    }
    assert_eq!(client.bearer("/both", &free).status, 200);
    assert_eq!(client.bearer("/plain", &free).status, 200);
    let refused = client.bearer("/only", &free);
    assert_eq!(refused.status, 401);
    let challenges = refused.all("WWW-Authenticate").concat();
    assert!(
        challenges.starts_with("DPoP ") && !challenges.contains("Bearer"),
        "{challenges}"
    );
    assert_eq!(
        client
            .send("/only", &client.proof(&at("/only"), "8"), &[])
            .status,
        200
    );
    let no_proof = ask(
        port,
        "GET /both",
        &[("Authorization", &format!("DPoP {}", client.token))],
    );
    assert_eq!(no_proof.status, 401);
    engine.stop();
}
