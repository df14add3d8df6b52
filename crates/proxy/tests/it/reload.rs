//! Connections that were accepted before a reload.

use std::sync::Arc;

use component::plan::RouteTarget;
use component::settings::Settings;
use net::tls;
use testkit::{Authority, RawClient};

use crate::support::{Echo, Proxy, tls_server};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn target() -> RouteTarget {
    RouteTarget::Handle {
        handler: Arc::new(Echo { reads_body: true }),
        body_max: 1000,
    }
}

fn kept(proxy: &Proxy) -> RawClient {
    let mut client = proxy.client();
    client.send(REQUEST);
    assert_eq!(client.response().status, 200);
    client
}

#[test]
fn clear_text_connections_end_when_their_address_asks_for_tls() {
    let proxy = Proxy::both(target());
    let mut idle = kept(&proxy);
    let mut uploading = proxy.client();
    uploading.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx");
    let mut h2 = proxy.client();
    h2.send(PREFACE);
    // Settings, and the acknowledgement of ours.
    h2.until(&[4, 1, 0, 0, 0, 0]);
    proxy.serve(target(), Settings::default(), Vec::new());
    idle.send(REQUEST);
    assert_eq!(idle.response().status, 200, "other routes end nothing");
    let secure = tls_server(&Authority::new("ours"), tls::ClientAuth::None);
    proxy.serve_tls(target(), Settings::default(), Some(secure));
    assert!(idle.is_closed());
    uploading.send("y");
    let reply = uploading.response();
    assert_eq!(
        (reply.status, reply.header("connection")),
        (200, Some("close"))
    );
    assert!(uploading.is_closed());
    // GOAWAY for a stream that is far away, and a PING that tells when the client has read it.
    let goodbye = h2.until(b"goodbye!");
    assert!(goodbye.windows(2).any(|it| it == [7, 0]), "{goodbye:?}");
    // Whoever comes now must speak TLS.
    let mut late = proxy.client();
    late.send(REQUEST);
    assert!(!late.rest().starts_with(b"HTTP/"));
}
