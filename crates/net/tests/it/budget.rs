//! Bodies in small pieces, and how often others are served meanwhile.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

use net::Connection;
use net::http1::{BodyReader, Framing, HeadLimits};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

thread_local! {
    static TURNS: Cell<usize> = const { Cell::new(0) };
}

/// Reads a body to its end; how often others had their turns meanwhile, and its length.
async fn turns_of(body: Vec<u8>, is_raw: bool) -> (usize, usize) {
    TURNS.set(0);
    net::budget::yield_by(|context| {
        TURNS.set(TURNS.get() + 1);
        context.waker().wake_by_ref();
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (socket, peer) = listener.accept().await.unwrap();
    let mut connection = Connection::new(socket, peer).unwrap();
    let written = tokio::spawn(async move {
        client.write_all(&body).await.unwrap();
        client
    });
    let limits = HeadLimits {
        bytes: 1024,
        fields: 10,
    };
    let mut reader = BodyReader::new(Framing::Chunked, limits);
    if is_raw {
        reader = reader.raw();
    }
    let mut length = 0;
    while !reader.is_ended() {
        let taken = poll_fn(|context| {
            reader.poll_take(context, &mut connection, |_, bytes, _| {
                length += bytes.len();
                Poll::Ready(Ok(bytes.len()))
            })
        });
        taken.await.unwrap();
    }
    written.await.unwrap();
    (TURNS.get(), length)
}

#[tokio::test]
async fn others_have_their_turns_however_small_the_chunks_of_a_body_are() {
    const CHUNKS: usize = 40_000;
    let small = [b"1\r\na\r\n".repeat(CHUNKS), b"0\r\n\r\n".to_vec()].concat();
    for is_raw in [false, true] {
        let (turns, length) = turns_of(small.clone(), is_raw).await;
        assert_eq!(length, if is_raw { small.len() } else { CHUNKS });
        // A chunk is some pieces. Handed out with its framing, all that was read at once is one.
        assert!((CHUNKS / 5000..CHUNKS / 500).contains(&turns), "{turns}");
    }
    // Large ones cost next to nothing.
    let large = [&b"20000\r\n"[..], &[b'a'; 0x20000], b"\r\n0\r\n\r\n"].concat();
    assert_eq!(turns_of(large, false).await, (0, 0x20000));
}
