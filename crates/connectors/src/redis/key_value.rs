//! A Redis server as a store of values by key. Each value is a string that begins with its version,
//! 16 digits; scripts compare and set, since other commands of the same connection may come
//! between.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use component::key_value::{Entry, KeyValueStore, Version, Write};
use message::Fault;
use redis::{Cmd, Value, cmd};

use super::connection::Redis;
use super::link::link;

/// How many digits a version has.
const DIGITS: usize = 16;
/// Writes `ARGV[2]` for `ARGV[3]` milliseconds when the version is `ARGV[1]`. Versions are
/// microseconds of the server's clock, or one more than the last one: a value that expired has had
/// a lower one.
const SET: &str = "\
local now = redis.call('GETRANGE', KEYS[1], 0, 15)
if now ~= ARGV[1] then return '' end
local time = redis.call('TIME')
local version = time[1] * 1000000 + time[2]
if now ~= '' and version <= tonumber(now) then version = tonumber(now) + 1 end
version = string.format('%016.0f', version)
redis.call('SET', KEYS[1], version .. ARGV[2], 'PX', ARGV[3])
return version";
/// Deletes the value when the version is `ARGV[1]`.
const DELETE: &str = "\
if redis.call('GETRANGE', KEYS[1], 0, 15) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// A connection as a store.
pub(super) fn of(connection: &Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn KeyValueStore>> {
    let server = Arc::clone(connection).downcast::<Redis>().ok()?;
    Some(Arc::new(Store(server)))
}

struct Store(Arc<Redis>);

impl Store {
    /// Gives a command, and reads its answer; `None` is an answer that it never has.
    async fn ask<T>(
        &self,
        command: &Cmd,
        services: &dyn Services,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Fault> {
        let link = link(&self.0, services);
        let answer = link.command(command, services).await?;
        read(answer).ok_or_else(|| link.odd())
    }
}

/// A version as it is written; nothing for a key without a value.
fn digits(version: Option<Version>) -> String {
    match version {
        Some(Version(number)) => format!("{number:0DIGITS$}"),
        None => String::new(),
    }
}

fn version(digits: &[u8]) -> Option<Version> {
    let is_number = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok().map(Version)
}

/// The value of a key, when there is one; `None` when somebody else has written it.
fn entry(answer: Value) -> Option<Option<Entry>> {
    match answer {
        Value::Nil => Some(None),
        Value::BulkString(bytes) => {
            let version = version(bytes.get(..DIGITS)?)?;
            let value = Bytes::from(bytes).slice(DIGITS..);
            Some(Some(Entry { value, version }))
        }
        _ => None,
    }
}

fn script(text: &str, key: &[u8]) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(text).arg(1).arg(key);
    command
}

impl KeyValueStore for Store {
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Entry>, Fault>> {
        Box::pin(async move {
            let mut command = cmd("GET");
            command.arg(key);
            self.ask(&command, services, entry).await
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        key: &'a [u8],
        write: Write,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Version>, Fault>> {
        Box::pin(async move {
            let mut command = script(SET, key);
            let ttl = write.ttl.as_millis().max(1) as u64;
            command.arg(digits(write.expected)).arg(&*write.value);
            command.arg(ttl);
            let read = |answer| match answer {
                Value::BulkString(digits) if digits.is_empty() => Some(None),
                Value::BulkString(digits) => version(&digits).map(Some),
                _ => None,
            };
            self.ask(&command, services, read).await
        })
    }

    fn compare_and_delete<'a>(
        &'a self,
        key: &'a [u8],
        expected: Version,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(async move {
            let mut command = script(DELETE, key);
            command.arg(digits(Some(expected)));
            let read = |answer| match answer {
                Value::Int(deleted) => Some(deleted == 1),
                _ => None,
            };
            self.ask(&command, services, read).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use component::key_value::conformance::Suite;
    use testkit::servers::Redis as Server;

    use super::*;
    use crate::redis::connection::DEFINITION;
    use crate::testing::{StandIn, connect};

    #[test]
    fn a_server_does_what_every_store_does() {
        let server = Server::start();
        let yaml = format!("{{ redis: 'redis://127.0.0.1:{}' }}", server.port());
        let store = of(&connect(&DEFINITION, &yaml).unwrap()).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(Default::default());
        let services = StandIn {
            is_timeless: true,
            ..StandIn::default()
        };
        let suite = Suite {
            store: &*store,
            services: &services,
            pass: &|time: Duration| Box::pin(tokio::time::sleep(time)),
        };
        runtime.unwrap().block_on(suite.run()).unwrap();
    }

    #[test]
    fn a_value_of_somebody_else_is_refused() {
        for text in ["", "short", "1234567890123a56 value"] {
            let answer = Value::BulkString(text.into());
            assert_eq!(entry(answer), None, "{text}");
        }
        let own = entry(Value::BulkString(b"0000000000000042v".to_vec()));
        let value = Bytes::from_static(b"v");
        let version = Version(42);
        assert_eq!(own, Some(Some(Entry { value, version })));
    }
}
