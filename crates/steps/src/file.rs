//! `file`: starts a flow with each file that is put into a folder.

mod disk;
mod message;
pub(crate) mod naming;
pub(crate) mod pattern;
mod run;
mod state;
mod watch;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::definition::Surroundings;
use component::intake::{
    DeadLetter, DeadLetterConfig, DeadLetterPlace, IntakeCounts, IntakePlan, IntakePolicy,
    OwnTarget,
};
use component::resilience::{RetryConfig, RetryDefaults};
use component::source::{Source, SourceContext, SourceDefinition};
use component::state::StateKey;
use config::{ByteSize, Node, Report, Span, Spanned, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::codes::{BAD_DELIVERY, BAD_FOLDER, BAD_PATTERN, SOURCE_NO_EFFECT, SOURCE_OUT_OF_RANGE};
use crate::file::disk::Folders;
use crate::file::pattern::Pattern;
use crate::file::run::FileSource;
use crate::file::state::FileState;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "file",
    summary: "Starts a flow with each file that appears in a folder.",
    documentation: include_str!("file.md"),
    example: include_str!("file.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// Where files are while flows run on them, within their folder.
const PROCESSING: &str = ".processing";

const HOUR: Duration = Duration::from_secs(3600);
const EVERY: (Duration, Duration) = (Duration::from_millis(100), HOUR);
const STABLE: (Duration, Duration) = (Duration::ZERO, HOUR);
const CONCURRENT: (u64, u64) = (1, 64);
const BODY: (u64, u64) = (1, 1 << 30);

/// The mapping form of `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-renamed" = {
    "parallel": "concurrent",
    "failed": "dead_letter: { folder: ... }",
}))]
struct FileConfig {
    /// The folder to watch, relative to the flow file's own folder. It is created when it is
    /// missing. Subfolders are ignored and symbolic links are not followed.
    folder: Spanned<String>,
    /// A glob pattern for file names: `*` matches any characters, `?` one, `[a-c]` one of several,
    /// `{json,xml}` alternatives. Names that begin with `.` or end with `.tmp` or `.part` never
    /// match.
    #[schemars(extend("default" = "*"))]
    pattern: Option<Spanned<String>>,
    /// The folder for files whose flow has succeeded, relative to the flow file's own folder. The
    /// default is `.done` in the watched folder.
    done: Option<Spanned<String>>,
    /// How often the folder is scanned, from 100ms to 1h.
    #[schemars(extend("default" = "1s"))]
    every: Option<Spanned<config::Duration>>,
    /// Whether the folder is also scanned when the system reports a change (inotify).
    #[serde(default = "yes")]
    watch: bool,
    /// How long the size and modification time of a file must be unchanged before it is taken, from
    /// 0s to 1h.
    #[schemars(extend("default" = "500ms"))]
    stable: Option<Spanned<config::Duration>>,
    /// The number of files that are processed at the same time, from 1 to 64.
    #[schemars(extend("default" = 1))]
    concurrent: Option<Spanned<u64>>,
    /// The largest file, from 1B to 1GiB. A larger one stays where it is and is logged.
    #[schemars(extend("default" = "16MiB"))]
    body_max: Option<Spanned<ByteSize>>,
    /// The order of files: by `name`, or by the `time` of the last change, oldest first.
    #[serde(default)]
    order: Order,
    /// Whether a file is deleted after success, instead of being moved to `done`.
    #[serde(default)]
    delete: bool,
    /// How files are decoded, whatever their extension: `json`, `xml`, `form`, `csv`, `text` or
    /// `bytes`.
    decode: Option<Format>,
    /// How failed runs of the flow are retried. Meanwhile the file stays in `.processing`. Without
    /// `retry` none is retried.
    #[serde(default)]
    retry: RetryConfig<OfFile>,
    dead_letter: Option<DeadLetterConfig<OfFile>>,
}

/// `retry:` and `dead_letter:` of a flow that takes files.
#[derive(Debug)]
struct OfFile;

