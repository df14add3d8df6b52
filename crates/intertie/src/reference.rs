//! The JSON Schema of flow files and the reference pages, made of the same tables that the loader
//! reads. Deterministic; what is committed under `docs/reference/` is these texts, and a test
//! fails when it is not.

use component::definition::{ConnectionDefinition, StepDefinition};
use component::document::DocumentDefinition;
use component::endpoint::EndpointDefinition;
use component::flow_kind::FlowKind;
use component::source::SourceDefinition;
use config::describe;
use serde_json::Value;

use crate::load::TABLE;

/// The file of the schema among the pages.
const SCHEMA_FILE: &str = "flow-file.schema.json";

const NOTICE: &str = "<!-- Generated: edit the doc comments and the Markdown beside them, then \
                      run `UPDATE=1 cargo test -p intertie --lib reference`. -->";

/// The JSON Schema (draft 2020-12) of one document of a flow file, for editors.
pub fn schema() -> Value {
    flow::schema::file(TABLE)
}

/// The reference pages: file name and Markdown, in the order of the index.
pub fn pages() -> Vec<(String, String)> {
    let mut pages = vec![
        ("README.md".to_owned(), index()),
        ("flow.md".to_owned(), flow_page()),
        ("on_error.md".to_owned(), on_error_page()),
        ("fallback.md".to_owned(), fallback_page()),
        ("engine.md".to_owned(), engine_page()),
        ("auth.md".to_owned(), auth_page()),
        ("http-trigger.md".to_owned(), trigger_page()),
    ];
    pages.extend(TABLE.connections.iter().map(|connection| {
        let name = format!("{}-connection.md", connection.name);
        (name, connection_page(connection))
    }));
    pages.extend(TABLE.sources.iter().map(|source| {
        let name = format!("{}-trigger.md", source.name);
        (name, source_page(source))
    }));
    pages.extend(TABLE.endpoints.iter().map(|endpoint| {
        let name = format!("{}-trigger.md", endpoint.name);
        (name, endpoint_page(endpoint))
    }));
    pages.extend(TABLE.documents.iter().map(|document| {
        (
            format!("{}-document.md", document.name),
            document_page(document),
        )
    }));
    pages.extend(TABLE.kinds.iter().map(|kind| {
        let name = format!("{}-document.md", kind.name);
        (name, kind_page(kind))
    }));
    for forms in flow::schema::forms(TABLE.steps) {
        let name = forms.first().map_or("", |step| step.name);
        pages.push((format!("{name}.md"), step_page(name, &forms)));
    }
    pages
}

/// Everything that is committed under `docs/reference/`: the pages and the schema.
pub fn files() -> Vec<(String, String)> {
    let mut files = pages();
    files.push((SCHEMA_FILE.to_owned(), format!("{:#}\n", schema())));
    files
}

fn page(title: &str, parts: &[&str]) -> String {
    let mut text = format!("{NOTICE}\n\n# {title}\n");
    for part in parts.iter().filter(|part| !part.is_empty()) {
        text.push('\n');
        text.push_str(part.trim_end());
        text.push('\n');
    }
    text
}

fn example(yaml: &str) -> String {
    format!("## Example\n\n```yaml\n{}\n```", yaml.trim_end())
}

/// The table of a schema's keys; nothing for a value whose keys are the user's own names.
fn keys(schema: &Value) -> String {
    let table = describe::markdown(schema);
    match table.is_empty() {
        true => table,
        false => format!("## Keys\n\n{table}"),
    }
}

