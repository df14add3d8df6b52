//! `expression_limits` of a topic: what the expressions of all subscribers may cost.

use config::Report;

use super::Reading;
use crate::bounds;
use crate::codes::BAD_SUBSCRIBE;
use crate::expressions::ExpressionLimits;

impl Reading<'_> {
    pub(super) fn expression_limits(&self, report: &mut Report) -> ExpressionLimits {
        let usual = ExpressionLimits::default();
        let Some(limits) = &self.config.expression_limits else {
            return usual;
        };
        let has_only = self.config.only.is_some();
        if !self.config.allow_expressions && !has_only {
            let message = "`expression_limits` has no effect: the topic does not allow expressions";
            report
                .error(BAD_SUBSCRIBE, limits.span, message)
                .hint("add `allow_expressions: true`, or leave this out");
        }
        let limits = &limits.value;
        let distinct = limits.distinct.as_ref().map(|it| it.span);
        let length = limits.length.as_ref().map(|it| it.span);
        let asked = [("distinct", distinct), ("length", length)];
        for (name, span) in asked.iter().filter_map(|it| Some((it.0, it.1?))) {
            if !self.config.allow_expressions && has_only {
                let message = format!("`{name}` has no effect: subscribers send no expressions");
                report
                    .error(BAD_SUBSCRIBE, span, message)
                    .hint("add `allow_expressions: true`, or leave this out");
            }
        }
        if let Some(groups) = limits.groups.as_ref().filter(|_| !has_only) {
            let message = "`groups` has no effect: the topic has no `only`";
            report
                .error(BAD_SUBSCRIBE, groups.span, message)
                .hint("leave it out");
        }
        let distinct = bounds::count("distinct", limits.distinct.as_ref(), 1..=1000, report);
        let range = 1..=10_000;
        let groups = bounds::count("groups", limits.groups.as_ref(), range, report);
        let length = bounds::size("length", limits.length.as_ref(), 16..=16 << 10, report);
        let range = 10_000..=100_000_000;
        let steps = bounds::count("steps", limits.steps.as_ref(), range, report);
        let range = 4 << 20..=1 << 30;
        let memory = bounds::size("memory", limits.memory.as_ref(), range, report);
        ExpressionLimits {
            distinct: distinct.map_or(usual.distinct, |it| it as usize),
            groups: groups.map_or(usual.groups, |it| it as usize),
            length: length.map_or(usual.length, |it| it as usize),
            steps: steps.unwrap_or(usual.steps),
            memory: memory.unwrap_or(usual.memory),
        }
    }
}
