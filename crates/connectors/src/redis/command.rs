//! The commands that a `redis` step knows: what each needs beside its key, and the arguments that
//! the server gets. A value is always one argument; it can never become a command or a second one.

use std::time::Duration;

use component::exchange::Exchange;
use component::handler::Services;
use component::value_template::ValueTemplate;
use expr::template::Template;
use expr::{Value, value};
use message::Fault;

/// The most bytes of one argument (the server's `proto-max-bulk-len`).
const ARGUMENT_MAX: usize = 512 << 20;

/// A command: its key in a flow file, the keys that it needs, and those that it can have.
pub struct Known {
    /// The name.
    pub name: &'static str,
    /// What it is done to, for messages.
    pub of: &'static str,
    /// What must stand beside it.
    pub needs: &'static [&'static str],
    /// What may stand beside it.
    pub takes: &'static [&'static str],
}

const fn known(
    name: &'static str,
    of: &'static str,
    needs: &'static [&'static str],
    takes: &'static [&'static str],
) -> Known {
    Known {
        name,
        of,
        needs,
        takes,
    }
}

/// Every command.
pub const COMMANDS: &[Known] = &[
    known("get", "key", &[], &["format"]),
    known("set", "key", &[], &["value", "ttl", "if", "keep_ttl"]),
    known("delete", "key", &[], &[]),
    known("exists", "key", &[], &[]),
    known("expire", "key", &["ttl"], &[]),
    known("incr", "key", &[], &["by"]),
    known("hget", "key", &["field"], &["format"]),
    known("hset", "key", &[], &["field", "value", "fields"]),
    known("hdel", "key", &["field"], &[]),
    known("hgetall", "key", &[], &["format"]),
    known("push", "key", &[], &["value", "values", "side"]),
    known("pop", "key", &[], &["side", "wait", "format"]),
    known("range", "key", &[], &["start", "stop", "format"]),
    known("length", "key", &[], &[]),
    known("sadd", "key", &[], &["value", "values"]),
    known("srem", "key", &[], &["value", "values"]),
    known("smembers", "key", &[], &["format"]),
    known("publish", "channel", &[], &["value"]),
    known("xadd", "stream", &[], &["value", "fields", "maxlen"]),
];

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its beginning.
    Left,
    /// Its end.
    Right,
}

/// When `set` does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no such key yet.
    Absent,
    /// There is one.
    Present,
}

/// What is put somewhere.
pub enum Put {
    /// The message's body.
    Body,
    /// One value.
    One(ValueTemplate),
    /// Each item of a list.
    Each(ValueTemplate),
}

/// Names and their values.
pub enum Fields {
    /// One of them.
    One(Template, Put),
    /// All members of an object.
    All(ValueTemplate),
}

/// What is done, with all that a message decides.
pub enum Action {
    /// `GET`
    Get,
    /// `SET`
    Set {
        /// What is put there.
        put: Put,
        /// When it goes.
        ttl: Option<Duration>,
        /// When it is done at all.
        condition: Option<Condition>,
        /// Whether `set` keeps the remaining time to live of the key.
        keep_ttl: bool,
    },
    /// `DEL`
    Delete,
    /// `EXISTS`
    Exists,
    /// `PEXPIRE`
    Expire(Duration),
    /// `INCRBY`
    Increment(Option<ValueTemplate>),
    /// `HGET`
    HashGet(Template),
    /// `HSET`
    HashSet(Fields),
    /// `HDEL`
    HashDelete(Template),
    /// `HGETALL`
    HashAll,
    /// `LPUSH`, `RPUSH`
    Push(Side, Put),
    /// `LPOP`, `RPOP`, for so long again and again while there is nothing.
    Pop(Side, Option<Duration>),
    /// `LRANGE`
    Range(i64, i64),
    /// `LLEN`
    Length,
    /// `SADD`
    SetAdd(Put),
    /// `SREM`
    SetRemove(Put),
    /// `SMEMBERS`
    SetMembers,
    /// `PUBLISH`
    Publish(Put),
    /// `XADD`, keeping about so many entries.
    Append(Fields, Option<u64>),
}

impl Action {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::Exists
                | Self::HashGet(_)
                | Self::HashAll
                | Self::Range(..)
                | Self::Length
                | Self::SetMembers
        )
    }
}

/// One argument, and how whoever stands in for the server sees it.
type Argument = (Vec<u8>, Value);

/// A command with its arguments.
#[derive(Debug)]
pub struct Sent {
    /// The command and its arguments, as the server gets them.
    pub arguments: Vec<Vec<u8>>,
    /// What whoever stands in for the server is shown beside name and key.
    pub shown: Vec<(String, Value)>,
}