fn index() -> String {
    let mut documents = String::new();
    for document in TABLE.documents {
        documents.push_str(&row(
            &format!("{}-document", document.name),
            document.name,
            document.summary,
        ));
    }
    for kind in TABLE.kinds {
        let page = format!("{}-document", kind.name);
        documents.push_str(&row(&page, kind.name, kind.summary));
    }
    let words = include_str!("reference/index.md").replace("DOCUMENTS\n", &documents);
    let mut triggers = "## Triggers\n\n| trigger | starts the flow |\n| --- | --- |\n".to_owned();
    triggers.push_str("| [`http`](http-trigger.md) | With each HTTP request. |\n");
    let endpoints = TABLE.endpoints.iter().map(|it| (it.name, it.summary));
    let sources = TABLE.sources.iter().map(|it| (it.name, it.summary));
    for (name, summary) in endpoints.chain(sources) {
        triggers.push_str(&row(&format!("{name}-trigger"), name, summary));
    }
    triggers.push_str("| `call` | When another flow calls it: `from: call`. |\n");
    let mut steps = "## Steps\n\n| step | what it does |\n| --- | --- |\n".to_owned();
    for forms in flow::schema::forms(TABLE.steps) {
        let name = forms.first().map_or("", |step| step.name);
        steps.push_str(&row(name, name, &summaries(&forms)));
    }
    let mut connections =
        "## Connections\n\n| connection | what it is |\n| --- | --- |\n".to_owned();
    for connection in TABLE.connections {
        let page = format!("{}-connection", connection.name);
        connections.push_str(&row(&page, connection.name, connection.summary));
    }
    page(
        "Reference of flow files",
        &[&words, &triggers, &steps, &connections],
    )
}

fn row(page: &str, name: &str, summary: &str) -> String {
    format!("| [`{name}`]({page}.md) | {summary} |\n")
}

