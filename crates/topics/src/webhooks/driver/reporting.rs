//! Publishes what has happened to endpoints on the operational topic.

use std::sync::Arc;

use component::handler::Services;

use super::entry::Entry;
use super::{Driver, Message};
use crate::topic::{Publication, Topic, in_time};
use crate::webhooks::machine::Now;
use crate::webhooks::reports::{ReportEvent, Subject};

impl Driver {
    /// Publishes an event of an endpoint when one is due; otherwise its timer rings then.
    pub(super) fn report(&mut self, at: usize, now: Now, services: &dyn Services) {
        let Some(target) = self.topic.reports_to().map(Arc::clone) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let Some(due) = entry.report_due() else {
            return;
        };
        if due > now.us {
            return self.set_timer(at, due);
        }
        let Some(event) = entry.take_report(&self.topic, now) else {
            return;
        };
        let since = event.disabled_since;
        let fallback = Message::Reported(at, since, Some(event.clone()));
        self.inbox
            .spawn(services, fallback, async move |services: &dyn Services| {
                let failed = publish(&target, event, services).await;
                Message::Reported(at, since, failed)
            });
    }

    /// What has come of an event.
    pub(super) fn reported(
        &mut self,
        (at, since): (usize, Option<u64>),
        failed: Option<ReportEvent>,
        now: Now,
    ) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.reported(since, failed, now);
        }
        self.wake(at);
    }
}

/// Publishes an event; gives it back when that has to be tried again.
async fn publish(
    target: &Topic,
    event: ReportEvent,
    services: &dyn Services,
) -> Option<ReportEvent> {
    let publication = Publication {
        body: event.body.clone(),
        key: Some(event.key.clone()),
    };
    match in_time(target, services, target.publish(publication)).await {
        Ok(_) => None,
        // It has come before, with more words.
        Err(fault) if fault.status == 422 => None,
        Err(fault) => {
            let (topic, error) = (&**target.name(), fault.to_string());
            tracing::warn!(
                target: "topics", topic, error,
                "an event about a webhook is not published: it is tried again"
            );
            Some(event)
        }
    }
}

impl Entry {
    /// When an event about it may be published, if one waits.
    fn report_due(&self) -> Option<u64> {
        if self.plan.websub().is_some() {
            return None;
        }
        let has_stop = self.unreported().is_some();
        match &self.reports {
            Some(reports) => reports.due(has_stop),
            None => has_stop.then_some(0),
        }
    }

    fn take_report(&mut self, topic: &Topic, now: Now) -> Option<ReportEvent> {
        let stop = self.unreported();
        let mut reports = self.reports.take().unwrap_or_default();
        let subject = Subject {
            plan: &self.plan,
            now_ms: now.wall_ms,
            failure: self.failure(),
        };
        let event = reports.take(&subject, stop, |it| topic.id(it));
        self.reports = Some(reports);
        event
    }

    fn reported(&mut self, since: Option<u64>, failed: Option<ReportEvent>, now: Now) {
        if let Some(since) = since.filter(|_| failed.is_none()) {
            self.set_reported(since);
        }
        let is_of_user = self.plan.is_of_user();
        let reports = self.reports.get_or_insert_default();
        reports.published(failed, (now.us, is_of_user));
    }
}
