//! The client's side over HTTP/1.1: the connection of a session.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use component::forward::ForwardPlan;
use component::settings::Settings;
use message::{Field, Method, Request};
use net::deadline::Deadline;
use net::http1::{BodyReader, BodyWriter, End, Framing, TransferError, Version};

use super::failure::ClientGone;
use super::{
    ClientWatch, Content, Download, Downstream, Progress, ReplyHead, RequestBody, Requester, Sink,
    Source, Waiting, has_left,
};
use crate::client::door::Stripped;
use crate::client::response_head::{self, ClientSide, ClientVersion, passes_interim};
use crate::client::session::Session;
use crate::upstream::request_head::{CameBy, Outgoing, SentBy};
use crate::worker::Worker;

/// A request of an HTTP/1.1 client, and where its reply goes.
pub(crate) struct Http1Downstream<'a> {
    session: &'a mut Session,
    request: RequestSource,
    body: RequestBody<BodyReader>,
    writer: BodyWriter,
    /// How many bytes stand before the reply's body.
    head_length: u64,
    /// Whether the client has been told to send its body.
    is_continued: bool,
    /// Whether the client's connection ends behind the reply.
    pub closes: bool,
    /// Whether that end is what tells the client that the body is whole.
    pub ends_with_connection: bool,
}

/// Where the head of the request is.
pub(crate) enum RequestSource {
    /// In the client's buffer; the span of what `*` matched.
    Client {
        rest: Option<(u32, u32)>,
        /// The path, when it is not the one in the buffer.
        path: Option<Vec<u8>>,
        /// What goes no further.
        stripped: Option<Box<Stripped>>,
    },
    /// A message of the message path, whose head has been taken off the buffer.
    Message(Box<Request>),
}

impl<'a> Http1Downstream<'a> {
    pub fn new(session: &'a mut Session, request: RequestSource) -> Self {
        let limits = session.head_limits();
        let framing = session.head.framing;
        let body = match &request {
            RequestSource::Client { .. } => RequestBody::Client(BodyReader::with_replay(
                framing,
                limits,
                session.head.length,
            )),
            RequestSource::Message(message) => match Content::of(&message.body) {
                Some(content) => RequestBody::Message(content),
                None => RequestBody::Client(BodyReader::with_replay(framing, limits, 0)),
            },
        };
        // A body in memory has been sent already.
        let is_continued = matches!(body, RequestBody::Message(_));
        Self {
            session,
            request,
            body,
            writer: BodyWriter::new(Vec::new()),
            head_length: 0,
            is_continued,
            closes: false,
            ends_with_connection: false,
        }
    }

