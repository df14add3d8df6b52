//! `mail`: sends a mail.

use std::sync::Arc;

use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Span, Spanned, Value as Yaml};
use expr::template::Template;
use expr::{Value, value};
use message::{Fault, Headers};
use schemars::JsonSchema;
use serde::Deserialize;

use super::connection::Smtp;
use crate::codes::BAD_MAIL;
use crate::{ask, named};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "mail",
    summary: "Sends an e-mail.",
    documentation: include_str!("mail.md"),
    example: include_str!("mail.yaml"),
    schema: config::schema_for::<MailConfig>,
    build,
};

/// The most recipients of one mail (RFC 5321, section 4.5.3.1.8, asks servers for 100 at least).
const RECIPIENTS_MAX: usize = 1000;
/// The most bytes of a header's text.
const LINE_MAX: usize = 10_000;
/// Headers that other keys make, or the engine.
const RESERVED: [&str; 14] = [
    "from",
    "to",
    "cc",
    "bcc",
    "reply-to",
    "sender",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "received",
    "return-path",
    "dkim-signature",
    "resent-to",
];

/// A mail. All texts may have `${ }` in them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(
    dead_code,
    reason = "addresses and values are read from the tree, which knows the place of each"
)]
struct MailConfig {
    /// The connection: an `smtp` one of `use:`.
    via: Spanned<String>,
    /// The sender: `shop@example.com` or `The shop <shop@example.com>`.
    from: Spanned<String>,
    /// The recipients: an address or a list of addresses, each of which may be an expression for
    /// one address. `{ list: "${ }" }` takes a list from an expression.
    to: AnyValue,
    /// Recipients of a copy.
    cc: Option<AnyValue>,
    /// Recipients of a blind copy.
    bcc: Option<AnyValue>,
    /// The addresses for answers.
    reply_to: Option<AnyValue>,
    /// The subject: one line.
    subject: Spanned<String>,
    /// The text.
    text: Option<Spanned<String>>,
    /// The text as HTML. Values are inserted as they are: escape those that may contain `<` with
    /// `@html`.
    html: Option<Spanned<String>>,
    /// Attached files.
    attachments: Option<Vec<AttachmentConfig>>,
    /// Further headers.
    headers: Option<AnyValue>,
}

/// A file that goes with a mail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AttachmentConfig {
    /// The file's name; may contain `${ }`.
    name: Spanned<String>,
    /// The media type, the same for every message. The default is `application/octet-stream`.
    r#type: Option<Spanned<String>>,
    /// The content, with `${ }` in its strings: strings and bytes as they are, anything else as
    /// JSON. The default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    content: Option<AnyValue>,
}

impl Recipients {
    fn reads_body(&self) -> bool {
        match self {
            Self::Each(each) => each.iter().any(ValueTemplate::reads_body),
            Self::List(list) => list.reads_body(),
        }
    }
}

/// A file that goes with a mail.
struct Attachment {
    name: Template,
    media_type: String,
    content: Option<ValueTemplate>,
}

/// Lists of addresses by their keys.
#[derive(Default)]
struct Addresses {
    to: Option<Recipients>,
    cc: Option<Recipients>,
    bcc: Option<Recipients>,
    reply_to: Option<Recipients>,
}

/// Addresses as the file has them.
enum Recipients {
    /// Each entry is one address, whatever its value is.
    Each(Vec<ValueTemplate>),
    /// The value is a list of addresses: the file says that a message may decide how many.
    List(ValueTemplate),
}

/// The step.
pub struct Mail {
    /// The server.
    pub server: Arc<Smtp>,
    via: String,
    from: Template,
    addresses: Addresses,
    subject: Template,
    text: Option<Template>,
    html: Option<Template>,
    attachments: Vec<Attachment>,
    headers: Vec<(String, Template)>,
}

/// A mail for one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Made {
    /// Who sends it.
    pub from: String,
    /// Who gets it.
    pub to: Vec<String>,
    /// Recipients of a copy.
    pub cc: Vec<String>,
    /// Recipients of a blind copy.
    pub bcc: Vec<String>,
    /// The addresses for answers.
    pub reply_to: Vec<String>,
    /// The subject.
    pub subject: String,
    /// The text.
    pub text: Option<String>,
    /// The text as HTML.
    pub html: Option<String>,
    /// Names, media types and contents.
    pub attachments: Vec<(String, String, Vec<u8>)>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
}

