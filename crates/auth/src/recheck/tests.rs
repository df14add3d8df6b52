//! When an issuer is asked again about the tokens of open streams.

use std::sync::atomic::{AtomicUsize, Ordering};

use access::KeyedHash;
use access::jwt::Holder;
use expr::value::object;

use super::*;
use crate::answers::{Answer, Question};
use crate::introspect::ActiveToken;
use crate::testing::{Worker, down, run};

const CHECK: Duration = Duration::from_secs(30);

/// What the issuer says: the id of a caller, `-` for a token that is not active, or nothing.
struct Issuer {
    answers: Arc<Answers<Verdict>>,
    says: Arc<Mutex<&'static str>>,
    asked: Arc<AtomicUsize>,
}

fn caller(id: &str) -> Arc<Caller> {
    Arc::new(Caller::new(&"opaque".into(), id, object([])))
}

impl Asking for Issuer {
    fn ask<'a>(
        &'a self,
        key: [u8; 32],
        _: &Arc<[u8]>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Verdict, &'static str>> {
        let (says, asked) = (*self.says.lock().unwrap(), Arc::clone(&self.asked));
        let question: Question<Verdict> = Box::new(move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            let value = match says {
                "" => return Box::pin(async { Err("no_answer") }),
                "-" => Err("inactive"),
                id => Ok(ActiveToken {
                    caller: caller(id),
                    holder: Holder::default(),
                }),
            };
            let admits = value.is_ok();
            Box::pin(async move {
                Ok(Answer {
                    value,
                    admits,
                    keep: CHECK,
                    bytes: 0,
                })
            })
        });
        Box::pin(self.answers.ask(Some(key), CHECK, services, question))
    }
}

struct Setting {
    recheck: Recheck<Issuer>,
    says: Arc<Mutex<&'static str>>,
    asked: Arc<AtomicUsize>,
}

impl Setting {
    fn new() -> Self {
        let answers = Arc::new(Answers::new(KeyedHash::random().unwrap()));
        let says = Arc::new(Mutex::new("ann"));
        let asked = Arc::new(AtomicUsize::new(0));
        let recheck = Recheck {
            open: Arc::default(),
            answers: Arc::clone(&answers),
            revocations: Arc::default(),
            check: CHECK,
            asking: Issuer {
                answers,
                says: Arc::clone(&says),
                asked: Arc::clone(&asked),
            },
        };
        Self {
            recheck,
            says,
            asked,
        }
    }

    /// The validity of a stream that this token opens.
    fn open(&self, number: u8) -> Arc<Validity> {
        self.open_until(number, None)
    }

    /// The same where the issuer has said when the token expires.
    fn open_until(&self, number: u8, expires: Option<u64>) -> Arc<Validity> {
        let mut caller = Caller::new(&"opaque".into(), "ann", object([]));
        caller.expires = expires;
        caller.revocable = Some(Arc::new(OpaqueToken {
            revocations: Arc::clone(&self.recheck.revocations),
            open: Arc::clone(&self.recheck.open),
            key: [number; 32],
            token: b"token"[..].into(),
        }));
        caller.validity().unwrap()
    }

    /// Looks once a second, for so many seconds.
    async fn look(&self, seconds: u32, worker: &Worker) {
        for _ in 0..seconds {
            let due = self.recheck.due(worker.now());
            self.recheck.ask_all(&due, worker).await;
            tokio::time::sleep(EVERY).await;
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn with(test: impl AsyncFnOnce(Setting, Worker)) {
    run(
        |_| (Duration::ZERO, down()),
        async move |worker| test(Setting::new(), worker).await,
    );
}

#[test]
fn a_token_is_asked_about_once_for_all_its_streams_and_only_when_its_answer_has_ended() {
    with(async |setting, worker| {
        let streams = [setting.open(1), setting.open(1), setting.open(2)];
        assert!(Arc::ptr_eq(&streams[0], &streams[1]));
        setting.look(1, &worker).await;
        assert_eq!(setting.asked(), 2);
        setting.look(29, &worker).await;
        assert_eq!(setting.asked(), 2);
        setting.look(2, &worker).await;
        assert_eq!(setting.asked(), 4);
        assert!(!streams.iter().any(|it| it.is_revoked()));
        drop(streams);
        setting.look(60, &worker).await;
        assert_eq!(setting.asked(), 4, "nobody has it open");
        assert_eq!(setting.recheck.open.all().len(), 0);
    });
}

#[test]
fn streams_end_within_the_time_of_an_answer_when_the_issuer_revokes_their_token() {
    for says in ["-", "bob"] {
        with(async move |setting, worker| {
            let stream = setting.open(1);
            setting.look(10, &worker).await;
            *setting.says.lock().unwrap() = says;
            setting.look(15, &worker).await;
            assert!(!stream.is_revoked(), "the answer holds");
            setting.look(7, &worker).await;
            assert!(stream.is_revoked(), "{says}");
        });
    }
}

#[test]
fn streams_outlive_an_issuer_that_is_away_for_a_while_but_not_for_long() {
    with(async |setting, worker| {
        let stream = setting.open(1);
        setting.look(1, &worker).await;
        *setting.says.lock().unwrap() = "";
        setting.look(80, &worker).await;
        assert!(!stream.is_revoked());
        *setting.says.lock().unwrap() = "ann";
        setting.look(10, &worker).await;
        *setting.says.lock().unwrap() = "";
        setting.look(80, &worker).await;
        assert!(!stream.is_revoked(), "it was confirmed between");
        setting.look(60, &worker).await;
        assert!(stream.is_revoked());
    });
}

#[test]
fn all_streams_of_a_token_whose_expiry_moves_on_are_asked_about() {
    for drops in [None, Some(0), Some(1)] {
        with(async move |setting, worker| {
            let mut streams = vec![
                setting.open_until(1, Some(4_000_000_000)),
                setting.open_until(1, Some(4_000_000_030)),
            ];
            assert!(!Arc::ptr_eq(&streams[0], &streams[1]));
            setting.look(10, &worker).await;
            assert_eq!(setting.asked(), 1, "once for both");
            if let Some(at) = drops {
                streams.remove(at);
            }
            *setting.says.lock().unwrap() = "-";
            setting.look(32, &worker).await;
            assert!(streams.iter().all(|it| it.is_revoked()), "{drops:?}");
            assert_eq!(setting.recheck.open.all().len(), 0);
        });
    }
}
