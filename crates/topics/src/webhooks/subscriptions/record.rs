//! A subscription of a user, in memory and on the disk.

use std::sync::Arc;

use access::sealing_keys::{Sealed, SealingKeys, UnsealError};
use access::webhook_signer::WebhookSigner;
use bytes::Bytes;
use component::access::Caller;
use message::Fault;
use serde::{Deserialize, Serialize};

use super::headers::HeaderLine;
use crate::frame;
use crate::profile::Profile;
use crate::view::Mode;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::envelope::CloudEvents;

/// The table of the keyed state that has the subscriptions.
pub(crate) const SUBSCRIPTIONS: &str = "topic-webhook-subscriptions";
/// What identifiers of subscriptions begin with.
pub(in crate::webhooks) const ID_PREFIX: &str = "wh_";
/// How many hexadecimal digits follow: 128 bits.
const ID_DIGITS: usize = 32;
/// The most secrets of a subscription: the current one and those that it replaces.
pub(in crate::webhooks) const SECRETS_MAX: usize = 4;

/// Whether a name has the form of the ids that subscriptions get: [`ID_PREFIX`] and small
/// hexadecimal digits.
pub(in crate::webhooks) fn is_subscription_id(name: &[u8]) -> bool {
    let digits = name.strip_prefix(ID_PREFIX.as_bytes());
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|it| it.len() == ID_DIGITS && it.iter().all(is_digit))
}

/// The id of a subscription with its digits in groups, as a UUID is written (RFC 9562, section 4).
pub(in crate::webhooks) fn uuid_of(id: &str) -> String {
    let digits = id.strip_prefix(ID_PREFIX).unwrap_or(id);
    let number = u128::from_str_radix(digits, 16).unwrap_or_default();
    frame::uuid((number >> 64) as u64, number as u64)
}

/// The id of a subscription of which this is the UUID.
pub(in crate::webhooks) fn id_of(uuid: &str) -> Option<String> {
    let is_in_place = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let is_uuid = uuid.len() == ID_DIGITS + 4 && uuid.bytes().enumerate().all(is_in_place);
    is_uuid.then(|| format!("{ID_PREFIX}{}", uuid.replace('-', "").to_ascii_lowercase()))
}

/// Whose a subscription is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::webhooks) struct Owner {
    /// The name of the way by which the caller is known.
    pub way: Box<str>,
    /// Who it is by this way.
    pub id: Box<str>,
}

impl Owner {
    /// The caller.
    ///
    /// # Errors
    /// As [`Caller::scope`]: a caller without a name is nobody in particular.
    pub fn of(caller: &Caller) -> Result<Self, Fault> {
        caller.scope()?;
        Ok(Self {
            way: (&*caller.way).into(),
            id: (&*caller.id).into(),
        })
    }
}

/// What a subscription shows of the topic, as its owner has written it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(in crate::webhooks) struct ViewText {
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<Box<str>>,
    /// The ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloudevents: Option<CloudEvents>,
}

impl ViewText {
    /// Whether it costs an evaluation for each event.
    pub fn has_expressions(&self) -> bool {
        self.filter.is_some() || self.select.is_some() || self.key.is_some()
    }
}

/// A secret that requests are signed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhooks) struct Secret {
    /// Sealed by [`SealingKeys`] for this topic and subscription.
    sealed: Sealed,
    /// When it was made, in milliseconds since 1970.
    pub made: u64,
    /// Until when it signs, when another one has replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// The `Idempotency-Key` that has made a subscription, and the request it came with, as digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhooks) struct RequestKey {
    pub key: String,
    pub body: String,
}

/// A subscription of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::webhooks) struct Subscription {
    pub id: Arc<str>,
    pub owner: Arc<Owner>,
    pub view: Arc<ViewText>,
    pub url: Box<str>,
    /// The current one first.
    pub secrets: Box<[Secret]>,
    /// Counts the changes, from 1: the entity tag.
    pub version: u64,
    /// In milliseconds since 1970.
    pub created: u64,
    pub updated: u64,
    /// Whether the URL has answered a challenge.
    pub is_verified: bool,
    details: Option<Box<Details>>,
}