impl Sent {
    fn new(command: &str, key: &str) -> Self {
        Self {
            arguments: vec![command.as_bytes().to_vec(), key.as_bytes().to_vec()],
            shown: Vec::new(),
        }
    }

    fn word(&mut self, word: impl ToString) {
        self.arguments.push(word.to_string().into_bytes());
    }

    fn show(&mut self, name: &str, value: Value) {
        self.shown.push((name.to_owned(), value));
    }

    fn one(&mut self, name: &str, (bytes, shown): Argument) {
        self.arguments.push(bytes);
        self.show(name, shown);
    }

    fn each(&mut self, made: Vec<Argument>) {
        let mut shown = Vec::with_capacity(made.len());
        for (bytes, value) in made {
            self.arguments.push(bytes);
            shown.push(value);
        }
        self.show("values", value::array(shown));
    }
}

impl Action {
    /// The command for this message.
    ///
    /// # Errors
    /// What an expression says that fails, and `expression` or `invalid` for a value that the
    /// command cannot have.
    pub fn make(
        &self,
        key: &str,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Sent, Fault> {
        match self {
            Self::Get => Ok(Sent::new("GET", key)),
            Self::Set {
                put,
                ttl,
                condition,
                keep_ttl,
            } => {
                let mut sent = Sent::new("SET", key);
                sent.one("value", put.one(exchange, services)?);
                set_terms(&mut sent, *ttl, *condition, *keep_ttl);
                Ok(sent)
            }
            Self::Delete => Ok(Sent::new("DEL", key)),
            Self::Exists => Ok(Sent::new("EXISTS", key)),
            Self::Expire(ttl) => {
                let mut sent = Sent::new("PEXPIRE", key);
                sent.word(ttl.as_millis());
                sent.show("ttl", time(*ttl));
                Ok(sent)
            }
            Self::Increment(by) => {
                let mut sent = Sent::new("INCRBY", key);
                let by = integer(by.as_ref(), exchange, services)?;
                sent.word(by);
                sent.show("by", value::integer(by));
                Ok(sent)
            }
            Self::HashGet(field) => one_field("HGET", key, field, exchange, services),
            Self::HashDelete(field) => one_field("HDEL", key, field, exchange, services),
            Self::HashAll => Ok(Sent::new("HGETALL", key)),
            Self::HashSet(fields) => {
                let mut sent = Sent::new("HSET", key);
                put_fields(&mut sent, fields, exchange, services)?;
                Ok(sent)
            }
            _ => self.make_of_many(key, exchange, services),
        }
    }

    /// The commands on lists, sets, channels and streams.
    fn make_of_many(
        &self,
        key: &str,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Sent, Fault> {
        let mut sent = match self {
            Self::Push(Side::Left, _) => Sent::new("LPUSH", key),
            Self::Push(Side::Right, _) => Sent::new("RPUSH", key),
            Self::Pop(Side::Left, _) => Sent::new("LPOP", key),
            Self::Pop(Side::Right, _) => Sent::new("RPOP", key),
            Self::Range(..) => Sent::new("LRANGE", key),
            Self::SetAdd(_) => Sent::new("SADD", key),
            Self::SetRemove(_) => Sent::new("SREM", key),
            Self::SetMembers => Sent::new("SMEMBERS", key),
            Self::Publish(_) => Sent::new("PUBLISH", key),
            Self::Append(..) => Sent::new("XADD", key),
            _ => Sent::new("LLEN", key),
        };
        match self {
            Self::Push(_, put) | Self::SetAdd(put) | Self::SetRemove(put) => {
                sent.each(put.each(exchange, services)?);
            }
            Self::Range(start, stop) => {
                sent.word(start);
                sent.word(stop);
                sent.show("start", value::integer(*start));
                sent.show("stop", value::integer(*stop));
            }
            Self::Publish(put) => sent.one("value", put.one(exchange, services)?),
            Self::Append(fields, maxlen) => {
                if let Some(most) = maxlen {
                    sent.word("MAXLEN");
                    sent.word("~");
                    sent.word(most);
                }
                sent.word("*");
                put_fields(&mut sent, fields, exchange, services)?;
            }
            _ => {}
        }
        Ok(sent)
    }
}

fn set_terms(sent: &mut Sent, ttl: Option<Duration>, condition: Option<Condition>, keep_ttl: bool) {
    if let Some(ttl) = ttl {
        sent.word("PX");
        sent.word(ttl.as_millis());
        sent.show("ttl", time(ttl));
    }
    if keep_ttl {
        sent.word("KEEPTTL");
        sent.show("keep_ttl", Value::Bool(true));
    }
    if let Some(condition) = condition {
        let (word, shown) = match condition {
            Condition::Absent => ("NX", "absent"),
            Condition::Present => ("XX", "present"),
        };
        sent.word(word);
        sent.show("if", value::text(shown));
    }
}

fn time(time: Duration) -> Value {
    value::text(config::Duration(time).to_string())
}

fn one_field(
    command: &str,
    key: &str,
    field: &Template,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Sent, Fault> {
    let field = exchange.fill_text(field, services)?;
    let mut sent = Sent::new(command, key);
    sent.one(
        "field",
        (field.as_bytes().to_vec(), value::text(field.as_str())),
    );
    Ok(sent)
}

fn put_fields(
    sent: &mut Sent,
    fields: &Fields,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<(), Fault> {
    let mut shown = Vec::new();
    match fields {
        Fields::One(name, put) => {
            let name = exchange.fill_text(name, services)?;
            let (bytes, value) = put.one(exchange, services)?;
            sent.arguments.push(name.as_bytes().to_vec());
            sent.arguments.push(bytes);
            shown.push((name, value));
        }
        Fields::All(members) => {
            let made = members.make(exchange, services)?;
            let Some(members) = value::members(&made) else {
                let kind = value::kind(&made);
                return Err(Fault::invalid(format!("`fields` is an object, not {kind}")));
            };
            for (name, member) in members {
                sent.arguments.push(name.as_bytes().to_vec());
                sent.arguments.push(bytes_of(member)?);
                shown.push((name.to_owned(), member.clone()));
            }
        }
    }
    if shown.is_empty() {
        return Err(Fault::invalid("`fields` has no member"));
    }
    sent.show("fields", value::object(shown));
    Ok(())
}

fn integer(
    by: Option<&ValueTemplate>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<i64, Fault> {
    let Some(by) = by else {
        return Ok(1);
    };
    let made = by.make(exchange, services)?;
    let number = value::scalar_text(&made).and_then(|text| text.parse::<i64>().ok());
    number.ok_or_else(|| {
        let cause = format_args!("not {}", value::shown(&made));
        Fault::unfit("`by` is an integer of 64 bits", cause)
    })
}

impl Put {
    /// The one value.
    fn one(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Argument, Fault> {
        match self {
            Self::Body => body(exchange),
            Self::One(template) | Self::Each(template) => {
                let made = template.make(exchange, services)?;
                Ok((bytes_of(&made)?, made))
            }
        }
    }

    /// All values, at least one.
    fn each(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Vec<Argument>, Fault> {
        let Self::Each(template) = self else {
            return Ok(vec![self.one(exchange, services)?]);
        };
        let made = template.make(exchange, services)?;
        let items = value::as_array(&made).filter(|items| !items.is_empty());
        let Some(items) = items else {
            let cause = format_args!("not {}", value::shown(&made));
            return Err(Fault::unfit(
                "`values` is a list with something in it",
                cause,
            ));
        };
        let items = items.iter();
        items
            .map(|item| Ok((bytes_of(item)?, item.clone())))
            .collect()
    }

    /// Whether it needs the body in memory.
    pub fn reads_body(&self) -> bool {
        match self {
            Self::Body => true,
            Self::One(template) | Self::Each(template) => template.reads_body(),
        }
    }
}

/// The body as it is, bytes for bytes.
fn body(exchange: &mut Exchange) -> Result<Argument, Fault> {
    let (bytes, _) = exchange.body()?;
    let bytes = bytes.as_bytes().to_vec();
    let shown = match exchange.value() {
        Ok(Value::BStr(_)) | Err(_) => value::text(String::from_utf8_lossy(&bytes)),
        Ok(made) => made.clone(),
    };
    fits(bytes.len())?;
    Ok((bytes, shown))
}

/// A value as the server keeps it: texts and bytes as they are, anything else as JSON.
///
/// # Errors
/// `expression` when it cannot be written as JSON, `invalid` when it is too large.
pub fn bytes_of(made: &Value) -> Result<Vec<u8>, Fault> {
    let bytes = match made {
        Value::TStr(bytes) | Value::BStr(bytes) => bytes.to_vec(),
        made => {
            let mut out = Vec::new();
            expr::json::write(made, ARGUMENT_MAX, &mut out).map_err(Fault::expression)?;
            out
        }
    };
    fits(bytes.len())?;
    Ok(bytes)
}

fn fits(length: usize) -> Result<(), Fault> {
    match length <= ARGUMENT_MAX {
        true => Ok(()),
        false => Err(Fault::invalid("a value has more than 512 MiB")),
    }
}
