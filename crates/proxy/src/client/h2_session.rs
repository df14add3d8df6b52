//! One client connection over HTTP/2: every request becomes a task of its own; this one moves the
//! bytes of all of them.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::Connection;
use net::deadline::Deadline;
use net::http2::{Code, Driver, Link, Role, Stream};
use tokio::time::Instant;

use crate::client::h2_request::{Origin, StreamSession};
use crate::upstream::h2_driver::{self, Unfinished, http2_limits};
use crate::worker::{Listener, Worker};

/// How long nothing is under way before the connection gives memory back.
const REST: Duration = Duration::from_secs(1);

/// Serves the connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, listener: Rc<Listener>, client: Connection) {
    let origin = Origin {
        peer: client.peer(),
        is_secure: client.is_tls(),
        certificate: client.certificate().cloned(),
    };
    let limits = http2_limits(&worker.settings());
    let (link, driver) = Link::new(client, Role::Server, limits, Rc::default());
    let mut session = Session {
        deadline: worker.deadlines.add(),
        link,
        driver,
        is_going: false,
        watched: Watched::Nothing,
        unfinished: Unfinished::default(),
        worker,
        listener,
    };
    loop {
        match poll_fn(|context| session.poll_next(context)).await {
            Next::Request(stream) => {
                let worker = Rc::clone(&session.worker);
                let listener = Rc::clone(&session.listener);
                let request = StreamSession::new(worker, listener, stream, origin.clone());
                // Boxed, for the runtime moves a task that is not several times.
                tokio::task::spawn_local(Box::pin(request.run()));
            }
            Next::Idle => session.go_away(),
            Next::Slow => {
                let reason = "a header block or a frame took too long";
                session.driver.abort(Code::CALM, reason);
                break;
            }
            Next::Stuck => return,
            Next::End => break,
        }
    }
    session.finish(origin).await;
}

struct Session {
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    link: Link,
    driver: Driver,
    deadline: Deadline,
    is_going: bool,
    watched: Watched,
    unfinished: Unfinished,
}

/// What the deadline stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Nothing,
    /// Nothing is under way, but may be soon.
    Resting,
    /// Nothing has been under way for a while.
    Idle,
    /// The client takes nothing of what we send; so many bytes had been written by then.
    Stuck(u64),
}

enum Next {
    Request(Stream),
    /// Nothing has been asked for too long.
    Idle,
    /// The client has taken too long to finish what it began to send (`timeouts.head`).
    Slow,
    /// The client has taken nothing for too long.
    Stuck,
    End,
}

impl Session {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if !self.is_going && (self.worker.is_draining() || self.listener.is_closed()) {
            self.go_away();
        }
        match self.driver.poll_next(context) {
            Poll::Ready(Some(stream)) => return Poll::Ready(Next::Request(stream)),
            Poll::Ready(None) => return Poll::Ready(Next::End),
            Poll::Pending => {}
        }
        let worker = &self.worker;
        let time = || worker.settings().timeouts.head;
        let unfinished = &mut self.unfinished;
        let slow = unfinished.poll(&self.driver, &worker.deadlines, time, context);
        if slow.is_ready() {
            return Poll::Ready(Next::Slow);
        }
        self.watch();
        ready!(self.deadline.poll(context));
        if self.watched == Watched::Resting {
            self.link.trim();
            self.watched = Watched::Idle;
            let idle = self.worker.settings().timeouts.idle;
            self.deadline.set(Instant::now(), idle.saturating_sub(REST));
            ready!(self.deadline.poll(context));
        }
        Poll::Ready(match self.watched {
            Watched::Idle if !self.is_going => Next::Idle,
            // It was asked to go, or takes nothing of what we send.
            _ => Next::Stuck,
        })
    }

    /// Sets the deadline when what it stands for has changed.
    fn watch(&mut self) {
        let watched = if self.driver.is_blocked() {
            Watched::Stuck(self.driver.written())
        } else if self.link.stream_count() > 0 {
            Watched::Nothing
        } else if self.watched == Watched::Idle {
            Watched::Idle
        } else {
            Watched::Resting
        };
        if watched == self.watched {
            return;
        }
        self.watched = watched;
        let timeouts = self.worker.settings().timeouts;
        match watched {
            Watched::Nothing => self.deadline.clear(),
            Watched::Resting | Watched::Idle => {
                self.deadline.set(Instant::now(), REST.min(timeouts.idle));
            }
            Watched::Stuck(_) => self.deadline.set(Instant::now(), timeouts.body),
        }
    }

    /// Asks the client to end the connection when what is under way has ended.
    fn go_away(&mut self) {
        self.is_going = true;
        self.watched = Watched::Nothing;
        self.deadline.clear();
        self.link.go_away();
    }

    async fn finish(mut self, origin: Origin) {
        if let Some(error) = self.driver.error() {
            self.worker.metrics.h2_errors.add(1);
            let peer = origin.peer;
            tracing::debug!(target: "proxy", %peer, %error, "a client broke the rules of HTTP/2");
        }
        h2_driver::linger(&mut self.driver, &self.deadline).await;
    }
}
