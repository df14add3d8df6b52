//! Tests of the queue for threads beside the workers, and of work that is deferred.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

use message::{Headers, Method, Request};

use super::*;
use crate::exchange::{Exchange, FlowContext};
use crate::handler::LocalFuture;
use crate::testing::{FakeServices, poll_once};

/// The permits are those of the process: one test at a time.
static ONE_TEST: Mutex<()> = Mutex::new(());

fn permit() -> Pin<Box<impl Future<Output = Result<Permit, Fault>>>> {
    Box::pin(Permit::acquire())
}

fn all_permits() -> Vec<Permit> {
    let taken = (0..running_max()).map(|_| poll_once(&mut permit()).unwrap().unwrap());
    taken.collect()
}

#[test]
fn as_many_run_as_there_are_cores_and_the_first_that_waits_is_the_next() {
    let _one = lock(&ONE_TEST);
    let mut running = all_permits();
    let (mut first, mut gone, mut last) = (permit(), permit(), permit());
    for waiting in [&mut first, &mut gone, &mut last] {
        assert!(poll_once(waiting).is_none());
    }
    drop(running.pop());
    assert!(poll_once(&mut last).is_none());
    // One that comes later does not overtake.
    assert!(poll_once(&mut permit()).is_none());
    let first = poll_once(&mut first).unwrap().unwrap();
    drop(first);
    // It has been given to one that nobody waits for any more.
    drop(gone);
    assert!(poll_once(&mut last).unwrap().is_ok());
    drop((running, last));
    assert_eq!(all_permits().len(), running_max());
}

#[test]
fn one_that_does_not_wait_any_more_leaves_the_queue() {
    let _one = lock(&ONE_TEST);
    let running = all_permits();
    let mut waiting = permit();
    assert!(poll_once(&mut waiting).is_none());
    drop(waiting);
    drop(running);
    assert_eq!(all_permits().len(), running_max());
    assert_eq!(lock(&QUEUE).running, 0);
}

#[test]
fn the_queue_has_an_end() {
    let _one = lock(&ONE_TEST);
    let running = all_permits();
    let mut waiting: Vec<_> = (0..running_max() * WAITING_MAX).map(|_| permit()).collect();
    assert!(waiting.iter_mut().all(|it| poll_once(it).is_none()));
    let fault = poll_once(&mut permit()).unwrap().err().unwrap();
    assert_eq!((fault.name(), fault.status), ("unavailable", 503));
    drop(running);
    drop(waiting);
    assert_eq!(lock(&QUEUE).running, 0);
}

#[test]
fn work_whose_caller_has_gone_is_not_begun() {
    let _one = lock(&ONE_TEST);
    let services = Later::default();
    let began = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&began);
    let mut work = Box::pin(beside(&services, move |_| {
        flag.store(true, Ordering::Relaxed);
    }));
    assert!(poll_once(&mut work).is_none());
    drop(work);
    services.do_all();
    assert!(!began.load(Ordering::Relaxed));
    assert_eq!(lock(&QUEUE).running, 0);
}

/// Each of these would go on for ever: they end by the flag that the dropped future sets.
#[test]
fn conversions_end_when_nobody_waits_for_them() {
    let _one = lock(&ONE_TEST);
    let json = bytes::Bytes::from(format!("[{}1]", "1,".repeat(AT_ONCE)));
    let value = expr::json::parse(&json, 9).unwrap();
    let object = expr::value::object([("a".to_owned(), value.clone())]);
    let xml = bytes::Bytes::from(format!("<a>{}</a>", "<b>c</b>".repeat(AT_ONCE / 8)));
    let rows = expr::value::array([value.clone()]);
    let works: Vec<Box<dyn Fn() -> bool + Send>> = vec![
        Box::new(move || expr::json::parse(&json, 9).is_ok()),
        Box::new(move || expr::json::write(&value, usize::MAX, &mut Vec::new()).is_ok()),
        Box::new({
            let object = object.clone();
            move || expr::format::to_xml(&object, usize::MAX).is_ok()
        }),
        Box::new(move || expr::format::to_form(&object, usize::MAX).is_ok()),
        Box::new(move || expr::format::to_csv(&rows, true, usize::MAX).is_ok()),
        Box::new({
            let xml = xml.clone();
            move || expr::format::from_xml(&xml, 9).is_ok()
        }),
        Box::new(move || expr::xml::parse(&xml, 9).is_ok()),
    ];
    for is_done_again in works {
        let services = Later::default();
        let ((begin, begun), (end, ended)) = (channel(), channel());
        let mut work = Box::pin(beside(&services, move |_| {
            begin.send(()).unwrap();
            while is_done_again() {}
            end.send(()).unwrap();
        }));
        assert!(poll_once(&mut work).is_none());
        let pieces = std::mem::take(&mut *lock(&services.work));
        let thread = std::thread::spawn(|| pieces.into_iter().for_each(|it| it()));
        begun.recv().unwrap();
        drop(work);
        ended.recv().unwrap();
        thread.join().unwrap();
        assert_eq!(lock(&QUEUE).running, 0);
    }
}

