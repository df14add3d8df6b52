//! Keys and entries of files that are withdrawn: their credentials open nothing more, and the
//! streams that they have opened end, whatever has been reloaded meanwhile.

use serde_json::json;
use testkit::{RawClient, TempDir, free_port, wait_until};

use crate::auth::{Issuer, Signer, bearer, now};
use crate::support::Engine;

/// A topic whose subscribers show credentials.
struct Site {
    folder: TempDir,
    port: u16,
    engine: Option<Engine>,
}

/// A set of public keys.
fn set(signers: &[&Signer]) -> String {
    let keys: Vec<_> = signers.iter().map(|it| it.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

impl Site {
    fn new() -> Self {
        Self {
            folder: TempDir::new(),
            port: free_port(),
            engine: None,
        }
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// Runs it with these ways, or has it go on with them.
    fn run(&mut self, names: &str, ways: &str) {
        let text = format!(
            "engine:\n  listen: \"127.0.0.1:{}\"\n  audit: {{ file: audit.log }}\n\
             \x20 auth:\n{ways}---\n\
             topic: news\npayload: event\npublish: {{ http: POST /news }}\n\
             subscribe: {{ auth: {{ any: [{names}] }} }}\n",
            self.port
        );
        self.folder.write("flows.yaml", &text);
        match &self.engine {
            None => self.engine = Some(Engine::run(&[self.folder.path()], &[])),
            Some(engine) => {
                let count = || engine.process.output().matches("\"reloaded\"").count();
                let before = count();
                engine.process.signal("HUP");
                wait_until("it has reloaded", || count() > before);
            }
        }
    }

    /// Subscribes with this field; none when it is refused.
    fn subscribe(&self, (name, value): (&str, &str)) -> Option<RawClient> {
        let mut client = RawClient::connect(self.port);
        client.send(format!(
            "GET /topics/sse?topic=news HTTP/1.1\r\nHost: a\r\n{name}: {value}\r\n\r\n"
        ));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        head.starts_with("HTTP/1.1 200").then_some(client)
    }

    /// The same with a token of this issuer.
    fn show(&self, signer: &Signer, issuer: &str) -> Option<RawClient> {
        let (name, value) = bearer(&signer.token(issuer, json!({})));
        self.subscribe((name, &value))
    }

    fn opens(&self, signer: &Signer, issuer: &str) -> bool {
        self.show(signer, issuer).is_some()
    }

    /// That a stream is open still, and gets what is published.
    fn is_open(&self, stream: &mut RawClient) {
        let mut publisher = RawClient::connect(self.port);
        publisher.send("POST /news HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
        let published = publisher.response();
        assert!(published.status < 300, "{}", published.text());
        let told = String::from_utf8(stream.until(b"data:")).unwrap();
        assert!(!told.contains("event: revoked"), "{told}");
    }

    fn stop(self) -> String {
        self.engine.unwrap().stop();
        std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap()
    }
}

/// That a stream ends because its credential is good no more.
fn is_revoked(mut stream: RawClient) {
    let rest = String::from_utf8(stream.until(b"\r\n0\r\n\r\n")).unwrap();
    assert!(rest.contains("event: revoked\ndata: {"), "{rest:?}");
}

#[test]
fn a_key_that_is_withdrawn_takes_tokens_and_streams_along() {
    let (leaked, good) = (Signer::new("1"), Signer::new("2"));
    let issuer = Issuer::new(&[&leaked, &good]);
    let url = issuer.url();
    let mut site = Site::new();
    site.folder.write("keys.json", &set(&[&leaked, &good]));
    site.run(
        "fetched, written",
        &format!(
            "    fetched: {{ jwt: {{ issuer: \"{url}\", audience: shop }} }}\n\
             \x20   written: {{ jwt: {{ issuer: id, audience: shop, jwks: keys.json }} }}\n"
        ),
    );
    wait_until("the keys are there", || site.opens(&leaked, &url));
    for (name, is_file) in [("id", true), (&*url, false)] {
        let stream = site.show(&leaked, name).unwrap();
        let mut other = site.show(&good, name).unwrap();
        match is_file {
            true => {
                site.folder.write("keys.json", "{}");
                wait_until("the problem is told", || {
                    let told = site.engine().process.output();
                    told.contains("the keys stay as they are")
                });
                assert!(site.opens(&leaked, "id"));
                site.folder.write("keys.json", &set(&[&good]));
            }
            false => {
                issuer.publish(&[&good]);
                // A token with a key that nobody knows has the keys fetched.
                let unknown = Signer::new("3");
                wait_until("the key is gone", || {
                    !site.opens(&unknown, &url) && !site.opens(&leaked, &url)
                });
            }
        }
        is_revoked(stream);
        assert!(!site.opens(&leaked, name) && site.opens(&good, name));
        site.is_open(&mut other);
    }
    site.folder.write("keys.json", &set(&[&good, &leaked]));
    wait_until("the key is back", || site.opens(&leaked, "id"));
    // Who empties the file means it.
    site.folder.write("keys.json", &set(&[]));
    wait_until("all keys are gone", || !site.opens(&good, "id"));
    assert!(site.opens(&good, &url), "another way");
    let audit = site.stop();
    for part in ["1 (EdDSA)", "\"reason\":\"removed\""] {
        assert!(audit.contains(part), "{audit}");
    }
}

/// Streams of an earlier plan go by what the way has now: another file, other keys, another secret.
#[test]
fn streams_outlive_a_reload_only_with_what_it_admits() {
    let (leaked, good) = (Signer::new("1"), Signer::new("2"));
    let made = |id: &str| access::api_keys::ApiKey::generate(id, now()).unwrap();
    let ((shop, shop_line), (desk, desk_line)) = (made("shop"), made("desk"));
    let lines = format!("{}\n{}\n", shop_line.to_line(), desk_line.to_line());
    let mut site = Site::new();
    site.folder.write("one.json", &set(&[&leaked, &good]));
    site.folder.write("two.json", &set(&[&leaked, &good]));
    site.folder.write("one.keys", &lines);
    site.folder.write("two.keys", &lines);
    let ways = |keys: &str, more: &str, partners: &str| {
        format!(
            "    written: {{ jwt: {{ issuer: id, audience: shop, jwks: {keys}{more} }} }}\n\
             \x20   partners: {{ api_key: {{ keys: {partners} }} }}\n"
        )
    };
    let names = "written, partners";
    site.run(names, &ways("one.json", "", "one.keys"));
    let (old, mut stays) = (
        site.show(&leaked, "id").unwrap(),
        site.show(&good, "id").unwrap(),
    );
    let old_key = site.subscribe(("X-Api-Key", &shop)).unwrap();
    let mut stays_key = site.subscribe(("X-Api-Key", &desk)).unwrap();
    site.run(names, &ways("two.json", "", "two.keys"));
    let new = site.show(&leaked, "id").unwrap();
    site.is_open(&mut stays);
    site.is_open(&mut stays_key);
    // What the way has gone by before changes nothing any more.
    site.folder.write("one.json", &set(&[]));
    site.folder.write("two.json", &set(&[&good]));
    site.folder.write("two.keys", &desk_line.to_line());
    is_revoked(old);
    is_revoked(new);
    is_revoked(old_key);
    site.is_open(&mut stays);
    site.is_open(&mut stays_key);
    // A file that has changed meanwhile is read at once when a reload comes back to it.
    site.folder.write("one.json", &set(&[&leaked, &good]));
    site.run(names, &ways("one.json", "", "one.keys"));
    let again = site.show(&leaked, "id").unwrap();
    site.run(names, &ways("one.json", ", algorithm: PS256", "one.keys"));
    site.folder.write("one.json", &set(&[&good]));
    is_revoked(again);
    site.run(names, &ways("one.json", "", "one.keys"));
    assert!(!site.opens(&leaked, "id"));
    site.is_open(&mut stays);
    site.run(
        names,
        "    written:\n      jwt:\n        issuer: id\n        audience: shop\n\
         \x20       secret: a-secret-of-more-than-32-bytes-in-all\n\
         \x20   partners: { api_key: { keys: one.keys } }\n",
    );
    is_revoked(stays);
    site.stop();
}
