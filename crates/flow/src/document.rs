//! Sorts documents: which are flows, which is the engine's, and what is neither.

use component::document::DocumentDefinition;
use component::flow_kind::FlowKind;
use config::{Node, Report, Secrets};

use crate::Table;
use crate::codes::{SECOND_ENGINE, UNKNOWN_DOCUMENT};
use crate::environment::{Environment, Places};
use crate::kinds;
use crate::suggest::did_you_mean;

/// All documents by what they declare.
#[derive(Default)]
pub(crate) struct Documents {
    /// Documents with `flow:`, and those that are flows of another kind.
    pub flows: Vec<Node>,
    /// The document with `engine:`.
    pub engine: Option<Node>,
    /// Documents with `test:`.
    pub tests: Vec<Node>,
    /// Documents beside flows, with what they are.
    pub declared: Vec<(Node, DocumentDefinition)>,
}

impl Documents {
    /// Puts values in for names in flows and in documents beside them.
    pub fn expand(
        &mut self,
        names: &Environment,
        known: (&Secrets, &[&str], &[&str]),
        places: &mut Places,
        report: &mut Report,
    ) {
        let declared = self.declared.iter_mut().map(|(document, _)| document);
        for document in self.flows.iter_mut().chain(declared) {
            names.expand_document(document, known, places, report);
        }
    }
}

/// Sorts documents. Every document that is of no kind is reported.
pub(crate) fn sort(documents: Vec<Node>, table: Table<'_>, report: &mut Report) -> Documents {
    let mut sorted = Documents::default();
    for document in documents {
        match kind(&document, (table.documents, table.kinds), report) {
            Some(Kind::Flow) => sorted.flows.push(document),
            Some(Kind::Engine) => keep_engine(&mut sorted, document, report),
            Some(Kind::Test) => sorted.tests.push(document),
            Some(Kind::Declared(definition)) => sorted.declared.push((document, definition)),
            None => {}
        }
    }
    sorted
}

enum Kind {
    Flow,
    Engine,
    Test,
    Declared(DocumentDefinition),
}

fn kind(
    document: &Node,
    (definitions, kinds): (&[DocumentDefinition], &[FlowKind]),
    report: &mut Report,
) -> Option<Kind> {
    let Some(entries) = document.as_mapping() else {
        let message = format!("a document is a mapping, not {}", document.type_name());
        report
            .error(UNKNOWN_DOCUMENT, document.span, message)
            .hint("begin it with `flow: NAME` or `engine:`");
        return None;
    };
    match (document.entry("flow"), document.entry("engine")) {
        (Some(_), None) => return Some(Kind::Flow),
        (None, Some(_)) => return Some(Kind::Engine),
        (Some(flow), Some(engine)) => {
            report
                .error(
                    UNKNOWN_DOCUMENT,
                    engine.key_span,
                    "a document declares one thing",
                )
                .also(flow.key_span, "it is a flow already")
                .hint("put a line `---` between the two documents");
            return None;
        }
        (None, None) if document.entry("test").is_some() => return Some(Kind::Test),
        (None, None) if kinds::of(document, kinds).is_some() => return Some(Kind::Flow),
        (None, None) => {}
    }
    let mut all = definitions.iter();
    if let Some(definition) = all.find(|it| document.entry(it.name).is_some()) {
        return Some(Kind::Declared(*definition));
    }
    let near = entries.iter().find_map(|entry| {
        let names = definitions.iter().map(|it| it.name);
        let names = names.chain(kinds.iter().map(|it| it.name));
        let names = names.chain(["flow", "engine"]);
        did_you_mean(&entry.key, names).map(|hint| (entry.key_span, hint))
    });
    let message = "a document declares a `flow:` or the `engine:`; this one does neither";
    match near {
        Some((span, hint)) => report.error(UNKNOWN_DOCUMENT, span, message).hint(hint),
        None => {
            let span = entries
                .first()
                .map_or(document.span, |entry| entry.key_span);
            report
                .error(UNKNOWN_DOCUMENT, span, message)
                .hint("begin it with `flow: NAME` or `engine:`")
        }
    };
    None
}

fn keep_engine(sorted: &mut Documents, document: Node, report: &mut Report) {
    let Some(first) = &sorted.engine else {
        sorted.engine = Some(document);
        return;
    };
    let (Some(first), Some(second)) = (first.entry("engine"), document.entry("engine")) else {
        return;
    };
    report
        .error(
            SECOND_ENGINE,
            second.key_span,
            "a second `engine:` document",
        )
        .also(first.key_span, "the first one")
        .hint("put all settings into one document");
}
