//! `intertie graph`: menus and flows as a Mermaid flowchart, drawn from the files as they are
//! written.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use config::{Entry, Node, Value};

use crate::cli::print;
use crate::load::{self, Problems, TABLE};

/// The most letters of a label's line.
const LABEL_MAX: usize = 60;

/// Draws the files. The exit code is 1 when they are no YAML; what else is wrong with them is told
/// by `intertie check`.
///
/// # Errors
/// When files cannot be read.
pub(crate) fn run(paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let parsed = load::parse(&load::read(paths)?);
    let has_errors = parsed.report.errors() > 0;
    let problems = Problems::new(parsed.report, parsed.sources);
    if !problems.is_empty() {
        eprint!("{}", problems.text(io::stderr().is_terminal()));
    }
    match has_errors {
        true => Ok(ExitCode::FAILURE),
        false => print(&draw(&parsed.documents)),
    }
}

fn draw(documents: &[Node]) -> String {
    let flows = documents.iter().filter_map(|document| {
        let kind = ["flow", "menu"]
            .into_iter()
            .find(|it| document.get(it).is_some())?;
        Some((kind, document.get(kind)?.as_str()?, document))
    });
    let flows: Vec<_> = flows.collect();
    let names: Vec<&str> = flows.iter().map(|(_, name, _)| *name).collect();
    let shared = documents.iter().filter(|it| it.get("engine").is_some());
    let shared: Vec<&Entry> = shared.flat_map(connections).collect();
    let mut graph = Graph {
        text: "flowchart TD\n".to_owned(),
        prefix: String::new(),
        count: 0,
        flows: names,
        connections: Vec::new(),
        edges: Vec::new(),
    };
    for (at, (kind, name, document)) in flows.iter().enumerate() {
        graph.begin(at, kind, name);
        graph.connections = connections(document)
            .chain(shared.iter().copied())
            .collect();
        match *kind {
            "menu" => graph.menu(document),
            _ => graph.flow(document),
        }
        graph.text.push_str("  end\n");
    }
    for edge in &graph.edges {
        graph.text.push_str(edge);
    }
    graph.text
}

fn connections(document: &Node) -> impl Iterator<Item = &Entry> {
    document
        .get("use")
        .and_then(Node::as_mapping)
        .unwrap_or_default()
        .iter()
}

/// A chart under way.
struct Graph<'a> {
    text: String,
    /// What the ids of the nodes of a flow begin with.
    prefix: String,
    count: usize,
    flows: Vec<&'a str>,
    /// What the flow may use.
    connections: Vec<&'a Entry>,
    /// Edges to other flows and to connections, which stand outside.
    edges: Vec<String>,
}

/// The form of a node.
#[derive(Clone, Copy)]
enum Form {
    /// Something that is done.
    Step,
    /// What starts a flow.
    Trigger,
    /// What a phone shows.
    Screen,
    /// Where a session ends.
    End,
}

impl<'a> Graph<'a> {
    fn begin(&mut self, at: usize, kind: &str, name: &str) {
        self.prefix = format!("f{at}");
        self.count = 0;
        let label = escaped(&format!("{kind} {name}"));
        // invariant: writing to a String does not fail.
        let _ = writeln!(self.text, "  subgraph {}[\"{label}\"]", self.prefix);
    }

    /// The id of a new node.
    fn node(&mut self, form: Form, label: &str) -> String {
        let id = format!("{}_{}", self.prefix, self.count);
        self.count += 1;
        self.node_of(&id, form, label);
        id
    }

    fn node_of(&mut self, id: &str, form: Form, label: &str) {
        let lines: Vec<String> = label.lines().map(|line| escaped(&short(line))).collect();
        let label = lines.join("<br/>");
        let (open, close) = match form {
            Form::Step => ("[", "]"),
            Form::Trigger => ("([", "])"),
            Form::Screen => ("(", ")"),
            Form::End => ("((", "))"),
        };
        let _ = writeln!(self.text, "    {id}{open}\"{label}\"{close}");
    }

    fn edge(&mut self, from: &str, to: &str, label: &str) {
        let _ = match label.is_empty() {
            true => writeln!(self.text, "    {from} --> {to}"),
            false => {
                let label = escaped(&short(label));
                writeln!(self.text, "    {from} -->|\"{label}\"| {to}")
            }
        };
    }

    /// A dotted edge to what the step at a node uses.
    fn uses(&mut self, from: &str, node: &Node) {
        let mut texts = Vec::new();
        match &node.value {
            Value::String(text) => texts.push(text.as_str()),
            Value::Mapping(entries) => {
                let named = ["to", "connection", "url"];
                let named = entries.iter().filter(|it| named.contains(&it.key.as_str()));
                texts.extend(named.filter_map(|it| it.value.as_str()));
            }
            _ => {}
        }
        for text in texts {
            let mut names = text.split(' ').filter_map(|word| word.split(':').next());
            let known = |name: &str| self.connections.iter().find(|it| it.key == name);
            if let Some((name, entry)) = names.find_map(|name| Some((name, known(name)?))) {
                let kind = entry.value.as_mapping().and_then(|it| it.first());
                let kind = kind.map_or("", |it| it.key.as_str());
                let label = escaped(&format!("{name} ({kind})"));
                let id = format!("{}_use_{}", self.prefix, word_of(name));
                let line = format!("  {id}[/\"{label}\"/]\n");
                if !self.edges.contains(&line) {
                    self.edges.push(line);
                }
                self.edges.push(format!("  {from} -.-> {id}\n"));
            }
        }
    }

