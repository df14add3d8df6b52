//! The trigger `ussd`: what gateways send and get, put around the messages of a menu.

mod africas_talking;
mod described;
mod hubtel;
pub(crate) mod msisdn;

use std::sync::Arc;

use component::dialogue::{MEDIA_TYPE, NEUTRAL_MEDIA_TYPE, Screen, SessionEvent, SessionInput};
use component::endpoint::{Envelope, Note, Opened};
use component::source::SourceContext;
use config::Node;
use message::{Fault, Method, Reply, Request};

use crate::codes::BAD_CODE;
use crate::plan::LineBreak;
use crate::shape;
use described::DescribedGateway;

/// The most bytes of a session's id.
const SESSION_MAX: usize = 128;
/// The most bytes of what was typed in a whole session.
const TYPED_MAX: usize = 4096;
/// What is shown when a menu has not come to a screen in time.
const FAILED: &str = "The service is not available. Please try again later.";

/// How requests and replies of a gateway are written.
enum Format {
    AfricasTalking,
    Hubtel,
    Described(Box<DescribedGateway>),
}

impl Format {
    /// That of a name, which the schema knows, or of a description. Every problem is reported.
    fn read(node: &Node, context: &mut SourceContext<'_>) -> Option<Self> {
        let described = match node.as_str() {
            Some("africas-talking") => return Some(Self::AfricasTalking),
            Some("hubtel") => return Some(Self::Hubtel),
            Some(name) => DescribedGateway::known(name, context),
            None => DescribedGateway::read(node, context),
        };
        described.map(|it| Self::Described(Box::new(it)))
    }
}

/// A gateway: a request to what happened in a session, a screen to a reply.
struct Gateway {
    format: Format,
    /// What stands between lines.
    line_break: LineBreak,
    /// The calling code of numbers that begin with one 0.
    country: Option<String>,
}

/// What a request says.
struct Asked {
    session: String,
    msisdn: String,
    event: SessionEvent,
}

/// What is noted of a request for its reply.
struct Noted {
    session: String,
    /// Whether a tool has sent it, in the format of its own.
    is_neutral: bool,
}

/// A request of a tool.
fn neutral(request: &Request) -> Result<Asked, &'static str> {
    let input = SessionInput::from_bytes(request.body.as_bytes());
    let input = input.ok_or("the body is no message of a session")?;
    if matches!(input.event, SessionEvent::Push(_)) {
        return Err("only flows begin sessions");
    }
    Ok(Asked {
        session: input.session,
        msisdn: input.msisdn,
        event: input.event,
    })
}

/// Checks the keys of the trigger and makes the gateway.
pub(crate) fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Envelope>> {
    if !config::check_kind(node, shape::ussd, context.report) {
        return None;
    }
    let format = Format::read(node.get("gateway")?, context);
    let line_break = LineBreak::of(node);
    let country = match node.get("country") {
        None => None,
        Some(written) => {
            let country = written.as_str()?;
            let is_code = (1..=3).contains(&country.len())
                && !country.starts_with('0')
                && country.bytes().all(|it| it.is_ascii_digit());
            if !is_code {
                let message = "this is not the calling code of a country";
                let diagnostic = context.report.error(BAD_CODE, written.span, message);
                diagnostic.hint("write its digits without `+`, such as `\"254\"`");
                return None;
            }
            Some(country.to_owned())
        }
    };
    Some(Arc::new(Gateway {
        format: format?,
        line_break,
        country,
    }))
}

