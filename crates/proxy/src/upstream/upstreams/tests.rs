//! Which upstream a plan gets, and with which TLS.

use std::time::Duration;

use component::tls::UpstreamTls;
use net::deadline::Deadline;
use net::tls::{ClientSettings, MinVersion, Pin, Protocol as TlsProtocol, Trust};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::relay::failure::Failure;
use crate::upstream::{Attempt, Patience};
use component::egress::{Origins as Templates, Scheme};
use component::networks::NetworkList;

const CONNECT: Duration = Duration::from_secs(2);

fn client(name: &str) -> tls::Client {
    let settings = ClientSettings {
        trust: Trust::Pinned(vec![Pin([0; 32])]),
        identity: None,
        protocols: vec![TlsProtocol::Http1],
        min_version: MinVersion::Tls12,
    };
    tls::Client::new(name, settings).unwrap()
}

fn upstreams() -> Upstreams {
    Upstreams::new(&Arc::default(), &Deadlines::new(), &Arc::default())
}

fn plan_of(upstreams: &[&Arc<UpstreamPlan>], settings: Settings) -> Plan {
    Plan {
        upstreams: upstreams.iter().copied().cloned().collect(),
        settings,
        ..Plan::default()
    }
}

fn table(plan: &Arc<UpstreamPlan>, client: &tls::Client) -> Arc<TlsTable> {
    Arc::new(TlsTable {
        clients: vec![(Arc::clone(plan), vec![client.clone()])],
        ..TlsTable::default()
    })
}

fn secure(host: &str, port: u16) -> Arc<UpstreamPlan> {
    UpstreamPlan::single(host, port, Some(UpstreamTls::default())).into()
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(test);
}

async fn lend(upstream: &Rc<Upstream>, deadline: &Deadline) -> Result<(), Failure> {
    let (mut attempt, now) = (Attempt::new(0), Instant::now());
    let patience = Patience {
        deadline,
        connect: CONNECT,
    };
    let lease = match upstream.take_idle(now, &mut attempt, CONNECT)? {
        Ok(_) => return Ok(()),
        Err(lease) => lease,
    };
    upstream.wait(lease, &mut attempt, patience).await.map(drop)
}

#[test]
fn a_request_that_began_before_a_reload_keeps_the_tls_of_its_plan() {
    let upstreams = upstreams();
    let (before, after) = (secure("a.example", 443), secure("b.example", 443));
    let (old, new) = (client("a.example"), client("b.example"));
    upstreams.update(
        &plan_of(&[&before], Settings::default()),
        &table(&before, &old),
    );
    upstreams.update(
        &plan_of(&[&after], Settings::default()),
        &table(&after, &new),
    );
    // It is the first one on this worker: nothing is there yet.
    let upstream = upstreams.get(&before);
    assert!(upstream.members()[0].endpoint.has_tls(Some(&old)));
    assert!(
        upstreams
            .get(&after)
            .members()
            .iter()
            .all(|it| it.endpoint.has_tls(Some(&new)))
    );
    // Tables go with the last of their plans.
    drop((upstream, before));
    upstreams.prune(Instant::now());
    upstreams.prune(Instant::now());
    assert!(upstreams.earlier_tls.borrow().is_empty());
}

#[test]
fn without_its_tls_nothing_is_sent_in_clear_text() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            bytes
        });
        let upstreams = upstreams();
        let upstream = upstreams.get(&secure("127.0.0.1", port));
        let deadline = upstreams.deadlines.add();
        let failure = lend(&upstream, &deadline).await.unwrap_err();
        assert!(matches!(failure, Failure::Connect(_)), "{failure:?}");
        drop((upstream, upstreams));
        received.abort();
        assert!(received.await.is_err(), "nobody was connected to");
    });
}

fn templates() -> (Templates, Settings) {
    let mut loopback = NetworkList::default();
    loopback.add("127.0.0.0/8").unwrap();
    let schemes = vec![Scheme::Https, Scheme::Http];
    let ports = (1..=u16::MAX).collect();
    let policy = Policy::new(loopback, NetworkList::default(), ports, schemes);
    let settings = Settings {
        egress: Arc::new(policy),
        ..Settings::default()
    };
    (Templates::new(UpstreamTls::default(), None), settings)
}