/// Services that do what may block when a test says so.
#[derive(Default)]
struct Later {
    others: FakeServices,
    clock_reads: Cell<usize>,
    /// How much is done at once before that.
    at_once: Cell<usize>,
    work: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Later {
    fn do_all(&self) {
        let work = std::mem::take(&mut *lock(&self.work));
        work.into_iter().for_each(|work| work());
    }
}

impl Services for Later {
    fn call<'a>(
        &'a self,
        call: crate::handler::Call<'a>,
    ) -> LocalFuture<'a, Result<message::Reply, Fault>> {
        self.others.call(call)
    }

    fn sleep(&self, time: std::time::Duration) -> LocalFuture<'static, ()> {
        self.others.sleep(time)
    }

    fn now(&self) -> std::time::Instant {
        self.clock_reads.set(self.clock_reads.get() + 1);
        self.others.now()
    }

    fn wall(&self) -> std::time::Duration {
        self.others.wall()
    }

    fn random(&self) -> f64 {
        self.others.random()
    }

    fn flow(&self, name: &str) -> Option<Arc<dyn crate::handler::Callee>> {
        self.others.flow(name)
    }

    fn spawn(&self, work: crate::handler::Work) {
        self.others.spawn(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        if self.at_once.get() > 0 {
            self.at_once.set(self.at_once.get() - 1);
            return self.others.blocking(work);
        }
        lock(&self.work).push(work);
        Box::pin(std::future::pending())
    }

    fn resources(&self) -> &crate::resources::Resources {
        self.others.resources()
    }
}

