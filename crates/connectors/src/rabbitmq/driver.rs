//! The task that owns a connection's socket: it makes the connection, again and again, writes what
//! waits, all at once, and takes in what comes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use amqp::{Room, write};
use component::resilience::Backoff;
use tokio::time::sleep;

use super::dial::{Dialer, Link, Refusal};
use super::hub::{Hub, TICK, WANTED};

/// How long to wait before the next try: at first, and at last.
const BACKOFF: Backoff = Backoff {
    // Not all workers come back at once.
    jitter: 0.5,
    ..Backoff::doubling(Duration::from_millis(100), Duration::from_secs(10))
};
/// A connection that has lasted so long was a good one.
const STABLE: Duration = Duration::from_secs(10);
/// How often the log tells that there is still no connection.
const TELL: Duration = Duration::from_secs(60);
/// How long is waited for confirmations, and then for the broker's good-bye, at the end.
const CLOSE_TIME: Duration = Duration::from_millis(800);
/// How often is read before others have their turn.
const READS_MAX: usize = 16;

/// Why a connection is over.
pub(super) enum Lost {
    /// For this reason.
    Broken(String),
    /// It was wanted no more.
    Left,
}

impl<E: std::error::Error> From<E> for Lost {
    fn from(error: E) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Keeps the connection until it is wanted no more.
pub(super) async fn run(hub: Rc<Hub>) {
    {
        let mut ticks = pin!(async {
            loop {
                sleep(TICK).await;
                hub.tick();
            }
        });
        let mut work = pin!(supervise(&hub));
        poll_fn(|context| {
            // It never ends.
            let _: Poll<()> = ticks.as_mut().poll(context);
            work.as_mut().poll(context)
        })
        .await;
    }
    hub.over();
}

async fn supervise(hub: &Rc<Hub>) {
    let mut random = Random::new(hub);
    let mut dialer = Dialer::new(&hub.broker, random.next() as usize);
    let (mut failures, mut told) = (0, None);
    loop {
        match until_closing(hub, dialer.connect()).await {
            None => return,
            Some(Ok(link)) => {
                told = None;
                let since = Instant::now();
                let lost = serve(hub, link).await;
                let Lost::Broken(cause) = lost else {
                    hub.closed("the connection is being closed");
                    return;
                };
                hub.closed(&cause);
                if since.elapsed() >= STABLE {
                    failures = 0;
                }
                let label = &*hub.broker.label;
                tracing::warn!(
                    target: "rabbitmq", connection = label, cause,
                    "the connection to the broker is lost"
                );
                hub.broker
                    .figures
                    .reconnects
                    .fetch_add(1, Ordering::Relaxed);
            }
            Some(Err(refusal)) => {
                tell(hub, &refusal, &mut told);
                hub.not_opened(&refusal.cause, refusal.is_final);
            }
        }
        failures += 1;
        let pause = pause(hub, BACKOFF.delay_after(failures, random.fraction()));
        if until_closing(hub, pause).await.is_none() {
            return;
        }
    }
}

/// Waits before the next try: for this time, or less when a message comes meanwhile.
async fn pause(hub: &Hub, time: Duration) {
    sleep(time.min(WANTED)).await;
    let mut rest = pin!(sleep(time.saturating_sub(WANTED)));
    poll_fn(|context| match hub.inner.borrow().is_wanted {
        true => Poll::Ready(()),
        false => rest.as_mut().poll(context),
    })
    .await;
    hub.inner.borrow_mut().is_wanted = false;
}

fn tell(hub: &Hub, refusal: &Refusal, told: &mut Option<(Instant, String)>) {
    let now = Instant::now();
    let is_known = told
        .as_ref()
        .is_some_and(|(at, cause)| *cause == refusal.cause && now - *at < TELL);
    if is_known {
        return;
    }
    *told = Some((now, refusal.cause.clone()));
    let (label, cause) = (&*hub.broker.label, &*refusal.cause);
    tracing::error!(
        target: "rabbitmq", connection = label, cause,
        "there is no connection to the broker"
    );
}

/// Random numbers, good enough to spread load.
struct Random(u64);

impl Random {
    fn new(hub: &Rc<Hub>) -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one(Rc::as_ptr(hub) as usize) | 1)
    }

    /// xorshift64 (Marsaglia, 2003).
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        (self.next() % 1024) as f64 / 1024.0
    }
}

/// What work gives; `None` when the connection is wanted no more.
async fn until_closing<T>(hub: &Hub, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| {
        let mut inner = hub.inner.borrow_mut();
        if inner.is_closing {
            return Poll::Ready(None);
        }
        inner.waker = Some(context.waker().clone());
        drop(inner);
        work.as_mut().poll(context).map(Some)
    })
    .await
}

async fn serve(hub: &Rc<Hub>, link: Link) -> Lost {
    let label = &*hub.broker.label;
    tracing::info!(target: "rabbitmq", connection = label, "connected to the broker");
    hub.opened(link.tuned);
    let now = Instant::now();
    let mut session = Session {
        hub,
        beat: Duration::from_secs(link.tuned.heartbeat.into()),
        link,
        heard: now,
        said: now,
        is_short: false,
        closing: None,
    };
    let lost = poll_fn(|context| session.poll(context)).await;
    let connection = &mut session.link.connection;
    // Whatever becomes of it.
    let end = poll_fn(|context| connection.poll_finish(context));
    let _ = tokio::time::timeout(Duration::from_millis(100), end).await;
    lost
}