    pub fn into_session(self) -> &'a mut Session {
        self.session
    }

    /// Writes what has been accepted, within the time that a body may stand still.
    pub async fn flush(&mut self) -> io::Result<()> {
        let time = self.session.settings.timeouts.body;
        let mut progress = Progress::new(None);
        poll_fn(|context| {
            if let Poll::Ready(result) = self.poll_flush(context) {
                return Poll::Ready(result);
            }
            let is_late = progress.poll(context, &self.session.deadline, self.sent(), time);
            is_late.map(|()| Err(io::ErrorKind::TimedOut.into()))
        })
        .await
    }

    /// Whether nothing of the request's body is still to come from the client.
    pub fn is_whole(&self) -> bool {
        self.body.reader().is_none_or(BodyReader::is_drained)
    }

    /// How many bytes of the reply's body the connection has accepted, framing included.
    pub fn replied(&self) -> u64 {
        self.writer.sent().saturating_sub(self.head_length)
    }

    /// Writes the rest of an interim reply that has gone out in part: another head may not stand in
    /// the middle of it.
    pub async fn finish_interim(&mut self) -> io::Result<()> {
        match self.writer.is_partly_written() {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// Drops what is there of the request. True when that was all of it.
    pub fn discard(&mut self) -> bool {
        if let Some(reader) = self.body.reader_mut() {
            reader.discard(&mut self.session.client.input);
        }
        self.is_whole()
    }

    /// Gives buffers back. What is left in the client's input belongs to what follows the request.
    pub fn finish(&mut self) {
        self.commit();
        if let Some(buffer) = self.writer.take_buffer() {
            self.session.worker.return_scratch(buffer);
        }
    }

    fn commit(&mut self) {
        if let Some(reader) = self.body.reader_mut() {
            reader.commit(&mut self.session.client.input);
        }
    }

    fn message<'b>(&'b self, message: &'b Request) -> Outgoing<'b> {
        let head = &self.session.head;
        let outgoing = Outgoing::of_message(message, head.framing);
        Outgoing {
            upgrades: head.upgrades_to_websocket && outgoing.framing == Framing::None,
            identity_field: self.session.settings.identity_field.as_deref(),
            ..outgoing
        }
    }

    fn head_bytes(&self) -> &[u8] {
        self.session.client.input.bytes()
    }

    fn client_path(&self) -> &[u8] {
        match &self.request {
            RequestSource::Client {
                path: Some(path), ..
            } => path,
            _ => self.session.head.path(self.head_bytes()),
        }
    }

    /// How a reply's body is framed for the client.
    fn framing_of(&self, head: &ReplyHead<'_>) -> (Framing, Download) {
        let is_head = self.session.head.method == Method::Head;
        // A reply to another method than the client's has a body where the client expects none.
        let content = match is_head {
            true => Download::Nothing,
            false => Download::Content,
        };
        match (head.framing, self.session.head.version) {
            (Framing::None, _) => (Framing::None, Download::Nothing),
            (Framing::Length(_), Version::Http11) if !is_head && announces_trailers(head) => {
                (Framing::Chunked, content)
            }
            // The client has all with the head, though the stream may end behind it.
            (Framing::Length(0), _) if head.connection.is_none() => {
                (Framing::Length(0), Download::Nothing)
            }
            (Framing::Length(length), _) => (Framing::Length(length), content),
            (Framing::Chunked, Version::Http11) if !is_head => (Framing::Chunked, Download::Raw),
            (_, Version::Http11) => (Framing::Chunked, content),
            (_, Version::Http10) => (Framing::UntilClose, content),
        }
    }
}

/// Whether a reply over HTTP/2 with a `Content-Length` announces trailers (`Trailer`). HTTP/1.1 can
/// carry them only with chunked framing; trailers that are not announced are dropped (RFC 9110,
/// section 6.5.1).
fn announces_trailers(head: &ReplyHead<'_>) -> bool {
    head.connection.is_none() && head.fields.first(Field::Trailer).is_some()
}

impl Source for Http1Downstream<'_> {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        let identity = self.session.settings.identity_field.as_deref();
        self.body
            .poll_take(context, &mut self.session.client, identity, take)
    }

    #[inline]
    fn is_ended(&self) -> bool {
        self.body.is_ended()
    }

    fn moved(&self) -> u64 {
        self.body.moved()
    }
}

impl Sink for Http1Downstream<'_> {
    #[inline]
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        self.writer
            .poll_accept(context, &mut self.session.client, bytes, end)
    }

    #[inline]
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_flush(context, &mut self.session.client)
    }

    fn sent(&self) -> u64 {
        self.writer.sent() + self.session.client.records_taken()
    }
}