/// The summaries of a verb's forms, each after the key that tells it apart.
fn summaries(forms: &[&StepDefinition]) -> String {
    if let [step] = forms {
        return step.summary.to_owned();
    }
    let one =
        |step: &&StepDefinition| format!("`{}`: {}", step.form().unwrap_or_default(), step.summary);
    forms.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn flow_page() -> String {
    let mut parts = vec![
        include_str!("reference/flow.md").to_owned(),
        keys(&flow::schema::flow()),
    ];
    parts.push(format!(
        "## `limits`\n\n{}",
        describe::markdown(&flow::schema::limits())
    ));
    parts.push(format!(
        "## `tests`\n\nSee [Testing flows](../testing.md).\n\n{}",
        describe::markdown(&flow::schema::test_case())
    ));
    for (title, schema) in flow::tests_section::parts() {
        parts.push(format!("### {title}\n\n{}", describe::markdown(&schema)));
    }
    parts.push(include_str!("reference/beside.md").to_owned());
    for (name, schema) in flow::schema::modifiers() {
        if schema.get("properties").is_some() {
            parts.push(format!("### `{name}`\n\n{}", describe::markdown(&schema)));
        }
    }
    parts.push(example(include_str!("reference/flow.yaml")));
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    page("`flow`: a flow", &parts)
}

fn on_error_page() -> String {
    let yaml = include_str!("reference/on_error.yaml");
    let words = include_str!("reference/on_error.md");
    page("`on_error`: handling failures", &[words, &example(yaml)])
}

fn fallback_page() -> String {
    let yaml = include_str!("reference/fallback.yaml");
    let words = include_str!("reference/fallback.md");
    page(
        "`fallback`: a default for a failed step",
        &[words, &example(yaml)],
    )
}

fn engine_page() -> String {
    let keys = keys(&flow::schema::engine_settings(TABLE));
    let yaml = include_str!("reference/engine.yaml");
    let words = include_str!("reference/engine.md");
    page("`engine`: settings", &[words, &keys, &example(yaml)])
}

fn auth_page() -> String {
    let access = TABLE.access;
    let door = format!(
        "## Keys of `auth`\n\n{}",
        describe::markdown(&door_mapping(&(access.auth)()))
    );
    let ways = (access.ways)();
    let way = ways
        .get("additionalProperties")
        .cloned()
        .unwrap_or_default();
    let ways = format!(
        "## Authentication methods: `engine.auth`\n\nA mapping of names to methods; each has \
         exactly one type:\n\n{}",
        describe::markdown(&way)
    );
    page(
        "`auth`: authentication and authorization",
        &[access.documentation, &door, &ways, &example(access.example)],
    )
}

/// The mapping among the forms of a schema.
fn door_mapping(schema: &Value) -> Value {
    let forms = schema.get("anyOf").and_then(Value::as_array);
    let mut forms = forms.into_iter().flatten();
    let mapping = forms.find(|it| it.get("properties").is_some());
    mapping.cloned().unwrap_or_default()
}

fn trigger_page() -> String {
    let keys = keys(&flow::schema::http_trigger());
    let yaml = include_str!("reference/http-trigger.yaml");
    let words = include_str!("reference/http-trigger.md");
    page("`http`: a trigger", &[words, &keys, &example(yaml)])
}

/// The summary and what follows it. Prose that begins with the summary's words stands alone.
fn opening(summary: &str, documentation: &str) -> String {
    match documentation.starts_with(summary.trim_end_matches('.')) {
        true => documentation.to_owned(),
        false => format!("{summary}\n\n{documentation}"),
    }
}

fn connection_page(connection: &ConnectionDefinition) -> String {
    let title = format!("`{}`: a connection", connection.name);
    let keys = keys(&(connection.schema)());
    let note = connection.missing.map_or(String::new(), |missing| {
        format!(
            "**Not available in this build:** {missing}. `intertie check` warns, `intertie \
             test` runs flows\nwith mocks, and `intertie run` refuses them \
             ([IT0306](../errors/IT0306.md))."
        )
    });
    let summary = [connection.summary, &note].join("\n\n");
    page(
        &title,
        &[
            &summary,
            connection.documentation,
            &keys,
            &example(connection.example),
        ],
    )
}

fn source_page(source: &SourceDefinition) -> String {
    let title = format!("`{}`: a trigger", source.name);
    let keys = keys(&(source.schema)());
    let words = opening(source.summary, source.documentation);
    page(&title, &[&words, &keys, &example(source.example)])
}

fn endpoint_page(endpoint: &EndpointDefinition) -> String {
    let title = format!("`{}`: a trigger", endpoint.name);
    let keys = keys(&flow::schema::endpoint_keys(endpoint));
    let words = opening(endpoint.summary, endpoint.documentation);
    page(&title, &[&words, &keys, &example(endpoint.example)])
}

fn document_page(document: &DocumentDefinition) -> String {
    let title = format!("`{}`: a document beside flows", document.name);
    let parts = [
        document.summary,
        document.documentation,
        &keys(&(document.schema)()),
        &example(document.example),
    ];
    page(&title, &parts)
}

fn kind_page(kind: &FlowKind) -> String {
    let title = format!("`{}`: a flow of its own kind", kind.name);
    let trigger = format!(
        "## `from.{}`\n\n{}\n\n{}",
        kind.trigger.name,
        kind.trigger.summary,
        describe::markdown(&(kind.trigger.schema)())
    );
    let parts = [
        kind.summary,
        kind.documentation,
        &keys(&flow::schema::kind(kind)),
        &trigger,
        &example(kind.example),
    ];
    page(&title, &parts)
}

fn step_page(name: &str, forms: &[&StepDefinition]) -> String {
    let title = format!("`{name}`");
    if let [step] = forms {
        let keys = keys(&(step.schema)());
        let example = example(step.example);
        let words = opening(step.summary, step.documentation);
        return page(&title, &[&words, &keys, &example]);
    }
    let keys_of = |step: &StepDefinition| step.form().unwrap_or_default();
    let names: Vec<String> = forms
        .iter()
        .map(|step| format!("`{}`", keys_of(step)))
        .collect();
    let mut parts = vec![format!(
        "One verb, told apart by the key that it has: {}.",
        names.join(" or ")
    )];
    for step in forms {
        let below = |text: String| text.replace("## ", "### ");
        parts.push(format!("## `{name}: {{ {}: … }}`", keys_of(step)));
        parts.push(opening(step.summary, step.documentation));
        parts.push(below(keys(&(step.schema)())));
        parts.push(below(example(step.example)));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    page(&title, &parts)
}

#[cfg(test)]
mod tests;