    fn flow(&mut self, document: &Node) {
        let label = match document.get("from") {
            Some(from) => trigger(from),
            None => "called".to_owned(),
        };
        let start = self.node(Form::Trigger, &label);
        if let Some(from) = document.get("from").and_then(Node::as_mapping) {
            from.iter()
                .for_each(|entry| self.uses(&start, &entry.value));
        }
        let steps = document.get("steps").and_then(Node::as_sequence);
        self.steps(&start, "", steps.unwrap_or_default());
        if let Some(clauses) = document.get("on_error").and_then(Node::as_sequence) {
            let failed = self.node(Form::Trigger, "on_error");
            self.alternatives(&failed, clauses);
        }
    }

    /// Steps in order behind a node; the last one.
    fn steps(&mut self, before: &str, label: &str, steps: &[Node]) -> String {
        let (mut last, mut label) = (before.to_owned(), label);
        for step in steps {
            let entries = step.as_mapping().unwrap_or_default();
            let verb = entries
                .iter()
                .find(|it| is_verb(&it.key))
                .or(entries.first());
            let Some(verb) = verb else { continue };
            let id = self.node(Form::Step, &titled(&verb.key, &verb.value));
            let condition = step.get("if").and_then(Node::as_str);
            self.edge(&last, &id, condition.unwrap_or(label));
            self.uses(&id, &verb.value);
            if verb.key == "call" {
                let called = verb
                    .value
                    .as_str()
                    .or(verb.value.get("flow").and_then(Node::as_str));
                let at = self.flows.iter().position(|name| Some(*name) == called);
                if let Some(at) = at {
                    self.edges.push(format!("  {id} -.-> f{at}_0\n"));
                }
            }
            let menu = verb.value.get("menu").and_then(Node::as_str);
            let at = self.flows.iter().position(|name| Some(*name) == menu);
            if let Some(at) = at.filter(|_| verb.key == "ussd") {
                self.edges.push(format!("  {id} -.-> f{at}_push\n"));
            }
            for entry in entries {
                match (entry.key.as_str(), entry.value.as_sequence()) {
                    ("choose" | "on_error", Some(items)) => self.alternatives(&id, items),
                    _ => self.within(&id, &entry.value),
                }
            }
            (last, label) = (id, "");
        }
        last
    }

    /// Clauses of which one is taken, each with its condition.
    fn alternatives(&mut self, id: &str, clauses: &[Node]) {
        for clause in clauses {
            let when = ["when", "on"].into_iter().find_map(|it| clause.get(it));
            let when = when.map(condition);
            let otherwise = clause.get("otherwise").and_then(Node::as_sequence);
            let steps = clause.get("steps").and_then(Node::as_sequence);
            let own = std::slice::from_ref(clause);
            let label = when.as_deref().unwrap_or("otherwise");
            self.steps(id, label, steps.or(otherwise).unwrap_or(own));
        }
    }

    /// Lists of steps within a step, each behind it.
    fn within(&mut self, id: &str, node: &Node) {
        match &node.value {
            Value::Sequence(items) if items.iter().any(is_step) => {
                self.steps(id, "", items);
            }
            Value::Sequence(items) => items.iter().for_each(|item| self.within(id, item)),
            Value::Mapping(entries) => {
                let when = ["when", "on"]
                    .into_iter()
                    .find_map(|it| node.get(it)?.as_str());
                for entry in entries {
                    let items = entry
                        .value
                        .as_sequence()
                        .filter(|it| it.iter().any(is_step));
                    match items {
                        Some(items) => {
                            self.steps(id, when.unwrap_or(&entry.key), items);
                        }
                        None => self.within(id, &entry.value),
                    }
                }
            }
            _ => {}
        }
    }

