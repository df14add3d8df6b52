//! The addresses of an endpoint's name. They are looked up once before the first connection, and
//! then again in the background: an old answer serves until there is a newer one.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// How long after a look-up that failed the next one may begin.
const RETRY: Duration = Duration::from_secs(1);

/// A look-up under way.
pub type LookUp<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + 'a>>;

/// Finds the addresses of names.
pub trait Resolver: fmt::Debug {
    /// The addresses of a host, each with this port, the preferred ones first.
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> LookUp<'a>;
}

/// The resolver of the operating system.
#[derive(Debug)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> LookUp<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// The addresses of one name.
#[derive(Debug)]
pub(crate) struct Names {
    host: String,
    port: u16,
    resolver: Rc<dyn Resolver>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    addresses: Vec<SocketAddr>,
    /// Until when they are fresh; nothing before the first answer.
    fresh_until: Option<Instant>,
    /// When the next look-up may begin after one that failed.
    retry_at: Option<Instant>,
    /// How many connections have been made: each begins with another address.
    turn: usize,
    /// While a look-up is under way: the tasks that wait for it.
    waiting: Option<Vec<Waker>>,
    last_error: Option<Arc<io::Error>>,
}

/// Marks a look-up as under way; it may be dropped at any time.
struct UnderWay<'a>(&'a Names);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let waiting = self.0.state.borrow_mut().waiting.take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Names {
    pub fn new(host: &str, port: u16, resolver: Rc<dyn Resolver>) -> Self {
        let mut state = State::default();
        if let Ok(address) = host.parse::<IpAddr>() {
            state.addresses = vec![SocketAddr::new(address, port)];
        }
        Self {
            host: host.to_owned(),
            port,
            resolver,
            state: RefCell::new(state),
        }
    }

    /// Whether the caller shall look the name up in the background now. Says so to one caller.
    #[inline]
    pub fn must_look_up(&self, now: Instant) -> bool {
        let mut state = self.state.borrow_mut();
        let is_due = state.fresh_until.is_some_and(|until| until <= now)
            && state.retry_at.is_none_or(|at| at <= now)
            && state.waiting.is_none();
        if is_due {
            state.retry_at = Some(now + RETRY);
        }
        is_due
    }

    /// Looks the name up, or waits for the look-up that is under way.
    pub async fn look_up(&self, fresh_for: Duration) -> io::Result<()> {
        if self.state.borrow().waiting.is_some() {
            poll_fn(|context| self.poll_other(context)).await;
            let state = self.state.borrow();
            return match &state.last_error {
                Some(error) => Err(io::Error::new(error.kind(), Arc::clone(error))),
                None => Ok(()),
            };
        }
        self.state.borrow_mut().waiting = Some(Vec::new());
        let _under_way = UnderWay(self);
        // Stands until there is an answer, also when this look-up is dropped.
        self.note_error(io::ErrorKind::TimedOut.into());
        match self.resolver.look_up(&self.host, self.port).await {
            Ok(mut found) => {
                found.dedup();
                let mut state = self.state.borrow_mut();
                state.addresses = found;
                state.fresh_until = Some(Instant::now() + fresh_for);
                (state.retry_at, state.last_error) = (None, None);
                Ok(())
            }
            Err(error) => {
                let error = self.note_error(error);
                Err(io::Error::new(error.kind(), error))
            }
        }
    }

    fn note_error(&self, error: io::Error) -> Arc<io::Error> {
        let error = Arc::new(error);
        let mut state = self.state.borrow_mut();
        state.last_error = Some(Arc::clone(&error));
        state.retry_at = Some(Instant::now() + RETRY);
        error
    }

