//! Judgements that take their time, and what a door hears of those it has let in.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use component::access::{Caller as Sender, Judgement};
use component::exchange::FlowContext;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::limits::{KeptLimits, LimiterSettings, Patience, Throttled, Who, WindowSettings};
use component::resources::Share;
use component::state::{StateKey, States};
use message::{Body, Headers, Method};

use super::*;
use crate::background;
use crate::worker::Engine;

thread_local! {
    /// What doors have been told of how messages ended.
    static SETTLED: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

fn settled() -> Vec<bool> {
    SETTLED.take()
}

/// Lets everybody in when it has been asked so many times more.
struct Slow(AtomicU32);

impl Door for Slow {
    fn judge<'a>(&'a self, _: RequestHead<'a>, _: &'a dyn Services) -> Judgement<'a> {
        let admit = || {
            let settlement = Settlement::new(|taken| SETTLED.with_borrow_mut(|it| it.push(taken)));
            Ok(Admitted {
                caller: Arc::new(Sender::new(
                    &"way".into(),
                    "id",
                    FlowContext::new("test").env,
                )),
                strip: None,
                implied: None,
                settlement: Some(settlement),
                reply_fields: Vec::new(),
                successor: None,
            })
        };
        if self.0.load(Ordering::Relaxed) == 0 {
            return Judgement::Ready(admit());
        }
        Judgement::Pending(Box::pin(async move {
            while self.0.load(Ordering::Relaxed) > 0 {
                self.0.fetch_sub(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
            admit()
        }))
    }
}

fn slow(turns: u32) -> Arc<dyn Door> {
    Arc::new(Slow(turns.into()))
}

fn request() -> Request {
    Request {
        method: Method::Post,
        path: "/".to_owned(),
        query: None,
        parameters: Vec::new(),
        headers: Headers::new(),
        body: Body::Empty,
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

/// One request an hour; others wait for so long.
fn gate(wait: Duration) -> Gate {
    let states = States::default();
    let settings = LimiterSettings {
        windows: vec![WindowSettings {
            count: 1,
            per: Duration::from_secs(3600),
            burst: 1,
        }],
        patience: Patience { wait, queue: None },
        callers_max: 10,
    };
    let limiter = KeptLimits::limiter(&states, StateKey::shared("test", "limit"), &settings);
    Gate {
        context: FlowContext::new("test").into(),
        kept: KeptLimits::of(&states),
        throttles: vec![Throttled {
            name: "hourly".into(),
            by: Who::Everybody,
            limiter,
        }],
        plan: None,
        headers: false,
    }
}

fn admitted(strip: Option<CredentialLocation>, implied: &[CredentialLocation]) -> Admitted {
    Admitted {
        caller: Arc::new(Sender::new(
            &"way".into(),
            "id",
            FlowContext::new("test").env,
        )),
        strip,
        implied: (!implied.is_empty()).then(|| implied.into()),
        settlement: None,
        reply_fields: Vec::new(),
        successor: None,
    }
}

#[test]
fn what_browsers_send_by_themselves_is_left_out_beside_the_credential_that_counts() {
    let of = |admitted: &Admitted| {
        let headers = Headers::new();
        Stripped::of(Some(admitted), Some(b"a=1&key=k"), headers.view())
    };
    assert!(of(&admitted(None, &[])).is_none());
    let cookies = ["one", "two"].map(|name| CredentialLocation::Cookie(name.into()));
    let field = Some(CredentialLocation::Authorization);
    let stripped = of(&admitted(field, &cookies)).unwrap();
    let [StrippedLines::Authorization, StrippedLines::Cookies(names)] = &stripped.lines[..] else {
        panic!("{stripped:?}");
    };
    assert_eq!(names, &["one", "two"].map(Arc::from));
    assert_eq!(stripped.query, None);
    let stripped = of(&admitted(
        Some(CredentialLocation::Query("key".into())),
        &cookies[..1],
    ))
    .unwrap();
    assert_eq!(stripped.query, Some(Some("a=1".to_owned())));
    let mut headers = Headers::new();
    headers.append("Cookie", "one=1");
    headers.append("cookies", "one=1");
    let lines = headers.view();
    let concerned: Vec<bool> = lines
        .lines()
        .map(|it| stripped.lines[0].concerns(&it))
        .collect();
    assert_eq!(concerned, [true, false]);
}

#[test]
fn the_cookie_of_a_ticket_is_left_out_of_every_request() {
    component::access::note_ticket_door();
    let of = |cookie: &str, admitted: Option<&Admitted>| {
        let mut headers = Headers::new();
        headers.append("Cookie", cookie);
        Stripped::of(admitted, None, headers.view())
    };
    let open = admitted(None, &[]);
    for admitted in [None, Some(&open)] {
        assert!(of("a=1; intertie-tickets=2", admitted).is_none());
        let stripped = of("a=1; intertie-ticket=2", admitted).unwrap();
        let [StrippedLines::Cookies(names)] = &stripped.lines[..] else {
            panic!("{stripped:?}");
        };
        assert_eq!(names, &[Arc::from("intertie-ticket")]);
        assert_eq!(stripped.query, None);
    }
}

fn run(test: impl AsyncFnOnce(Rc<Worker>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let worker = Worker::new(Share::WHOLE, Arc::new(Engine::new(None)));
        tokio::task::spawn_local(worker.deadlines.clone().sweep());
        test(worker).await;
    });
}

#[test]
fn the_clock_is_read_after_a_judgement_that_was_waited_for() {
    run(async |worker| {
        let request = request();
        let before = Instant::now() - Duration::from_secs(1);
        for (turns, moves) in [(0, false), (2, true)] {
            let mut now = before;
            let head = RequestHead::of(&request);
            let judged = judge(&slow(turns), head, &worker, (&mut now, |_: &mut _| false)).await;
            assert!(judged.is_ok_and(|it| it.is_some()));
            assert_eq!(now > before, moves, "{turns}");
        }
    });
}

#[test]
fn a_judgement_ends_when_its_client_leaves() {
    run(async |worker| {
        let request = request();
        let door = slow(1000);
        let mut asked = 0;
        let has_left = |_: &mut Context<'_>| {
            asked += 1;
            asked == 3
        };
        let mut now = Instant::now();
        let judged = judge(
            &door,
            RequestHead::of(&request),
            &worker,
            (&mut now, has_left),
        )
        .await;
        assert!(matches!(judged, Err(TurnedAway::Gone)));
        assert_eq!(asked, 3);
    });
}

#[test]
fn a_signed_message_that_the_limits_turn_away_is_not_taken() {
    run(async |worker| {
        for (wait, status) in [(Duration::ZERO, 429), (Duration::from_secs(7200), 0)] {
            let (door, gate) = (slow(0), gate(wait));
            let body_door = || BodyDoor {
                door: Some(&door),
                gate: Some(&gate),
                ..BodyDoor::default()
            };
            let mut first = body_door();
            let passed = first.pass(&mut request(), &worker, |_| false).await;
            assert!(passed.is_ok());
            first.settle(200);
            assert_eq!(settled(), [true]);
            let mut second = body_door();
            let turned_away = second.pass(&mut request(), &worker, |_| true).await;
            match turned_away {
                Err(TurnedAway::Reply(reply)) => assert_eq!(reply.status, status),
                Err(TurnedAway::Gone) => assert_eq!(status, 0),
                Ok(_) => panic!("it passes"),
            }
            assert_eq!(settled(), [false]);
            second.settle(200);
            assert!(settled().is_empty());
        }
    });
}

/// Goes on when its client has left, and answers with this status.
struct GoesOn(u16);

impl Handler for GoesOn {
    fn detaches(&self) -> bool {
        true
    }

    fn reads_body(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        _: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(Outcome::Reply(Reply::new(self.0)))
        })
    }
}

#[test]
fn work_that_goes_on_without_its_client_settles_by_its_outcome() {
    run(async |worker| {
        for (status, taken) in [(204, true), (503, false)] {
            let (door, handler) = (slow(0), Arc::new(GoesOn(status)) as Arc<dyn Handler>);
            for leaves in [true, false] {
                let mut body_door = BodyDoor {
                    door: Some(&door),
                    ..BodyDoor::default()
                };
                let passed = body_door.pass(&mut request(), &worker, |_| false).await;
                assert!(passed.is_ok());
                let caller = Caller::new(&worker, &Rc::default());
                let settlement = body_door.settlement();
                let outcome =
                    background::run(&caller, &handler, request(), settlement, |_| leaves).await;
                assert_eq!(outcome.is_none(), leaves);
                // What the client has read decides when there is one.
                body_door.settle(if leaves { 0 } else { 200 });
                let mut heard = settled();
                while heard.is_empty() {
                    tokio::task::yield_now().await;
                    heard = settled();
                }
                assert_eq!(heard, [taken || !leaves], "{status} {leaves}");
            }
        }
    });
}