#[test]
fn upstreams_of_urls_are_kept_by_host_and_port() {
    let upstreams = upstreams();
    let (templates, settings) = templates();
    let policy = Arc::clone(&settings.egress);
    let template = templates.template();
    let pinned = client("template.invalid");
    upstreams.update(&plan_of(&[template], settings), &table(template, &pinned));
    assert!(upstreams.loop_id().is_some());
    let get = |url: &str| {
        let plan = templates.plan(&policy.target(url).unwrap());
        upstreams.get(&plan.upstream)
    };
    let first = get("https://a.example/one");
    let own = pinned.for_name("a.example").unwrap();
    assert!(first.members()[0].endpoint.has_tls(Some(&own)));
    assert!(Rc::ptr_eq(&first, &get("https://A.example:443/two?x")));
    for other in [
        "http://a.example:443/",
        "https://b.example/",
        "https://a.example:444/",
    ] {
        assert!(!Rc::ptr_eq(&first, &get(other)), "{other}");
    }
    let clear = get("http://a.example/");
    assert!(clear.members()[0].endpoint.has_tls(None));
    // Another step has other settings.
    let (others, _) = self::templates();
    let plan = others.plan(&policy.target("https://a.example/").unwrap());
    assert!(!Rc::ptr_eq(&first, &upstreams.get(&plan.upstream)));
    assert!(upstreams.known.borrow().is_empty());
    assert_eq!(upstreams.origins.count(), 6);
    drop(clear);
    // Nobody has connections; one is still in use.
    upstreams.prune(Instant::now());
    assert_eq!(upstreams.origins.count(), 1);
    assert!(Rc::ptr_eq(&first, &get("https://a.example/")));
    drop(first);
    upstreams.prune(Instant::now());
    assert_eq!(upstreams.origins.count(), 0);
}

#[test]
fn there_are_no_more_upstreams_of_urls_than_may_be() {
    let upstreams = Upstreams {
        origins: Origins::with_max(16),
        ..upstreams()
    };
    let (templates, settings) = templates();
    let policy = Arc::clone(&settings.egress);
    upstreams.update(&plan_of(&[templates.template()], settings), &Arc::default());
    let get = |number: usize| {
        let url = format!("http://host-{number}.example/");
        let plan = templates.plan(&policy.target(&url).unwrap());
        upstreams.get(&plan.upstream)
    };
    let used: Vec<Rc<Upstream>> = (0..4).map(get).collect();
    for number in 4..100 {
        drop(get(number));
        assert!(upstreams.origins.count() <= 16, "{number}");
    }
    // Those with requests under way stay.
    for (number, upstream) in used.iter().enumerate() {
        assert!(Rc::ptr_eq(upstream, &get(number)), "{number}");
    }
    let all: Vec<Rc<Upstream>> = (0..40).map(get).collect();
    assert_eq!(upstreams.origins.count(), 16);
    // One that finds no room is there for its request.
    let last = all.last().unwrap();
    assert_eq!(Rc::strong_count(last), 1);
    assert!(!Rc::ptr_eq(last, &get(39)));
}

#[test]
fn connections_to_urls_of_one_host_are_limited() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstreams = upstreams();
        tokio::task::spawn_local(upstreams.deadlines.clone().sweep());
        let (templates, settings) = templates();
        let policy = Arc::clone(&settings.egress);
        let limits = ConnectionLimits {
            limit: Some(2),
            queue_time: Duration::from_millis(50),
            ..ConnectionLimits::default()
        };
        let templates = templates.with_connections(limits);
        upstreams.update(&plan_of(&[templates.template()], settings), &Arc::default());
        let url = format!("http://127.0.0.1:{port}/");
        let plan = templates.plan(&policy.target(&url).unwrap());
        let upstream = upstreams.get(&plan.upstream);
        let mut lent = Vec::new();
        for _ in 0..2 {
            let deadline = upstreams.deadlines.add();
            let mut attempt = Attempt::new(0);
            let taken = upstream.take_idle(Instant::now(), &mut attempt, CONNECT);
            let Ok(Err(lease)) = taken else {
                panic!("nothing is idle");
            };
            let patience = Patience {
                deadline: &deadline,
                connect: CONNECT,
            };
            lent.push(upstream.wait(lease, &mut attempt, patience).await.unwrap());
        }
        let deadline = upstreams.deadlines.add();
        let failure = lend(&upstream, &deadline).await.unwrap_err();
        assert!(matches!(failure, Failure::QueueFull), "{failure:?}");
    });
}
