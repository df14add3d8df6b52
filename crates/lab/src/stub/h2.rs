//! The stub's side of HTTP/2, by the h2 crate.

use std::io;
use std::sync::Arc;

use ::h2::server::SendResponse;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Options;

const WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;
const STREAMS_MAX: u32 = 100_000;

/// Answers requests until the client goes.
pub(super) async fn serve<S>(stream: S, options: &Arc<Options>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = ::h2::server::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .handshake::<_, Bytes>(stream)
        .await
        .map_err(io::Error::other)?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.map_err(io::Error::other)?;
        let options = Arc::clone(options);
        // A stream that fails was reset by the client.
        tokio::spawn(async move { drop(answer(request, respond, &options).await) });
    }
    Ok(())
}

async fn answer(
    request: Request<::h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    options: &Options,
) -> Result<(), ::h2::Error> {
    let (parts, mut received) = request.into_parts();
    let mut body = Bytes::new();
    while let Some(data) = received.data().await {
        let data = data?;
        received.flow_control().release_capacity(data.len())?;
        body = match body.is_empty() {
            true => data,
            false => {
                let mut joined = BytesMut::from(body);
                joined.extend_from_slice(&data);
                joined.freeze()
            }
        };
    }
    if body.is_empty() {
        body = options.fixed.clone();
    }
    options.wait().await;
    let mut response = Response::new(());
    let fields = response.headers_mut();
    if let Some(value) = parts.headers.get(http::header::CONTENT_TYPE) {
        fields.insert(http::header::CONTENT_TYPE, value.clone());
    }
    fields.insert(http::header::CONTENT_LENGTH, body.len().into());
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(body, true)
}
