//! Hubtel: JSON with `SessionId`, `Mobile`, `Type`, `Message` and `Sequence`, which counts the
//! requests of a session from 1.

use component::dialogue::{Screen, SessionEvent};
use message::{Reply, Request};
use serde::{Deserialize, Serialize};

use super::Asked;

/// What is asked for of a request; it has more.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HubtelRequest {
    session_id: String,
    mobile: String,
    r#type: String,
    #[serde(default)]
    message: String,
    sequence: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HubtelReply<'a> {
    session_id: &'a str,
    r#type: &'a str,
    message: &'a str,
}

/// Fields that some put into the query, too.
pub(super) const SECRET: [&str; 2] = ["Message", "Mobile"];

pub(super) fn read(request: &Request) -> Result<Asked, &'static str> {
    let asked: HubtelRequest = serde_json::from_slice(request.body.as_bytes())
        .map_err(|_| "the body is not a request of Hubtel")?;
    let event = match asked.r#type.to_ascii_lowercase().as_str() {
        "initiation" => SessionEvent::Dial(asked.message),
        "response" => SessionEvent::Reply {
            text: asked.message,
            sequence: asked.sequence,
        },
        "release" | "timeout" | "hijacksession" => SessionEvent::End,
        _ => return Err("the `Type` is unknown"),
    };
    Ok(Asked {
        session: asked.session_id,
        msisdn: asked.mobile,
        event,
    })
}

pub(super) fn write(screen: &Screen, session: &str) -> Reply {
    let reply = HubtelReply {
        session_id: session,
        r#type: if screen.ends { "Release" } else { "Response" },
        message: &screen.text,
    };
    let body = serde_json::to_vec(&reply).unwrap_or_default();
    Reply::with_content(200, "application/json", body)
}
