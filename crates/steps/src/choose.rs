//! `choose`: the first branch whose condition holds is run (Content-Based Router).

use component::block::{Block, needs_body};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::Node;
use expr::jq::Expression;
use message::Fault;

use crate::codes::BAD_BRANCH;
use crate::map::expression;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "choose",
    summary: "Runs the first branch whose condition holds.",
    documentation: include_str!("choose.md"),
    example: include_str!("choose.yaml"),
    schema,
    build,
};

fn schema() -> serde_json::Value {
    let described = |text: &str| {
        serde_json::json!({
            "type": "array",
            "items": { "$ref": "#/$defs/step" },
            "minItems": 1,
            "description": text
        })
    };
    let condition = serde_json::json!({
        "type": ["string", "boolean"],
        "description": "The branch is run if this expression gives neither false nor null."
    });
    serde_json::json!({
        "type": "array",
        "description": "Branches: `when` with `steps` or with a single step. `otherwise` may be \
                        the last one.",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": {
                "when": condition,
                "otherwise": described("The steps for messages that match no condition."),
                "steps": described("The steps; a single step may stand beside `when` instead.")
            }
        }
    })
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let before = context.problems();
    let Some(items) = node.as_sequence().filter(|items| !items.is_empty()) else {
        let message = format!("`choose` is a list of branches, not {}", node.type_name());
        let diagnostic = context.report.error(BAD_BRANCH, node.span, message);
        diagnostic.hint("write `- when: EXPRESSION` and below it `steps:`");
        return None;
    };
    let mut step = Choose {
        branches: Vec::new(),
        otherwise: None,
    };
    for (at, item) in items.iter().enumerate() {
        if let Some(entry) = item.entry("otherwise") {
            if at + 1 < items.len() || items.len() == 1 {
                let message = "`otherwise` is the last of several branches";
                context.report.error(BAD_BRANCH, entry.key_span, message);
            }
            refuse_beside_otherwise(item, context);
            step.otherwise = context.branch("otherwise", &entry.value, context.is_last);
        } else {
            step.branches.extend(read_branch(at, item, context));
        }
    }
    (context.problems() == before).then(|| Box::new(step) as Box<dyn Step>)
}

fn refuse_beside_otherwise(item: &Node, context: &mut BuildContext<'_>) {
    let others = item.as_mapping().unwrap_or_default().iter();
    for entry in others.filter(|entry| entry.key != "otherwise") {
        let message = format!(
            "unknown key `{}` beside `otherwise`",
            entry.key.escape_debug()
        );
        let diagnostic = context.report.error(BAD_BRANCH, entry.key_span, message);
        diagnostic.hint("its steps stand below `otherwise:`");
    }
}

fn read_branch(
    at: usize,
    item: &Node,
    context: &mut BuildContext<'_>,
) -> Option<(Expression, Block)> {
    let Some(condition) = item.get("when") else {
        let message = "a branch has a condition, `when`";
        let diagnostic = context.report.error(BAD_BRANCH, item.span, message);
        diagnostic.hint("the last branch may be `otherwise:` with steps");
        return None;
    };
    let condition = expression(condition, context);
    let name = format!("when{}", at + 1);
    let block = match item.get("steps") {
        Some(steps) => {
            let others = item.as_mapping().unwrap_or_default().iter();
            for entry in others.filter(|it| !["when", "steps"].contains(&it.key.as_str())) {
                let message = format!("unknown key `{}` in a branch", entry.key.escape_debug());
                context.report.error(BAD_BRANCH, entry.key_span, message);
            }
            context.branch(&name, steps, context.is_last)
        }
        None => context.single(&name, item, &["when"], context.is_last),
    };
    condition.zip(block)
}

/// The step.
struct Choose {
    branches: Vec<(Expression, Block)>,
    otherwise: Option<Block>,
}

impl Choose {
    fn chosen(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Option<&Block>, Fault> {
        for (condition, block) in &self.branches {
            if exchange.holds(condition, services)? {
                return Ok(Some(block));
            }
        }
        Ok(self.otherwise.as_ref())
    }
}

impl Step for Choose {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        match self.chosen(exchange, services) {
            Err(fault) => Progress::Done(Err(fault)),
            Ok(None) => Progress::Done(Ok(Next::Continue)),
            Ok(Some(block)) => Progress::Waits(block.start(exchange, services)),
        }
    }

    fn reads_body(&self) -> bool {
        let branches = self.branches.iter();
        let mut branches = branches.map(|(condition, block)| {
            needs_body(condition.uses_input(), condition.variables()) || block.reads_body()
        });
        branches.any(|reads| reads) || self.otherwise.as_ref().is_some_and(Block::reads_body)
    }

    fn streams(&self) -> bool {
        self.otherwise.as_ref().is_some_and(Block::streams)
            || self.branches.iter().any(|(_, block)| block.streams())
    }

    fn ends_flow(&self) -> bool {
        self.otherwise.as_ref().is_some_and(Block::ends_flow)
            && self.branches.iter().all(|(_, block)| block.ends_flow())
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