fn refuse(span: Span, message: impl Into<String>, hint: &str, context: &mut BuildContext<'_>) {
    let diagnostic = context.report.error(BAD_MAIL, span, message.into());
    diagnostic.hint(hint.to_owned());
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: MailConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let server = named::connection::<Smtp>(&config.via, &["smtp"], context);
    if config.text.is_none() && config.html.is_none() {
        let hint = "write `text: \"${ . }\"` when it is the body";
        refuse(
            node.span,
            "the mail has neither `text` nor `html`",
            hint,
            context,
        );
    }
    let from = context.template(&config.from);
    let addresses = Addresses {
        to: read_addresses("to", node, context),
        cc: read_addresses("cc", node, context),
        bcc: read_addresses("bcc", node, context),
        reply_to: read_addresses("reply_to", node, context),
    };
    let subject = context.template(&config.subject);
    let text = config.text.as_ref().map(|it| context.template(it));
    let html = config.html.as_ref().map(|it| context.template(it));
    let attachments = read_attachments(&config, node, context);
    let headers = read_headers(node, context);
    let (server, from, subject) = (server?, from?, subject?);
    (context.problems() == before).then(|| {
        Box::new(Mail {
            server,
            via: config.via.value,
            from,
            addresses,
            subject,
            text: text.flatten(),
            html: html.flatten(),
            attachments,
            headers,
        }) as _
    })
}

fn read_addresses(key: &str, node: &Node, context: &mut BuildContext<'_>) -> Option<Recipients> {
    let found = node.get(key)?;
    if let Some([entry]) = found.as_mapping()
        && entry.key == "list"
        && entry.value.as_str().is_some_and(Template::has_holes)
    {
        return context.value(&entry.value).map(Recipients::List);
    }
    let texts = match &found.value {
        Yaml::Sequence(items) => items.as_slice(),
        _ => std::slice::from_ref(found),
    };
    let wrong = texts.iter().find(|item| item.as_str().is_none());
    if wrong.is_some() || texts.is_empty() {
        let message = format!("`{key}` is an address or a list of addresses");
        let hint = "write one such as `me@example.com`, or `{ list: \"${ }\" }` for a list that an \
                    expression gives";
        refuse(wrong.unwrap_or(found).span, message, hint, context);
        return None;
    }
    let before = context.problems();
    let each: Vec<_> = texts.iter().filter_map(|it| context.value(it)).collect();
    (context.problems() == before).then_some(Recipients::Each(each))
}

fn read_attachments(
    config: &MailConfig,
    node: &Node,
    context: &mut BuildContext<'_>,
) -> Vec<Attachment> {
    let nodes = node.get("attachments").map(|it| &it.value);
    let nodes = match nodes {
        Some(Yaml::Sequence(nodes)) => nodes.as_slice(),
        _ => &[],
    };
    let mut read = Vec::new();
    for (attachment, node) in config.attachments.iter().flatten().zip(nodes) {
        let media_type = match &attachment.r#type {
            Some(media_type) => read_media_type(media_type, context),
            None => Some("application/octet-stream".to_owned()),
        };
        let content = node.get("content").map(|it| context.value(it));
        let name = context.template(&attachment.name);
        if let (Some(name), Some(media_type)) = (name, media_type) {
            read.push(Attachment {
                name,
                media_type,
                content: content.flatten(),
            });
        }
    }
    read
}

fn read_media_type(text: &Spanned<String>, context: &mut BuildContext<'_>) -> Option<String> {
    let hint = "write one such as `text/csv`";
    if !named::is_fixed("type", hint, text, context) {
        return None;
    }
    let is_token = |part: &str| !part.is_empty() && Headers::is_name(part);
    let essence = text.value.split(';').next().unwrap_or_default().trim();
    let is_sound = essence
        .split_once('/')
        .is_some_and(|(kind, of)| is_token(kind) && is_token(of));
    if !is_sound || !Headers::is_value(text.value.as_bytes()) {
        refuse(text.span, "this is no media type", hint, context);
        return None;
    }
    Some(text.value.clone())
}

