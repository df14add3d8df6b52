//! Endpoints that are behind locks of their own: OAuth2, and certificates of clients.

use std::sync::atomic::AtomicUsize;

use testkit::ClientNames;

use super::*;
use crate::outbound::system;
use crate::support::TlsFolder;

#[test]
fn an_endpoint_gets_a_token_and_another_one_when_that_is_refused() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let receiver = system(&revoked);
    let port = receiver.port();
    let settings = format!(
        "payload: event\nuse:\n  shop:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ oauth2: \
         {{ token_url: \"http://127.0.0.1:{port}/token\", client_id: me, client_secret: \
         s3cr3t-99 }} }}"
    );
    let place = Place::with(&settings, &endpoint("shop", "shop:/hook", QUICK));
    let engine = place.run();
    let of = |target: &str| {
        let requests = receiver.requests();
        let requests = requests.into_iter().filter(|it| it.target == target);
        requests.collect::<Vec<_>>()
    };
    let with = |token: &str| {
        let taken = of("/hook").into_iter();
        let taken = taken.filter(|it| it.header("authorization") == Some(token));
        taken.map(|it| text(&it)).collect::<Vec<_>>()
    };
    place.publish_all(0..3);
    wait_long("they are sent with a token", || {
        with("Bearer 1") == ["0", "1", "2"]
    });
    assert_eq!(of("/token").len(), 1);
    revoked.store(1, Ordering::Relaxed);
    place.publish_all(3..5);
    wait_long("they are sent with another one", || {
        with("Bearer 2") == ["3", "4"]
    });
    assert_eq!(
        with("Bearer 1").len(),
        4,
        "a refused token is not shown again"
    );
    let hooks = of("/hook");
    assert!(
        hooks
            .iter()
            .all(|it| it.header("webhook-signature") == Some(&*signature(SECRET, it)))
    );
    assert_eq!(measure(&engine, "refused_total", "shop"), 0.0);
    let log = engine.stop();
    assert!(!log.contains("s3cr3t"), "{log}");
}

#[test]
fn an_endpoint_shows_the_certificate_that_its_receiver_asks_for() {
    let sink = Sink::good();
    let (receiver, port) = (TlsFolder::new(), free_port());
    for (name, uri) in [("ours", "spiffe://us/shop"), ("other", "spiffe://us/other")] {
        let names = ClientNames {
            uris: &[uri],
            ..ClientNames::default()
        };
        receiver.put(name, &receiver.authority.issue_client(&names));
    }
    let door = receiver.run(&format!(
        "engine: {{ auth: {{ shops: {{ mtls: {{ uri: spiffe://us/shop }} }} }} }}\n---\n\
         flow: hook\nfrom:\n  http:\n    method: POST\n    listen: \"localhost:{port}\"\n    path: \
         /hook/{{name}}\n    tls: {{ cert: server.pem, key: server.key, client_ca: ca.pem }}\n\
         auth: shops\nsteps: [ forward: \"{}/${{ $path.name }}\" ]\n",
        sink.url()
    ));
    let tls = |name: &str| {
        let file = |it: &str| receiver.path(it);
        format!(
            "tls: {{ ca: {}, cert: {}, key: {} }}, {QUICK}",
            file("ca.pem"),
            file(&format!("{name}.pem")),
            file(&format!("{name}.key"))
        )
    };
    let url = |name: &str| format!("https://localhost:{port}/hook/{name}");
    let place = Place::new(
        &[
            endpoint("ours", &url("ours"), &tls("ours")),
            endpoint("other", &url("other"), &tls("other")),
            endpoint(
                "none",
                &url("none"),
                &format!("tls: {{ ca: {} }}, {QUICK}", receiver.path("ca.pem")),
            ),
        ]
        .concat(),
    );
    let engine = place.run();
    place.publish_all(0..3);
    sink.wait_for(3);
    // Who is not let in for the name is refused, and a handshake that fails is no answer.
    wait_long("the others are turned away", || {
        measure(&engine, "dead_letters_total", "other") >= 3.0
            && measure(&engine, "state", "none") == 1.0
    });
    let taken = sink.accepted();
    assert!(taken.iter().all(|it| it.target == "/hook/ours"));
    assert_eq!(sink.bodies(), ["0", "1", "2"]);
    engine.stop();
    door.stop();
}
