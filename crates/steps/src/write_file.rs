//! `write-file`: writes the message's body, or another one, into a file.

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::outside;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Spanned};
use expr::{Value, value};
use message::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::folder::place::Way;
use crate::folder::{self, Target, place};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "write-file",
    summary: "Writes the body to a file.",
    documentation: include_str!("write_file.md"),
    example: include_str!("write_file.yaml"),
    schema: config::schema_for::<WriteFileConfig>,
    build,
};

/// Which file is written and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFileConfig {
    /// The folder, relative to the flow file's own folder. It is created when it is missing.
    folder: Spanned<String>,
    /// The file's name within the folder; may contain `${ }`. Missing folders in it are created.
    name: Spanned<String>,
    /// The content, with `${ }` in its strings: strings and bytes as they are, anything else as
    /// JSON. The default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// What happens if the file exists.
    #[serde(default)]
    mode: Mode,
    /// Whether the step waits until the file is on the disk (fsync).
    #[serde(default = "yes")]
    fsync: bool,
}

fn yes() -> bool {
    true
}

/// What happens if the file exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    /// The step fails with `exists`.
    #[default]
    Create,
    /// The new one takes its place.
    Replace,
    /// What is written is added to its end.
    Append,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Append => "append",
        }
    }

    fn way(self) -> Way {
        match self {
            Self::Create => Way::Create,
            Self::Replace => Way::Replace,
            Self::Append => Way::Append,
        }
    }
}

/// The step.
struct WriteFile {
    target: Target,
    body: Option<ValueTemplate>,
    mode: Mode,
    fsync: bool,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: WriteFileConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let target = Target::read(&config.folder, &config.name, context);
    let body = node.get("body").and_then(|body| context.value(body));
    let target = target?;
    (context.problems() == before).then(|| {
        Box::new(WriteFile {
            target,
            body,
            mode: config.mode,
            fsync: config.fsync,
        }) as _
    })
}

impl WriteFile {
    async fn write(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let made = exchange.preemptible(services, |it| {
            Ok((self.target.name(it, services)?, self.made(it, services)?))
        });
        let (name, (bytes, shown)) = made.await?;
        let shown = || {
            value::object([
                ("name".to_owned(), value::text(name.as_str())),
                ("mode".to_owned(), value::text(self.mode.name())),
                ("body".to_owned(), shown),
            ])
        };
        let folder = &self.target.written;
        let said = outside::stand_in(("write-file", folder), shown, exchange, services).await;
        if let Some(reply) = said {
            return match outside::failure(&reply?) {
                Some(fault) => Err(fault),
                None => Ok(Next::Continue),
            };
        }
        let (folder, file) = (self.target.folder.clone(), name.clone());
        let (way, fsync) = (self.mode.way(), self.fsync);
        let work = move || place::write((&folder, &file), &bytes, way, fsync);
        let what = ("a file cannot be written", &self.target);
        folder::work(what, &name, services, work).await?;
        Ok(Next::Continue)
    }

    /// What is written, and how whoever stands in for the folder sees it.
    fn made(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(Vec<u8>, Value), Fault> {
        let Some(body) = &self.body else {
            let (bytes, _) = exchange.body()?;
            let bytes = bytes.as_bytes().to_vec();
            let shown = match exchange.value() {
                Ok(Value::BStr(_)) | Err(_) => value::text(String::from_utf8_lossy(&bytes)),
                Ok(made) => made.clone(),
            };
            return Ok((bytes, shown));
        };
        let made = body.make(exchange, services)?;
        let bytes = match &made {
            Value::TStr(bytes) | Value::BStr(bytes) => bytes.to_vec(),
            made => {
                let mut out = Vec::new();
                let most = exchange.context.body_max;
                expr::json::write(made, most, &mut out).map_err(Fault::expression)?;
                out
            }
        };
        Ok((bytes, made))
    }
}

impl Step for WriteFile {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.write(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.body.as_ref().is_none_or(ValueTemplate::reads_body) || self.target.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}
