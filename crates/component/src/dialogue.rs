//! What a subscriber does at a phone and what the phone shows then, whichever gateway is between:
//! the messages to a menu and its replies. Tests of menus write them too.

use message::Reply;
use serde::{Deserialize, Serialize};

/// The media type of messages to a menu.
pub const MEDIA_TYPE: &str = "application/json";

/// The media type by which a request to a menu's trigger says that it is such a message, whichever
/// gateway is configured there: that of tools. The reply is a [`Screen`] then, of the same type.
pub const NEUTRAL_MEDIA_TYPE: &str = "application/vnd.intertie.ussd+json";

/// What a gateway tells of a session.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SessionInput {
    /// The gateway's id of the session.
    pub session: String,
    /// The number of the subscriber in E.164 form, `+` and digits.
    pub msisdn: String,
    /// What has happened.
    pub event: SessionEvent,
}

/// What has happened in a session.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionEvent {
    /// A code was dialled, such as `*123#` or `*123*5#`.
    Dial(String),
    /// A reply was typed. Its number, where the gateway counts the requests of a session, tells a
    /// repeated request from a second key.
    Reply {
        /// What was typed.
        text: String,
        /// The number of the request.
        sequence: Option<u64>,
    },
    /// All that was typed so far, joined by `*`, behind the service code: what is new tells the
    /// session.
    Typed {
        /// The service code, such as `*123#`.
        code: String,
        /// What was typed.
        text: String,
    },
    /// The session is over: the subscriber has hung up, or the network has ended it.
    End,
    /// A flow of the engine begins a session that the subscriber has not dialled for. No gateway
    /// and no tool may ask for it.
    Push(Push),
}

/// A session that a flow begins.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// The name of the screen that is shown first.
    pub screen: String,
    /// Variables by name, each as JSON.
    pub variables: Vec<(String, String)>,
}

/// What has become of a session that a flow has begun.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// The id of the session.
    pub session: String,
    /// The number of the subscriber in E.164 form.
    pub msisdn: String,
    /// Whether the session has ended with its first screen.
    pub ends: bool,
}

impl SessionInput {
    /// The message's body.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What a message's body says; `None` when it is no such message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Pushed {
    /// The body of the reply.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What a phone shows.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Screen {
    /// The text.
    pub text: String,
    /// Whether the session ends with it.
    pub ends: bool,
}

impl Screen {
    /// A reply with it.
    pub fn to_reply(&self) -> Reply {
        let body = serde_json::to_vec(self).unwrap_or_default();
        Reply::with_content(200, NEUTRAL_MEDIA_TYPE, body)
    }

    /// The screen of a reply; `None` when it is another one, such as that which acknowledges a
    /// request whose screen is sent apart.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        if reply.headers.get("Content-Type") != Some(NEUTRAL_MEDIA_TYPE.as_bytes()) {
            return None;
        }
        serde_json::from_slice(reply.body.as_bytes()).ok()
    }
}
