//! The `tests:` of a flow, as far as loading goes: they are kept for whoever runs them.

use config::{Node, Report};

/// One test of a flow.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// What stands in the file.
    pub node: Node,
}

/// Reads the tests of a flow.
pub(crate) fn read(document: &Node, _report: &mut Report) -> Vec<TestCase> {
    let items = document.get("tests").and_then(Node::as_sequence);
    let items = items.unwrap_or_default().iter();
    items.map(|node| TestCase { node: node.clone() }).collect()
}