fn read_headers(node: &Node, context: &mut BuildContext<'_>) -> Vec<(String, Template)> {
    let Some(headers) = node.get("headers") else {
        return Vec::new();
    };
    let Some(entries) = headers.as_mapping() else {
        let message = format!("`headers` is a mapping, not {}", headers.type_name());
        refuse(
            headers.span,
            message,
            "write `headers: { NAME: TEXT }`",
            context,
        );
        return Vec::new();
    };
    let mut lines = Vec::new();
    for entry in entries {
        let name = entry.key.to_ascii_lowercase();
        let is_reserved = RESERVED.contains(&name.as_str()) || name.starts_with("content-");
        if !Headers::is_name(&entry.key) || is_reserved {
            let message = match is_reserved {
                true => "this header belongs to another key or to the engine",
                false => "this is no name of a header",
            };
            let hint = "write one such as `X-Order`";
            refuse(entry.key_span, message, hint, context);
            continue;
        }
        let Some(text) = entry.value.as_str() else {
            let hint = "write a text, with `${ }` for what differs";
            refuse(
                entry.value.span,
                "this is no text of a header",
                hint,
                context,
            );
            continue;
        };
        let text = Spanned {
            value: text.to_owned(),
            span: entry.value.span,
        };
        let template = context.template(&text);
        lines.extend(template.map(|template| (entry.key.clone(), template)));
    }
    lines
}