impl Downstream for Http1Downstream<'_> {
    fn request(&self) -> Outgoing<'_> {
        let (path, rest, stripped) = match &self.request {
            RequestSource::Message(message) => return self.message(message),
            RequestSource::Client { rest, stripped, .. } => {
                (self.client_path(), *rest, stripped.as_deref())
            }
        };
        let (head, bytes) = (&self.session.head, self.head_bytes());
        let query = stripped.and_then(|it| it.query.as_ref());
        Outgoing {
            method: &head.method,
            query: match query {
                None => head.query(bytes),
                Some(query) => query.as_deref().map(str::as_bytes),
            },
            rest: rest.and_then(|(start, end)| path.get(start as usize..end as usize)),
            headers: head.headers(bytes),
            connection: Some((&head.connection, bytes)),
            framing: head.framing,
            upgrades: head.upgrades_to_websocket,
            peer: self.peer(),
            sent_by: SentBy::Peer(self.session.settings.trusted_proxies.as_deref()),
            is_secure: self.session.client.is_tls(),
            came_by: CameBy::Http1,
            strip: stripped.map_or(&[], |it| &it.lines),
            identity_field: self.session.settings.identity_field.as_deref(),
            caller: None,
        }
    }

    fn can_rewind(&self) -> bool {
        self.body.can_rewind()
    }

    fn rewind(&mut self) {
        self.body.rewind();
    }

    fn answered(&mut self) {
        self.session.deadline.lift();
        self.commit();
    }

    fn is_starving(&self) -> bool {
        self.body.reader().is_some_and(BodyReader::is_starving)
    }

    fn received(&self) -> u64 {
        self.body.taken()
    }

    fn delivered(&self) -> u64 {
        self.session.client.delivered(self.writer.sent())
    }

    fn interim(&mut self, head: &ReplyHead<'_>, plan: &ForwardPlan) {
        let client = ClientVersion::Http1(self.session.head.version);
        // Once only: proxies such as Caddy send one of their own and that of their back end, and
        // many clients, Java's HttpClient and aiohttp among them, take the second for the reply.
        let is_repeated = head.status == 100 && std::mem::replace(&mut self.is_continued, true);
        if !is_repeated && passes_interim(head.status, client, plan) {
            let client = self.client_side(false);
            let reply = response_head::Relayed {
                head,
                framing: Framing::None,
                client,
                method: &self.session.head.method,
                edits: &plan.reply_fields,
                added_fields: None,
                date: None,
            };
            reply.write(self.writer.staged_mut());
        }
    }

    fn begin_reply(
        &mut self,
        head: &ReplyHead<'_>,
        plan: &ForwardPlan,
    ) -> Result<Download, ClientGone> {
        let (framing, download) = self.framing_of(head);
        self.ends_with_connection = framing == Framing::UntilClose;
        // A refusal before the request's end: nobody will read the rest.
        let is_refused = head.status >= 400 && !self.is_whole();
        self.closes = self.ends_with_connection || is_refused || self.session.closes_after_this();
        let own = self.session.reply_fields.as_ref();
        let own = own.map(|own| own.edits(&plan.reply_fields, head.fields));
        let reply = response_head::Relayed {
            head,
            framing,
            client: self.client_side(self.closes),
            method: &self.session.head.method,
            edits: own.as_ref().unwrap_or(&plan.reply_fields),
            added_fields: self.session.added_fields.as_deref(),
            date: Some((&self.session.worker.date, self.session.now)),
        };
        let staged = self.writer.staged_mut();
        if staged.capacity() == 0 {
            *staged = self.session.worker.take_scratch();
        }
        reply.write(staged);
        let staged = staged.len() as u64;
        self.head_length = self.writer.sent() + staged;
        let is_chunked = framing == Framing::Chunked && download == Download::Content;
        self.writer.set_chunked(is_chunked);
        Ok(download)
    }

    #[inline]
    fn writes_alone(&self) -> bool {
        true
    }

    fn withdraw_reply(&mut self) -> bool {
        let is_here = self.writer.sent() == 0;
        if is_here {
            self.writer.staged_mut().clear();
        }
        is_here
    }

    fn deadline(&self) -> &Deadline {
        &self.session.deadline
    }

    fn poll_disconnected(&mut self, context: &mut Context<'_>, is_upload_over: bool) -> bool {
        is_upload_over && has_left(context, &mut self.session.client)
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.session.worker.return_scratch(buffer);
    }
}

impl Requester for Http1Downstream<'_> {
    fn path(&self) -> &[u8] {
        match &self.request {
            RequestSource::Message(message) => message.path.as_bytes(),
            RequestSource::Client { .. } => self.client_path(),
        }
    }

    fn waiting(&mut self) -> Waiting<'_> {
        Waiting {
            deadline: &self.session.deadline,
            client: ClientWatch::Http1(&mut self.session.client),
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

impl Http1Downstream<'_> {
    fn client_side(&self, closes: bool) -> ClientSide {
        ClientSide {
            version: self.session.head.version,
            closes,
        }
    }

    fn peer(&self) -> IpAddr {
        self.session.client.peer()
    }
}
