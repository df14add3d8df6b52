//! `delete-file`: deletes a file.

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::outside;
use component::step::{Next, Progress, Step};
use config::{Node, Spanned};
use expr::value;
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::folder::{self, Target, place};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "delete-file",
    summary: "Deletes a file.",
    documentation: include_str!("delete_file.md"),
    example: include_str!("delete_file.yaml"),
    schema: config::schema_for::<DeleteFileConfig>,
    build,
};

/// Which file is deleted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteFileConfig {
    /// The folder, relative to the flow file's own folder.
    folder: Spanned<String>,
    /// The file's name within the folder; may contain `${ }`.
    name: Spanned<String>,
    /// Whether a missing file is ignored instead of being an error.
    #[serde(default)]
    optional: bool,
}

/// The step.
struct DeleteFile {
    target: Target,
    optional: bool,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: DeleteFileConfig = config::decode(node, context.report)?;
    let target = Target::read(&config.folder, &config.name, context)?;
    let optional = config.optional;
    Some(Box::new(DeleteFile { target, optional }))
}

impl DeleteFile {
    async fn delete(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let name = exchange
            .preemptible(services, |it| self.target.name(it, services))
            .await?;
        let shown = || value::object([("name".to_owned(), value::text(name.as_str()))]);
        let folder = &self.target.written;
        let said = outside::stand_in(("delete-file", folder), shown, exchange, services).await;
        let deleted = match said {
            Some(reply) => outside::failure(&reply?).map_or(Ok(()), Err),
            None => {
                let (folder, file) = (self.target.folder.clone(), name.clone());
                let work = move || place::delete(&folder, &file);
                let what = ("a file cannot be deleted", &self.target);
                folder::work(what, &name, services, work).await
            }
        };
        match deleted {
            Err(fault) if self.optional && fault.name() == "not-found" => Ok(Next::Continue),
            Err(fault) => Err(fault),
            Ok(()) => Ok(Next::Continue),
        }
    }
}

impl Step for DeleteFile {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.delete(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.target.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}
