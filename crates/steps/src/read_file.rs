//! `read-file`: makes the content of a file the message's body.

use std::ffi::OsStr;
use std::path::Path;

use component::content::{Content, Format};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::outside;
use component::step::{Next, Progress, Step};
use config::{ByteSize, Node, Spanned};
use expr::{Value, value};
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::naming::media_type;
use crate::folder::{self, Target, place};
use crate::range;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "read-file",
    summary: "Reads a file.",
    documentation: include_str!("read_file.md"),
    example: include_str!("read_file.yaml"),
    schema: config::schema_for::<ReadFileConfig>,
    build,
};

/// Which file is read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFileConfig {
    /// The folder, relative to the flow file's own folder.
    folder: Spanned<String>,
    /// The file's name within the folder; may contain `${ }`.
    name: Spanned<String>,
    /// How the file is decoded, whatever its extension: `json`, `xml`, `form`, `csv`, `text` or
    /// `bytes`.
    decode: Option<Format>,
    /// Whether a missing file gives null instead of an error.
    #[serde(default)]
    optional: bool,
    /// The largest file, from 1B to 1GiB.
    #[schemars(extend("default" = "16MiB"))]
    max: Option<Spanned<ByteSize>>,
}

/// The step.
struct ReadFile {
    target: Target,
    decode: Option<Format>,
    optional: bool,
    most: u64,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: ReadFileConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let target = Target::read(&config.folder, &config.name, context);
    let max = config.max.as_ref();
    let most = range::size("max", max, range::ONE, 16 << 20, context.report) as u64;
    let target = target?;
    (context.problems() == before).then(|| {
        Box::new(ReadFile {
            target,
            decode: config.decode,
            optional: config.optional,
            most,
        }) as _
    })
}

impl ReadFile {
    async fn read(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let name = exchange
            .preemptible(services, |it| self.target.name(it, services))
            .await?;
        let shown = || value::object([("name".to_owned(), value::text(name.as_str()))]);
        let folder = &self.target.written;
        let said = outside::stand_in(("read-file", folder), shown, exchange, services).await;
        let found = match said {
            Some(reply) => self.of_stand_in(reply?),
            None => self.really(&name, services).await,
        };
        match found {
            Ok(content) => exchange.content = content,
            Err(fault) if self.optional && fault.name() == "not-found" => {
                exchange.set_value(Value::Null);
            }
            Err(fault) => return Err(fault),
        }
        Ok(Next::Continue)
    }

    fn of_stand_in(&self, reply: message::Reply) -> Result<Content, Fault> {
        if reply.status == 404 {
            let error = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(folder::fault("a file cannot be read", &error));
        }
        match outside::failure(&reply) {
            Some(fault) => Err(fault),
            None => Ok(Content::of_reply(&reply).in_format(self.decode)),
        }
    }

    async fn really(&self, name: &str, services: &dyn Services) -> Result<Content, Fault> {
        let (folder, most) = (self.target.folder.clone(), self.most);
        let file = name.to_owned();
        let work = move || place::read(&folder, &file, most);
        let what = ("a file cannot be read", &self.target);
        let bytes = folder::work(what, name, services, work).await?;
        let last = Path::new(name).file_name().unwrap_or(OsStr::new(name));
        let content = Content::of_bytes(bytes, media_type(last, self.decode));
        Ok(content.in_format(self.decode))
    }
}

impl Step for ReadFile {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.read(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.target.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}
