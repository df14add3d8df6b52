//! Listeners of the stub: one a thread, a task a connection.

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

/// Serves on all threads until told to stop.
pub(super) fn run(
    address: SocketAddr,
    threads: usize,
    options: &Arc<Options>,
) -> anyhow::Result<()> {
    let first = listen(address, threads > 1)?;
    let address = first.local_addr()?;
    for _ in 1..threads {
        let listener = listen(address, true)?;
        let options = Arc::clone(options);
        thread::Builder::new().spawn(move || serve(listener, &options))?;
    }
    println!("listening on {address}");
    runtime(options)?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            result = accept(first, options) => result?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// Serves one listener on this thread.
pub(super) fn serve(listener: std::net::TcpListener, options: &Arc<Options>) -> io::Result<()> {
    runtime(options)?.block_on(accept(listener, options))
}

fn runtime(options: &Options) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Few looks for new events make larger batches, where no time matters.
    let interval = if options.is_slow() { 16 } else { 128 };
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

async fn accept(listener: std::net::TcpListener, options: &Arc<Options>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    if options.is_slow() {
        options.alarm.start()?;
    }
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let options = Arc::clone(options);
                // How a connection ends is its client's business.
                tokio::spawn(async move { drop(connection(stream, &options).await) });
            }
            // Out of files, most often: what is open may end meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection until it ends.
async fn connection(stream: TcpStream, options: &Arc<Options>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(acceptor) = &options.tls else {
        return match options.clear_h2 {
            true => h2::serve(stream, options).await,
            false => h1::serve(stream, options).await,
        };
    };
    let stream = timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await??;
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => h2::serve(stream, options).await,
        _ => h1::serve(stream, options).await,
    }
}

#[cfg(test)]
mod tests;
