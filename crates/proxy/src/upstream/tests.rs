//! Lending over real sockets in one task's view: waits that are dropped, and names that cannot be
//! looked up.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use component::egress::{Policy, Scheme};
use component::networks::NetworkList;
use component::upstream::{Balance, Egress, EndpointPlan, HashKey};
use message::Method;
use net::deadline::Deadline;
use net::endpoint::{EndpointConfig, Security};
use net::http1::{ClientExchange, End, HeadLimits, ResponseHead};
use net::resolve::{LookUp, Resolver};
use testkit::poll_and_drop;
use tokio::net::{TcpListener, TcpStream};

use super::*;

const CONNECT: Duration = Duration::from_secs(2);

/// Answers with these addresses; hangs while there are none.
#[derive(Debug, Default)]
struct Scripted {
    addresses: RefCell<Vec<SocketAddr>>,
    under_way: Cell<usize>,
    most: Cell<usize>,
}

impl Resolver for Scripted {
    fn look_up<'a>(&'a self, _: &'a str, port: u16) -> LookUp<'a> {
        Box::pin(async move {
            self.under_way.set(self.under_way.get() + 1);
            self.most.set(self.most.get().max(self.under_way.get()));
            while self.addresses.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.under_way.set(self.under_way.get() - 1);
            let mut found = self.addresses.borrow().clone();
            found.iter_mut().for_each(|address| address.set_port(port));
            Ok(found)
        })
    }
}

struct Setting {
    upstream: Rc<Upstream>,
    resolver: Rc<Scripted>,
    deadlines: Deadlines,
    permits: Arc<Permits>,
    accepted: Rc<Cell<usize>>,
}

impl Setting {
    /// An upstream whose back end takes connections.
    async fn new(limit: Option<usize>) -> Self {
        Self::with(limit, None).await
    }

    /// The same behind the egress guard, which allows these addresses.
    async fn guarded(allow: &[&str]) -> Self {
        Self::with(None, Some(allow)).await
    }

