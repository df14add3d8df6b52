//! `list-files`: makes the list of a folder's files the message's body.

use std::cmp::Ordering;
use std::ffi::OsStr;

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::outside;
use component::step::{Next, Progress, Step};
use config::{Node, Spanned};
use expr::template::Template;
use expr::{Value, value};
use jiff::Timestamp;
use message::{Fault, Kind, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes::BAD_FILE_FOLDER;
use crate::file::pattern::Pattern;
use crate::file::read_pattern;
use crate::folder::place::Listed;
use crate::folder::{self, Target, is_folder, place};
use crate::range;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "list-files",
    summary: "Lists the files of a folder.",
    documentation: include_str!("list_files.md"),
    example: include_str!("list_files.yaml"),
    schema: config::schema_for::<ListFilesConfig>,
    build,
};

/// Which files are listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFilesConfig {
    /// The folder, relative to the flow file's own folder.
    folder: Spanned<String>,
    /// A glob pattern for file names: `*` matches any characters, `?` one, `[a-c]` one of several,
    /// `{json,xml}` alternatives. Names that begin with `.` or end with `.tmp` or `.part` are never
    /// listed.
    #[schemars(extend("default" = "*"))]
    r#match: Option<Spanned<String>>,
    /// Whether subfolders are listed too, up to 32 levels.
    #[serde(default)]
    recursive: bool,
    /// The order of the list.
    #[serde(default)]
    sort: Sort,
    /// The largest number of files, from 1 to 100000; more are an error.
    #[schemars(extend("default" = 10000))]
    max: Option<Spanned<u64>>,
}

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Sort {
    /// The first by name, byte by byte.
    #[default]
    Name,
    /// The oldest.
    Time,
    /// The smallest.
    Size,
}

/// The step.
struct ListFiles {
    target: Target,
    pattern: Pattern,
    recursive: bool,
    sort: Sort,
    most: usize,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: ListFilesConfig = config::decode(node, context.report)?;
    let before = context.problems();
    is_folder(&config.folder, BAD_FILE_FOLDER, context);
    let pattern = match &config.r#match {
        Some(text) => read_pattern(text, context.report),
        None => Some(Pattern::default()),
    };
    let max = config.max.as_ref();
    let most = range::count("max", max, 1..=100_000, 10_000, context.report);
    let name = Template::compile("", &*context.scope).ok();
    let (pattern, name) = (pattern?, name?);
    (context.problems() == before).then(|| {
        Box::new(ListFiles {
            target: Target {
                folder: context.surroundings.path(&config.folder),
                written: config.folder.value.as_str().into(),
                name,
            },
            pattern,
            recursive: config.recursive,
            sort: config.sort,
            most,
        }) as _
    })
}

impl Sort {
    fn compare(self, a: &Listed, b: &Listed) -> Ordering {
        let first = match self {
            Self::Name => Ordering::Equal,
            Self::Time => a.modified.cmp(&b.modified),
            Self::Size => a.size.cmp(&b.size),
        };
        first.then_with(|| a.name.cmp(&b.name))
    }
}

impl ListFiles {
    async fn list(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let folder = &self.target.written;
        let shown = || value::object([]);
        let said = outside::stand_in(("list-files", folder), shown, exchange, services).await;
        let listed = match said {
            Some(reply) => said_list(reply?, exchange)?,
            None => self.really(services).await?,
        };
        exchange.set_value(listed);
        Ok(Next::Continue)
    }

    async fn really(&self, services: &dyn Services) -> Result<Value, Fault> {
        let (folder, pattern) = (self.target.folder.clone(), self.pattern.clone());
        let (recursive, most) = (self.recursive, self.most);
        let work = move || {
            let wants = |name: &str| pattern.takes(OsStr::new(name));
            place::list(&folder, recursive, most, wants)
        };
        let what = ("a folder cannot be listed", &self.target);
        let mut listed = folder::work(what, "", services, work).await?;
        listed.sort_unstable_by(|a, b| self.sort.compare(a, b));
        Ok(value::array(listed.into_iter().map(shown)))
    }
}

fn said_list(reply: message::Reply, exchange: &mut Exchange) -> Result<Value, Fault> {
    if let Some(fault) = outside::failure(&reply) {
        return Err(fault);
    }
    let said = outside::body_of(reply, exchange)?;
    match said {
        Value::Arr(_) => Ok(said),
        _ => {
            let detail = "the list of a folder's files is none";
            Err(Fault::new(Kind::Internal, Origin::Engine, detail))
        }
    }
}

fn shown(file: Listed) -> Value {
    let modified = Timestamp::try_from(file.modified).unwrap_or(Timestamp::UNIX_EPOCH);
    let size = i64::try_from(file.size).unwrap_or(i64::MAX);
    value::object([
        ("name".to_owned(), value::text(file.name)),
        ("size".to_owned(), value::integer(size)),
        ("modified".to_owned(), value::text(modified.to_string())),
    ])
}

impl Step for ListFiles {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.list(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        false
    }

    fn waits(&self) -> bool {
        true
    }
}
