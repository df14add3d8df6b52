//! Driving HTTP/2 connections to upstreams: bytes move until the connection ends, and nothing that
//! the other side does or leaves undone keeps it, and what it holds, for ever.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use component::settings::Settings;
use net::deadline::{Deadline, Deadlines};
use net::http2::Driver;
use tokio::time::Instant;

/// How long a connection that we close stays open for what the other side still sends.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// How long a connection on which a reply is overdue may give no sign of life.
const SUSPECT_TIME: Duration = Duration::from_secs(5);

/// How long a driver waits for the other side.
#[derive(Clone, Copy)]
struct Bounds {
    /// For it to read what is sent.
    blocked: Duration,
    /// For an answer to PING.
    suspect: Duration,
    /// For the end of the connection.
    linger: Duration,
}

/// Runs a connection to an upstream to its end, in a task of its own.
pub(crate) fn spawn(driver: Driver, settings: &Settings, deadlines: &Deadlines) {
    let bounds = Bounds {
        blocked: settings.timeouts.body,
        suspect: SUSPECT_TIME,
        linger: LINGER_TIME,
    };
    let runner = Runner {
        driver,
        deadline: deadlines.add(),
        watched: Watched::Nothing,
        bounds,
    };
    tokio::task::spawn_local(runner.run());
}

struct Runner {
    driver: Driver,
    deadline: Deadline,
    watched: Watched,
    bounds: Bounds,
}

/// What the deadline stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Nothing,
    /// The other side reads nothing; so many bytes had been written by then.
    Blocked(u64),
    /// A sign of life is awaited, for the so manieth time.
    Suspected(u32),
}

impl Runner {
    async fn run(mut self) {
        let is_alive = poll_fn(|context| self.poll(context)).await;
        if let Some(error) = self.driver.error() {
            tracing::warn!(target: "proxy", %error, "a back end broke the rules of HTTP/2");
        }
        if is_alive {
            finish(&mut self.driver, &self.deadline, self.bounds.linger).await;
        } else {
            tracing::warn!(target: "proxy", "an HTTP/2 connection to a back end is dead");
        }
    }

    /// Ready when the connection has ended, or, with `false`, when the other side does nothing.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        while let Poll::Ready(next) = self.driver.poll_next(context) {
            // Only servers take streams; the engine has refused this one.
            if next.is_none() {
                return Poll::Ready(true);
            }
        }
        self.watch();
        self.deadline.poll(context).map(|()| false)
    }

    /// Sets the deadline when what it stands for has changed.
    fn watch(&mut self) {
        let watched = if let Some(number) = self.driver.suspicion() {
            Watched::Suspected(number)
        } else if self.driver.is_blocked() {
            Watched::Blocked(self.driver.written())
        } else {
            Watched::Nothing
        };
        if watched == self.watched {
            return;
        }
        self.watched = watched;
        match watched {
            Watched::Nothing => self.deadline.clear(),
            Watched::Blocked(_) => self.deadline.set(Instant::now(), self.bounds.blocked),
            Watched::Suspected(_) => self.deadline.set(Instant::now(), self.bounds.suspect),
        }
    }
}

/// Ends a connection: what still waits is written, then its end, and the other side's end is
/// awaited, all of it no longer than `time`.
pub(crate) async fn finish(driver: &mut Driver, deadline: &Deadline, time: Duration) {
    deadline.set(Instant::now(), time);
    let mut is_flushed = false;
    poll_fn(|context| {
        while !is_flushed {
            match driver.poll_next(context) {
                Poll::Ready(next) => is_flushed = next.is_none(),
                Poll::Pending => return deadline.poll(context),
            }
        }
        match driver.poll_finish(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => deadline.poll(context),
        }
    })
    .await;
}

/// How long a client's connection that we close stays open.
pub(crate) async fn linger(driver: &mut Driver, deadline: &Deadline) {
    finish(driver, deadline, LINGER_TIME).await;
}

/// The limits of an HTTP/2 connection as `net` wants them.
pub(crate) fn http2_limits(settings: &Settings) -> net::http2::Limits {
    let limits = &settings.limits;
    let h2 = &limits.h2;
    net::http2::Limits {
        streams: h2.streams,
        header_list: limits.head,
        fields: limits.fields,
        stream_window: h2.stream_window,
        connection_window: h2.connection_window,
        resets: h2.resets,
        control_frames: h2.control_frames,
        continuations: h2.continuations,
        ..net::http2::Limits::default()
    }
}