impl RetryDefaults for OfFile {
    const SUMMARY: &'static str =
        "How failed runs of the flow are retried. Meanwhile the file stays in `.processing`.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["any"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any \
         other the file becomes a dead letter at once.",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1_000_000,
        3,
        "The number of retries after the first attempt; then the file becomes a dead letter.",
    );
}

impl DeadLetterPlace for OfFile {
    const REJECT: Option<&'static str> = None;
    const OWN: Option<OwnTarget> = Some(OwnTarget {
        key: "folder",
        meaning: "The folder for files whose flow has failed, each with the reason in \
                  `NAME.error.json`; relative to the flow file's own folder. The default is \
                  `.failed` in the watched folder.",
    });
    const REJECTS: bool = true;
}

fn yes() -> bool {
    true
}

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Order {
    /// The first by name, byte by byte.
    #[default]
    Name,
    /// The oldest.
    Time,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "File".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<FileConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// What is decided when the file is read.
#[derive(Clone, Debug)]
struct Settings {
    folders: Arc<Folders>,
    pattern: Arc<Pattern>,
    every: Duration,
    watch: bool,
    stable: Duration,
    concurrent: usize,
    body_max: u64,
    order: Order,
    decode: Option<Format>,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let mut config = match &node.value {
        Value::String(text) => FileConfig::of_folder(text, node.span),
        Value::Mapping(_) => config::decode(node, context.report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    let before = context.report.errors();
    let mut retry = config.retry.policy(BAD_DELIVERY, context.report);
    if node.get("retry").is_none() {
        retry.times = 0;
    }
    let dead_letter = DeadLetterConfig::read(config.dead_letter.take(), node.span, context);
    let failed = match &dead_letter {
        Some((DeadLetter::Reject, folder)) => Failed::Moved(folder.as_ref()),
        _ => Failed::Elsewhere,
    };
    let settings = config.settings(failed, context.surroundings, context.report);
    let (settings, (dead_letter, _)) = (settings?, dead_letter?);
    if context.report.errors() > before {
        return None;
    }
    let key = StateKey {
        flow: Arc::clone(context.flow),
        step: "file".into(),
        kind: "file",
        settings: format!("{:?}", settings.folders),
    };
    let states = context.surroundings.states;
    let state = states.get(key, FileState::default);
    let policy = IntakePolicy {
        retry,
        dead_letter,
        // A file that is being retried is locked, and nothing waits for its acknowledgement.
        hold_max: Duration::MAX,
    };
    Some(Arc::new(FileSource {
        plan: IntakePlan::new(policy, IntakeCounts::of("file", &settings.folders, context)),
        settings,
        state,
    }))
}

/// Where files go whose flow has failed.
#[derive(Clone, Copy)]
enum Failed<'a> {
    /// To this folder, or to the default one.
    Moved(Option<&'a Spanned<String>>),
    /// Not to a folder of their own.
    Elsewhere,
}

impl FileConfig {
    fn of_folder(text: &str, span: Span) -> Self {
        Self {
            folder: Spanned {
                value: text.to_owned(),
                span,
            },
            pattern: None,
            done: None,
            every: None,
            watch: true,
            stable: None,
            concurrent: None,
            body_max: None,
            order: Order::default(),
            delete: false,
            decode: None,
            retry: RetryConfig::default(),
            dead_letter: None,
        }
    }

    /// Checks everything. Every problem goes into the report; `None` when there was one.
    fn settings(
        &self,
        failed: Failed<'_>,
        around: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Settings> {
        let before = report.diagnostics().len();
        let folders = self.folders(failed, around, report);
        let pattern = match &self.pattern {
            Some(text) => read_pattern(text, report),
            None => Some(Pattern::default()),
        };
        let times = |millis| Duration::from_millis(millis);
        let every = in_range_time("every", self.every.as_ref(), EVERY, times(1000), report);
        let stable = in_range_time("stable", self.stable.as_ref(), STABLE, times(500), report);
        let concurrent = self.concurrent.as_ref();
        let concurrent = concurrent.map_or(1, |it| in_range("concurrent", it, CONCURRENT, report));
        let body_max = self.body_max.as_ref();
        let body_max = body_max.map_or(ByteSize(16 << 20), |it| {
            let (least, greatest) = BODY;
            let range = (ByteSize(least), ByteSize(greatest));
            in_range("body_max", it, range, report)
        });
        if report.diagnostics().len() > before {
            return None;
        }
        Some(Settings {
            folders: Arc::new(folders?),
            pattern: Arc::new(pattern?),
            every,
            watch: self.watch,
            stable,
            concurrent: concurrent as usize,
            body_max: body_max.0,
            order: self.order,
            decode: self.decode,
        })
    }

    fn folders(
        &self,
        failed: Failed<'_>,
        around: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Folders> {
        let folder = read_folder("folder", &self.folder, around, report);
        let folder_path = around.path(&self.folder);
        let own = |name: &str| folder_path.join(name);
        let processing = own(PROCESSING);
        if let Some(done) = self.done.as_ref().filter(|_| self.delete) {
            report
                .error(
                    SOURCE_NO_EFFECT,
                    done.span,
                    "`done` has no effect: `delete` is true",
                )
                .hint("leave one of them out");
        }
        let mut beside = |name: &str, default: &str, given: Option<&Spanned<String>>| {
            let Some(given) = given else {
                return Some(own(default));
            };
            let path = read_folder(name, given, around, report)?;
            let is_own = plain(&path) == plain(&folder_path);
            if is_own || plain(&path).starts_with(plain(&processing)) {
                let message = match is_own {
                    true => format!("`{name}` is the folder itself"),
                    false => format!("`{name}` is where files are while flows run on them"),
                };
                report
                    .error(BAD_FOLDER, given.span, message)
                    .hint("name another folder, or leave it out");
                return None;
            }
            Some(path)
        };
        let done = beside("done", ".done", self.done.as_ref());
        let failed = match failed {
            Failed::Moved(given) => Some(beside("dead_letter.folder", ".failed", given)?),
            Failed::Elsewhere => None,
        };
        Some(Folders {
            folder: folder?,
            processing,
            done: Some(done?).filter(|_| !self.delete),
            failed,
        })
    }
}

fn read_folder(
    name: &str,
    text: &Spanned<String>,
    around: &Surroundings<'_>,
    report: &mut Report,
) -> Option<PathBuf> {
    let message = match text.value.as_str() {
        "" => format!("`{name}` is empty"),
        text if text.contains(char::is_control) => {
            format!("`{name}` has a control character in it")
        }
        _ => return Some(around.path(text)),
    };
    report
        .error(BAD_FOLDER, text.span, message)
        .hint("write a path such as `./in` or `/var/spool/orders`");
    None
}

/// A path without `.` and `..`, as far as it can be told without a look at the disk.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

pub(crate) fn read_pattern(text: &Spanned<String>, report: &mut Report) -> Option<Pattern> {
    match Pattern::read(&text.value) {
        Ok(pattern) => Some(pattern),
        Err((message, hint)) => {
            report.error(BAD_PATTERN, text.span, message).hint(hint);
            None
        }
    }
}

fn in_range_time(
    name: &str,
    time: Option<&Spanned<config::Duration>>,
    (least, greatest): (Duration, Duration),
    default: Duration,
    report: &mut Report,
) -> Duration {
    let Some(time) = time else {
        return default;
    };
    let range = (config::Duration(least), config::Duration(greatest));
    in_range(name, time, range, report).0
}

fn in_range<T: Copy + PartialOrd + Display>(
    name: &str,
    value: &Spanned<T>,
    (least, greatest): (T, T),
    report: &mut Report,
) -> T {
    if value.value < least || value.value > greatest {
        let message = format!("`{name}` is {}, out of its range", value.value);
        report
            .error(SOURCE_OUT_OF_RANGE, value.span, message)
            .hint(format!("from {least} to {greatest}"));
    }
    value.value
}

#[cfg(test)]
mod tests;