/// Whether a gateway may call a session so. Replies, expressions and the URLs that they make have
/// the id too, and XML has no way to write U+0000.
pub(crate) fn is_session_id(text: &str) -> bool {
    (1..=SESSION_MAX).contains(&text.len()) && !has_control(text)
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// A refusal, which gateways do not show: it is for whoever connects one.
fn refusal(text: &'static str) -> Opened {
    Opened::Reply(Reply::with_content(
        400,
        "text/plain; charset=utf-8",
        text.as_bytes().to_vec(),
    ))
}

impl Gateway {
    /// What a request says, if all of it can be used.
    fn read(&self, request: &Request, is_neutral: bool) -> Result<SessionInput, &'static str> {
        let asked = match &self.format {
            _ if is_neutral => neutral(request)?,
            Format::AfricasTalking => africas_talking::read(request)?,
            Format::Hubtel => hubtel::read(request)?,
            Format::Described(described) => described.read_request(request)?,
        };
        if !is_session_id(&asked.session) {
            return Err("the session has no id that can be used");
        }
        let msisdn = msisdn::normalise(&asked.msisdn, self.country.as_deref());
        let (code, typed) = match &asked.event {
            SessionEvent::Dial(text) | SessionEvent::Reply { text, .. } => ("", text.as_str()),
            SessionEvent::Typed { code, text } => (code.as_str(), text.as_str()),
            SessionEvent::End | SessionEvent::Push(_) => ("", ""),
        };
        if code.len() > TYPED_MAX || typed.len() > TYPED_MAX {
            return Err("what was typed is too long");
        }
        if has_control(code) || has_control(typed) {
            return Err("what was typed has control characters");
        }
        Ok(SessionInput {
            session: asked.session,
            msisdn: msisdn.ok_or("the number of the subscriber is none")?,
            event: asked.event,
        })
    }
}

impl Envelope for Gateway {
    fn methods(&self) -> Vec<Method> {
        match &self.format {
            Format::Described(described) => described.methods(),
            _ => vec![Method::Post],
        }
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        match &self.format {
            Format::Described(described) => described.secret_parameters(),
            Format::AfricasTalking => africas_talking::SECRET.map(Arc::from).into(),
            Format::Hubtel => hubtel::SECRET.map(Arc::from).into(),
        }
    }

    fn open(&self, mut request: Request) -> Opened {
        // A dial, and whatever the menu does for it, is for whoever is to see the screen.
        if request.method == Method::Head {
            return Opened::Reply(Reply::new(405));
        }
        let is_neutral = request.headers.get("Content-Type") == Some(NEUTRAL_MEDIA_TYPE.as_bytes());
        let input = match self.read(&request, is_neutral) {
            Ok(input) => input,
            Err(text) => return refusal(text),
        };
        // A tool gets the screen in the reply also where the gateway does not.
        if !is_neutral {
            request.headers.set("Content-Type", MEDIA_TYPE);
        }
        request.body = input.to_bytes().into();
        let note: Note = Arc::new(Noted {
            session: input.session,
            is_neutral,
        });
        Opened::Message(Box::new(request), note)
    }

    fn close(&self, note: &Note, end: Result<Reply, &Fault>) -> (Reply, Option<Fault>) {
        let noted = note.downcast_ref::<Noted>();
        let screen = match end {
            Ok(reply) => match Screen::from_reply(&reply) {
                Some(screen) => Some(screen),
                None => return (uncached(reply), None),
            },
            Err(_) => None,
        };
        let mut screen = screen.unwrap_or_else(|| Screen {
            text: FAILED.to_owned(),
            ends: true,
        });
        if noted.is_some_and(|it| it.is_neutral) {
            return (uncached(screen.to_reply()), None);
        }
        let session = noted.map_or("", |it| it.session.as_str());
        screen.text = self.line_break.put_in(screen.text);
        let reply = match &self.format {
            Format::AfricasTalking => africas_talking::write(&screen),
            Format::Hubtel => hubtel::write(&screen, session),
            Format::Described(described) => match described.write(&screen, session) {
                Ok(reply) => reply,
                Err(fault) => return (Reply::new(500), Some(fault)),
            },
        };
        (uncached(reply), None)
    }
}

/// A screen is for one request, also where that is a GET (RFC 9111, section 5.2.2.5).
fn uncached(mut reply: Reply) -> Reply {
    reply.headers.set("Cache-Control", "no-store");
    reply
}

#[cfg(test)]
mod tests;
