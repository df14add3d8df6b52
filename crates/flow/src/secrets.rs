//! `engine.secrets`: where secrets are read from. Reading them is the application's matter.

use config::{Node, Report, Secrets, Span, Spanned, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::ENVIRONMENT;
use crate::environment::{Environment, Places, is_environment_name};

/// Where secrets are read from. `${ $secret.NAME }` stands for the value of one; a name that two
/// sources have is an error.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretsConfig {
    /// Names of environment variables. Each must be set.
    #[serde(default)]
    env: Vec<Spanned<String>>,
    /// A folder in which every file is a secret by its name, as Docker and Kubernetes give them to
    /// containers. One newline at the end is dropped; hidden files and folders are left out.
    /// Relative to the flow file; read again when it changes.
    #[schemars(extend("minLength" = 1))]
    #[allow(
        dead_code,
        reason = "read before the other settings, by secret_sources"
    )]
    folder: Option<String>,
    /// A file that `intertie secrets encrypt` has written. Its key is the value of the environment
    /// variable `INTERTIE_SECRETS_KEY`, or stands in the file that `INTERTIE_SECRETS_KEY_FILE`
    /// names. Relative to the flow file; read again when it changes.
    #[schemars(extend("minLength" = 1))]
    #[allow(
        dead_code,
        reason = "read before the other settings, by secret_sources"
    )]
    file: Option<String>,
}

/// Where secrets are read from, as the documents say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretSources {
    /// Names of environment variables.
    pub env: Vec<Spanned<String>>,
    /// A folder with a file for each secret, relative to the flow file.
    pub folder: Option<Spanned<String>>,
    /// An encrypted file, relative to the flow file.
    pub file: Option<Spanned<String>>,
}

/// Where the documents say that secrets are read from. What is wrong with that, [`crate::load`]
/// tells; it is left out here. `environment` looks an environment variable up.
pub fn secret_sources(
    documents: &[Node],
    environment: &dyn Fn(&str) -> Option<String>,
) -> SecretSources {
    let engine = documents.iter().find_map(|document| document.get("engine"));
    let Some(node) = engine.and_then(|engine| engine.get("secrets")) else {
        return SecretSources::default();
    };
    // Loading finds the same problems once more, and tells them.
    let (mut report, mut places) = (Report::default(), Places::default());
    let mut node = node.clone();
    let names = Environment::read(engine, environment, &mut report);
    names.expand(&mut node, None, &mut places, &mut report);
    let text = |node: &Node| match &node.value {
        Value::String(text) if !text.is_empty() && !places.spoiled.contains(&node.span) => {
            Some(Spanned {
                value: text.clone(),
                span: node.span,
            })
        }
        _ => None,
    };
    let env = node.get("env").and_then(Node::as_sequence);
    let env = env.unwrap_or_default().iter().filter_map(text);
    SecretSources {
        env: env
            .filter(|name| is_environment_name(&name.value))
            .collect(),
        folder: node.get("folder").and_then(text),
        file: node.get("file").and_then(text),
    }
}

/// Tells what the schema of `engine.secrets` cannot.
pub(crate) fn check(config: &SecretsConfig, report: &mut Report) {
    for name in &config.env {
        if !is_environment_name(&name.value) {
            let message = format!("`{}` is not an environment name", name.value.escape_debug());
            report
                .error(ENVIRONMENT, name.span, message)
                .hint("a name has letters, digits and `_` and does not begin with a digit");
        }
    }
}

/// What is known of secrets when documents are loaded.
#[derive(Clone, Debug, Default)]
pub struct KnownSecrets {
    /// The secrets that could be read.
    pub values: Secrets,
    /// Whether some could not be read, which has been told: then it is no mistake of a flow when
    /// it uses one that is not there.
    pub is_incomplete: bool,
}

impl KnownSecrets {
    /// Drops what follows from secrets that could not be read, and hides what is quoted of others.
    pub(crate) fn finish(&self, places: &[(Span, String)], report: &mut Report) {
        if self.is_incomplete {
            report.retain(|problem| problem.code() != config::codes::SECRET_UNDECLARED);
        }
        report.mask(places);
    }
}
