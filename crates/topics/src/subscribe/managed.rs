//! What `subscribe` says of webhooks that users manage by themselves.

use config::Report;

use super::{Reading, SubscribeConfig};
use crate::access::Access;
use crate::codes::BAD_WEBHOOK;
use crate::expressions::ExpressionLimits;
use crate::settings::Payload;
use crate::topic::Topic;
use crate::view::Mode;
use crate::webhooks::{ExpressionBounds, Wishes};

impl SubscribeConfig {
    /// What users may wish who manage webhooks by themselves. What is wrong with it is reported
    /// where the rest is read.
    pub fn wishes(&self, topic: &Topic) -> Wishes {
        let usual = match topic.settings().payload {
            Payload::Snapshot => vec![Mode::Snapshot, Mode::Patch],
            Payload::Event => vec![Mode::Event],
        };
        let modes = self.modes.as_ref();
        let limits = ExpressionLimits::default();
        let own = self.expression_limits.as_ref().map(|it| &it.value);
        let distinct = own.and_then(|it| it.distinct.as_ref());
        let length = own.and_then(|it| it.length.as_ref());
        let bounds = || ExpressionBounds {
            distinct: distinct.map_or(limits.distinct, |it| it.value as usize),
            length: length.map_or(limits.length, |it| it.value.0 as usize),
        };
        Wishes {
            expressions: self.allow_expressions.then(bounds),
            modes: modes.map_or(usual, |it| it.value.clone()),
        }
    }
}

impl Reading<'_> {
    /// Checks that webhooks can be managed by REST: each belongs to its caller.
    pub(super) fn check_manage(&self, access: &Access, report: &mut Report) {
        let webhooks = self.config.webhooks.as_ref();
        let Some(manage) = webhooks.and_then(|it| it.manage.as_ref()) else {
            return;
        };
        if access.subscribe.is_none() && report.errors() == 0 {
            let message = "`manage` needs callers: the topic is for everybody";
            report
                .error(BAD_WEBHOOK, manage.span, message)
                .hint("add `auth` under `subscribe`");
        }
        if access.only.is_some() {
            let message = "`manage` does not go with `only`: nobody calls when a webhook gets an \
                           event";
            report
                .error(BAD_WEBHOOK, manage.span, message)
                .hint("make a topic for each group of callers, or leave one of them out");
        }
    }
}
