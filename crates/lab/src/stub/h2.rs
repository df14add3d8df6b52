//! The stub's side of HTTP/2, by the h2 crate.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::h2::server::SendResponse;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Options, date, soap};

const WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;
const STREAMS_MAX: u32 = 100_000;

/// A socket, with TLS or without: as one type, or there would be two copies of a whole server.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Io for S {}

/// Answers requests until the client goes.
pub(super) async fn serve(stream: Box<dyn Io>, options: &Arc<Options>) -> io::Result<()> {
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
    options.counts.begun.fetch_add(1, Ordering::Relaxed);
    let mut response = Response::new(());
    let mut content_type = parts.headers.get(http::header::CONTENT_TYPE).cloned();
    if options.is_soap {
        let (reply, envelope) = soap_answer(&parts, &body);
        *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or_default();
        content_type = Some(HeaderValue::from_static(reply.content_type));
        body = envelope;
    } else if body.is_empty() {
        body = options.fixed.clone();
    }
    options.wait().await;
    options.counts.done.fetch_add(1, Ordering::Relaxed);
    let fields = response.headers_mut();
    fields.insert(http::header::DATE, date::now());
    if let Some(value) = content_type {
        fields.insert(http::header::CONTENT_TYPE, value);
    }
    fields.insert(http::header::CONTENT_LENGTH, body.len().into());
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(body, true)
}

fn soap_answer(parts: &Parts, body: &[u8]) -> (soap::Reply, Bytes) {
    let target = parts.uri.path_and_query().map_or("", |it| it.as_str());
    let authority = parts.uri.authority().map_or("", |it| it.as_str());
    let mut envelope = Vec::new();
    let reply = soap::answer(target.as_bytes(), authority.as_bytes(), body, &mut envelope);
    (reply, Bytes::from(envelope))
}