/// Optional parts of a subscription, which most do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhooks) struct Details {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Box<str>>,
    /// How events are sent, if the owner has said something of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// Header lines of its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderLine>,
    /// What has made it, where that came with a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestKey>,
    /// In whose manner it was made, where that is not our own: its requests say what receivers of
    /// that system expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// The details of a subscription that has none.
static NO_DETAILS: Details = Details {
    description: None,
    delivery: None,
    headers: Vec::new(),
    request: None,
    profile: None,
};

impl Details {
    /// In a box; without one when all of them are absent, so that they take no memory.
    fn boxed(self) -> Option<Box<Self>> {
        (self != NO_DETAILS).then(|| Box::new(self))
    }
}

/// What a new subscription has from the beginning on.
pub(in crate::webhooks) struct NewSubscription {
    pub id: Arc<str>,
    pub owner: Arc<Owner>,
    pub view: Arc<ViewText>,
    pub url: Box<str>,
    pub now_ms: u64,
    pub details: Details,
}

/// A subscription as it is written down, under its id.
#[derive(Serialize, Deserialize)]
struct Stored {
    owner: Owner,
    #[serde(flatten)]
    view: ViewText,
    url: Box<str>,
    secrets: Box<[Secret]>,
    version: u64,
    created: u64,
    updated: u64,
    verified: bool,
    #[serde(flatten)]
    details: Details,
}

/// What a secret is sealed for: that of one subscription cannot stand for that of another.
fn context(topic: &str, id: &str) -> Vec<u8> {
    format!("webhook secret\0{topic}\0{id}").into_bytes()
}

impl Subscription {
    /// A new one, without a secret. Its URL has answered no challenge.
    pub fn new(new: NewSubscription) -> Self {
        Self {
            id: new.id,
            owner: new.owner,
            view: new.view,
            url: new.url,
            secrets: Box::default(),
            version: 1,
            created: new.now_ms,
            updated: new.now_ms,
            is_verified: false,
            details: new.details.boxed(),
        }
    }

    /// Its optional parts.
    pub fn details(&self) -> &Details {
        self.details.as_deref().unwrap_or(&NO_DETAILS)
    }

    /// Replaces its optional parts.
    pub fn set_details(&mut self, details: Details) {
        self.details = details.boxed();
    }

    /// As it is written down.
    pub fn to_bytes(&self) -> Bytes {
        let stored = Stored {
            owner: Owner::clone(&self.owner),
            view: ViewText::clone(&self.view),
            url: self.url.clone(),
            secrets: self.secrets.clone(),
            version: self.version,
            created: self.created,
            updated: self.updated,
            verified: self.is_verified,
            details: self.details().clone(),
        };
        // Nothing in it is what JSON cannot say.
        serde_json::to_vec(&stored).unwrap_or_default().into()
    }

    /// What has been written down.
    ///
    /// # Errors
    /// When it cannot be read: it has been damaged.
    pub fn of_bytes(id: &str, bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let stored: Stored = serde_json::from_slice(bytes)?;
        Ok(Self {
            id: id.into(),
            owner: Arc::new(stored.owner),
            view: Arc::new(stored.view),
            url: stored.url,
            secrets: stored.secrets,
            version: stored.version,
            created: stored.created,
            updated: stored.updated,
            is_verified: stored.verified,
            details: stored.details.boxed(),
        })
    }

    /// The same after a change at this time.
    pub fn changed(&self, now_ms: u64) -> Self {
        Self {
            version: self.version + 1,
            updated: now_ms,
            ..self.clone()
        }
    }

    /// Gives it a secret; the one before signs beside it for a while.
    pub fn add_secret(
        &mut self,
        (topic, secret): (&str, &str),
        (now_ms, overlap_ms): (u64, u64),
        keys: &SealingKeys,
    ) -> Option<()> {
        let sealed = keys.seal(&context(topic, &self.id), secret.as_bytes())?;
        let until = now_ms.saturating_add(overlap_ms);
        let mut secrets = vec![Secret {
            sealed,
            made: now_ms,
            until: None,
        }];
        let before = self.secrets.iter().map(|it| Secret {
            until: Some(it.until.map_or(until, |own| own.min(until))),
            ..it.clone()
        });
        secrets.extend(before.filter(|it| it.until > Some(now_ms)));
        secrets.truncate(SECRETS_MAX);
        self.secrets = secrets.into();
        Some(())
    }