/// A message with this JSON body.
fn exchange(body: &str) -> Exchange {
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    let request = Request {
        method: Method::Post,
        path: "/".to_owned(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: body.as_bytes().to_vec().into(),
        peer: "192.0.2.1".parse().unwrap(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    let mut context = FlowContext::new("test");
    context.limits.steps = u64::MAX;
    Exchange::new(&Arc::new(context), request)
}

struct Names;

impl expr::Scope for Names {
    fn slot(&self, name: &str) -> Option<usize> {
        (name == "a").then_some(crate::scope::BUILT_IN.len())
    }

    fn names(&self) -> Vec<String> {
        vec!["a".to_owned()]
    }
}

fn compiled(code: &str) -> expr::Expression {
    expr::Expression::compile(code, &Names).unwrap()
}

/// Runs work that may be deferred. The result, and how often it was attempted.
fn preemptible<T>(
    exchange: &mut Exchange,
    mut work: impl FnMut(&mut Exchange, &dyn Services) -> Result<T, Fault>,
) -> (Result<T, Fault>, usize) {
    let (services, begun) = (FakeServices::default(), Cell::new(0));
    let mut attempts = Box::pin(exchange.preemptible(&services, |it| {
        begun.set(begun.get() + 1);
        work(it, &services)
    }));
    (poll_once(&mut attempts).unwrap(), begun.get())
}

#[test]
fn each_long_part_is_done_once_and_with_the_names_of_the_message() {
    let _one = lock(&ONE_TEST);
    let long = compiled("[range(300000)] | length + $a");
    let short = compiled("$a");
    let mut message = exchange("{}");
    message.set_slot(crate::scope::BUILT_IN.len(), expr::value::integer(1));
    let (sum, begun) = preemptible(&mut message, |it, services| {
        let (first, short) = (
            it.evaluate(&long, services)?,
            it.evaluate(&short, services)?,
        );
        let slot = crate::scope::BUILT_IN.len();
        let before = it.replace_slot(slot, expr::value::integer(2));
        let second = it.evaluate(&long, services);
        it.set_slot(slot, before);
        Ok([first, short, second?])
    });
    let expected = [300_001, 1, 300_002].map(expr::value::integer);
    assert_eq!((sum.unwrap(), begun), (expected, 3));
    // Nothing of it is left: the next work is done for itself.
    let (value, begun) = preemptible(&mut message, |it, services| it.evaluate(&short, services));
    assert_eq!((value.unwrap(), begun), (expr::value::integer(1), 1));
}

#[test]
fn contents_that_follow_each_other_are_not_mixed_up() {
    let _one = lock(&ONE_TEST);
    let mut message = exchange("{}");
    let long = |byte: &str| expr::value::array([expr::value::text(byte.repeat(AT_ONCE))]);
    let (bodies, begun) = preemptible(&mut message, |it, _| {
        it.set_value(long("a"));
        let first = it.body()?.0;
        it.set_value(long("b"));
        Ok((first, it.body()?.0))
    });
    let (first, second) = bodies.unwrap();
    assert_eq!(
        (first.as_bytes().get(2), second.as_bytes().get(2), begun),
        (Some(&b'a'), Some(&b'b'), 3)
    );
}

#[test]
fn what_was_given_up_half_way_is_no_result_of_what_follows() {
    let _one = lock(&ONE_TEST);
    let (one, two) = (
        compiled("[range(300000)] | length"),
        compiled("last(range(300000))"),
    );
    let mut message = exchange("{}");
    let services = Later::default();
    services.at_once.set(1);
    let mut both = Box::pin(message.preemptible(&services, |it| {
        Ok([it.evaluate(&one, &services)?, it.evaluate(&two, &services)?])
    }));
    assert!(poll_once(&mut both).is_none());
    drop(both);
    services.do_all();
    let (value, begun) = preemptible(&mut message, |it, services| it.evaluate(&two, services));
    assert_eq!((value.unwrap(), begun), (expr::value::integer(299_999), 2));
}

#[test]
fn work_that_may_not_be_deferred_is_done_at_once() {
    let services = FakeServices::default();
    let mut message = exchange(&format!("[\"{}\"]", "x".repeat(2 * AT_ONCE)));
    let long = compiled("[range(300000)] | length");
    let value = message.evaluate(&long, &services).unwrap();
    assert_eq!(value, expr::value::integer(300_000));
    assert!(message.value().is_ok() && message.body().is_ok());
}

/// The clock is looked at within the evaluation only, and late.
#[test]
fn a_deadline_costs_an_evaluation_no_look_at_the_clock() {
    let _one = lock(&ONE_TEST);
    let services = Later::default();
    let mut message = exchange("1");
    message.deadline = Some(std::time::Instant::now());
    let short = compiled(". + 1");
    for is_preemptible in [false, true] {
        let value = match is_preemptible {
            false => message.evaluate(&short, &services),
            true => poll_once(&mut Box::pin(
                message.preemptible(&services, |it| it.evaluate(&short, &services)),
            ))
            .unwrap(),
        };
        assert_eq!(value.unwrap(), expr::value::integer(2));
    }
    let long = compiled("[range(300000)] | length");
    let error = message.evaluate(&long, &services).unwrap_err();
    assert!(error.to_string().contains("takes too long"), "{error}");
    assert_eq!(services.clock_reads.get(), 0);
}

/// Says on which thread it is dropped.
struct Probe(Vec<u8>, Sender<ThreadId>);

impl AsRef<[u8]> for Probe {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.1.send(std::thread::current().id());
    }
}

/// A message with an array of many texts, which are parts of its body, and where they are dropped.
fn large_exchange() -> (Exchange, Receiver<ThreadId>) {
    let text = format!("[{}\"a\"]", "\"xxx\",".repeat(AT_ONCE / 6 + 1));
    let (sender, dropped) = channel();
    let mut message = exchange("{}");
    let body = bytes::Bytes::from_owner(Probe(text.into_bytes(), sender));
    message.content = Content::of_body(Body::from(body), None);
    (message, dropped)
}

#[test]
fn large_values_are_not_dropped_on_the_worker() {
    let _one = lock(&ONE_TEST);
    let ends: [fn(Exchange); 5] = [
        drop,
        |mut message| message.set_value(Value::Null),
        |message| {
            let copy = message.clone();
            drop(message);
            drop(copy);
        },
        |mut message| {
            let part = compiled(".[1:]");
            let part = preemptible(&mut message, |it, services| it.evaluate(&part, services));
            message.set_value(part.0.unwrap());
        },
        |mut message| {
            message.set_value(Value::Null);
            message.large.release_unused();
            assert_eq!(format!("{:?}", message.large), "LargeValues([])");
        },
    ];
    let mut on_worker = 0;
    for end in ends {
        let (mut message, dropped) = large_exchange();
        let (value, attempts) = preemptible(&mut message, |it, _| it.value().map(|_| ()));
        assert_eq!((value.is_ok(), attempts), (true, 2));
        end(message);
        on_worker += usize::from(dropped.recv().unwrap() == std::thread::current().id());
    }
    assert_eq!(on_worker, 0);
}

#[test]
fn a_large_result_that_nobody_claims_is_not_dropped_on_the_worker() {
    let _one = lock(&ONE_TEST);
    let (message, dropped) = large_exchange();
    let services = Later::default();
    let decode = message.content.decoder(message.request.headers.view());
    drop(message);
    let mut work = Box::pin(beside(&services, |_| decode()));
    assert!(poll_once(&mut work).is_none());
    services.do_all();
    drop(work);
    assert_ne!(dropped.recv().unwrap(), std::thread::current().id());
}

#[test]
fn small_values_are_not_held() {
    let services = FakeServices::default();
    let mut message = exchange("{\"a\": [1]}");
    assert!(message.value().is_ok());
    assert!(message.evaluate(&compiled(".a"), &services).is_ok());
    assert_eq!(format!("{:?}", message.large), "LargeValues([])");
}

/// The `nice` value of the thread that asks.
fn niceness() -> i32 {
    rustix::process::getpriority_process(None).unwrap()
}

/// Says where it is dropped, once it may be: on which thread, with which `nice` value.
struct Late(Receiver<()>, Sender<(ThreadId, i32)>);

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.0.recv();
        let _ = self.1.send((std::thread::current().id(), niceness()));
    }
}

