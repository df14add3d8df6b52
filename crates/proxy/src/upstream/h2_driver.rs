//! Driving HTTP/2 connections to upstreams: bytes move until the connection ends, and nothing that
//! the other side does or leaves undone keeps it, and what it holds, for ever.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::settings::Settings;
use net::deadline::{Deadline, Deadlines};
use net::http2::{Driver, Suspicion};
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
    /// For the end of a header block or frame that has begun.
    head: Duration,
    /// For the end of the connection.
    linger: Duration,
}

impl Bounds {
    fn of(settings: &Settings) -> Self {
        // The request that waits must come to its own deadline first, which may have begun a moment
        // later: only then is its client told that the reply is late, not that the connection is
        // closed. From that moment on the connection is suspected.
        let behind = |request: Duration| request.saturating_add(SUSPECT_TIME);
        Self {
            blocked: behind(settings.timeouts.body),
            suspect: SUSPECT_TIME,
            head: behind(settings.timeouts.response),
            linger: LINGER_TIME,
        }
    }
}

/// Runs a connection to an upstream to its end, in a task of its own.
pub(crate) fn spawn(driver: Driver, settings: &Settings, deadlines: &Deadlines) {
    let runner = Runner {
        driver,
        deadline: deadlines.add(),
        deadlines: deadlines.clone(),
        unfinished: Unfinished::default(),
        watched: Watched::Nothing,
        bounds: Bounds::of(settings),
    };
    tokio::task::spawn_local(runner.run());
}

struct Runner {
    driver: Driver,
    deadline: Deadline,
    deadlines: Deadlines,
    unfinished: Unfinished,
    watched: Watched,
    bounds: Bounds,
}

/// The header block or frame that the other side has begun and not finished, and its deadline.
#[derive(Default)]
pub(crate) struct Unfinished(Option<(u64, Deadline)>);

impl Unfinished {
    /// Ready when the other side has taken longer than `time` to finish its settings, a header
    /// block or a frame other than DATA. However many bytes come meanwhile, the time runs from the
    /// beginning. Nothing else of the connection is read before that end.
    pub fn poll(
        &mut self,
        driver: &Driver,
        deadlines: &Deadlines,
        time: impl FnOnce() -> Duration,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(number) = driver.unfinished() else {
            self.0 = None;
            return Poll::Pending;
        };
        match &self.0 {
            Some((known, deadline)) if *known == number => deadline.poll(context),
            _ => {
                let deadline = deadlines.add();
                deadline.set(Instant::now(), time());
                let result = deadline.poll(context);
                self.0 = Some((number, deadline));
                result
            }
        }
    }
}

