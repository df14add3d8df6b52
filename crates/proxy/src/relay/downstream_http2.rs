//! The client's side over HTTP/2: a stream of its connection.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use component::forward::ForwardPlan;
use component::settings::Settings;
use message::{Field, Method};
use net::deadline::Deadline;
use net::http1::{End, Framing, TransferError};

use super::failure::ClientGone;
use super::stream::{StreamReader, StreamWriter};
use super::{
    ClientWatch, Content, Download, Downstream, ReplyHead, RequestBody, Requester, Sink, Source,
    Waiting,
};
use crate::client::h2_request::StreamSession;
use crate::client::response_head::{ClientVersion, needs_date, passes_interim, relayed_fields};
use crate::upstream::request_head::Outgoing;
use crate::worker::Worker;

/// A request of an HTTP/2 client, and where its reply goes.
pub(crate) struct Http2Downstream<'a> {
    session: &'a StreamSession,
    request: Outgoing<'a>,
    path: &'a [u8],
    body: RequestBody<StreamReader>,
    writer: StreamWriter,
}

/// A request as it goes into the relay.
pub(crate) struct Inbound<'a> {
    pub request: Outgoing<'a>,
    /// The path that `balance: hash` goes by.
    pub path: &'a [u8],
    /// The body, when it is in memory; otherwise it comes from the client.
    pub content: Option<Content>,
}

impl<'a> Http2Downstream<'a> {
    pub fn new(session: &'a StreamSession, inbound: Inbound<'a>) -> Self {
        let Inbound {
            mut request,
            path,
            content,
        } = inbound;
        let body = match content {
            Some(content) => RequestBody::Message(content),
            None => RequestBody::Client(begin(session, &mut request)),
        };
        Self {
            session,
            request,
            path,
            body,
            writer: StreamWriter::default(),
        }
    }

    /// How many bytes of the reply's body the stream has accepted.
    pub fn replied(&self) -> u64 {
        self.writer.sent()
    }
}

/// Reads a body that comes from the client. One that has ended in a frame of its own is none, which
/// HTTP/1.1 has no need to know.
fn begin(session: &StreamSession, request: &mut Outgoing<'_>) -> StreamReader {
    let mut reader = StreamReader::with_replay(session.settings.limits.h2.stream_window);
    if session
        .stream
        .read(|bytes, end| (0, end && bytes.is_empty()))
    {
        reader.trailers = session.stream.take_trailers();
        if reader.trailers.is_none() {
            request.framing = Framing::None;
        }
    }
    reader
}

impl Source for Http2Downstream<'_> {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        let identity = self.session.settings.identity_field.as_deref();
        self.body
            .poll_take(context, &self.session.stream, identity, take)
    }

    #[inline]
    fn is_ended(&self) -> bool {
        self.body.is_ended()
    }

    fn moved(&self) -> u64 {
        self.body.moved()
    }
}

impl Sink for Http2Downstream<'_> {
    #[inline]
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        self.writer
            .poll_accept(context, &self.session.stream, bytes, end)
    }

    /// The connection's driver writes what streams have said.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn sent(&self) -> u64 {
        self.writer.sent()
    }
}

impl Downstream for Http2Downstream<'_> {
    fn request(&self) -> Outgoing<'_> {
        self.request
    }

    fn can_rewind(&self) -> bool {
        self.body.can_rewind()
    }

    fn rewind(&mut self) {
        self.body.rewind();
    }

    fn answered(&mut self) {
        self.session.deadline.lift();
        if let Some(reader) = self.body.reader_mut() {
            reader.commit(&self.session.stream);
        }
    }

    fn is_starving(&self) -> bool {
        let stream = &self.session.stream;
        let reader = self.body.reader();
        reader.is_some_and(|reader| reader.is_starving(stream))
    }

    fn received(&self) -> u64 {
        self.body.taken()
    }

    fn interim(&mut self, head: &ReplyHead<'_>, plan: &ForwardPlan) {
        if !passes_interim(head.status, ClientVersion::Http2, plan) {
            return;
        }
        let fields = relayed_fields(head.fields, head.connection, &plan.reply_fields, None);
        // A client that has left is noticed at the next poll.
        let _ = self.session.stream.respond(head.status, fields, false);
    }

    fn begin_reply(
        &mut self,
        head: &ReplyHead<'_>,
        plan: &ForwardPlan,
    ) -> Result<Download, ClientGone> {
        let asks_for_head = *self.request.method == Method::Head;
        let has_body =
            !asks_for_head && !matches!(head.framing, Framing::None | Framing::Length(0));
        // Of a reply without a body the length is what the body would have.
        let keeps_length =
            has_body || asks_for_head || head.status == 304 || head.framing == Framing::Length(0);
        let own = self.session.reply_fields.as_ref();
        let own = own.map(|own| own.edits(&plan.reply_fields, head.fields));
        let edits = own.as_ref().unwrap_or(&plan.reply_fields);
        let date = &self.session.worker.date;
        let date = needs_date(head.status, head.fields, edits).then(|| date.text(self.session.now));
        let fields = relayed_fields(head.fields, head.connection, edits, date.as_deref()).filter(
            |(field, _, value)| keeps_length || *field != Field::ContentLength || *value == b"0",
        );
        let stream = &self.session.stream;
        let sent = match &self.session.added_fields {
            None => stream.respond(head.status, fields, !has_body),
            Some(added) => {
                let added = added.fields(head.fields);
                let added =
                    added.map(|(_, name, it)| (Field::Other, name.as_bytes(), it.as_bytes()));
                stream.respond(head.status, fields.chain(added), !has_body)
            }
        };
        sent.map_err(|_| ClientGone)?;
        Ok(match has_body {
            true => Download::Content,
            false => Download::Nothing,
        })
    }

    fn withdraw_reply(&mut self) -> bool {
        false
    }

    fn deadline(&self) -> &Deadline {
        &self.session.deadline
    }

    fn poll_disconnected(&mut self, context: &mut Context<'_>, _: bool) -> bool {
        self.session.stream.fate(context).is_some()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.session.worker.return_scratch(buffer);
    }
}

impl Requester for Http2Downstream<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }

    fn waiting(&mut self) -> Waiting<'_> {
        Waiting {
            deadline: &self.session.deadline,
            client: ClientWatch::Http2(&self.session.stream),
        }
    }

    fn worker(&self) -> &Rc<Worker> {
        &self.session.worker
    }

    fn settings(&self) -> &Settings {
        &self.session.settings
    }

    fn content(&self) -> Option<Bytes> {
        self.body.whole()
    }
}