    /// The secrets that sign at this time.
    pub fn valid_secrets(&self, now_ms: u64) -> impl Iterator<Item = &Secret> {
        let is_valid = move |it: &&Secret| it.until.is_none_or(|until| until > now_ms);
        self.secrets.iter().filter(is_valid)
    }

    /// What signs its requests at this time, and the secrets as text, which no log may show.
    ///
    /// # Errors
    /// When a secret cannot be opened with these keys.
    pub fn signer(
        &self,
        topic: &str,
        now_ms: u64,
        keys: &SealingKeys,
    ) -> Result<(WebhookSigner, Vec<String>), String> {
        let context = context(topic, &self.id);
        let texts = self.valid_secrets(now_ms).map(|it| {
            let opened = keys.open(&context, &it.sealed);
            opened.map(|it| String::from_utf8_lossy(&it).into_owned())
        });
        let texts = texts.collect::<Result<Vec<_>, UnsealError>>();
        let texts = texts.map_err(|error| format!("its secret: {error}"))?;
        let all: Vec<&str> = texts.iter().map(String::as_str).collect();
        let signer = WebhookSigner::standard(&all)?;
        Ok((signer, texts))
    }

    /// Its header lines as they are sent, which no log may show.
    ///
    /// # Errors
    /// When a value cannot be opened with these keys.
    pub fn open_headers(
        &self,
        topic: &str,
        keys: &SealingKeys,
    ) -> Result<Vec<(String, String)>, String> {
        let lines = self.details().headers.iter().map(|line| {
            let value = line.open((topic, &self.id), keys);
            let value = value.map_err(|error| format!("its header {}: {error}", line.name))?;
            Ok((line.name.to_string(), value))
        });
        lines.collect()
    }

    /// Its id as a UUID is written.
    pub fn uuid(&self) -> String {
        uuid_of(&self.id)
    }

    /// Whether it was made in the manner of Axway Streams.
    pub fn is_of_axway(&self) -> bool {
        self.details().profile == Some(Profile::AxwayStreams)
    }

    /// How events are sent.
    pub fn delivery(&self) -> Delivery {
        self.details().delivery.unwrap_or_default()
    }

    /// Whether the first of these keys has sealed all that is sealed.
    pub fn is_current(&self, keys: &SealingKeys) -> bool {
        let mut secrets = self.secrets.iter();
        let mut headers = self.details().headers.iter();
        secrets.all(|it| keys.is_current(&it.sealed)) && headers.all(|it| it.is_current(keys))
    }

    /// Seals its secrets and the values of its headers with the first of these keys; whether that
    /// changes anything.
    ///
    /// # Errors
    /// When one cannot be opened with these keys.
    pub fn reseal(&mut self, topic: &str, keys: &SealingKeys) -> Result<bool, String> {
        let context = context(topic, &self.id);
        let mut secrets = self.secrets.to_vec();
        let mut is_changed = false;
        for secret in &mut secrets {
            let text = keys.open(&context, &secret.sealed);
            let text = text.map_err(|error| error.to_string())?;
            if !keys.is_current(&secret.sealed) {
                let sealed = keys.seal(&context, &text);
                secret.sealed = sealed.ok_or("the system has no random bytes")?;
                is_changed = true;
            }
        }
        let of = (topic, &*self.id);
        let mut details = self.details().clone();
        for line in &mut details.headers {
            let value = line.open(of, keys).map_err(|error| error.to_string())?;
            if !line.is_current(keys) {
                let sealed = HeaderLine::seal(of, (&line.name, &value), keys);
                *line = sealed.ok_or("the system has no random bytes")?;
                is_changed = true;
            }
        }
        if is_changed {
            self.secrets = secrets.into();
            self.set_details(details);
        }
        Ok(is_changed)
    }
}
