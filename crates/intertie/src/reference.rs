//! The JSON Schema of flow files and the reference pages, made of the same tables that the loader
//! reads. Deterministic; what is committed under `docs/reference/` is these texts, and a test
//! fails when it is not.

use component::definition::{ConnectionDefinition, StepDefinition};
use component::document::DocumentDefinition;
use component::endpoint::EndpointDefinition;
use component::source::SourceDefinition;
use config::describe;
use serde_json::Value;

use crate::load::TABLE;

/// The file of the schema among the pages.
const SCHEMA_FILE: &str = "flow-file.schema.json";

const NOTICE: &str = "<!-- Generated: edit the doc comments and run `UPDATE=1 cargo \
                      test -p intertie reference`. -->";

/// The JSON Schema (draft 2020-12) of one document of a flow file, for editors.
pub fn schema() -> Value {
    flow::schema::file(TABLE)
}

/// The reference pages: file name and Markdown, in the order of the index.
pub fn pages() -> Vec<(String, String)> {
    let mut pages = vec![
        ("README.md".to_owned(), index()),
        ("flow.md".to_owned(), flow_page()),
        ("engine.md".to_owned(), engine_page()),
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
    for part in parts {
        text.push('\n');
        text.push_str(part.trim_end());
        text.push('\n');
    }
    text
}

fn example(yaml: &str) -> String {
    format!("## Example\n\n```yaml\n{}\n```", yaml.trim_end())
}

fn keys(schema: &Value) -> String {
    format!("## Keys\n\n{}", describe::markdown(schema))
}

fn index() -> String {
    let mut table = "| step | what it does |\n| --- | --- |\n".to_owned();
    for forms in flow::schema::forms(TABLE.steps) {
        let name = forms.first().map_or("", |step| step.name);
        let summaries: Vec<&str> = forms.iter().map(|step| step.summary).collect();
        table.push_str(&format!(
            "| [`{name}`]({name}.md) | {} |\n",
            summaries.join(" ")
        ));
    }
    table.push_str("\n| trigger | what it is |\n| --- | --- |\n");
    table.push_str("| [`http`](http-trigger.md) | Takes HTTP requests. |\n");
    for endpoint in TABLE.endpoints {
        table.push_str(&format!(
            "| [`{0}`]({0}-trigger.md) | {1} |\n",
            endpoint.name, endpoint.summary
        ));
    }
    for source in TABLE.sources {
        table.push_str(&format!(
            "| [`{0}`]({0}-trigger.md) | {1} |\n",
            source.name, source.summary
        ));
    }
    table.push_str("| `call` | Other flows call it: `from: call`. |\n");
    table.push_str("\n| connection | what it is |\n| --- | --- |\n");
    for connection in TABLE.connections {
        table.push_str(&format!(
            "| [`{0}`]({0}-connection.md) | {1} |\n",
            connection.name, connection.summary
        ));
    }
    if !TABLE.documents.is_empty() {
        table.push_str("\n| document | what it is |\n| --- | --- |\n");
    }
    for document in TABLE.documents {
        table.push_str(&format!(
            "| [`{0}`]({0}-document.md) | {1} |\n",
            document.name, document.summary
        ));
    }
    let documents = "\
A flow file is YAML. Each of its documents, split by lines of `---`, declares one thing: a
[flow](flow.md) or the [engine's settings](engine.md). A flow begins with a
[trigger](http-trigger.md) and has one or more steps; `use:` gives names to the systems it talks
to.";
    let schema = format!(
        "Editors check and complete flow files with the [JSON Schema]({SCHEMA_FILE}), which\n\
         `intertie schema` prints. What `intertie check` says about broken files is explained \
         under\n\
         [errors](../errors/)."
    );
    page("Reference of flow files", &[documents, &table, &schema])
}

/// What the page about flows says before its keys.
const FLOW_WORDS: &str = "\
A document that begins with `flow: NAME` declares a flow: what starts it (`from`) and what happens
then (`steps`). Names are unique in all files that are loaded together; a name begins with a letter
and has letters, digits, `_`, `.` and `-`, at most 100 of them.

A step is a mapping with one verb and what may stand beside it. Steps run in order, each on the
message as the one before has left it: its result becomes the body, which expressions call `.`,
unless `as:` keeps it as a variable. A flow that ends without `reply` answers 200 with the body, or
204 when there is none.

Expressions are [jq](../expressions.md): bare in `map`, `when`, `if` and the like, in `${ }` within
texts. A `${ }` that is the whole text keeps its type; within a longer text it must be a text, a
number or a boolean. Variables are `$in` (the original message: method, path, query, headers, peer,
body), `$headers` (names in small letters), `$path`, `$query`, `$method`, `$env`, `$secret`,
`$reply` (status, headers and body of the last reply of another system), `$flow`, and what `as:` and
`set` have named. The body is decoded when an expression first asks for it, by its Content-Type.

**Failures.** A failed step ends the flow, unless its own `on_error` or `fallback`, a `try` around
it, or the flow's `on_error` handles the failure; `$error` is then its kind, step, status, message
and cause. Without a reply of the flow's own the client gets a problem document (RFC 9457).

| kind | when | status |
| --- | --- | --- |
| `invalid` | the message cannot be read or may not be sent | 400 |
| `unauthorized`, `forbidden` | nobody knows who asks, or they may not | 401, 403 |
| `limited` | a rate is exceeded | 429 |
| `timeout` | something took longer than it may | 504 |
| `connection` | a connection could not be made, or broke | 502 |
| `unavailable` | a circuit is open, a queue is full | 503 |
| `4xx`, `5xx`, a status | another system answered so | 502 |
| `nack`, `unroutable` | a broker did not take a message | 502 |
| `expression` | an expression failed | 500 |
| a type that `raise` names | the flow says so | what it says |
| `any` | every failure | |";

/// What it says about keys beside a verb.
const BESIDE_WORDS: &str = "\
## Beside the verb

| key | what it does |
| --- | --- |
| `name` | the step's name in logs, metrics and tests |
| `if` | passes the step over unless an expression holds |
| `as` | keeps the result as a variable; the body stays |
| `timeout` | how long one try may take |
| `retry` | tries again after failures |
| `breaker` | does not try for a while after many failures |
| `throttle` | bounds how often it is tried |
| `bulkhead` | bounds how many tries there are at a time |
| `fallback` | what takes the place of the result when it fails |
| `on_error` | clauses for its failures; the flow goes on behind it |

A try passes the breaker, then waits for its turn (`throttle`) and for a place (`bulkhead`), and is
given up after `timeout`; `retry` is around all of it. State of these is in `/metrics`.

A `retry` without `on` never does anything twice. It tries again when the other side has certainly
not acted on the failed try (no connection, refused unprocessed, 408, 425 or 429, a transaction
that was rolled back), and after other failures only when the step may be repeated: `http` and
`forward` with a method such as `GET`, `PUT` or `DELETE` (RFC 9110, section 9.2.2), `sql` with a
plain `select`, `redis` with a command that only reads. A failure of a step *within* the step,
such as one of `parallel` or `call`, is not tried again so, for the steps before it have been run;
within a `transaction` that has nothing but statements it is. An `insert` whose connection was
lost, a `POST` that was not answered in time, a message that the broker has not confirmed: these
may have happened. They are repeated where `on` names the failure, as in
`retry: { on: [connection, timeout] }`; give the receiver a key to know them by.";

fn flow_page() -> String {
    let yaml = "\
flow: orders
doc: Takes orders from the shop.
use:
  crm: { http: http://127.0.0.1:8081/api }
from:
  http: POST :8080/orders
limits: { time: 3s, concurrent: 2000 }
steps:
  - http: GET crm:/customers/${ .customerId }
    retry: { on: [5xx, timeout], times: 2, delay: 50ms }
    breaker: { failures: 50%, window: 10s, open: 5s }
    as: customer
  - map: \"{ id: .orderId, by: $customer.name }\"
  - reply: { status: 201, headers: { Location: \"/orders/${ .id }\" } }
on_error:
  - { on: 404, reply: { status: 422 } }
  - { on: any, reply: { status: 503, headers: { Retry-After: 5 } } }
";
    let mut parts = vec![FLOW_WORDS.to_owned(), keys(&flow::schema::flow())];
    parts.push(format!(
        "## `limits`\n\n{}",
        describe::markdown(&flow::schema::limits())
    ));
    parts.push(format!(
        "## `tests`\n\nHow they are run is told in [testing](../testing.md).\n\n{}",
        describe::markdown(&flow::schema::test_case())
    ));
    for (title, schema) in flow::tests_section::parts() {
        parts.push(format!("### {title}\n\n{}", describe::markdown(&schema)));
    }
    parts.push(BESIDE_WORDS.to_owned());
    for (name, schema) in flow::schema::modifiers() {
        if schema.get("properties").is_some() {
            parts.push(format!("### `{name}`\n\n{}", describe::markdown(&schema)));
        }
    }
    parts.push(example(yaml));
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    page("`flow`: a flow", &parts)
}

fn engine_page() -> String {
    let words = "\
One `engine:` document in all files together sets what holds for every flow. Every key has a
default. Durations are `300ms`, `5s`, `2m`, `24h`, `7d`; sizes are `512B`, `20kB`, `256KiB`, `1GiB`.
Every limit and time-out holds; none can be switched off.";
    let yaml = "\
engine:
  listen: \":8080\"
  limits: { body: 4MiB, connections: 50000 }
  timeouts: { response: 30s }
  log: { level: warn, access: true }
---
flow: health
from:
  http: GET /health
steps:
  - reply: { body: fine }
";
    page(
        "`engine`: settings",
        &[
            words,
            &keys(&flow::schema::engine_settings()),
            &example(yaml),
        ],
    )
}

fn trigger_page() -> String {
    let words = "\
`http: METHOD [host]:port/path`, or a mapping. Without a method every method is taken; a path
without host and port is served at `engine.listen`. Flows with the same address share a listener.

| trigger | takes |
| --- | --- |
| `POST :8080/orders` | `POST`, on all interfaces |
| `GET,PUT 127.0.0.1:8080/orders/{id}` | two methods; any one segment behind `/orders/` |
| `any :8080/files/*` | every method but `CONNECT`; everything below `/files/` |
| `GET /health` | `GET` and `HEAD`, at `engine.listen` |

The most specific path wins: a literal segment goes before `{name}`, `{name}` before `*`; at the
same path a named method goes before `any`. Two flows that take the same requests are an error.
Paths are compared as they are sent, percent-encoding included.

**Refused requests.** What two implementations could read differently gets 400 and never reaches a
flow: among others a path with a `.` or `..` segment, plain or encoded (`/dir/../x`; browsers and
most clients resolve these before they send), and a target with a host of its own that differs
from `Host` (RFC 9112 has the target win, but a system behind may look at `Host`). A request of
HTTP/1.2 or later is read as one of HTTP/1.1, and `OPTIONS *` gets 204.

**A client that leaves.** When a client closes its connection, or only its sending side (a FIN
behind a complete request), it has left: the flow is dropped where it stands, as nginx does by
default, and calls that are under way are given up. A flow with `detach: true` goes on. A client
that closes its sending side to mark the end of a request must wait for the reply first.

**TLS.** `tls` names certificate and key; with `sni` one address serves several names, with
`client_ca` clients must show certificates of their own. Versions 1.2 and 1.3 are spoken, with
today's suites and curves; sessions are resumed. HTTP/2 is offered beside HTTP/1.1 (ALPN). When a
reload turns TLS on or off, or asks for other client certificates, the connections of the address
end after the requests that are under way; a renewed certificate ends none.";
    let yaml = "\
flow: item
from:
  http: { method: [GET, PUT], listen: \":8080\", path: \"/items/{id}\", body_max: 256KiB }
steps:
  - reply: {}
";
    page(
        "`http`: the trigger",
        &[words, &keys(&flow::schema::http_trigger()), &example(yaml)],
    )
}

fn connection_page(connection: &ConnectionDefinition) -> String {
    let title = format!("`{}`: a connection", connection.name);
    let keys = keys(&(connection.schema)());
    let note = connection.missing.map_or(String::new(), |missing| {
        format!(
            "**Not to be run yet:** {missing}. `intertie check` warns of it, `intertie test` runs \
             flows with\nmocks in its place, `intertie run` refuses them \
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
    page(
        &title,
        &[
            source.summary,
            source.documentation,
            &keys,
            &example(source.example),
        ],
    )
}

fn endpoint_page(endpoint: &EndpointDefinition) -> String {
    let title = format!("`{}`: a trigger", endpoint.name);
    let keys = keys(&flow::schema::endpoint_keys(endpoint));
    page(
        &title,
        &[
            endpoint.summary,
            endpoint.documentation,
            &keys,
            &example(endpoint.example),
        ],
    )
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

fn step_page(name: &str, forms: &[&StepDefinition]) -> String {
    let title = format!("`{name}`");
    if let [step] = forms {
        let keys = keys(&(step.schema)());
        let example = example(step.example);
        return page(&title, &[step.summary, step.documentation, &keys, &example]);
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
        parts.push(step.summary.to_owned());
        parts.push(step.documentation.to_owned());
        parts.push(below(keys(&(step.schema)())));
        parts.push(below(example(step.example)));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    page(&title, &parts)
}

#[cfg(test)]
mod tests;
