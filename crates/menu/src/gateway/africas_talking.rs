//! Africa's Talking: a form with `sessionId`, `phoneNumber`, `serviceCode` and `text`, which has
//! all that was typed so far, joined by `*`. The reply is text behind `CON ` or `END `. When a
//! session has ended, a form with `sessionId`, `phoneNumber`, `status` and the cost says so.

use component::dialogue::{Screen, SessionEvent};
use message::{Reply, Request};

use super::Asked;

/// Fields that some put into the query, too.
pub(super) const SECRET: [&str; 2] = ["text", "phoneNumber"];

pub(super) fn read(request: &Request) -> Result<Asked, &'static str> {
    let form =
        expr::format::from_form(request.body.as_bytes()).map_err(|_| "the body is not a form")?;
    let field = |name: &str| {
        let value = expr::value::get(&form, name)?;
        expr::value::as_text(value).map(str::to_owned)
    };
    let event = match (field("text"), field("status")) {
        (None, Some(_)) => SessionEvent::End,
        (text, _) => SessionEvent::Typed {
            code: field("serviceCode").ok_or("`serviceCode` is missing")?,
            text: text.ok_or("`text` is missing")?,
        },
    };
    Ok(Asked {
        session: field("sessionId").ok_or("`sessionId` is missing")?,
        msisdn: field("phoneNumber").ok_or("`phoneNumber` is missing")?,
        event,
    })
}

pub(super) fn write(screen: &Screen) -> Reply {
    let word = if screen.ends { "END" } else { "CON" };
    let text = format!("{word} {}", screen.text);
    Reply::with_content(200, "text/plain; charset=utf-8", text.into_bytes())
}