/// What the deadline stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Nothing,
    /// The other side reads nothing; so many bytes had been written by then.
    Blocked(u64),
    /// A sign of life is awaited.
    Suspected(Suspicion),
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
        let head = self.bounds.head;
        let unfinished = &mut self.unfinished;
        let slow = unfinished.poll(&self.driver, &self.deadlines, || head, context);
        if slow.is_ready() {
            return Poll::Ready(false);
        }
        loop {
            self.watch();
            ready!(self.deadline.poll(context));
            match self.watched {
                // Others need not wait for it too. Their requests that are under way have deadlines
                // of their own.
                Watched::Suspected(Suspicion::Probed(_)) => self.driver.hold_back_streams(),
                _ => return Poll::Ready(false),
            }
        }
    }

    /// Sets the deadline when what it stands for has changed.
    fn watch(&mut self) {
        let watched = if let Some(suspicion) = self.driver.suspicion() {
            Watched::Suspected(suspicion)
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
            // Whoever has given up was impatient: others may still get what they wait for.
            Watched::Suspected(Suspicion::Unanswered(_)) => {
                self.deadline.set(Instant::now(), self.bounds.head);
            }
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

#[cfg(test)]
mod tests {
    use net::Connection;
    use net::deadline::Deadlines;
    use net::http2::{Link, RequestLine, Role, Stream, StreamError};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const SHORT: Bounds = Bounds {
        blocked: Duration::from_millis(100),
        suspect: Duration::from_millis(100),
        head: Duration::from_millis(100),
        linger: Duration::from_millis(100),
    };

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap()
            .block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await })
            .unwrap();
    }

    /// A server of raw frames, a link to it, and the task that drives it.
    async fn begin(bounds: Bounds) -> (TcpStream, Link, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(&SETTINGS).await.unwrap();
        let connection = Connection::new(client, address).unwrap();
        let limits = net::http2::Limits::default();
        let (link, driver) = Link::new(connection, Role::Client, limits, Default::default());
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let runner = Runner {
            driver,
            deadline: deadlines.add(),
            unfinished: Unfinished::default(),
            deadlines,
            watched: Watched::Nothing,
            bounds,
        };
        (server, link, tokio::task::spawn_local(runner.run()))
    }

    fn open(link: &Link, end: bool) -> Stream {
        let line = RequestLine {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path: b"/",
        };
        link.open(line, [], end).unwrap()
    }

    async fn read_until(socket: &mut TcpStream, end: &[u8]) {
        let mut input = Vec::new();
        while !input.windows(end.len()).any(|part| part == end) {
            assert!(socket.read_buf(&mut input).await.unwrap() > 0);
        }
    }

    async fn error(stream: &Stream) -> StreamError {
        poll_fn(|context| match stream.fate(context) {
            Some(error) => Poll::Ready(error),
            None => Poll::Pending,
        })
        .await
    }

    #[test]
    fn a_server_that_does_not_close_after_its_goaway_is_left() {
        run(async {
            let (mut server, link, driving) = begin(SHORT).await;
            server.write_all(&GOAWAY).await.unwrap();
            driving.await.unwrap();
            assert!(link.is_over());
        });
    }

    #[test]
    fn a_server_that_does_not_close_after_our_goaway_is_left() {
        run(async {
            let (_server, link, driving) = begin(SHORT).await;
            link.go_away();
            driving.await.unwrap();
        });
    }

    #[test]
    fn a_server_that_reads_nothing_is_left() {
        run(async {
            let (mut server, link, driving) = begin(SHORT).await;
            // Windows without end: 2^31 - 1 for streams, as much again for the connection.
            let windows: [u8; 28] = [
                0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff, // SETTINGS
                0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0, // WINDOW_UPDATE
            ];
            server.write_all(&windows).await.unwrap();
            let stream = open(&link, false);
            let piece = vec![0; 64 * 1024];
            let end = poll_fn(|context| {
                loop {
                    if let Some(error) = stream.fate(context) {
                        return Poll::Ready(error);
                    }
                    if stream.send(&piece, false).unwrap_or_default() == 0 {
                        return Poll::Pending;
                    }
                }
            });
            assert_eq!(end.await, StreamError::Closed);
            driving.await.unwrap();
        });
    }

    #[test]
    fn a_server_that_never_finishes_a_header_block_is_left() {
        run(async {
            let (mut server, link, driving) = begin(SHORT).await;
            read_until(&mut server, &[0, 0, 0, 4, 1, 0, 0, 0, 0]).await;
            let stream = open(&link, true);
            // HEADERS without END_HEADERS, and CONTINUATION of one byte again and again.
            server
                .write_all(&[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88])
                .await
                .unwrap();
            let drip = tokio::task::spawn_local(async move {
                let byte = [0, 0, 0, 9, 0, 0, 0, 0, 1];
                for part in byte.iter().cycle() {
                    if server.write_all(&[*part]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            assert_eq!(error(&stream).await, StreamError::Closed);
            driving.await.unwrap();
            drip.abort();
        });
    }

    /// Equal bounds would race, and a client would read 502 for a reply that is late.
    #[test]
    fn a_request_comes_to_its_own_deadline_before_the_connection_does() {
        let settings = Settings::default();
        let bounds = Bounds::of(&settings);
        assert!(bounds.head > settings.timeouts.response);
        assert!(bounds.blocked > settings.timeouts.body);
    }

    #[test]
    fn a_suspected_server_that_is_silent_is_left_and_its_streams_end() {
        run(async {
            let (mut server, link, driving) = begin(SHORT).await;
            // Nothing of the server is under way once its settings are acknowledged.
            read_until(&mut server, &[0, 0, 0, 4, 1, 0, 0, 0, 0]).await;
            let stream = open(&link, true);
            link.suspect();
            assert_eq!(error(&stream).await, StreamError::Closed);
            assert!(link.is_over());
            driving.await.unwrap();
        });
    }

    #[test]
    fn a_suspected_server_that_answers_is_kept() {
        run(async {
            let patient = Bounds {
                suspect: Duration::from_secs(20),
                ..SHORT
            };
            let (mut server, link, driving) = begin(patient).await;
            let _stream = open(&link, true);
            link.suspect();
            read_until(&mut server, b"suspect?").await;
            let answer = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], b"suspect?"].concat();
            server.write_all(&answer).await.unwrap();
            while link.is_suspected() {
                tokio::task::yield_now().await;
            }
            assert!(link.may_open().is_ok() && !driving.is_finished());
        });
    }
}
