//! `dead-letter`: keeps a message that has failed as a file (Dead Letter Channel).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use bytes::Bytes;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::{Outbound, Services};
use component::state::{Measure, State};
use component::step::{Next, Progress, Step};
use component::variables::fault_value;
use config::{Node, Spanned};
use message::secret::redact;
use message::{Body, Fault, Field, Headers, Kind, Origin};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::codes::BAD_DEAD_LETTER;
use crate::{background, folder, range};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "dead-letter",
    summary: "Keeps a failed message as a file.",
    documentation: include_str!("dead_letter.md"),
    example: include_str!("dead_letter.yaml"),
    schema: config::schema_for::<DeadLetterConfig>,
    build,
};

/// After how many files the folder is counted again: others may take files away.
const COUNTED_AGAIN: usize = 1000;

/// What takes the place of a secret.
const MASK: &str = "***";

/// Where the file goes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeadLetterConfig {
    /// The folder, relative to the flow file's own folder. It is created when it is missing.
    folder: Spanned<String>,
    /// The largest number of files in the folder, from 1 to 10000000; with more, the step fails.
    #[schemars(extend("default" = 100000))]
    max_files: Option<Spanned<u64>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: DeadLetterConfig = config::decode(node, context.report)?;
    let before = context.problems();
    folder::is_folder(&config.folder, BAD_DEAD_LETTER, context);
    let max = config.max_files.as_ref();
    let files_max = range::count("max_files", max, 1..=10_000_000, 100_000, context.report);
    context.scope.keep_original();
    (context.problems() == before).then(|| {
        let folder = context.surroundings.path(&config.folder);
        let letters = context.state("dead-letter", (&folder, files_max), || Letters {
            folder: folder.clone(),
            named: config.folder.value.as_str().into(),
            files_max,
            known: Mutex::default(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        Box::new(DeadLetter(letters)) as Box<dyn Step>
    })
}

/// The step.
struct DeadLetter(Arc<Letters>);

/// A folder of failed messages, as one step knows it.
struct Letters {
    folder: PathBuf,
    /// The folder as the flow file has it, which tests and mocks go by.
    named: Arc<str>,
    files_max: usize,
    known: Mutex<Option<Known>>,
    written: AtomicU64,
    failed: AtomicU64,
}

/// How many files there were when they were counted, and how many have been written since.
struct Known {
    counted: usize,
    since: usize,
}

impl Letters {
    /// Writes one file, whole or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.folder)?;
        self.take_place()?;
        let temporary = self.folder.join(format!(".{name}.tmp"));
        let written = self.write_as(&temporary, name, bytes);
        if written.is_err() {
            // Nothing more can be done about it than about the failure itself.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }

    fn write_as(&self, temporary: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut options = OpenOptions::new();
        // What others may not read on its way they may not read here.
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(temporary, self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Fails when the folder is full.
    fn take_place(&self) -> Result<(), Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |known: &Known| {
            known.since < COUNTED_AGAIN && known.counted + known.since < self.files_max
        };
        let mut now = match known.take().filter(is_fresh) {
            Some(known) => known,
            None => Known {
                counted: self.count()?,
                since: 0,
            },
        };
        if now.counted + now.since >= self.files_max {
            let message = format!("the folder has {} files or more", self.files_max);
            return Err(Error::other(message));
        }
        now.since += 1;
        *known = Some(now);
        Ok(())
    }

    fn count(&self) -> Result<usize, Error> {
        let mut count = 0;
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            count += usize::from(Path::new(&name).extension().is_some_and(|it| it == "json"));
        }
        Ok(count)
    }
}

impl DeadLetter {
    async fn keep(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let step = Arc::clone(&exchange.at);
        let outbound = Outbound {
            verb: "dead-letter",
            step: &step,
            connection: &self.0.named,
        };
        if let Some(stand_in) = services.stand_in(outbound, exchange) {
            return stand_in.await.map(|_| Next::Continue);
        }
        let time = time(services);
        // What cannot be written is told in the letter.
        let _ = exchange
            .preemptible(services, |it| it.body().map(|_| ()))
            .await;
        let letter = Letter::of(exchange, &time);
        let name = file_name(&time, services);
        let letters = Arc::clone(&self.0);
        // A large message takes long to write down, so that is done there, too. It is no work of
        // the queue for long work: a failed message must not be lost because that queue is full.
        let written = background::done(services, move || {
            let text = letter.into_json().to_string();
            letters.write(&name, redact(&text).as_bytes())
        });
        let written = written.await;
        let error = match written {
            Ok(Ok(())) => {
                self.0.written.fetch_add(1, Ordering::Relaxed);
                return Ok(Next::Continue);
            }
            Ok(Err(error)) => error.to_string(),
            Err(fault) => fault.to_string(),
        };
        self.0.failed.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            target: "flow",
            flow = &*exchange.context.name,
            step = &*exchange.at,
            folder = %self.0.folder.display(),
            error,
            "a failed message could not be kept"
        );
        let fault = Fault::new(
            Kind::Internal,
            Origin::Engine,
            "a failed message could not be kept",
        );
        Err(fault.with_cause(format_args!(
            "cannot write to the folder {}: {error}",
            self.0.folder.display()
        )))
    }
}

/// The time of day.
fn time(services: &dyn Services) -> jiff::Timestamp {
    let wall = services.wall();
    let seconds = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    let nanoseconds = i32::try_from(wall.subsec_nanos()).unwrap_or(0);
    jiff::Timestamp::new(seconds, nanoseconds).unwrap_or(jiff::Timestamp::MAX)
}

/// A name that no other file has and that says nothing about the message.
fn file_name(time: &jiff::Timestamp, services: &dyn Services) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 1_000_000;
    let random = (services.random() * f64::from(u32::MAX)) as u32;
    let time = time.strftime("%Y%m%dT%H%M%S%.3fZ");
    format!("{time}-{random:08x}-{number:06}.json")
}

/// What is written. It shares the bodies with the message.
struct Letter {
    /// All but the bodies.
    members: Map<String, Json>,
    /// The body as it is now, or why there is none.
    body: Result<LetterBody, String>,
    /// The body that came in.
    original: Option<LetterBody>,
}

/// A body, and what describes it.
struct LetterBody {
    content: Body,
    content_type: Option<Bytes>,
    content_encoding: Option<Bytes>,
}

impl Letter {
    fn of(exchange: &mut Exchange, time: &jiff::Timestamp) -> Self {
        let fault = exchange.fault.clone();
        let error = fault.as_deref().map(|fault| {
            let value = fault_value(fault);
            let member = |name| expr::value::get(&value, name);
            let text = |name| member(name).and_then(expr::value::as_text);
            json!({
                "kind": text("kind"),
                "status": fault.seen_status(),
                "message": text("message"),
                "cause": text("cause"),
            })
        });
        let step = fault.as_deref().and_then(|fault| fault.step.clone());
        let step = step.unwrap_or_else(|| Arc::clone(&exchange.at));
        let body = match exchange.body() {
            Ok((content, content_type)) => Ok(LetterBody {
                content,
                content_type,
                content_encoding: exchange.content_encoding(),
            }),
            Err(fault) => Err(fault.to_string()),
        };
        let original = exchange.original().and_then(|(request, content)| {
            let field = |field| {
                let value = request.headers.view().first(field)?;
                Some(Bytes::copy_from_slice(value))
            };
            Some(LetterBody {
                content: content.raw_body()?.clone(),
                content_type: field(Field::ContentType),
                content_encoding: field(Field::ContentEncoding),
            })
        });
        let request = &exchange.request;
        let members = [
            ("time", time.to_string().into()),
            ("flow", (*exchange.context.name).into()),
            ("step", (*step).into()),
            ("error", error.into()),
            ("method", request.method.as_str().into()),
            ("path", request.path.as_str().into()),
            ("query", request.query.as_deref().map(masked_query).into()),
            ("headers", masked_headers(&request.headers)),
        ];
        let members = members.map(|(name, value): (&str, Json)| (name.to_owned(), value));
        Self {
            members: members.into_iter().collect(),
            body,
            original,
        }
    }

    fn into_json(self) -> Json {
        let mut members = self.members;
        let body = match self.body {
            Ok(body) => body.into_json(),
            Err(error) => json!({ "error": error }),
        };
        members.insert("body".into(), body);
        members.insert("in".into(), self.original.map(LetterBody::into_json).into());
        members.into()
    }
}

impl LetterBody {
    /// The body as text when it is text, else as Base64.
    fn into_json(self) -> Json {
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        let mut members = Map::new();
        members.insert("content_type".into(), self.content_type.map(text).into());
        if let Some(encoding) = self.content_encoding {
            members.insert("content_encoding".into(), text(encoding).into());
        }
        let bytes = self.content.as_bytes();
        let (name, content) = match std::str::from_utf8(bytes) {
            Ok(text) => ("text", text.to_owned()),
            Err(_) => (
                "base64",
                base64::engine::general_purpose::STANDARD.encode(bytes),
            ),
        };
        members.insert(name.into(), content.into());
        members.into()
    }
}

/// The lines of a head by their names, without secrets.
fn masked_headers(headers: &Headers) -> Json {
    let mut members = Map::new();
    for (_, name, value) in headers.view().iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let value = match is_secret(&name) {
            true => Json::from(MASK),
            false => String::from_utf8_lossy(value).into(),
        };
        match members.get_mut(&name) {
            None => {
                members.insert(name, value);
            }
            Some(Json::Array(values)) => values.push(value),
            Some(first) => *first = Json::Array(vec![first.take(), value]),
        }
    }
    members.into()
}

/// A query without secrets.
pub(crate) fn masked_query(query: &str) -> String {
    let parameters = query.split('&').map(|parameter| {
        let (name, _) = parameter.split_once('=').unwrap_or((parameter, ""));
        match is_secret(&name.to_ascii_lowercase()) {
            true => format!("{name}={MASK}"),
            false => parameter.to_owned(),
        }
    });
    parameters.collect::<Vec<_>>().join("&")
}

/// Whether what has this name, in small letters, is hardly meant for a file.
pub(crate) fn is_secret(name: &str) -> bool {
    const PARTS: [&str; 11] = [
        "auth",
        "cookie",
        "token",
        "secret",
        "passw",
        "api-key",
        "apikey",
        "api_key",
        "session",
        "signature",
        "credential",
    ];
    PARTS.iter().any(|part| name.contains(part)) || matches!(name, "key" | "sig" | "pwd")
}

impl Step for DeadLetter {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.keep(exchange, services)))
    }

    fn waits(&self) -> bool {
        true
    }
}

impl State for Letters {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure(
                "dead_letters_total",
                "Failed messages kept.",
                count(&self.written),
            ),
            measure(
                "dead_letters_failed_total",
                "Failed messages that could not be kept.",
                count(&self.failed),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