/// A connection that is there.
struct Session<'a> {
    hub: &'a Rc<Hub>,
    link: Link,
    beat: Duration,
    /// When the broker has last said something.
    heard: Instant,
    /// When we have.
    said: Instant,
    /// Whether the next message has no room. It is looked for again with each tick.
    is_short: bool,
    closing: Option<Closing>,
}

/// How far the good-bye is.
struct Closing {
    has_said: bool,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl Session<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Lost> {
        match self.poll_once(context) {
            Poll::Ready(Ok(never)) => match never {},
            Poll::Ready(Err(lost)) => Poll::Ready(lost),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_once(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<std::convert::Infallible, Lost>> {
        self.read(context)?;
        self.keep_alive()?;
        if self.poll_close(context)?.is_ready() {
            return Poll::Ready(Err(Lost::Left));
        }
        let written = self.write(context)?;
        let mut inner = self.hub.inner.borrow_mut();
        inner.waker = Some(context.waker().clone());
        inner.counts.flush(&self.hub.broker.figures);
        drop(inner);
        ready!(written);
        Poll::Pending
    }

    /// Takes in all that has come, or as much as is fair.
    fn read(&mut self, context: &mut Context<'_>) -> Result<(), Lost> {
        for _ in 0..READS_MAX {
            self.take_in()?;
            if self.waits() {
                // Nothing is heard while nothing is read.
                self.heard = Instant::now();
                return Ok(());
            }
            match self.link.connection.poll_fill(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => {
                    return Err(Lost::Broken(
                        "the broker has closed the connection".to_owned(),
                    ));
                }
                Poll::Ready(Ok(_)) => self.heard = Instant::now(),
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
        self.take_in()?;
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Whether nothing may be read until flows have ended or there is memory again.
    fn waits(&self) -> bool {
        self.is_short || self.hub.inner.borrow_mut().consumers.is_full()
    }

    fn take_in(&mut self) -> Result<(), Lost> {
        self.is_short = false;
        loop {
            if self.hub.inner.borrow_mut().consumers.is_full() {
                return Ok(());
            }
            let Link {
                connection,
                receiver,
                ..
            } = &mut self.link;
            let (hub, is_short) = (self.hub, &mut self.is_short);
            let mut admit = |channel, size| {
                let room = hub.room_for(channel, size);
                *is_short = matches!(room, Room::Wait);
                room
            };
            let event = receiver.next_within(connection.input.bytes(), &mut admit)?;
            let Some((event, count)) = event else {
                return Ok(());
            };
            let ended = self.hub.take(event)?;
            connection.input.consume(count);
            if let Some(channel) = ended {
                receiver.forget(channel);
            }
        }
    }

    /// Says that we are there, and notices when the broker is not.
    fn keep_alive(&mut self) -> Result<(), Lost> {
        if self.beat.is_zero() {
            return Ok(());
        }
        let now = Instant::now();
        if now - self.heard > self.beat * 2 {
            let cause = format!("the broker was silent for {:?}", self.beat * 2);
            return Err(Lost::Broken(cause));
        }
        let mut inner = self.hub.inner.borrow_mut();
        if now - self.said > self.beat / 2 && inner.out.is_empty() {
            write::heartbeat(&mut inner.out);
        }
        Ok(())
    }

    /// Says good-bye when the connection is wanted no more; ready when it has been said.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Lost> {
        let mut inner = self.hub.inner.borrow_mut();
        if !inner.is_closing {
            return Ok(Poll::Pending);
        }
        let closing = self.closing.get_or_insert_with(|| Closing {
            has_said: false,
            sleep: Box::pin(sleep(CLOSE_TIME)),
        });
        let is_late = closing.sleep.as_mut().poll(context).is_ready();
        if closing.has_said {
            return Ok(match is_late {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
        }
        if is_late || inner.is_idle() {
            let inner = &mut *inner;
            inner.consumers.flush(&mut inner.out);
            write::connection_close(&mut inner.out, 200);
            closing.has_said = true;
            closing.sleep = Box::pin(sleep(CLOSE_TIME));
            context.waker().wake_by_ref();
        }
        Ok(Poll::Pending)
    }

    /// Writes what waits. Pending when the broker takes no more for now, ready when all has been
    /// written.
    fn write(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Lost> {
        let mut inner = self.hub.inner.borrow_mut();
        loop {
            inner.pump(&self.hub.broker);
            if inner.out.is_empty() {
                return Ok(self.link.connection.poll_flush(context)?);
            }
            while inner.written < inner.out.len() {
                let rest = inner.out.get(inner.written..).unwrap_or_default();
                match self.link.connection.poll_write(context, rest) {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(Ok(count)) => inner.written += count,
                    Poll::Ready(Err(error)) => return Err(error.into()),
                }
            }
            self.said = Instant::now();
            inner.all_written();
        }
    }
}
