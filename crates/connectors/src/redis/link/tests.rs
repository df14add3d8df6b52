//! What becomes of commands when the task ends that reads and writes a connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use redis::{AsyncConnectionConfig, cmd};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::testing::StandIn;

/// How a socket comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Panic,
    Close,
}

/// A server that takes everything and answers nothing.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    end: Option<End>,
    reader: Option<Waker>,
    written: usize,
}

impl Socket {
    fn end(&self, end: End) {
        let mut state = self.0.lock().unwrap();
        state.end = Some(end);
        if let Some(waker) = state.reader.take() {
            waker.wake();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let end = {
            let mut state = self.0.lock().unwrap();
            state.reader = Some(context.waker().clone());
            state.end
        };
        match end {
            Some(End::Panic) => panic!("on purpose"),
            Some(End::Close) => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().written += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A connection over a socket of ours.
async fn live(socket: &Socket) -> Live {
    let who = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        .set_skip_set_lib_name();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let made = MultiplexedConnection::new_with_config(&who, socket.clone(), config).await;
    Live::new("cache", made.unwrap())
}

#[test]
fn commands_fail_at_once_when_the_driver_ends() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build_local(Default::default()).unwrap();
    // Nothing takes too long: who waits for what never comes waits for ever.
    let services = StandIn {
        is_timeless: true,
        ..StandIn::default()
    };
    for end in [End::Panic, End::Close] {
        let socket = Socket::default();
        runtime.block_on(async {
            let live = live(&socket).await;
            let (time, ask) = (Duration::from_secs(1), cmd("PING"));
            let ended = async {
                while socket.0.lock().unwrap().written == 0 {
                    tokio::task::yield_now().await;
                }
                assert!(!live.is_over.get());
                socket.end(end);
            };
            let both = [
                live.command(&ask, time, &services),
                live.command(&ask, time, &services),
            ];
            let waiting = futures_util::future::join_all(both);
            let (answers, ()) = futures_util::future::join(waiting, ended).await;
            for answer in answers {
                assert_eq!(answer.unwrap_err().name(), "connection", "{end:?}");
            }
            // The next command does not have to fail to find that out.
            assert!(live.is_over.get(), "{end:?}");
        });
    }
}

#[test]
fn a_connection_whose_driver_panics_while_nobody_waits_is_over() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build_local(Default::default()).unwrap();
    let socket = Socket::default();
    runtime.block_on(async {
        let live = live(&socket).await;
        tokio::task::yield_now().await;
        socket.end(End::Panic);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(live.is_over.get());
    });
}
