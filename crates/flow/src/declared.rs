//! Documents beside flows, such as topics: their names and what they are made of.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use component::access::Ways;
use component::connection::{Connections, Declarations};
use component::definition::{ConnectionDefinition, Surroundings};
use component::document::{Declared, DocumentContext, DocumentDefinition, Mention};
use component::evaluation::Evaluation;
use config::{Node, Report, Span, Value};

use crate::codes::{BAD_NAME, FLOW_NAME_TAKEN};
use crate::connections;
use crate::names::{NAME_RULE, is_name};
use crate::trigger::Defaults;

/// What all such documents are read with.
pub(crate) struct Reader<'a> {
    pub definitions: &'a [ConnectionDefinition],
    /// The connections of the engine.
    pub shared: &'a Connections,
    pub defaults: &'a Defaults,
    pub evaluation: &'a Evaluation,
    /// How callers are known.
    pub ways: &'a dyn Ways,
    pub surroundings: &'a Surroundings<'a>,
}

/// The documents as far as they could be read, and the connections of their own that this build
/// cannot open.
#[derive(Default)]
pub(crate) struct Read {
    pub declared: Vec<Declared>,
    pub missing: Vec<(Span, String)>,
}

impl Reader<'_> {
    /// Reads all. What has a problem is reported and left out.
    pub fn read_all(&self, documents: &[(Node, DocumentDefinition)], report: &mut Report) -> Read {
        let mut all = Read::default();
        let mut names = Names::new();
        for (document, definition) in documents {
            let name = document.get(definition.name);
            if let Some((name, span)) = name.and_then(|it| Some((it.as_str()?, it.span))) {
                check_name((definition.name, name, span), &mut names, report);
            }
            self.read(document, definition, &mut all, report);
        }
        find_mentioned(&mut all.declared, &names, report);
        all
    }

    fn read(
        &self,
        document: &Node,
        definition: &DocumentDefinition,
        all: &mut Read,
        report: &mut Report,
    ) {
        let mut own = connections::read(document, self.definitions, self.surroundings, report);
        all.missing
            .extend(connections::missing(&own, self.definitions));
        let mut upstreams = connections::upstreams(&own);
        own.shared = Arc::clone(&self.shared.own);
        let mut context = DocumentContext {
            report,
            connections: &own,
            entrances: self.defaults,
            evaluation: self.evaluation,
            ways: self.ways,
            surroundings: self.surroundings,
        };
        let built = (definition.build)(&without_use(document), &mut context);
        all.declared.extend(built.map(|mut declared| {
            declared.upstreams.append(&mut upstreams);
            declared
        }));
    }
}

/// Hands over the documents that others name. One that has a problem of its own has been reported.
fn find_mentioned(declared: &mut [Declared], names: &Names<'_>, report: &mut Report) {
    let all = declared.iter_mut();
    let mentions: Vec<Mention> = all
        .flat_map(|it| std::mem::take(&mut it.mentions))
        .collect();
    for mention in mentions {
        let (kind, name) = (mention.kind, &*mention.name.value);
        let is_it = |it: &&Declared| {
            let own = &it.declaration;
            own.kind == kind && *own.name == *name
        };
        if let Some(found) = declared.iter().find(is_it) {
            (mention.found)(found, report);
        } else if !names.contains_key(&(kind, name)) {
            let known = names.keys().filter(|it| it.0 == kind).map(|it| it.1);
            let hint = match config::suggest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("declare it in a document that begins with `{kind}: NAME`"),
            };
            let message = format!("there is no {kind} `{}`", name.escape_debug());
            let span = mention.name.span;
            report.error(mention.unknown, span, message).hint(hint);
        }
    }
}

/// The names of each kind, and where they were first.
type Names<'a> = HashMap<(&'static str, &'a str), Span>;

fn check_name<'a>(
    (kind, name, span): (&'static str, &'a str, Span),
    names: &mut Names<'a>,
    report: &mut Report,
) {
    if !is_name(name) {
        let message = format!("`{}` is not a name for a {kind}", name.escape_debug());
        report.error(BAD_NAME, span, message).hint(NAME_RULE);
    }
    match names.entry((kind, name)) {
        Entry::Vacant(place) => drop(place.insert(span)),
        Entry::Occupied(first) => {
            let message = format!("a second {kind} named `{name}`");
            report
                .error(FLOW_NAME_TAKEN, span, message)
                .also(*first.get(), "the first one")
                .hint(format!("every {kind} needs a name of its own"));
        }
    }
}

/// `use:` has been read.
fn without_use(document: &Node) -> Node {
    let entries = document.as_mapping().unwrap_or_default().iter();
    let others = entries.filter(|it| it.key != "use").cloned().collect();
    Node {
        value: Value::Mapping(others),
        span: document.span,
    }
}

/// What flows can use of the documents.
pub(crate) fn declarations(declared: &[Declared]) -> Declarations {
    declared.iter().map(|it| it.declaration.clone()).collect()
}