#[test]
fn workers_preempt_the_threads_beside_them() {
    let _one = lock(&ONE_TEST);
    let own = niceness();
    let services = FakeServices::default();
    let beside_own = poll_once(&mut Box::pin(beside(&services, |_| niceness())));
    assert!(beside_own.unwrap().unwrap() > own);
    let ((_, may_drop), (sender, dropped)) = (channel(), channel());
    drop_beside(Late(may_drop, sender));
    assert!(dropped.recv().unwrap().1 > own);
    assert_eq!(niceness(), own);
}

#[test]
fn a_bounded_number_of_values_waits_to_be_dropped() {
    let _one = lock(&ONE_TEST);
    let (sender, dropped) = channel();
    // One is being dropped, and as many wait behind it as may.
    let (begun_sender, begun) = channel();
    let (first, may_drop) = channel();
    drop_beside((Begun(begun_sender), Late(may_drop, sender.clone())));
    begun.recv().unwrap();
    let mut gates = vec![first];
    for _ in 0..large::WAITING_MAX {
        let (gate, may_drop) = channel();
        drop_beside(Late(may_drop, sender.clone()));
        gates.push(gate);
    }
    let (_, may_drop) = channel();
    drop_beside(Late(may_drop, sender));
    let (thread, _) = dropped.try_recv().unwrap();
    assert_eq!(thread, std::thread::current().id());
    drop(gates);
    assert_eq!(dropped.iter().count(), 1 + large::WAITING_MAX);
}

/// Says that it is being dropped.
struct Begun(Sender<()>);

impl Drop for Begun {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
