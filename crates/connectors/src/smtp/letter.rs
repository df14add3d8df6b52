//! A mail as it goes over the wire (RFC 5322, MIME). Every address is parsed by itself, so that no
//! value can add a recipient.

use std::time::{Duration, SystemTime};

use component::handler::Services;
use lettre::address::Envelope;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Body, Mailbox, MessageBuilder, MultiPart, SinglePart};
use lettre::{Address, Message};
use message::{Fault, Kind, Origin};

use super::mail::Made;

/// A mail as it goes over the wire.
pub(super) struct Letter {
    pub envelope: Envelope,
    pub bytes: Vec<u8>,
    /// Its `Message-ID`.
    pub id: String,
}

/// Writes a mail.
///
/// # Errors
/// `invalid` for an address that is none.
pub(super) fn write(made: &Made, services: &dyn Services) -> Result<Letter, Fault> {
    let from = mailbox("from", &made.from)?;
    let id = id(&from.email, services);
    let now = SystemTime::UNIX_EPOCH + services.wall();
    let mut builder = Message::builder()
        .message_id(Some(id.clone()))
        .date(now)
        .from(from.clone())
        .subject(made.subject.as_str());
    let mut recipients = Vec::new();
    type Adds = fn(MessageBuilder, Mailbox) -> MessageBuilder;
    let lists: [(&str, &Vec<String>, Adds); 3] = [
        ("to", &made.to, MessageBuilder::to),
        ("cc", &made.cc, MessageBuilder::cc),
        ("reply_to", &made.reply_to, MessageBuilder::reply_to),
    ];
    for (what, list, add) in lists {
        for text in list {
            let mailbox = mailbox(what, text)?;
            if what != "reply_to" {
                recipients.push(mailbox.email.clone());
            }
            builder = add(builder, mailbox);
        }
    }
    for text in &made.bcc {
        recipients.push(mailbox("bcc", text)?.email);
    }
    for (name, text) in &made.headers {
        let name = HeaderName::new_from_ascii(name.clone()).map_err(|_| odd("a header's name"))?;
        builder = builder.raw_header(HeaderValue::new(name, text.clone()));
    }
    let envelope = Envelope::new(Some(from.email), recipients);
    let envelope = envelope.map_err(|_| odd("the list of recipients"))?;
    let message = with_content(builder.envelope(envelope.clone()), made)?;
    Ok(Letter {
        envelope,
        bytes: message.formatted(),
        id,
    })
}

fn with_content(builder: MessageBuilder, made: &Made) -> Result<Message, Fault> {
    let text = made
        .text
        .as_ref()
        .map(|text| SinglePart::plain(text.clone()));
    let html = made
        .html
        .as_ref()
        .map(|html| SinglePart::html(html.clone()));
    let failed = |_| odd("the whole");
    if made.attachments.is_empty() {
        return match (text, html) {
            (Some(text), Some(html)) => builder.multipart(alternative(text, html)),
            (Some(part), None) | (None, Some(part)) => builder.singlepart(part),
            (None, None) => builder.body(String::new()),
        }
        .map_err(failed);
    }
    let mixed = MultiPart::mixed();
    let mut mixed = match (text, html) {
        (Some(text), Some(html)) => mixed.multipart(alternative(text, html)),
        (Some(part), None) | (None, Some(part)) => mixed.singlepart(part),
        (None, None) => mixed.build(),
    };
    for (name, media_type, content) in &made.attachments {
        let media_type = ContentType::parse(media_type).map_err(|_| odd("a media type"))?;
        let content = Body::new(content.clone());
        mixed = mixed.singlepart(Attachment::new(name.clone()).body(content, media_type));
    }
    builder.multipart(mixed).map_err(failed)
}

fn alternative(text: SinglePart, html: SinglePart) -> MultiPart {
    MultiPart::alternative().singlepart(text).singlepart(html)
}

/// One address with or without a name.
fn mailbox(what: &str, text: &str) -> Result<Mailbox, Fault> {
    text.parse().map_err(|_| {
        let detail = format!("an address in `{what}` of a mail is none");
        Fault::invalid(detail)
    })
}

/// An id that no other mail has (RFC 5322, section 3.6.4).
fn id(from: &Address, services: &dyn Services) -> String {
    let mut random = String::new();
    for _ in 0..3 {
        let part = (services.random() * f64::from(u32::MAX)) as u32;
        random.push_str(&format!("{part:08x}"));
    }
    let time: Duration = services.wall();
    format!("<{:x}.{random}@{}>", time.as_nanos(), from.domain())
}

/// The builder does not take what we have checked.
fn odd(what: &str) -> Fault {
    let fault = Fault::new(Kind::Internal, Origin::Engine, "a mail cannot be written");
    fault.with_cause(format_args!("{what} is refused"))
}
