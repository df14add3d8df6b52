//! The floor: a relay on one thread that copies bytes one to one between connections and reads
//! nothing of them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const BUFFER: usize = 16 * 1024;

/// Arguments of the hidden `intertie-bench relay`.
#[derive(Debug, clap::Args)]
pub(super) struct RelayArgs {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// Where every connection goes.
    #[arg(long)]
    to: SocketAddr,
}

/// Relays until it is stopped.
pub(super) fn run(args: &RelayArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(128)
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(args.listen).await?;
        accept(listener, args.to).await
    })
}

async fn accept(listener: TcpListener, to: SocketAddr) -> anyhow::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(to).await {
                join(client, server);
            }
        });
    }
}

fn join(client: TcpStream, server: TcpStream) {
    // An option that cannot be set costs time, not truth.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::spawn(copy(from_client, to_server));
    tokio::spawn(copy(from_server, to_client));
}

/// Copies until one side ends; dropping the write half tells the other.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default())
            .await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_go_both_ways_and_ends_too() {
        let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        tokio::spawn(accept(front, backend.local_addr().unwrap()));
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = backend.accept().await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        text.clear();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer");
    }
}