    fn menu(&mut self, document: &Node) {
        let screens = document.get("screens").and_then(Node::as_mapping);
        let screens = screens.unwrap_or_default();
        let prefix = self.prefix.clone();
        let id_of = |name: &str| {
            let at = screens.iter().position(|it| it.key == name);
            format!("{prefix}_s{}", at.unwrap_or_default())
        };
        let ussd = document.get("from").and_then(|from| from.get("ussd"));
        let codes = ussd
            .and_then(|it| it.get("codes"))
            .and_then(Node::as_mapping);
        for code in codes.unwrap_or_default() {
            let start = self.node(Form::Trigger, &code.key);
            self.edge(&start, &id_of(code.value.as_str().unwrap_or_default()), "");
        }
        if let Some(push) = document.get("push") {
            let id = format!("{prefix}_push");
            self.node_of(&id, Form::Trigger, "push");
            let screens = push.get("screens").and_then(Node::as_mapping);
            for screen in screens.unwrap_or_default() {
                self.edge(&id, &id_of(&screen.key), "");
            }
            self.steps(&id, "", work_of(push));
        }
        if let Some(answers) = document.get("answers") {
            let id = self.node(Form::Trigger, "answers");
            self.steps(&id, "", work_of(answers));
        }
        for screen in screens {
            let id = id_of(&screen.key);
            let text = screen.value.get("text").map(first_text).unwrap_or_default();
            let form = match screen.value.get("end") {
                Some(_) => Form::End,
                None => Form::Screen,
            };
            self.node_of(&id, form, format!("{}\n{text}", screen.key).trim_end());
            for step in work_of(&screen.value) {
                let verb = step.as_mapping().unwrap_or_default().iter();
                verb.for_each(|entry| self.uses(&id, &entry.value));
            }
            self.ways(&id, &screen.value, &id_of);
        }
    }

    /// The ways on from a screen.
    fn ways(&mut self, id: &str, screen: &Node, id_of: &dyn Fn(&str) -> String) {
        let mut number = 0;
        for option in screen
            .get("options")
            .and_then(Node::as_sequence)
            .unwrap_or_default()
        {
            let key = match option.get("key").and_then(Node::as_str) {
                Some(key) => key.to_owned(),
                None => {
                    number += 1;
                    number.to_string()
                }
            };
            let text = option.get("text").map(first_text).unwrap_or_default();
            let go = option.get("go").and_then(Node::as_str).unwrap_or_default();
            self.edge(id, &id_of(go), &format!("{key}. {text}"));
        }
        let input = screen.get("input");
        let name = input.and_then(|it| it.get("as")).and_then(Node::as_str);
        let label = name.map_or(String::new(), |name| format!("${name}"));
        match screen.get("go") {
            Some(go) if go.as_str().is_some() => {
                self.edge(id, &id_of(go.as_str().unwrap_or_default()), &label);
            }
            Some(go) => {
                for branch in go.as_sequence().unwrap_or_default() {
                    let condition = branch.get("if").and_then(Node::as_str);
                    let to = branch.get("go").and_then(Node::as_str).unwrap_or_default();
                    self.edge(id, &id_of(to), condition.unwrap_or("else"));
                }
            }
            None => {}
        }
        let after = input.and_then(|it| it.get("after_tries"));
        if let Some(to) = after.and_then(Node::as_str) {
            self.edge(id, &id_of(to), "too many tries");
        }
        let unsure = screen.get("once").and_then(|it| it.get("unsure"));
        if let Some(to) = unsure.and_then(Node::as_str) {
            self.edge(id, &id_of(to), "unsure");
        }
    }
}

/// The steps under `do`.
fn work_of(node: &Node) -> &[Node] {
    let work = node.get("do").and_then(Node::as_sequence);
    work.unwrap_or_default()
}

fn is_verb(key: &str) -> bool {
    TABLE.steps.iter().any(|step| step.name == key)
}

fn is_step(node: &Node) -> bool {
    let entries = node.as_mapping().unwrap_or_default();
    entries.iter().any(|entry| is_verb(&entry.key))
}

/// An expression, or what `on` names.
fn condition(node: &Node) -> String {
    let names = node.as_sequence().unwrap_or(std::slice::from_ref(node));
    let names: Vec<&str> = names.iter().filter_map(Node::as_str).collect();
    names.join(", ")
}

/// The text in the first language.
fn first_text(node: &Node) -> String {
    let text = node.as_str().or_else(|| {
        let entries = node.as_mapping()?;
        entries.first()?.value.as_str()
    });
    text.unwrap_or_default().to_owned()
}

fn trigger(from: &Node) -> String {
    let entries = from.as_mapping().unwrap_or_default();
    let all = entries.iter().map(|entry| titled(&entry.key, &entry.value));
    all.collect::<Vec<_>>().join("\n")
}

/// A key, and what says most about its value.
fn titled(key: &str, value: &Node) -> String {
    let told = match &value.value {
        Value::String(text) => text.lines().next().unwrap_or_default().to_owned(),
        Value::Mapping(entries) => {
            let named = [
                "path",
                "to",
                "queue",
                "flow",
                "operation",
                "file",
                "name",
                "topic",
            ];
            let found = named.into_iter().find_map(|it| value.get(it)?.as_str());
            let found = found.map(str::to_owned);
            found.unwrap_or_else(|| entries.first().map_or(String::new(), |it| it.key.clone()))
        }
        _ => String::new(),
    };
    format!("{key} {told}").trim_end().to_owned()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LABEL_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A name as a part of an id.
fn word_of(name: &str) -> String {
    let part = |it: char| if it.is_ascii_alphanumeric() { it } else { '_' };
    name.chars().map(part).collect()
}

/// A text between quotes (Mermaid's entity codes).
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '"' | '#' | '<' | '>' | '&' | '`' | '\\' | '|' => {
                let _ = write!(out, "#{};", character as u32);
            }
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}