/// A text of one line.
fn line(
    what: &str,
    template: &Template,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<String, Fault> {
    let text = exchange.fill_text(template, services)?;
    check_line(what, text)
}

fn check_line(what: &str, text: String) -> Result<String, Fault> {
    if text.contains(char::is_control) || text.len() > LINE_MAX {
        let detail = format!("the {what} of a mail is one line without control characters");
        return Err(Fault::invalid(detail));
    }
    Ok(text)
}

/// The addresses of a key. An expression for one address cannot add others: who writes the message
/// would send mail in our name to whom they like.
fn addresses(
    what: &str,
    recipients: Option<&Recipients>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Vec<String>, Fault> {
    let mut texts = Vec::new();
    match recipients {
        None => {}
        Some(Recipients::Each(each)) => {
            for template in each {
                let made = template.make(exchange, services)?;
                texts.extend(address(what, &made)?);
            }
        }
        Some(Recipients::List(template)) => {
            let made = template.make(exchange, services)?;
            let Some(items) = value::as_array(&made) else {
                let kind = value::kind(&made);
                return Err(Fault::invalid(format!(
                    "`{what}` is a list of addresses, not {kind}"
                )));
            };
            for item in items {
                texts.extend(address(what, item)?);
            }
        }
    }
    Ok(texts)
}

/// One address; none for null.
fn address(what: &str, made: &Value) -> Result<Option<String>, Fault> {
    if matches!(made, Value::Null) {
        return Ok(None);
    }
    match value::as_text(made) {
        Some(text) => check_line(what, text.to_owned()).map(Some),
        None => {
            let kind = value::kind(made);
            Err(Fault::invalid(format!(
                "an address in `{what}` is one text, not {kind}"
            )))
        }
    }
}

impl Mail {
    async fn send(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let made = exchange
            .preemptible(services, |it| self.made(it, services))
            .await?;
        let said = ask::stand_in(("mail", &self.via), || shown(&made), exchange, services).await;
        let id = match said {
            Some(reply) => match ask::failure(&reply?) {
                Some(fault) => return Err(fault),
                None => "<mocked@mail>".to_owned(),
            },
            None => {
                self.really(made, exchange.context.body_max, services)
                    .await?
            }
        };
        exchange.set_value(value::object([("message_id".to_owned(), value::text(id))]));
        Ok(Next::Continue)
    }

    #[cfg(feature = "smtp")]
    async fn really(
        &self,
        made: Made,
        most: usize,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        let letter = super::letter::write(&made, services)?;
        if letter.bytes.len() > most {
            return Err(Fault::invalid("the mail is too large"));
        }
        super::link::send(&self.server, services, &letter.envelope, &letter.bytes).await?;
        Ok(letter.id)
    }

    #[cfg(not(feature = "smtp"))]
    async fn really(&self, _: Made, _: usize, _: &dyn Services) -> Result<String, Fault> {
        Err(ask::no_driver())
    }

    /// The mail for this message.
    fn made(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Made, Fault> {
        let Addresses {
            to,
            cc,
            bcc,
            reply_to,
        } = &self.addresses;
        let mut made = Made {
            from: line("from", &self.from, exchange, services)?,
            to: addresses("to", to.as_ref(), exchange, services)?,
            cc: addresses("cc", cc.as_ref(), exchange, services)?,
            bcc: addresses("bcc", bcc.as_ref(), exchange, services)?,
            reply_to: addresses("reply_to", reply_to.as_ref(), exchange, services)?,
            subject: line("subject", &self.subject, exchange, services)?,
            ..Made::default()
        };
        let count = made.to.len() + made.cc.len() + made.bcc.len();
        if made.to.is_empty() || count > RECIPIENTS_MAX {
            let detail = "a mail has at least one recipient in `to` and 1000 at most in all";
            return Err(Fault::invalid(detail));
        }
        for (place, template) in [(&mut made.text, &self.text), (&mut made.html, &self.html)] {
            if let Some(template) = template {
                *place = Some(exchange.fill_text(template, services)?);
            }
        }
        for attachment in &self.attachments {
            let name = line("attachment's name", &attachment.name, exchange, services)?;
            let content = content(attachment.content.as_ref(), exchange, services)?;
            let media_type = attachment.media_type.clone();
            made.attachments.push((name, media_type, content));
        }
        for (name, template) in &self.headers {
            let text = line("header", template, exchange, services)?;
            made.headers.push((name.clone(), text));
        }
        Ok(made)
    }
}

/// The bytes of an attachment.
fn content(
    template: Option<&ValueTemplate>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Vec<u8>, Fault> {
    let Some(template) = template else {
        return Ok(exchange.body()?.0.as_bytes().to_vec());
    };
    match template.make(exchange, services)? {
        Value::TStr(bytes) | Value::BStr(bytes) => Ok(bytes.to_vec()),
        made => {
            let mut out = Vec::new();
            let most = exchange.context.body_max;
            expr::json::write(&made, most, &mut out).map_err(Fault::expression)?;
            Ok(out)
        }
    }
}

/// The mail as whoever stands in for the server sees it.
fn shown(made: &Made) -> Value {
    let texts = |texts: &[String]| value::array(texts.iter().map(|it| value::text(it.as_str())));
    let mut members = vec![
        ("from".to_owned(), value::text(made.from.as_str())),
        ("to".to_owned(), texts(&made.to)),
        ("subject".to_owned(), value::text(made.subject.as_str())),
    ];
    let lists = [
        ("cc", &made.cc),
        ("bcc", &made.bcc),
        ("reply_to", &made.reply_to),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        members.push((name.to_owned(), texts(list)));
    }
    for (name, text) in [("text", &made.text), ("html", &made.html)] {
        members.extend(
            text.as_ref()
                .map(|it| (name.to_owned(), value::text(it.as_str()))),
        );
    }
    let attachments = made.attachments.iter().map(|(name, media_type, content)| {
        value::object([
            ("name".to_owned(), value::text(name.as_str())),
            ("type".to_owned(), value::text(media_type.as_str())),
            (
                "content".to_owned(),
                value::text(String::from_utf8_lossy(content)),
            ),
        ])
    });
    if !made.attachments.is_empty() {
        members.push(("attachments".to_owned(), value::array(attachments)));
    }
    if !made.headers.is_empty() {
        let headers = made.headers.iter();
        let headers = headers.map(|(name, text)| (name.clone(), value::text(text.as_str())));
        members.push(("headers".to_owned(), value::object(headers)));
    }
    value::object(members)
}

impl Step for Mail {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.send(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let reads = |it: &Template| needs_body(it.uses_input(), it.variables());
        let Addresses {
            to,
            cc,
            bcc,
            reply_to,
        } = &self.addresses;
        let mut lists = [to, cc, bcc, reply_to].into_iter().flatten();
        let texts = [
            Some(&self.from),
            Some(&self.subject),
            self.text.as_ref(),
            self.html.as_ref(),
        ];
        let mut attachments = self.attachments.iter();
        texts.into_iter().flatten().any(reads)
            || lists.any(Recipients::reads_body)
            || self.headers.iter().any(|(_, text)| reads(text))
            || attachments.any(|it| {
                reads(&it.name) || it.content.as_ref().is_none_or(ValueTemplate::reads_body)
            })
    }

    fn waits(&self) -> bool {
        true
    }
}