    fn poll_other(&self, context: &Context<'_>) -> Poll<()> {
        match &mut self.state.borrow_mut().waiting {
            None => Poll::Ready(()),
            Some(waiting) => {
                waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether this is none of the addresses.
    pub fn lack(&self, address: IpAddr) -> bool {
        let state = self.state.borrow();
        let mut addresses = state.addresses.iter();
        !state.addresses.is_empty() && !addresses.any(|it| it.ip().to_canonical() == address)
    }

    /// The addresses in the order in which to try them, looked up when there are none.
    ///
    /// # Errors
    /// When there is no address.
    pub async fn in_turn(&self, fresh_for: Duration) -> io::Result<Vec<SocketAddr>> {
        if self.state.borrow().addresses.is_empty() {
            self.look_up(fresh_for).await?;
        }
        let mut state = self.state.borrow_mut();
        let turn = state.turn;
        state.turn = turn.wrapping_add(1);
        if state.addresses.is_empty() {
            let error = "the name has no address";
            return Err(io::Error::new(io::ErrorKind::NotFound, error));
        }
        Ok(interleave(&state.addresses, turn))
    }
}

/// The families in alternation, as RFC 8305 (section 4) wants it, beginning with the resolver's
/// choice; within a family another address comes first each time.
fn interleave(addresses: &[SocketAddr], turn: usize) -> Vec<SocketAddr> {
    let is_v6_first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let rotated = |is_first: bool| {
        let own = |it: &&SocketAddr| (it.is_ipv6() == is_v6_first) == is_first;
        let mut family: Vec<SocketAddr> = addresses.iter().filter(own).copied().collect();
        let by = turn.checked_rem(family.len()).unwrap_or(0);
        family.rotate_left(by);
        family.into_iter()
    };
    let (mut first, mut second) = (rotated(true), rotated(false));
    let mut all = Vec::with_capacity(addresses.len());
    while all.len() < addresses.len() {
        all.extend(first.next());
        all.extend(second.next());
    }
    all
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const FRESH: Duration = Duration::from_secs(30);

    /// Answers with what it holds; hangs while it holds nothing.
    #[derive(Debug, Default)]
    struct Scripted {
        answer: RefCell<Option<Result<Vec<SocketAddr>, io::ErrorKind>>>,
        asked: Cell<usize>,
    }

    impl Resolver for Scripted {
        fn look_up<'a>(&'a self, _: &'a str, _: u16) -> LookUp<'a> {
            self.asked.set(self.asked.get() + 1);
            Box::pin(poll_fn(|context| match &*self.answer.borrow() {
                Some(Ok(found)) => Poll::Ready(Ok(found.clone())),
                Some(Err(kind)) => Poll::Ready(Err((*kind).into())),
                None => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }))
        }
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn names() -> (Names, Rc<Scripted>) {
        let resolver = Rc::<Scripted>::default();
        let names = Names::new("name.example", 80, Rc::clone(&resolver) as _);
        (names, resolver)
    }

    #[test]
    fn families_alternate_and_addresses_take_turns() {
        let all = addresses(&[
            "[::1]:80",
            "[::2]:80",
            "10.0.0.1:80",
            "10.0.0.2:80",
            "10.0.0.3:80",
        ]);
        let first = [
            "[::1]:80",
            "10.0.0.1:80",
            "[::2]:80",
            "10.0.0.2:80",
            "10.0.0.3:80",
        ];
        assert_eq!(interleave(&all, 0), addresses(&first));
        let second = [
            "[::2]:80",
            "10.0.0.2:80",
            "[::1]:80",
            "10.0.0.3:80",
            "10.0.0.1:80",
        ];
        assert_eq!(interleave(&all, 1), addresses(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_serves_while_the_resolver_hangs() {
        let (names, resolver) = names();
        *resolver.answer.borrow_mut() = Some(Ok(addresses(&["10.0.0.1:80"])));
        assert_eq!(names.in_turn(FRESH).await.unwrap().len(), 1);
        tokio::time::advance(FRESH).await;
        assert!(names.must_look_up(Instant::now()));
        *resolver.answer.borrow_mut() = None;
        let mut hanging = Box::pin(names.look_up(FRESH));
        let mut context = Context::from_waker(Waker::noop());
        assert!(hanging.as_mut().poll(&mut context).is_pending());
        // One at a time; and nobody waits for it.
        assert!(!names.must_look_up(Instant::now()));
        assert_eq!(names.in_turn(FRESH).await.unwrap().len(), 1);
        drop(hanging);
        assert!(!names.must_look_up(Instant::now()), "not again at once");
        tokio::time::advance(RETRY).await;
        assert!(names.must_look_up(Instant::now()));
        assert_eq!(resolver.asked.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_address_all_wait_for_one_look_up() {
        let (names, resolver) = names();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(names.in_turn(FRESH));
        let mut second = Box::pin(names.in_turn(FRESH));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        *resolver.answer.borrow_mut() = Some(Err(io::ErrorKind::HostUnreachable));
        let error = first.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::HostUnreachable);
        let error = second.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::HostUnreachable);
        assert_eq!(resolver.asked.get(), 1);
        *resolver.answer.borrow_mut() = Some(Ok(addresses(&["10.0.0.1:80"])));
        assert!(names.in_turn(FRESH).await.is_ok(), "it is asked again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_does_not_take_known_addresses_away() {
        let (names, resolver) = names();
        *resolver.answer.borrow_mut() = Some(Ok(addresses(&["10.0.0.1:80"])));
        names.look_up(FRESH).await.unwrap();
        *resolver.answer.borrow_mut() = Some(Err(io::ErrorKind::Other));
        names.look_up(FRESH).await.unwrap_err();
        assert!(!names.lack([10, 0, 0, 1].into()));
        *resolver.answer.borrow_mut() = Some(Ok(addresses(&["10.0.0.2:80"])));
        names.look_up(FRESH).await.unwrap();
        assert!(names.lack([10, 0, 0, 1].into()));
    }
}