    async fn with(limit: Option<usize>, allow: Option<&[&str]>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Rc::<Cell<usize>>::default();
        let count = Rc::clone(&accepted);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.set(count.get() + 1);
                tokio::task::spawn_local(answer(stream));
            }
        });
        let resolver = Rc::<Scripted>::default();
        resolver
            .addresses
            .borrow_mut()
            .push(([127, 0, 0, 1], 0).into());
        let mut plan = UpstreamPlan::single("name.example", port, None);
        plan.connections.limit = limit;
        plan.connections.resolve = Duration::from_millis(1);
        let mut settings = Settings::default();
        if let Some(allow) = allow {
            plan.egress = Egress::Guarded(None);
            settings.egress = Arc::new(policy(allow, port));
        }
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let permits = Permits::new(limit);
        let endpoint = Endpoint::new(EndpointConfig {
            host: "name.example",
            port,
            security: Security::Clear,
            may_h1: true,
            may_h2: false,
            resolve: plan.connections.resolve,
            resolver: Rc::clone(&resolver) as _,
            guard: upstreams::guard(&plan, &settings),
        });
        let member = MemberSetup {
            endpoint,
            down: Arc::default(),
            permits: Arc::clone(&permits),
            may_h1: true,
            may_h2: false,
        };
        let upstream = Upstream::new(UpstreamSetup {
            plan: &Arc::new(plan),
            settings,
            endpoints: vec![member],
            queue: Arc::default(),
            deadlines: &deadlines,
            metrics: &Arc::default(),
        });
        Self {
            upstream: Rc::new(upstream),
            resolver,
            deadlines,
            permits,
            accepted,
        }
    }

    async fn lend(&self) -> Result<(Box<Connection>, Lease), Failure> {
        let deadline = self.deadlines.add();
        self.lend_within(&deadline).await
    }

    async fn lend_within(&self, deadline: &Deadline) -> Result<(Box<Connection>, Lease), Failure> {
        let mut attempt = Attempt::new(0);
        let patience = Patience {
            deadline,
            connect: CONNECT,
        };
        let (upstream, now) = (&self.upstream, Instant::now());
        let lent = match upstream.take_idle(now, &mut attempt, CONNECT)? {
            Ok(lent) => lent,
            Err(lease) => upstream.wait(lease, &mut attempt, patience).await?,
        };
        let Lent { line, lease, .. } = lent;
        match line {
            Line::Http1(connection) => Ok((connection, lease)),
            Line::Http2(_) => panic!("HTTP/2 is not offered"),
        }
    }

    /// Uses it for a request and puts it back.
    async fn keep(&self, (connection, lease): (Box<Connection>, Lease)) {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let mut exchange = ClientExchange::begin(connection, request, false);
        let mut head = ResponseHead::default();
        let limits = HeadLimits {
            bytes: 1000,
            fields: 10,
        };
        poll_fn(|context| {
            let sent = exchange.poll_accept(context, &[], End::End(None));
            assert!(matches!(sent, Poll::Ready(Ok(0))));
            let _ = exchange.poll_flush(context);
            exchange.poll_head(context, &mut head, &Method::Get, limits)
        })
        .await
        .unwrap();
        exchange.begin_body(&head, limits, false);
        lease.answered();
        lease.keep(exchange.release().unwrap(), Instant::now());
    }

    fn in_flight(&self) -> u32 {
        self.upstream.members[0].in_flight.get()
    }

    /// Lets tasks run until there is an idle connection, and nothing else.
    async fn rests(&self) {
        for _ in 0..2000 {
            if self.upstream.under_way(0) == (0, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("a permit or a count is lost: {}", self.permits.used());
    }
}

/// A policy that allows clear text to these addresses on this port.
fn policy(allow: &[&str], port: u16) -> Policy {
    let mut list = NetworkList::default();
    for network in allow {
        list.add(network).unwrap();
    }
    let schemes = vec![Scheme::Http];
    Policy::new(list, NetworkList::default(), vec![port], schemes)
}

/// Answers every request.
async fn answer(stream: TcpStream) {
    let mut piece = [0; 1000];
    loop {
        stream.readable().await.unwrap();
        match stream.try_read(&mut piece) {
            Ok(count) if count > 0 => {
                let reply = b"HTTP/1.1 204 No Content\r\n\r\n";
                assert_eq!(stream.try_write(reply).unwrap(), reply.len());
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(test);
}

#[test]
fn a_wait_for_a_new_connection_may_be_dropped_anywhere() {
    run(async {
        let mut was_ready = false;
        let mut times = 0;
        while !was_ready {
            let setting = Setting::new(Some(1)).await;
            was_ready = poll_and_drop(setting.lend(), times, || {
                tokio::time::sleep(Duration::from_millis(1))
            })
            .await;
            setting.rests().await;
            let lent = setting.lend().await.unwrap();
            assert_eq!(setting.in_flight(), 1);
            setting.keep(lent).await;
            assert_eq!((setting.in_flight(), setting.permits.used()), (0, 1));
            times += 1;
        }
        assert!(times > 1);
    });
}

#[test]
fn a_wait_in_the_queue_may_be_dropped_anywhere() {
    run(async {
        for times in 0..6 {
            for is_granted in [false, true] {
                let setting = Setting::new(Some(1)).await;
                let first = setting.lend().await.unwrap();
                let mut second = Box::pin(setting.lend());
                let mut third = Box::pin(setting.lend());
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..times {
                    assert!(second.as_mut().poll(&mut context).is_pending());
                    assert!(third.as_mut().poll(&mut context).is_pending());
                    assert_eq!(
                        setting.in_flight(),
                        1,
                        "those who wait are nowhere in flight"
                    );
                    tokio::task::yield_now().await;
                }
                if is_granted {
                    setting.keep(first).await;
                    drop(second);
                } else {
                    drop(second);
                    setting.keep(first).await;
                }
                let lent = third.await.unwrap();
                assert_eq!(setting.in_flight(), 1);
                setting.keep(lent).await;
                setting.rests().await;
                assert_eq!(setting.accepted.get(), 1);
            }
        }
    });
}

#[test]
fn a_permit_that_was_granted_and_not_taken_is_passed_on() {
    run(async {
        let setting = Setting::new(Some(1)).await;
        let first = setting.lend().await.unwrap();
        let mut second = Box::pin(setting.lend());
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        let mut third = Box::pin(setting.lend());
        assert!(third.as_mut().poll(&mut context).is_pending());
        // Its connection is closed: the permit is free, and granted from outside the pool.
        drop(first);
        drop(second);
        setting.keep(third.await.unwrap()).await;
        setting.rests().await;
    });
}

#[test]
fn a_resolver_that_hangs_takes_no_request_away() {
    run(async {
        let setting = Setting::new(None).await;
        let first = setting.lend().await.unwrap();
        setting.keep(first).await;
        setting.resolver.addresses.borrow_mut().clear();
        tokio::time::sleep(Duration::from_millis(5)).await;
        // Idle connections serve, and new ones go to the addresses that are known.
        for _ in 0..20 {
            let lending = tokio::time::timeout(Duration::from_secs(1), setting.lend());
            let one = lending.await.unwrap().unwrap();
            let other = setting.lend().await.unwrap();
            setting.keep(one).await;
            setting.keep(other).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(setting.accepted.get(), 2);
        assert_eq!(setting.resolver.most.get(), 1, "one look-up at a time");
        assert_eq!(setting.resolver.under_way.get(), 1);
    });
}

#[test]
fn connections_to_addresses_that_are_gone_are_retired() {
    run(async {
        let setting = Setting::new(None).await;
        let first = setting.lend().await.unwrap();
        setting.keep(first).await;
        *setting.resolver.addresses.borrow_mut() = vec![([127, 0, 0, 2], 0).into()];
        tokio::time::sleep(Duration::from_millis(5)).await;
        let second = setting.lend().await.unwrap();
        setting.keep(second).await;
        while setting.permits.used() > 0 {
            setting.upstream.prune(Instant::now());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(setting.upstream.pool.borrow().idle_count(0), 0);
    });
}

/// A name that leads somewhere else for each look-up, as names of attackers do.
#[derive(Debug)]
struct Rebinding {
    answers: RefCell<Vec<Vec<SocketAddr>>>,
    asked: Cell<usize>,
}

impl Resolver for Rebinding {
    fn look_up<'a>(&'a self, _: &'a str, port: u16) -> LookUp<'a> {
        self.asked.set(self.asked.get() + 1);
        let mut answers = self.answers.borrow_mut();
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        };
        let with_port = |mut it: SocketAddr| {
            it.set_port(port);
            it
        };
        let answer = answer.into_iter().map(with_port).collect();
        Box::pin(async move { Ok(answer) })
    }
}

#[test]
fn the_address_that_was_checked_is_the_one_that_is_connected_to() {
    run(async {
        let allowed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = allowed.local_addr().unwrap().port();
        let forbidden = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let to = |hosts: &[[u8; 4]]| hosts.iter().map(|it| (*it, 0).into()).collect();
        // Both at once, then only the one that is not allowed.
        let resolver = Rc::new(Rebinding {
            answers: RefCell::new(vec![
                to(&[[127, 0, 0, 2], [127, 0, 0, 1]]),
                to(&[[127, 0, 0, 2]]),
            ]),
            asked: Cell::new(0),
        });
        let mut plan = UpstreamPlan::single("rebinding.example", port, None);
        plan.egress = Egress::Guarded(None);
        let settings = Settings {
            egress: Arc::new(policy(&["127.0.0.1"], port)),
            ..Settings::default()
        };
        let endpoint = Endpoint::new(EndpointConfig {
            host: "rebinding.example",
            port,
            security: Security::Clear,
            may_h1: true,
            may_h2: false,
            resolve: Duration::from_secs(60),
            resolver: Rc::clone(&resolver) as _,
            guard: upstreams::guard(&plan, &settings),
        });
        let connect = async || {
            let setup = net::endpoint::Http2Setup {
                limits: h2_driver::http2_limits(&settings),
                freed: Rc::default(),
            };
            let permits = Permits::new(None);
            endpoint
                .connect(permits.try_acquire().unwrap(), setup, false)
                .await
        };
        for _ in 0..4 {
            let connected = connect().await.unwrap();
            let net::endpoint::NewConnection::Http1(connection) = connected else {
                panic!("HTTP/2 is not offered");
            };
            assert_eq!(connection.peer(), std::net::IpAddr::from([127, 0, 0, 1]));
        }
        assert_eq!(resolver.asked.get(), 1, "an answer serves until it is old");
        endpoint.look_up().await.unwrap();
        let error = connect().await.unwrap_err();
        assert!(net::egress::is_refusal(&error), "{error}");
        assert!(error.to_string().contains("127.0.0.2, a loopback address"));
        let arrived = tokio::time::timeout(Duration::from_millis(20), forbidden.accept()).await;
        assert!(arrived.is_err(), "nobody was connected to");
    });
}

#[test]
fn a_name_that_comes_to_lead_where_it_must_not_is_refused() {
    run(async {
        let setting = Setting::guarded(&["127.0.0.1"]).await;
        let first = setting.lend().await.unwrap();
        setting.keep(first).await;
        *setting.resolver.addresses.borrow_mut() = vec![([127, 0, 0, 2], 0).into()];
        tokio::time::sleep(Duration::from_millis(5)).await;
        // The look-up is in the background: until its answer is there the address is the old one.
        let failure = loop {
            match setting.lend().await {
                Ok(lent) => setting.keep(lent).await,
                Err(failure) => break failure,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let Failure::Connect(error) = failure else {
            panic!("{failure:?}");
        };
        assert!(net::egress::is_refusal(&error), "{error}");
        let metrics = &setting.upstream.metrics;
        assert_eq!(metrics.egress_refused.get(), 1);
    });
}

#[test]
fn connections_end_when_a_reload_forbids_where_they_lead() {
    run(async {
        let setting = Setting::guarded(&["127.0.0.0/8"]).await;
        let (one, other) = (setting.lend().await.unwrap(), setting.lend().await.unwrap());
        setting.keep(one).await;
        assert_eq!(setting.upstream.idle(0), 1);
        let port = setting.upstream.plan.endpoints[0].port;
        let limits = setting.upstream.connections();
        let settings = Settings {
            egress: Arc::new(policy(&["127.0.0.2"], port)),
            ..Settings::default()
        };
        setting.upstream.update(&settings, &limits);
        assert_eq!(setting.upstream.idle(0), 0);
        // One that was in use meanwhile is not kept either.
        setting.keep(other).await;
        assert_eq!(setting.upstream.idle(0), 0);
        assert!(setting.lend().await.is_err());
        let settings = Settings {
            egress: Arc::new(policy(&["127.0.0.1"], port)),
            ..Settings::default()
        };
        setting.upstream.update(&settings, &limits);
        let again = setting.lend().await.unwrap();
        setting.keep(again).await;
    });
}

/// An upstream with these endpoints, balanced by hash, that nobody connects to.
fn hashed(hosts: &[&str]) -> Rc<Upstream> {
    let mut plan = UpstreamPlan::single(hosts[0], 80, None);
    plan.balance = Balance::Hash(HashKey::Client);
    plan.eject.failures = 1;
    plan.endpoints = hosts
        .iter()
        .map(|host| EndpointPlan {
            host: (*host).to_owned(),
            port: 80,
        })
        .collect();
    let resolver = Rc::<Scripted>::default();
    let settings = Settings::default();
    let endpoints = hosts.iter().map(|host| MemberSetup {
        endpoint: Endpoint::new(EndpointConfig {
            host,
            port: 80,
            security: Security::Clear,
            may_h1: true,
            may_h2: false,
            resolve: plan.connections.resolve,
            resolver: Rc::clone(&resolver) as _,
            guard: upstreams::guard(&plan, &settings),
        }),
        down: Arc::default(),
        permits: Permits::new(None),
        may_h1: true,
        may_h2: false,
    });
    let endpoints = endpoints.collect();
    Rc::new(Upstream::new(UpstreamSetup {
        plan: &Arc::new(plan),
        settings,
        endpoints,
        queue: Arc::default(),
        deadlines: &Deadlines::new(),
        metrics: &Arc::default(),
    }))
}

/// By its address, whatever its position: a reload that takes an endpoint away, its failure, or a
/// request that it has failed moves its own keys only.
#[test]
fn keys_stay_with_their_endpoints_when_another_one_goes() {
    let hosts = ["a.example", "b.example", "c.example"];
    let (all, rest) = (hashed(&hosts), hashed(&hosts[1..]));
    let (turned, failing) = (hashed(&["c.example", "b.example"]), hashed(&hosts));
    let now = Instant::now();
    failing.fail(0, now);
    let chosen = |upstream: &Rc<Upstream>, attempt: &Attempt| {
        let at = upstream.choose(now, attempt).at();
        upstream.plan.endpoints[at].host.clone()
    };
    let mut moved = 0;
    for number in 0..300 {
        let key = hash(format!("user-{number}").as_bytes());
        let before = chosen(&all, &Attempt::new(key));
        let failed = Attempt {
            avoid: vec![0],
            ..Attempt::new(key)
        };
        let after = chosen(&rest, &Attempt::new(key));
        moved += usize::from(before != after);
        assert!(before == after || before == hosts[0], "{key} has moved");
        assert_eq!(chosen(&turned, &Attempt::new(key)), after);
        assert_eq!(chosen(&failing, &Attempt::new(key)), after);
        assert_eq!(chosen(&all, &failed), after);
    }
    assert!(
        (60..140).contains(&moved),
        "{moved} keys were the first one's"
    );
}

/// A trial that is dropped leaves the next request to be the trial.
#[test]
fn a_cancelled_exchange_says_nothing() {
    run(async {
        let setting = Setting::new(None).await;
        let health = &setting.upstream.members[0].health;
        let lease = |now| setting.upstream.choose(now, &Attempt::new(0));
        let now = Instant::now();
        let mut plan = UpstreamPlan::clone(&setting.upstream.plan);
        plan.endpoints.push(plan.endpoints[0].clone());
        plan.eject.failures = 1;
        assert!(health.fail(now, &plan));
        assert!(!health.is_well(now));
        let later = now + plan.eject.time;
        assert!(health.is_well(later));
        let trial = lease(later);
        assert!(!health.is_well(later), "one at a time");
        drop(trial);
        assert!(health.is_well(later));
        let trial = lease(later);
        trial.gave_up();
        drop(trial);
        assert!(health.is_well(later));
        // An answer counts at once, while the exchange goes on.
        let trial = lease(later);
        trial.answered();
        assert!(health.is_well(now));
        assert_eq!(setting.in_flight(), 1);
        drop(trial);
        assert_eq!(setting.in_flight(), 0);
    });
}
