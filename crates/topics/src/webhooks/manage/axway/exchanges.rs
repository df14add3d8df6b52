//! The latest delivery attempts of a subscription as Axway's `exchanges`. The own REST interface
//! lists the same attempts; members that Intertie does not record are left out.

use jiff::SignedDuration;
use message::{Fault, Reply};
use serde_json::{Map, Value};

use super::list::Query;
use crate::event::EventId;
use crate::webhooks::attempts::{Attempt, WebhookId};
use crate::webhooks::axway;
use crate::webhooks::manage::operations::Operations;
use crate::webhooks::manage::show;
use crate::webhooks::subscriptions::record::uuid_of;
use crate::webhooks::times::{self, now_ms};

/// How far back exchanges are shown where no start is named: 5 minutes.
const PERIOD_MS: u64 = 5 * 60 * 1000;

/// The time range of the exchanges that a request asks for, in milliseconds since 1970, both ends
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeRange {
    start: u64,
    end: u64,
}

fn time(name: &str, text: &str) -> Result<u64, Fault> {
    let wrong = || Fault::invalid(format!("`{name}` is a time such as 2026-11-24T12:00:00Z"));
    times::parse(text).ok_or_else(wrong)
}

impl TimeRange {
    fn take(query: &mut Query, now: u64) -> Result<Self, Fault> {
        let mut bound = |name| {
            let text = query.take(name);
            text.map(|text| time(name, &text)).transpose()
        };
        let (start, end) = (bound("start")?, bound("end")?);
        let end = end.unwrap_or(now);
        let start = start.unwrap_or(end.saturating_sub(PERIOD_MS));
        match start <= end {
            true => Ok(Self { start, end }),
            false => Err(Fault::invalid("`start` is not after `end`")),
        }
    }

    fn has(self, attempt: &Attempt) -> bool {
        (self.start..=self.end).contains(&attempt.at_ms)
    }
}

/// The exchanges of a subscription that a query wants, the newest first.
///
/// # Errors
/// What is wrong with the query, and as [`Operations::named`].
pub(super) fn reply(
    operations: &Operations<'_>,
    id: &str,
    mut query: Query,
) -> Result<Reply, Fault> {
    let period = TimeRange::take(&mut query, now_ms(operations.services))?;
    let page = query.page()?;
    let mut all = operations.attempts(id)?;
    all.retain(|it| period.has(it));
    let (topic, uuid) = (operations.managed.topic.name(), uuid_of(id));
    let total = all.len();
    let shown = page.cut(all);
    let items = shown.iter().map(|it| exchange((topic, &uuid), it));
    Ok(page.reply(&operations.request.path, items.collect(), total))
}

fn exchange((topic, subscription): (&str, &str), attempt: &Attempt) -> Value {
    let took = i64::try_from(attempt.took_ms).unwrap_or(i64::MAX);
    let event: Option<EventId> = match &attempt.id {
        WebhookId::Event(id) => Some(*id),
        WebhookId::Text(text) => text.parse().ok(),
    };
    let shown = || Some(Value::from(&*attempt.shown));
    let (answer, error) = match attempt.status {
        Some(_) => (shown(), None),
        None => (None, shown()),
    };
    let members = [
        ("subscriptionId", Some(subscription.into())),
        ("eventId", event.map(|it| axway::event_id(topic, it).into())),
        ("eventType", attempt.kind.map(|it| it.name().into())),
        ("requestDatetime", Some(show::time(attempt.at_ms))),
        (
            "requestDuration",
            Some(SignedDuration::from_millis(took).to_string().into()),
        ),
        ("responseCode", attempt.status.map(Value::from)),
        ("responseBody", answer),
        ("errorMessage", error),
    ];
    let members = members.into_iter();
    let members: Map<String, Value> = members
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::frame::Kind;

    fn attempt(id: &str, status: Option<u16>) -> Attempt {
        Attempt {
            at_ms: 1_700_000_000_123,
            kind: status.map(|_| Kind::Patch),
            took_ms: 1234,
            id: WebhookId::Text(id.into()),
            status,
            is_accepted: status == Some(200),
            shown: "words".into(),
        }
    }

    #[test]
    fn an_exchange_has_what_is_known_of_it() {
        let topic_id = crate::frame::topic_uuid("t", 0x3f);
        let shown = exchange(("t", "u"), &attempt("3f-7", Some(404)));
        let expected = json!({
            "subscriptionId": "u", "eventId": format!("{topic_id}#7"), "eventType": "patch",
            "requestDatetime": "2023-11-14T22:13:20.123Z", "requestDuration": "PT1.234S",
            "responseCode": 404, "responseBody": "words",
        });
        assert_eq!(shown, expected);
        let shown = exchange(("t", "u"), &attempt("test-12", None));
        let expected = json!({
            "subscriptionId": "u", "requestDatetime": "2023-11-14T22:13:20.123Z",
            "requestDuration": "PT1.234S", "errorMessage": "words",
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_period_is_of_five_minutes_unless_it_is_named() {
        let now = 3_600_000;
        let read = |text: &str| {
            let mut query = Query::read(Some(text), |_| false).ok().unwrap();
            let period = TimeRange::take(&mut query, now);
            period.map(|it| (it.start, it.end)).map_err(|it| it.status)
        };
        assert_eq!(read(""), Ok((3_300_000, now)));
        assert_eq!(read("start=1970-01-01T00:10:00Z"), Ok((600_000, now)));
        assert_eq!(read("end=1970-01-01T00%3A10%3A00Z"), Ok((300_000, 600_000)));
        let both = "start=1970-01-01T01:00:00+01:00&end=1970-01-01T00:00:01.5Z";
        assert_eq!(read(both), Ok((0, 1500)), "a `+` is no space");
        for wrong in [
            "start=",
            "start=yesterday",
            "start=12",
            "end=1960-01-01T00:00:00Z",
            "start=1970-01-01T02:00:00Z",
        ] {
            assert_eq!(read(wrong), Err(400), "{wrong}");
        }
    }
}
