//! Listeners of the stub: one a thread, a task a connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use anyhow::Context;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::{Options, h1, h2};

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
const BACKLOG: i32 = 4096;

/// What a stub does with a connection.
pub(super) trait Service: Send + Sync + 'static {
    /// Whether it answers at times of its own rather than as soon as it can.
    fn is_slow(&self) -> bool {
        false
    }

    /// Starts what all connections of a thread need.
    ///
    /// # Errors
    /// When the system has none of it.
    fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    /// Serves one connection until it ends.
    fn connection(
        self: Arc<Self>,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<()>> + Send;
}

/// Serves on all threads until told to stop.
pub(super) fn run<S: Service>(
    address: SocketAddr,
    threads: usize,
    service: &Arc<S>,
) -> anyhow::Result<()> {
    let first = listen(address, threads > 1)?;
    let address = first.local_addr()?;
    for _ in 1..threads {
        let listener = listen(address, true)?;
        let service = Arc::clone(service);
        thread::Builder::new().spawn(move || serve(listener, &service))?;
    }
    println!("listening on {address}");
    runtime(service.as_ref())?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            result = accept(first, service) => result?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// Serves one listener on this thread.
pub(super) fn serve<S: Service>(
    listener: std::net::TcpListener,
    service: &Arc<S>,
) -> io::Result<()> {
    runtime(service.as_ref())?.block_on(accept(listener, service))
}

fn runtime(service: &impl Service) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Few looks for new events make larger batches, where no time matters.
    let interval = if service.is_slow() { 16 } else { 128 };
    builder.enable_all().event_interval(interval).build()
}

/// Listens, with others on the same port or alone.
pub(super) fn listen(
    address: SocketAddr,
    is_shared: bool,
) -> anyhow::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    socket
        .bind(&address.into())
        .with_context(|| format!("cannot listen on {address}"))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

async fn accept<S: Service>(listener: std::net::TcpListener, service: &Arc<S>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    service.begin()?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = Arc::clone(service);
                // How a connection ends is its client's business.
                tokio::spawn(async move { drop(service.connection(stream).await) });
            }
            // Out of files, most often: what is open may end meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

impl Service for Options {
    fn is_slow(&self) -> bool {
        Self::is_slow(self)
    }

    fn begin(&self) -> io::Result<()> {
        match Self::is_slow(self) {
            true => self.alarm.start(),
            false => Ok(()),
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let options = &self;
        let Some(acceptor) = &options.tls else {
            return match options.clear_h2 {
                true => h2::serve(Box::new(stream), options).await,
                false => h1::serve(stream, options).await,
            };
        };
        let stream = timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await??;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => h2::serve(Box::new(stream), options).await,
            _ => h1::serve(stream, options).await,
        }
    }
}

#[cfg(test)]
mod tests;
