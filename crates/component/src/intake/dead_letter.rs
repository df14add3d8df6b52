//! `dead_letter:` of a source: what becomes of a message whose flow fails for good.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use config::{Span, Spanned};
use message::{Fault, Request};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, json};

use crate::handler::{LocalFuture, Services};
use crate::source::SourceContext;

/// The store of those that no file says anything about.
const DEFAULT_STORE: &str = "dead-letters";

/// Where dead letters are kept.
pub trait DeadLetterTarget: Send + Sync {
    /// What logs call it, such as `store dead-letters`.
    fn name(&self) -> &str;

    /// Keeps one. When this returns it is durable.
    ///
    /// # Errors
    /// When it is not certain to be kept. The source tries again.
    fn keep<'a>(
        &'a self,
        letter: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<(), Fault>>;
}

/// What becomes of a message whose flow has failed for the last time.
#[derive(Clone)]
pub enum DeadLetter {
    /// It is kept there, durably, before it is acknowledged.
    Keep(Arc<dyn DeadLetterTarget>),
    /// It is refused, and its own system keeps it or drops it.
    Reject,
    /// It is acknowledged and lost.
    Drop,
    /// It is left unacknowledged, and the source takes no further message.
    Stop,
}

impl fmt::Debug for DeadLetter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(target) => write!(formatter, "Keep({})", target.name()),
            Self::Reject => formatter.write_str("Reject"),
            Self::Drop => formatter.write_str("Drop"),
            Self::Stop => formatter.write_str("Stop"),
        }
    }
}

/// A place for dead letters that one kind of source has in its own system.
#[derive(Clone, Copy, Debug)]
pub struct OwnTarget {
    /// Its key, such as `queue`.
    pub key: &'static str,
    /// What the reference says of it.
    pub meaning: &'static str,
}

/// What `dead_letter:` means for one kind of source.
pub trait DeadLetterPlace {
    /// What `reject` means there; without it there is no `reject`.
    const REJECT: Option<&'static str>;
    /// A place in its own system.
    const OWN: Option<OwnTarget>;
    /// Whether `reject` is the default, because it loses nothing there, in place of a store.
    const REJECTS: bool;
}

/// `dead_letter:` of a source of the kind that `D` stands for.
#[derive(Debug)]
pub struct DeadLetterConfig<D> {
    choice: Choice,
    kind: PhantomData<D>,
}

#[derive(Debug)]
enum Choice {
    Reject,
    Drop,
    Stop,
    Store(Spanned<String>),
    Own(Spanned<String>),
}

impl<D: DeadLetterPlace> DeadLetterConfig<D> {
    /// What a source does with dead letters, and the place in its own system that the file names.
    /// `span` is where the source stands. `None` when there was a problem, which is reported.
    pub fn read(
        config: Option<Self>,
        span: Span,
        context: &mut SourceContext<'_>,
    ) -> Option<(DeadLetter, Option<Spanned<String>>)> {
        let mut keep = |name: &Spanned<String>| {
            let around = context.surroundings;
            let found = (around.dead_letters)(name, (around.states, &mut *context.report));
            found.map(|target| (DeadLetter::Keep(target), None))
        };
        match config.map(|it| it.choice) {
            None if D::REJECTS => Some((DeadLetter::Reject, None)),
            None => keep(&Spanned {
                value: DEFAULT_STORE.to_owned(),
                span,
            }),
            Some(Choice::Store(name)) => keep(&name),
            Some(Choice::Own(name)) => Some((DeadLetter::Reject, Some(name))),
            Some(Choice::Reject) => Some((DeadLetter::Reject, None)),
            Some(Choice::Drop) => Some((DeadLetter::Drop, None)),
            Some(Choice::Stop) => Some((DeadLetter::Stop, None)),
        }
    }
}

impl<'de, D: DeadLetterPlace> Deserialize<'de> for DeadLetterConfig<D> {
    fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
        let choice = deserializer.deserialize_any(ChoiceVisitor::<D>(PhantomData))?;
        Ok(Self {
            choice,
            kind: PhantomData,
        })
    }
}

struct ChoiceVisitor<D>(PhantomData<D>);

impl<'de, D: DeadLetterPlace> Visitor<'de> for ChoiceVisitor<D> {
    type Value = Choice;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a word or a mapping")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Choice, E> {
        match word {
            "reject" if D::REJECT.is_some() => Ok(Choice::Reject),
            "drop" => Ok(Choice::Drop),
            "stop" => Ok(Choice::Stop),
            _ => Err(E::custom("this is no such word")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Choice, A::Error> {
        // The schema lets exactly one of the keys through.
        let key: Option<Cow<'de, str>> = entries.next_key()?;
        match key.as_deref() {
            Some("store") => entries.next_value().map(Choice::Store),
            Some(_) => entries.next_value().map(Choice::Own),
            None => Err(de::Error::custom("a place is missing")),
        }
    }
}

impl<D: DeadLetterPlace> JsonSchema for DeadLetterConfig<D> {
    fn schema_name() -> Cow<'static, str> {
        "DeadLetter".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = [
            ("reject", D::REJECT),
            (
                "drop",
                Some("The message is acknowledged and lost; it is logged and counted."),
            ),
            (
                "stop",
                Some(
                    "The message is left where it is, and no further message is taken until the \
                     engine is restarted or its files are reloaded.",
                ),
            ),
        ];
        let words = words.iter().filter_map(|(word, meaning)| {
            let meaning = (*meaning)?;
            Some(json!({ "type": "string", "const": word, "description": meaning }))
        });
        let mut places = Map::new();
        let store = "The name of a store. Process its messages with `from: store`.";
        let places_of = [("store", store)].into_iter();
        for (key, meaning) in places_of.chain(D::OWN.map(|own| (own.key, own.meaning))) {
            places.insert(
                key.to_owned(),
                json!({ "type": "string", "description": meaning }),
            );
        }
        let mut forms: Vec<_> = words.collect();
        forms.push(json!({
            "type": "object",
            "properties": places,
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 1,
        }));
        let default = match (D::REJECTS, D::REJECT) {
            (false, _) => Some(json!({ "store": DEFAULT_STORE })),
            (true, Some(_)) => Some(json!("reject")),
            // What the source does then has no word; the meaning of its own place describes it.
            (true, None) => None,
        };
        let default_place = match D::REJECTS {
            true => String::new(),
            false => format!(" The default is the store `{DEFAULT_STORE}`."),
        };
        let description = format!(
            "What happens to a message after the last failed attempt. It is durable there before \
             it is acknowledged; while that is not possible, no further messages are \
             taken.{default_place}"
        );
        let mut schema = json_schema!({
            "description": description,
            "anyOf": forms,
        });
        if let Some(default) = default {
            schema.insert("default".to_owned(), default);
        }
        schema
    }
}
