//! The differential test: odd requests go through the proxy to a back end that believes nothing.

use testkit::odd_requests::{all, verdict};
use testkit::{RawClient, StrictBackend};

use crate::support::Proxy;

#[test]
fn every_odd_request_is_refused_or_arrives_as_what_it_is() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut wrong = Vec::new();
    for odd in all() {
        backend.clear();
        let mut client = RawClient::connect(proxy.port);
        client.send(&odd.bytes);
        client.finish_after_reply();
        let answer = client.rest();
        if let Err(problem) = verdict(&odd, &backend, &answer) {
            wrong.push(format!("{} | {}: {problem}", odd.category, odd.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        all().len(),
        wrong.join("\n")
    );
    proxy.wait_until_idle();
}

#[test]
fn odd_requests_in_small_pieces_are_judged_alike() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut wrong = Vec::new();
    for odd in all()
        .into_iter()
        .filter(|odd| odd.bytes.len() < 400)
        .step_by(3)
    {
        backend.clear();
        let mut client = RawClient::connect(proxy.port);
        client.send_slowly(&odd.bytes, 7, std::time::Duration::from_micros(200));
        client.finish_after_reply();
        let answer = client.rest();
        if let Err(problem) = verdict(&odd, &backend, &answer) {
            wrong.push(format!("{} | {}: {problem}", odd.category, odd.name));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
