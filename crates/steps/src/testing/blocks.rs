//! Reads steps within steps for tests: `- verb: value` with `name`, `as`, `if` and `on_error`
//! beside it. What else the loader does is its own matter.

use std::sync::Arc;

use component::block::{Block, StepNode};
use component::definition::{BlockReader, BuildContext};
use component::failure::{Clause, Handlers, Matcher};
use config::{Node, Spanned, Value};

/// The keys that may stand beside a verb.
const BESIDE: [&str; 4] = ["name", "as", "if", "on_error"];

/// Reads steps of [`crate::ALL`].
pub(super) struct TestBlocks;

impl BlockReader for TestBlocks {
    fn read_block(
        &self,
        items: &Node,
        is_last: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block> {
        let nodes = items.as_sequence().unwrap_or_default();
        let outer = context.path.clone();
        let mut steps = Vec::new();
        for (at, item) in nodes.iter().enumerate() {
            context.path = format!("{outer}.{}", at + 1);
            let is_end = at + 1 == nodes.len();
            steps.push(step(item, &[], is_last && is_end, context));
        }
        context.path = outer;
        let steps = steps.into_iter().collect::<Option<_>>()?;
        Some(Block { place: 0, steps })
    }

    fn read_one(
        &self,
        item: &Node,
        beside: &[&str],
        is_last: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block> {
        let steps = vec![step(item, beside, is_last, context)?];
        Some(Block { place: 0, steps })
    }

    fn read_handlers(&self, clauses: &Node, context: &mut BuildContext<'_>) -> Option<Handlers> {
        let outer = context.scope.handle_error(true);
        let nodes = clauses.as_sequence().unwrap_or_default();
        let read: Vec<_> = nodes
            .iter()
            .map(|node| self.read_clause(node, context))
            .collect();
        context.scope.handle_error(outer);
        Some(Handlers(read.into_iter().collect::<Option<_>>()?))
    }
}

impl TestBlocks {
    fn read_clause(&self, node: &Node, context: &mut BuildContext<'_>) -> Option<Clause> {
        let name = match node.get("on").map(|on| &on.value) {
            Some(Value::String(name)) => name.clone(),
            Some(Value::Number(status)) => status.text().to_owned(),
            _ => panic!("a clause says `on`"),
        };
        let block = match node.get("steps") {
            Some(steps) => self.read_block(steps, false, context),
            None => self.read_one(node, &["on"], false, context),
        };
        Some(Clause {
            on: vec![Matcher::of_name(&name).expect("a kind of failure")],
            block: block?,
        })
    }
}

fn step(
    item: &Node,
    beside: &[&str],
    is_last: bool,
    context: &mut BuildContext<'_>,
) -> Option<StepNode> {
    let entries = item.as_mapping().expect("a step is a mapping").iter();
    let is_verb = |key: &str| crate::ALL.iter().any(|known| known.name == key);
    let mut verbs = entries.filter(|entry| {
        let holds_steps = entry.key == "if" && entry.value.as_mapping().is_some();
        let is_free = !BESIDE.contains(&entry.key.as_str()) || holds_steps;
        is_free && !beside.contains(&entry.key.as_str()) && is_verb(&entry.key)
    });
    let verb = verbs.next().expect("a step with a verb");
    let definition = crate::ALL.iter().find(|known| known.name == verb.key)?;
    let label: Arc<str> = match item.get("name").and_then(Node::as_str) {
        Some(name) => name.into(),
        None => format!("{} ({})", context.path, verb.key).into(),
    };
    let outer = (Arc::clone(&context.label), context.is_last);
    context.label = Arc::clone(&label);
    context.is_last = is_last && item.get("as").is_none();
    let condition = match item.get("if").and_then(Node::as_str) {
        Some(text) if verb.key != "if" => Some(context.expression(&Spanned {
            value: text.to_owned(),
            span: item.span,
        })?),
        _ => None,
    };
    let step = (definition.build)(&verb.value, context);
    let on_error = match item.get("on_error") {
        Some(clauses) => Some(context.handlers("on_error", clauses)?),
        None => None,
    };
    let keep_as = item.get("as").and_then(Node::as_str);
    let keep_as = keep_as.map(|name| context.scope.declare(name).expect("a free name"));
    (context.label, context.is_last) = outer;
    Some(StepNode {
        place: 0,
        label,
        step: step?,
        condition,
        keep_as,
        guard: None,
        fallback: None,
        on_error,
    })
}
